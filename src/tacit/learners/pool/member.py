"""The learner that a pool holds: A-GEM on noisy gradients, planned for every network that reads a task.

Charges:
* A task that two networks read is planned, and billed in one transaction, for both; so is the memory.
* Who reads which task is a function of public settings and plans, and is known before a record is read.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from dp_accounting.dp_event import DpEvent

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners.base.callbacks import Step
from tacit.learners.base.gradient import at
from tacit.learners.base.learner import Learner
from tacit.learners.base.public_figures import Consumption
from tacit.learners.pool.learner_schedule import Steps
from tacit.learners.pool.turns import TurnSettings
from tacit.learners.replay.dpcl import ProjectedReplay
from tacit.memory import Mode, Schedule
from tacit.privacy.accounting import calibrate


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
        self.learner_schedule_ = self.turns_by.learner_schedule(stream, self._steps_of_reader, self.budget.delta)
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

    def _steps_of_reader(self, number: int, readers: int) -> Steps:
        """Rate, noise and steps of one of the `readers` of a task."""
        task = self.stream_.task(number)
        assert task is not None  # a schedule asks about planned tasks
        rate, steps = self.rate_in(task), self.steps_in(task)
        if self.noise is not None:
            return rate, at(self.noise, task, "noise"), steps
        return rate, calibrate.gradient_noise(self.budget, rate, steps, super().times_read(task) * readers), steps
