"""What a tracker is sent of one run, one seed or one sweep: public and charged values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Series = Mapping[str, Mapping[int, float]]
"""By the name of a metric: its value after each number of tasks."""


@dataclass(frozen=True, kw_only=True)
class TrackedRelease:
    """One release.

    Attributes:
        name: The name of its folder, which begins with the number of the task.
        task: The number of tasks that were learned, from 1.
        certificate: The path of its certificate, which was read without leaving the run folder.
    """

    name: str
    task: int
    certificate: Path

    @property
    def folder(self) -> Path:
        """The folder of the release."""
        return self.certificate.parent


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """One entry of a tracker: a run, one of its seeds, or a sweep.

    Attributes:
        key: What identifies it wherever it is sent; the same whenever the folder is read.
        name: What it is called.
        place: Folder names from the outermost run to this one.
        parent: The key of the entry that it belongs to; empty if there is none.
        folder: The folder of the run or sweep.
        series: The metrics over tasks.
        settings: The configuration, by dotted keys.
        facts: What is known once, such as the certified ε.
        releases: The releases whose certificates are final.
        moment: A date that depends on no private record, in milliseconds since 1970.
        done: Whether nothing more will be learned.
        whole: Whether pages and figures are made of the folder as a whole, and not of this seed.
    """

    key: str
    name: str
    place: tuple[str, ...]
    parent: str = ""
    folder: Path
    series: Series = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    releases: tuple[TrackedRelease, ...] = ()
    moment: int = 0
    done: bool = False
    whole: bool = True

    @property
    def tasks(self) -> int:
        """The number of tasks that were learned."""
        return max((step for values in self.series.values() for step in values), default=0)
