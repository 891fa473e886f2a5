"""Whether two runs of a report differ by more than chance: paired tests against a baseline or the best run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit import metrics
from tacit.report.reading.run_data import RunData


@dataclass(frozen=True, kw_only=True)
class Test:
    """A run against another one.

    Attributes:
        against: The other run.
        difference: The average accuracy of the run minus that of the other.
        tasks: The p value over the tasks; NaN where the curves cannot be paired.
        seeds: The p value over the seeds; NaN for one seed, or where they differ.
    """

    against: RunData
    difference: float
    tasks: float
    seeds: float


def comparable(runs: Sequence[RunData]) -> bool:
    """Whether the runs learned the same data and the same number of tasks, so that accuracies can be compared.

    Args:
        runs: The runs.

    Returns:
        Whether this is so.
    """
    known = [run for run in runs if run.average_accuracy is not None]
    return len({(repr(run.config.get("data")), run.tasks) for run in known}) <= 1


def best(runs: Sequence[RunData], *, private: bool = False) -> RunData | None:
    """The run with the highest average accuracy.

    Args:
        runs: The runs.
        private: Only among those with a finite certified ε.

    Returns:
        The run; None if there is none.
    """
    known = [run for run in runs if run.average_accuracy is not None and (run.private or not private)]
    return max(known, key=lambda run: run.average_accuracy.mean if run.average_accuracy else 0.0, default=None)


def paired_tests(runs: Sequence[RunData]) -> dict[str, Test]:
    """The test of each run against its baseline or, where the sweep has none, against the best private run.

    Args:
        runs: The runs.

    Returns:
        The tests by the keys of the runs; runs that cannot be compared are left out.
    """
    folders = {(run.folder.parent, run.folder.name): run for run in runs}
    top = best(runs, private=True) or best(runs)
    found = {}
    for run in runs:
        other = folders.get((run.folder.parent, run.baseline)) if run.baseline else top
        if other is not None and other is not run and comparable([run, other]):
            test = _test(run, other)
            if test is not None:
                found[run.key] = test
    return found


def _test(run: RunData, other: RunData) -> Test | None:
    if run.average_accuracy is None or other.average_accuracy is None:
        return None
    ours, theirs = np.array(run.average_curves), np.array(other.average_curves)
    curves = ours.ndim == theirs.ndim == 2 and ours.shape[1] == theirs.shape[1] >= 2
    paired = len(run.per_seed) > 1 and run.seeds == other.seeds and len(run.per_seed) == len(other.per_seed)
    return Test(
        against=other,
        difference=run.average_accuracy.mean - other.average_accuracy.mean,
        tasks=metrics.p_curve(ours.mean(0), theirs.mean(0))[-1] if curves else math.nan,
        seeds=metrics.p_seeds(run.per_seed, other.per_seed) if paired else math.nan,
    )
