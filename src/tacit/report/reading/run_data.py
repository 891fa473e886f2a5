"""What a report knows of one run: frozen values, all of them public or charged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.certificate import Certificate
from tacit.experiment.attacks.results import AttackResults
from tacit.metrics import Summary

Curves = tuple[tuple[float, ...], ...]
"""One curve for each seed; NaN where nothing was measured."""
Matrix = np.ndarray[Any, np.dtype[np.float64]]
Kind = Literal["run", "endless"]


@dataclass(frozen=True, kw_only=True)
class TaskLoss:
    """What the certificate states for the block of one task, by the plans that were charged to it."""

    task: str
    spent: float | None
    """ε charged so far, for the part of the block with the largest loss; None if it is not finite."""


@dataclass(frozen=True, kw_only=True)
class PrivacyStep:
    """What was certified and claimed once a number of tasks was learned."""

    tasks: int
    certified: float | None
    """For a unit as the stream declares it; None if no finite ε is certified."""
    every_task: float | None
    """For a unit that is in every task."""
    claimed: float | None
    """By the paper's own formula."""


@dataclass(frozen=True, kw_only=True)
class RunData:
    """One run.

    Attributes:
        key: A short name that is unique in a report, such as `r0`.
        label: What the run is called in tables and charts; unique in a report.
        folder: Where it was read.
        kind: A run with an end, or an endless stream.
        status: "done", or how far it has come.
        method: The learner.
        tasks: The names of the tasks that were learned.
        first_task: The number of the first of them, from 1; above 1 where only the last tasks of a stream are known.
        seeds: The random seeds.
        accuracy_from: How accuracy was measured; empty if it was not.
        task_given: Whether the task of a test record is known to the model; None if that is not known.
        average_accuracy: Over seeds, after the last task.
        forgetting: Over seeds, after the last task.
        per_seed: The average accuracy of each seed.
        average_curves: The average accuracy after each task, of each seed.
        forgetting_curves: The forgetting after each task, of each seed; NaN after the first.
        points: The number of tasks learned at each point of the curves.
        matrix: a[t, j], the mean over seeds.
        claimed: ε per task, in total and δ, by the paper's formula.
        certified: `per_record`, `all_tasks`, `delta` and `unit`, as in `metrics.json`; None if nothing is certified.
        certified_reason: Why the bound holds, or why there is none.
        budget: The ε that each block may spend.
        privacy: What was certified after each task.
        blocks: What the last certificate states for each task.
        certificate: The certificate of the last release.
        attacks: Results of attacks on the releases.
        baseline: The name of the folder that a sweep compares it with.
        config: The configuration as plain values.
        config_text: The configuration as it was written.
        environment: Versions and machine.
        caveats: Sentences that belong to the figures.
        missing: What could not be read, a sentence each.
    """

    key: str
    label: str
    folder: Path
    kind: Kind = "run"
    status: str = "done"
    method: str = "unknown method"
    tasks: tuple[str, ...] = ()
    first_task: int = 1
    seeds: tuple[int, ...] = ()
    accuracy_from: str = ""
    task_given: bool | None = None
    average_accuracy: Summary | None = None
    forgetting: Summary | None = None
    per_seed: tuple[float, ...] = ()
    average_curves: Curves = ()
    forgetting_curves: Curves = ()
    points: tuple[int, ...] = ()
    matrix: Matrix = field(default_factory=lambda: np.empty((0, 0)))
    claimed: Mapping[str, float] | None = None
    certified: Mapping[str, Any] | None = None
    certified_reason: str = ""
    budget: float | None = None
    privacy: tuple[PrivacyStep, ...] = ()
    blocks: tuple[TaskLoss, ...] = ()
    certificate: Certificate | None = None
    attacks: AttackResults | None = None
    baseline: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    config_text: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float | None:
        """The certified ε of one unit; None if there is none."""
        return None if self.certified is None else self.certified.get("per_record")

    @property
    def private(self) -> bool:
        """Whether a finite ε is certified."""
        return self.epsilon is not None


@dataclass(frozen=True, kw_only=True)
class Collection:
    """The runs of a report.

    Attributes:
        title: The name of the only folder, or how many there are.
        description: What the sweep or preset says of itself.
        runs: The runs, in the order of their folders.
        missing: What could not be read of folders that are no run.
    """

    title: str
    description: str = ""
    runs: tuple[RunData, ...] = ()
    missing: tuple[str, ...] = ()
