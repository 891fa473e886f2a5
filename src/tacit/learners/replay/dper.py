"""DP-ER: private experience replay. The gradient of the memory is added to that of the task, not projected on.

Training part and memory are read in one grant: one sum with one draw of noise. The noise is what the training part
needs; the memory is read as often as this noise allows over all later tasks (or at `replay`).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dp_accounting.dp_event import DpEvent

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners.base.gradient import GradientLearner
from tacit.learners.base.public_figures import Consumption
from tacit.learners.replay.dpcl import check_memory_share, memory_sizes
from tacit.memory import Leave, ReplayMemory, Schedule, widened
from tacit.memory.calibration import RAISE, raised_to_fit, unit_charges
from tacit.privacy.vault import Block, GradientPlan, Read, Vault


@dataclass(kw_only=True, eq=False)
class DPER(GradientLearner):
    """Experience replay: one noisy gradient of the task and the memory together.

    Reference: tacit; experience replay after Chaudhry et al. 2019b.
    Claim: none.
    Certified: a record loses the larger of its training plan and all planned reads of its memory block, each a
    Poisson-sampled Gaussian at its own rate.
    Sharp edges: a unit is trained on or remembered, never both, so small tasks lose training records to the memory.
    How often the memory is read is planned for all later tasks, so the number of tasks is needed in advance.
    """

    memory_share: float = 0.5
    """Share of a task's units that is remembered instead of trained on, by one secret coin per unit."""
    stay: int | None = None
    """Largest number of later tasks that read a remembered record, which is then retired. None: all later tasks."""
    leave: Leave = "together"
    """How a task's remembered records are retired: all after `stay` tasks, or (thinning) an equal share after each of
    them, chosen by a keyed hash of each unit."""
    replay: float | None = None
    """Expected number of memory records in a step. None: the most that the noise of the training part allows."""

    reference: ClassVar[str] = "tacit; experience replay after Chaudhry et al. 2019b"
    certifies: ClassVar[str] = "a record: the larger of its training plan and all planned reads of its memory block"

    def start(self, stream: StreamInfo) -> None:
        check_memory_share(self.memory_share)
        super().start(stream)
        self.slack_ = 1.0
        raised = None if self.noise is not None or self.replay is not None else self._raised
        schedule = raised_to_fit(self.schedule(stream), self.budget, self.train_events, raised)
        self.memory_ = ReplayMemory(stream=stream, share=self.memory_share, schedule=schedule)

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        train, memory = self.memory_.split(block, vault)
        plan = self.plan(task)
        reads = [Read(train, plan.rate), *self.memory_.reads(task.number)]
        grant = vault.grant(reads, plan, self.model_, self.loss_, work=self.settings())
        optimizer = self.optimizer(task)
        for _ in self.training_steps(grant, task, optimizer):
            self.update(optimizer, grant.gradient())
        vault.drop(train)
        self.memory_.add(task.number, memory, vault)

    def plan(self, task: TaskInfo) -> GradientPlan:
        """One draw of noise covers the training part and all blocks: a unit in several of their tasks changes the sum
        several times."""
        alone = super().plan(task)
        slack = 1.0 if self.noise is not None else self.slack_
        return replace(alone, noise=slack * alone.noise * math.sqrt(self._shared(task)))

    def schedule(self, stream: StreamInfo) -> Schedule:
        """All reads of the memory that will be made, from public facts."""
        plain = Schedule(
            mode="union",
            sizes=memory_sizes(self.memory_share, stream),
            steps=tuple(self.steps_in(task) for task in stream.tasks),
            batch=1.0 if self.replay is None else self.replay,
            clip=self.clip,
            clipping=self.clipping,
            noise=self._noise(),
            tasks_per_unit=stream.tasks_per_unit,
            other_tasks_per_draw=1,
            stay=self.stay,
            leave=self.leave,
        )
        return plain if self.replay is not None else widened(self.budget, plain)

    def charges(self) -> list[list[DpEvent]]:
        return unit_charges(self.memory_.schedule, self.train_events())

    def train_events(self) -> list[list[DpEvent]]:
        """The charges of a unit that is trained on, for each task."""
        plans = [(self.plan(task), self._shared(task)) for task in self.stream_.tasks]
        return [[plan.event_at(plan.rate, shared)] for plan, shared in plans]

    def train_size(self, task: TaskInfo) -> int:
        return max(1, round((1 - self.memory_share) * task.size))

    def consumption(self, task: TaskInfo) -> Consumption:
        return Consumption.of(super().consumption(task).trained, self.memory_.schedule.expected(task.number))

    def _raised(self, schedule: Schedule) -> Schedule:
        self.slack_ *= RAISE
        return replace(schedule, noise=self._noise())

    def _noise(self) -> tuple[float, ...]:
        return tuple(self.plan(task).noise for task in self.stream_.tasks)

    def _shared(self, task: TaskInfo) -> int:
        """The largest number of tasks sharing one draw of noise that a unit may be in."""
        held = task.number if self.stay is None else min(task.number, self.stay)
        return min(self.stream_.tasks_per_unit, held + 1)
