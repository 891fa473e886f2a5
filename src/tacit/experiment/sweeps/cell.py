"""One cell of a sweep: the run of one combination of settings, with its status and its results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tacit.experiment.attacks.results import AttackResults
from tacit.experiment.config.config import Config
from tacit.experiment.files import read_json
from tacit.experiment.runs.folder import RunFolder
from tacit.experiment.sweeps.significance import Compared, compare

Changes = dict[str, Any]
NOT_RUN = "not run"
DONE = "done"


@dataclass(kw_only=True)
class Cell:
    """One run of a sweep."""

    changes: Changes
    config: Config
    folder: RunFolder
    status: str = NOT_RUN
    metrics: Mapping[str, Any] = field(default_factory=dict)
    baseline: "Cell | None" = None
    """The baseline cell."""
    attacked: AttackResults | None = None
    """The results of attacks on its releases, if the sweep has attacks."""
    not_attacked: str | None = None
    """Why there are no attack results."""

    @property
    def name(self) -> str:
        return self.folder.path.name

    def look(self) -> None:
        """Check whether the cell was finished earlier."""
        if self.folder.finished:
            self.status, self.metrics = DONE, read_json(self.folder.metrics)

    @property
    def compared(self) -> Compared | None:
        """The comparison with the baseline, once both cells are done."""
        return self._compared if self.baseline and self.status == self.baseline.status == DONE else None

    @cached_property
    def _compared(self) -> Compared | None:
        assert self.baseline is not None
        return compare((self.config, self.folder), (self.baseline.config, self.baseline.folder))
