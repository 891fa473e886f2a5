"""The learner that a pool holds: A-GEM on noisy gradients, planned for every network that reads a task.

Formal guarantees:
* A task that two networks read is planned, and billed in one transaction, for both; so is the memory.
* Who reads which task is a function of public settings and plans, and is known before a record is read.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from dp_accounting.dp_event import DpEvent

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base.callbacks import Step
from tacit.learners.base.gradient import at
from tacit.learners.base.learner import Learner
from tacit.learners.base.public_figures import Consumption
from tacit.learners.pool.learner_schedule import LearnerSchedule, Steps, schedule_by_budget, schedule_by_count
from tacit.learners.replay.dpcl import ProjectedReplay
from tacit.memory import Mode, Schedule
from tacit.privacy.accounting import calibrate


@dataclass(frozen=True, kw_only=True)
class TurnSettings:
    """When one network of a pool ends and the next begins; the fields are settings of `Pool`."""

    tasks_per_learner: int | None
    learner_budget: float | None
    learners: int | None
    early_start: bool

    def check(self, stream: StreamInfo) -> None:
        """Refuses settings that contradict each other or the stream."""
        if self.learner_budget is not None and not self.learner_budget > 0:
            raise LearnerError(f"learner_budget must be an ε > 0 or None, got {self.learner_budget:g}")
        if self.tasks_per_learner is not None and self.learner_budget is not None:
            raise LearnerError(
                f"give tasks_per_learner or learner_budget, got {self.tasks_per_learner} and {self.learner_budget:g}; "
                "each decides when a learner ends"
            )
        for name in ("tasks_per_learner", "learners"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise LearnerError(f"{name} must be a whole number ≥ 1, or None, got {value!r}")
        if stream.endless and self.tasks_per_learner is None and self.learner_budget is None:
            raise LearnerError(
                f"the stream {stream.name!r} is endless, so learners must take turns; give tasks_per_learner or "
                "learner_budget"
            )


@dataclass(kw_only=True, eq=False)
class Member(ProjectedReplay):
    """Trains the networks of a pool, one after another, in its `model_`."""

    pool: Learner
    """The pool: its settings pin the grants, and it is told each step."""
    read_memory: Mode
    """How the memory is read."""
    turns_by: TurnSettings
    """When networks take turns."""

    supports_endless = True
    reference = "Hassanpour et al. 2022, Section IV"
    certifies = "nothing by itself: the pool certifies"

    def mode(self) -> Mode:
        return self.read_memory

    def settings(self) -> dict[str, Any]:
        return self.pool.settings()

    def report(self, step: Step) -> None:
        self.pool.report(step)

    def schedule(self, stream: StreamInfo) -> Schedule:
        """Who reads is decided before what is read."""
        self.learner_schedule_ = self._learner_schedule(stream)
        return super().schedule(stream)

    def reads(self, stream: StreamInfo, noise: tuple[float, ...]) -> Schedule:
        return replace(super().reads(stream, noise), readers=self.learner_schedule_.pattern(len(stream.tasks)))

    def times_read(self, task: TaskInfo) -> int:
        return super().times_read(task) * max(1, len(self.learner_schedule_.readers(task.number)))

    def train_events(self) -> list[list[DpEvent]]:
        own, turn = len(self.stream_.tasks), self.learner_schedule_.spans[0]
        planned = map(self.stream_.task, range(math.lcm(own, turn) if self.stream_.endless else own))
        return [
            self.events_in(task) for task in planned if task is not None and self.learner_schedule_.readers(task.number)
        ]

    def events_in(self, task: TaskInfo) -> list[DpEvent]:
        """The charges of a unit that is trained on: one event for each network that reads the task."""
        return [self.plan(task).event] * len(self.learner_schedule_.readers(task.number))

    def consumption(self, task: TaskInfo) -> Consumption:
        used = super().consumption(task)
        return replace(used, trained=used.trained * len(self.learner_schedule_.readers(task.number)))

    def _learner_schedule(self, stream: StreamInfo) -> LearnerSchedule:
        tasks, by = len(stream.tasks), self.turns_by
        if by.learner_budget is None:
            each = tasks if by.tasks_per_learner is None else by.tasks_per_learner
            return schedule_by_count(tasks, each, early=by.early_start, learners=by.learners, endless=stream.endless)
        return schedule_by_budget(
            tasks, self._steps_of_reader, by.learner_budget, self.budget.delta,
            early=by.early_start, learners=by.learners, endless=stream.endless,
        )  # fmt: skip

    def _steps_of_reader(self, number: int, readers: int) -> Steps:
        """Rate, noise and steps of one of the `readers` of a task."""
        task = self.stream_.task(number)
        assert task is not None  # a schedule asks about planned tasks
        rate, steps = self.rate_in(task), self.steps_in(task)
        if self.noise is not None:
            return rate, at(self.noise, task, "noise"), steps
        return rate, calibrate.gradient_noise(self.budget, rate, steps, super().times_read(task) * readers), steps
