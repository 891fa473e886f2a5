"""Whether two cells of a sweep differ by more than chance: `baseline: {budget.epsilon: 0.5, learner.epochs: 1}`.

Which cell a cell is compared with follows from the configurations, before anything runs. The test over tasks is that of
Lai et al. (2022): its samples are not independent, which is stated wherever it is printed. The test over seeds is ours.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import metrics
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.config.setting_types import MISSING, looked_up
from tacit.experiment.runs import run_summary
from tacit.experiment.runs.folder import RunFolder

METHOD = "learner.method"
CAVEAT = (
    "p: two-tailed paired t-tests against the baseline, over the average accuracies after each task / over seeds; "
    "tasks are not independent samples, seeds are"
)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A cell against its baseline."""

    tasks: tuple[float, ...]
    """The p value after each task from the second on, of the average-accuracy curves (means over seeds)."""
    seeds: float
    """Of the average accuracy after the last task, paired by seed; NaN for one seed, or where they differ."""

    def row(self) -> dict[str, Any]:
        """For a table's columns: after the last task, over seeds, and all the curve."""
        curve = [None if math.isnan(value) else value for value in self.tasks]
        return {"p_tasks": curve[-1], "p_seeds": None if math.isnan(self.seeds) else self.seeds, "p_curve": curve}


def baselines(configs: Sequence[Config], wanted: Mapping[str, Any]) -> list[int | None]:
    """For each run, the index of the baseline run, of the same method, that has the wanted values.

    With `learner.method` among the wanted values, the baseline is of that method. None where there is no such run, or
    the run is itself the baseline. A setting that a method does not have, or that is null in a cell, is ignored."""
    plain = [config.plain() for config in configs]
    for key in wanted:
        if all(looked_up(one, key) is MISSING for one in plain):
            raise ConfigError(
                f"baseline: no cell has the key {key} (= {wanted[key]!r}); use a key in which cells differ"
            )
    fits = [all(looked_up(one, key) in (value, None, MISSING) for key, value in wanted.items()) for one in plain]

    def of(place: int) -> int | None:
        method = configs[place].learner.method
        found = [
            other
            for other, config in enumerate(configs)
            if fits[other] and (METHOD in wanted or config.learner.method == method)
        ]
        if len(found) > 1:
            raise ConfigError(
                f"baseline: {len(found)} cells of {configs[found[0]].learner.method} match {dict(wanted)}; the "
                "baseline must match exactly one cell, so add a key in which they differ"
            )
        return found[0] if found and found[0] != place else None

    return [of(place) for place in range(len(configs))]


def compare(one: tuple[Config, RunFolder], baseline: tuple[Config, RunFolder]) -> Compared | None:
    """Two finished runs; None where accuracy was not measured in both, or tasks differ in number or are too few."""
    ours, theirs = (np.array(run_summary.average_curves(*run)) for run in (one, baseline))
    if not (len(ours) and len(theirs)) or ours.shape[1] != theirs.shape[1] or ours.shape[1] < 2:
        return None
    paired = one[0].seeds == baseline[0].seeds
    return Compared(
        tasks=tuple(metrics.p_curve(ours.mean(0), theirs.mean(0))),
        seeds=metrics.p_seeds(ours[:, -1], theirs[:, -1]) if paired else math.nan,
    )
