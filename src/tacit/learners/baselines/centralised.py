"""Centralised training: NOT PRIVATE. What the records themselves allow, without privacy and without forgetting.

After each task a network is trained from the start, on the raw records of all tasks so far (`scope="all"`, the
baselines of Lai et al. 2022, Table 4), or on those of the task alone (`scope="task"`). Records are read raw
(`vault.unsafe`), so it needs data declared public, or a policy that allows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import passes
from tacit.learners.base.gradient import Each, at
from tacit.learners.base.learner import Learner
from tacit.learners.base.weights import State, each, put, trained, under
from tacit.memory.episodic_memory import reopen_kept
from tacit.privacy.vault import Block, Vault


@dataclass(kw_only=True, eq=False)
class Centralised(Learner):
    """Training from scratch on raw records, NOT PRIVATE: shuffled batches and many passes.

    With one model per task, a task that is given at test is answered by its own model, otherwise by the last one.

    Reference: centralised training, as in Lai et al. 2022, Table 4.
    Claim: none.
    Certified: no finite epsilon.
    Sharp edges: it reads records raw, so it runs only on data that is declared public, or where the policy allows
    it. The records of all tasks are kept, and every task trains from the start.
    """

    scope: Literal["all", "task"] = "all"
    """all: one model of all tasks so far, trained again after each. task: one model per task."""
    epochs: Each[float] = 10.0
    """Passes over the records."""
    batch: int = 64
    """Records in a step."""
    lr: Each[float] = 1e-3
    """The learning rate."""
    rule: Literal["sgd", "adam"] = "adam"
    """How a gradient becomes a step."""

    private: ClassVar[bool] = False
    sequential: ClassVar[bool] = False
    reference: ClassVar[str] = "centralised training, as in Lai et al. 2022, Table 4"
    certifies: ClassVar[str] = "nothing: records are read raw"

    def start(self, stream: StreamInfo) -> None:
        if self.scope not in ("all", "task"):
            raise LearnerError(f"scope must be 'all' or 'task', got {self.scope!r}")
        if self.rule not in ("sgd", "adam"):
            raise LearnerError(f"rule must be 'sgd' or 'adam', got {self.rule!r}")
        for task in stream.tasks:  # what is missing for a later task is said before the first
            passes.steps_in(task, 1, steps=None, epochs=self.epochs), at(self.lr, task, "lr")
        super().start(stream)
        self.blocks_: list[Block] = []
        self.alone_: list[State] = []

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        self.blocks_.append(block)
        x, y = self._records(vault)  # refused here, before anything is written
        if vault.has_store and self.scope == "all":
            vault.keep(block)
        self.model_ = self.build()
        optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[self.rule](
            self.model_.parameters(), lr=at(self.lr, task, "lr")
        )
        coins = torch.Generator().manual_seed(self.seed * 1009 + task.number)
        steps = passes.steps_in(task, -(-len(x) // self.batch), steps=None, epochs=self.epochs)
        for rows in passes.training_steps(self.report, task, passes.fresh(len(x), self.batch, coins), steps):
            optimizer.zero_grad()
            torch.autograd.backward(self.loss_(self.model_(x[rows]), y[rows]).mean())
            optimizer.step()
        if self.scope == "task":
            self.alone_.append(trained(self.model_))
        if self.scope == "task" or task.number + 1 == len(self.stream_.tasks):
            for one in self.blocks_:
                vault.drop(one)
            self.blocks_ = []

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        if self.scope == "all" or task is None or task.number >= len(self.alone_):
            return super().scores(x, task)
        put(self.model_, self.alone_[task.number])
        found = super().scores(x, task)
        put(self.model_, self.alone_[-1])
        return found

    def tensors(self) -> State:
        """The last network; with a model a task, the weights of each."""
        kept = {f"last.{name}": value for name, value in super().tensors().items()}
        for i, state in enumerate(self.alone_):
            kept |= {f"task.{i}.{name}": value.cpu() for name, value in state.items()}
        return kept

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        super().load(under(tensors, "last."))
        self.alone_ = each(tensors, "task", self.device)

    @property
    def has_memory(self) -> bool:
        return self.scope == "all" and bool(self.blocks_)

    def reopen_memory(self, vault: Vault, part: str) -> None:
        if self.scope == "all" and len(self.tasks_) < len(self.stream_.tasks):
            self.blocks_ = [reopen_kept(vault, self.stream_, task, part) for task in self.tasks_]

    def _records(self, vault: Vault) -> tuple[Tensor, Tensor]:
        """All that it holds, raw."""
        found = [vault.unsafe.records(one, f"{type(self).__name__} is not private") for one in self.blocks_]
        return torch.cat([x for x, _ in found]).to(self.device), torch.cat([y for _, y in found]).to(self.device)
