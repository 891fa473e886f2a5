"""Joint training: all tasks together, not continual learning. The upper bound of the private methods.

It waits for the last planned task, then runs DP-SGD on all blocks at once (one grant, one noise draw per step). Before
that it releases its initial weights, which do not depend on the data.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dp_accounting.dp_event import DpEvent

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners.base.callbacks import Step
from tacit.learners.base.gradient import GradientLearner
from tacit.memory.episodic_memory import reopen_kept
from tacit.privacy.vault import Block, GradientPlan, Read, Vault


@dataclass(kw_only=True, eq=False)
class Joint(GradientLearner):
    """DP-SGD on all tasks at once, after the last one; `batch` and `steps` are those of this one training run.

    Reference: Abadi et al. 2016, on all tasks at once.
    Claim: none.
    Certified: each record loses what one Poisson-sampled plan costs, once.
    Sharp edges: it waits for the last planned task and keeps all records until then; its earlier releases are
    initial weights, which predict nothing.
    """

    sequential: ClassVar[bool] = False
    reference: ClassVar[str] = "Abadi et al. 2016, on all tasks at once"
    certifies: ClassVar[str] = "a record: one DP-SGD plan over all tasks, once"

    def start(self, stream: StreamInfo) -> None:
        super().start(stream)
        self.blocks_: list[Block] = []

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        self.blocks_.append(block)
        if task.number + 1 < len(self.stream_.tasks):
            if vault.has_store:
                vault.keep(block)
            self.report(Step(task=task, step=0, of=0))
            return
        plan = self.plan(task)
        grant = vault.grant([Read(one) for one in self.blocks_], plan, self.model_, self.loss_, work=self.settings())
        optimizer = self.optimizer(task)
        for _ in self.training_steps(grant, task, optimizer):
            self.update(optimizer, grant.gradient())
        for one in self.blocks_:
            vault.drop(one)

    def plan(self, task: TaskInfo) -> GradientPlan:
        """All tasks share one draw: a unit in several of them moves it several times."""
        alone = super().plan(task)
        return replace(alone, noise=alone.noise * math.sqrt(min(self.stream_.tasks_per_unit, len(self.stream_.tasks))))

    def charges(self) -> list[list[DpEvent]]:
        plan, tasks = self.plan(self.stream_.tasks[-1]), self.stream_.tasks
        return [[plan.event_at(plan.rate, min(self.stream_.tasks_per_unit, len(tasks)))]]

    def train_size(self, task: TaskInfo) -> int:
        return sum(one.size for one in self.stream_.tasks)

    @property
    def has_memory(self) -> bool:
        return bool(self.blocks_)

    def reopen_memory(self, vault: Vault, part: str) -> None:
        if len(self.tasks_) < len(self.stream_.tasks):
            self.blocks_ = [reopen_kept(vault, self.stream_, task, part) for task in self.tasks_]
