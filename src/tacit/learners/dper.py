"""DP-ER: private experience replay. The gradient of the memory is added to that of the task, not projected on.

Training part and memory are read in one grant: one sum, one draw of noise on both. The noise is what the training part
needs; the memory is then read as often as the same noise allows it over all later tasks (or at `replay`).

Claim: none (tacit's own). Certified: a record loses the larger of its training plan and all planned reads of its memory
block, each a Poisson-sampled Gaussian at its own rate.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dp_accounting.dp_event import DpEvent

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners.replay import ReplayLearner
from tacit.memory import Schedule, widened
from tacit.privacy.declared import Block, Read
from tacit.privacy.plan import GradientPlan
from tacit.privacy.vault import Vault


@dataclass(kw_only=True, eq=False)
class DPER(ReplayLearner):
    """One noisy gradient of the task and the memory together."""

    memory_share: float = 0.5
    replay: float | None = None
    """Expected number of memory records in a step. None: the most that the noise of the training part allows."""

    reference: ClassVar[str] = "tacit; experience replay after Chaudhry et al. 2019b"
    certifies: ClassVar[str] = "a record: the larger of its training plan and all planned reads of its memory block"

    def given(self) -> bool:
        return self.noise is not None or self.replay is not None

    def schedule(self, stream: StreamInfo) -> Schedule:
        plain = Schedule(
            mode="union",
            sizes=self.memory_sizes(stream),
            steps=self.steps_of(stream),
            batch=1.0 if self.replay is None else self.replay,
            clip=self.clip,
            clipping=self.clipping,
            noise=tuple(self.plan(task).noise for task in stream.tasks),
            tasks_per_unit=stream.tasks_per_unit,
            beside=1,
            stay=self.stay,
            leave=self.leave,
        )
        return plain if self.replay is not None else widened(self.budget, plain)

    def plan(self, task: TaskInfo) -> GradientPlan:
        """One draw covers the training part and all blocks: a unit in several of these tasks moves it several times."""
        alone = super().plan(task)
        return replace(alone, noise=alone.noise * math.sqrt(self._shared(task)))

    def more(self, schedule: Schedule) -> tuple[float, ...]:
        return tuple(self.plan(task).noise for task in self.stream_.tasks)

    def train_event(self, task: TaskInfo) -> DpEvent:
        plan = self.plan(task)
        return plan.event_at(plan.rate, self._shared(task))

    def _shared(self, task: TaskInfo) -> int:
        """In how many of the tasks that share a draw one unit may be."""
        held = task.number if self.stay is None else min(task.number, self.stay)
        return min(self.stream_.tasks_per_unit, held + 1)

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        train, memory = self.cut(block, vault)
        plan = self.plan(task)
        reads = [Read(train, plan.rate), *self.memory_.reads(task.number)]
        grant = vault.grant(reads, plan, self.model_, self.loss_, work=self.settings())
        optimizer = self.optimizer(task)
        for _ in self.turns(grant, task):
            self.update(optimizer, grant.gradient())
        vault.drop(train)
        self.memory_.add(task.number, memory, vault)
