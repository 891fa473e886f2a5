"""What a learner tells of itself while it learns: where it is, and what its paper claims by now."""

from dataclasses import dataclass

from tacit.data.stream import TaskInfo


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where a learner is: told to `watch` before each step, and once after the last one of a task."""

    task: TaskInfo
    step: int
    of: int
    before: bool = False
    """A step of what comes before the task's own steps."""


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What the paper's own formula gives after some tasks: for the task that lost most, and in all."""

    per_task: float
    total: float
    delta: float
