"""DP-CL as its authors ran it (Desai et al. 2021, Table 1): NOT PRIVATE. `DPCL` is corrected and certified.

    g ← ∇ of the *mean* loss of a batch; each parameter tensor of it clipped to β (not each record)
    g ← g + N(0, ((σβ)²)² I): a standard deviation was set to a variance; since May 2022 the code has σβ
    g_ref ← the same of the first 50 remembered rows
    g̃ ← g − (gᵀg_ref / g_refᵀg_ref) g_ref where gᵀg_ref < 0, and a step of SGD along it

The code does not do what Algorithm 1 says, in five ways:
* a batch is clipped, tensor by tensor, where the algorithm clips records: with six tensors one record changes the
  gradient by up to 2β√6, so the noise multiplier is 0.01 / (2 · 0.1 · √6) = 0.0204 in place of 1;
* (σβ)² is used as a standard deviation;
* all blocks of the memory are one array, whose first 50 rows are read in every step of every later task: 25 rows of
  each of the first two classes of task 1, and never another row;
* remembered rows are training rows, where D^ref is to be disjoint from D^train;
* batches are shuffled once and read in turn, where the accountant needs Poisson samples. No accountant is called.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tacit.certificate.claims import Claim, desai_dp_cl, moments_accountant
from tacit.data.stream import TaskInfo
from tacit.learners.base import passes
from tacit.learners.base.gradient import Gradient
from tacit.learners.base.public_figures import Claimed
from tacit.learners.baselines.agem import AGEM, Records
from tacit.learners.published.clipped_batch import clipped_by_tensor, with_noise


@dataclass(kw_only=True, eq=False)
class PublishedDPCL(AGEM):
    """DP-CL by the rule of its authors' code, as Table 1 was made: NOT PRIVATE.

    Reference: Desai et al. 2021, Table 1 and the code published with it.
    Claim (Lemma 2): ε_i + ε'_i for every T, by the moments accountant with noise multiplier σ.
    Certified: no finite epsilon; `tacit audit batch-clipping` shows why. `DPCL` is certified.
    Sharp edges: it reads records raw, so it runs only on data that is declared public, or where the policy allows
    it. One step already shows more about a record than the paper claims for a task.
    """

    batch: int = 100
    """Records in a step."""
    memory_batch: int = 50
    """Remembered rows in a reference gradient: the first ones, which are always the same."""
    clip: float = 0.1
    """β: the norm to which each tensor of a batch's mean gradient is clipped."""
    noise: float = 1.0
    """σ, the noise multiplier that the paper accounts for."""
    noise_std: Literal["squared", "linear"] = "squared"
    """Standard deviation of the noise. squared: (σβ)², as in the code of Table 1. linear: σβ, as corrected in 2022."""
    claimed_reference: float | None = None
    """ε'_i as the paper prints it (1.47 in every row of Table 1, which would need about 5,600 remembered rows a task).
    None: by the moments accountant for the rows that a task remembers."""

    reference: ClassVar[str] = "Desai et al. 2021, Table 1 as published"
    claim: ClassVar[str] = "Lemma 2: ε_i + ε'_i per task, their sum in all"
    certifies: ClassVar[str] = "nothing: records are read raw, and a batch is clipped where a record would have to be"

    def gradient(self, x: Tensor, y: Tensor, coins: torch.Generator) -> Gradient:
        std = self.noise * self.clip
        clipped = clipped_by_tensor(super().gradient(x, y, coins), self.clip)
        return with_noise(clipped, std**2 if self.noise_std == "squared" else std, coins)

    def remembered(self, memory: Records, labels: Tensor, coins: torch.Generator) -> Records:
        return memory[0][: self.memory_batch], memory[1][: self.memory_batch]

    def claimed_pairs(self) -> list[tuple[float, float]]:
        """(ε_i, ε'_i) of the tasks learned so far, as the paper computes them."""
        return [(self._spent(task, self.batch / task.size), self._reference_spent(task)) for task in self.tasks_]

    def claims(self) -> tuple[Claim, ...]:
        train, reference = max(self.claimed_pairs(), key=sum)
        return (desai_dp_cl(train, reference, self.budget.delta, 1, self.tasks_learned),)

    def claimed(self) -> Claimed:
        each = [sum(pair) for pair in self.claimed_pairs()]
        return Claimed(per_task=max(each), total=sum(each), delta=self.budget.delta)

    def _reference_spent(self, task: TaskInfo) -> float:
        if self.claimed_reference is not None:
            return self.claimed_reference
        return self._spent(task, self.memory_batch / (self.memory_per_class * len(task.labels)))

    def _spent(self, task: TaskInfo, rate: float) -> float:
        steps = passes.steps_in(task, -(-task.size // self.batch), steps=self.steps, epochs=self.epochs)
        return moments_accountant(min(1.0, rate), self.noise, steps, self.budget.delta)
