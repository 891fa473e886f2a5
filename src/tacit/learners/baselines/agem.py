"""A-GEM (Chaudhry et al. 2019): NOT PRIVATE. The upper bound that the private methods are held against.

g̃ = g − (gᵀg_ref / g_refᵀg_ref) g_ref when gᵀg_ref < 0; `project="always"` does it at every step, as the papers
on DP print it. Records are read raw (`vault.unsafe`), so it needs data declared public, or a policy that allows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import passes
from tacit.learners.base.gradient import Each, Gradient, at
from tacit.learners.base.learner import Learner
from tacit.learners.replay.dpcl import project
from tacit.privacy.vault import Block, Vault

Records = tuple[Tensor, Tensor]


@dataclass(kw_only=True, eq=False)
class AGEM(Learner):
    """A-GEM on raw records, NOT PRIVATE: shuffled batches, and a memory of some records of every class of every task.

    Reference: Chaudhry et al. 2019, A-GEM.
    Claim: none.
    Certified: no finite epsilon.
    Sharp edges: it reads records raw, so it runs only on data that is declared public, or where the policy allows
    it. Projection in every step (`project="always"`), as the papers on DP print it, loses what helps both tasks and
    forgets far more.
    """

    lr: Each[float] = 0.1
    """The learning rate."""
    batch: int = 10
    """Records in a step."""
    steps: Each[int] | None = None
    """Of a task: the same for all of them is the balanced A-GEM of Lai et al. 2022."""
    epochs: Each[float] | None = None
    """Instead of steps: passes over a task's records. Neither: one pass."""
    memory_per_class: int = 25
    """Records of each class of a task that are remembered."""
    memory_batch: int = 256
    """Remembered records in a reference gradient."""
    project: Literal["conflict", "always"] = "conflict"
    """When a step is projected: where it conflicts with the memory's gradient, or in every step."""

    private: ClassVar[bool] = False
    reference: ClassVar[str] = "Chaudhry et al. 2019, A-GEM"
    certifies: ClassVar[str] = "nothing: records are read raw"

    def start(self, stream: StreamInfo) -> None:
        passes.check(self.steps, self.epochs)
        for task in stream.tasks:  # what is missing for a later task is said before the first
            passes.steps_in(task, 1, steps=self.steps, epochs=self.epochs)
        super().start(stream)
        self.kept_: list[tuple[Tensor, Tensor]] = []

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        x, y = (part.to(self.device) for part in vault.unsafe.records(block, f"{type(self).__name__} is not private"))
        coins = torch.Generator().manual_seed(self.seed * 1009 + task.number)
        self.train(task, x, y, coins)
        self._keep(task, x, y, coins)
        vault.drop(block)

    def train(self, task: TaskInfo, x: Tensor, y: Tensor, coins: torch.Generator) -> None:
        """The steps of a task."""
        memory = self._memory()
        optimizer = torch.optim.SGD(self.model_.parameters(), lr=at(self.lr, task, "lr"))
        steps = passes.steps_in(task, -(-len(x) // self.batch), steps=self.steps, epochs=self.epochs)
        for rows in passes.training_steps(self.report, task, passes.fresh(len(x), self.batch, coins), steps):
            direction = self.direction(x[rows], y[rows], memory, coins)
            for name, parameter in self.model_.named_parameters():
                parameter.grad = direction[name]
            optimizer.step()

    def direction(self, x: Tensor, y: Tensor, memory: Records | None, coins: torch.Generator) -> Gradient:
        """g̃ of a batch."""
        g = self.gradient(x, y, coins)
        if memory is None:
            return g
        reference = self.gradient(*self.remembered(memory, y, coins), coins)
        return project(g, reference, always=self.project == "always")

    def gradient(self, x: Tensor, y: Tensor, coins: torch.Generator) -> Gradient:
        """The gradient of the mean loss of a batch."""
        named = dict(self.model_.named_parameters())
        gradients = torch.autograd.grad(self.loss_(self.model_(x), y).mean(), list(named.values()))
        return dict(zip(named, gradients, strict=True))

    def remembered(self, memory: Records, labels: Tensor, coins: torch.Generator) -> Records:
        """The remembered records of a reference gradient, for a batch with these labels."""
        pick = torch.randperm(len(memory[0]), generator=coins)[: self.memory_batch]
        return memory[0][pick], memory[1][pick]

    def _keep(self, task: TaskInfo, x: Tensor, y: Tensor, coins: torch.Generator) -> None:
        shuffled = torch.randperm(len(y), generator=coins)
        picks = [shuffled[y[shuffled].cpu() == label][: self.memory_per_class] for label in range(len(self.labels_))]
        rows = torch.cat(picks)
        self.kept_.append((x[rows], y[rows]))

    def _memory(self) -> Records | None:
        kept = self.kept_
        return (torch.cat([x for x, _ in kept]), torch.cat([y for _, y in kept])) if kept else None

    def tensors(self) -> dict[str, Tensor]:
        """The weights; where the data is public also the memory, which is raw records."""
        kept = super().tensors()
        if not self.stream_.public:
            return kept
        for i, (x, y) in enumerate(self.kept_):
            kept |= {f"memory.{i}.x": x.cpu(), f"memory.{i}.y": y.cpu()}
        return kept

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        weights = {name: value for name, value in tensors.items() if not name.startswith("memory.")}
        super().load(weights)
        if len(weights) == len(tensors):
            raise LearnerError(
                f"this release has no memory, since its data is not public: {type(self).__name__} cannot go on from it"
            )
        self.kept_ = [
            (tensors[f"memory.{i}.x"].to(self.device), tensors[f"memory.{i}.y"].to(self.device))
            for i in range(len(self.tasks_))
        ]
