"""Whose turn it is in a pool: the settings that decide it, and what they mean for noise, memory and charges.

Guarantee: a task that two learners learn is planned, and billed in one transaction, for both; so is the memory.
"""

import math
from dataclasses import dataclass, replace

from dp_accounting.dp_event import DpEvent

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.consumption import Consumption
from tacit.learners.gradient import at
from tacit.learners.pool_begin import Beginner
from tacit.learners.pool_rota import Rota, Steps, rota, rota_by_budget
from tacit.memory import Schedule
from tacit.privacy import calibrate


@dataclass(kw_only=True, eq=False)
class TakingTurns(Beginner):
    """Learners and tasks are counted from 0. Neither `tasks_per_learner` nor `learner_budget`: one learner for all."""

    tasks_per_learner: int | None = None
    """How many tasks a learner is trained on before the next one begins."""
    learner_budget: float | None = None
    """The paper's global budget (GPB): a learner goes on while its own steps stay below it, by the moments accountant
    at the budget's δ. It decides when learners halt and nothing else: what is certified comes from the ledger."""
    learners: int | None = None
    """At most so many; then nothing more is learnt, so a stream with an end may plan no more. None: always one more."""
    early_start: bool = False
    """A new learner is also trained on the last task of the one before, whose records then pay for both."""

    def start(self, stream: StreamInfo) -> None:
        self._check_turns(stream)
        super().start(stream)

    def schedule(self, stream: StreamInfo) -> Schedule:
        """Who reads is decided before what is read."""
        self.rota_ = self._rota(stream)
        return super().schedule(stream)

    def reads(self, stream: StreamInfo, noise: tuple[float, ...]) -> Schedule:
        return replace(super().reads(stream, noise), readers=self.rota_.pattern(len(stream.tasks)))

    def times_read(self, task: TaskInfo) -> int:
        return super().times_read(task) * max(1, len(self.rota_.readers(task.number)))

    def train_lists(self) -> list[list[DpEvent]]:
        own, turn = len(self.stream_.tasks), self.rota_.spans[0]
        planned = map(self.stream_.task, range(math.lcm(own, turn) if self.stream_.endless else own))
        return [self.events_in(task) for task in planned if task is not None and self.rota_.readers(task.number)]

    def events_in(self, task: TaskInfo) -> list[DpEvent]:
        """What a unit that is trained on is charged: for each learner of the task."""
        return [self.train_event(task)] * len(self.rota_.readers(task.number))

    def consumption(self, task: TaskInfo) -> Consumption:
        found = super().consumption(task)
        return replace(found, trained=found.trained * len(self.rota_.readers(task.number)))

    def planned_learners(self) -> int | None:
        return self.rota_.learners

    def _rota(self, stream: StreamInfo) -> Rota:
        tasks, early, learners = len(stream.tasks), self.early_start, self.learners
        if self.learner_budget is None:
            each = tasks if self.tasks_per_learner is None else self.tasks_per_learner
            return rota(tasks, each, early=early, learners=learners, endless=stream.endless)
        return rota_by_budget(
            tasks, self._priced, self.learner_budget, self.budget.delta,
            early=early, learners=learners, endless=stream.endless,
        )  # fmt: skip

    def _priced(self, number: int, readers: int) -> Steps:
        """What one of a task's readers does there."""
        task = self.stream_.task(number)
        assert task is not None  # a rota asks for tasks that are planned
        rate, steps = self.rate_in(task), self.steps_in(task)
        if self.noise is not None:
            return rate, at(self.noise, task, "noise"), steps
        return rate, calibrate.gradient_noise(self.budget, rate, steps, super().times_read(task) * readers), steps

    def _check_turns(self, stream: StreamInfo) -> None:
        """Refuse settings that mean nothing, or nothing together."""
        if self.learner_budget is not None and not self.learner_budget > 0:
            raise LearnerError(f"learner_budget must be an ε > 0, got {self.learner_budget:g}; or leave it out")
        if self.tasks_per_learner is not None and self.learner_budget is not None:
            raise LearnerError(
                f"give tasks_per_learner or learner_budget, got {self.tasks_per_learner} and {self.learner_budget:g}; "
                "each decides when a learner halts"
            )
        for name, least in (("tasks_per_learner", 1), ("learners", 1)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise LearnerError(f"{name} must be a whole number ≥ {least}, or None, got {value!r}")
        if stream.endless and self.tasks_per_learner is None and self.learner_budget is None:
            raise LearnerError(
                f"{stream.name!r} has no last task, so learners must take turns; give tasks_per_learner or "
                "learner_budget"
            )
