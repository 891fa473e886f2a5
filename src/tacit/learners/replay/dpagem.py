"""DP-AGEM: A-GEM with the averaged noisy gradients of every memory block (Desai et al. 2021, the naive algorithm).

g_ref = 1/(T−1) Σ_i g_ref^i, each g_ref^i clipped per example, summed, and given noise σ. The step is DP-CL's
(`ProjectedReplay` in `dpcl`), with all memory blocks in every step.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.certificate.claims import Claim, desai_dp_agem
from tacit.learners.base.public_figures import Claimed
from tacit.learners.replay.dpcl import ProjectedReplay
from tacit.memory import Mode


@dataclass(kw_only=True, eq=False)
class DPAGEM(ProjectedReplay):
    """DP-CL's step with another memory: every step reads all blocks.

    Reference: Desai et al. 2021, DP-AGEM.
    Claim (Lemma 1): ε_i + (T − i) ε'_i, with one δ (the sum of the δ would be right).
    Certified, for two observers: with visible="average" only g_ref is released, one sum over all blocks with noise
    multiplier σ√(T−1); with visible="each" every g_ref^i is released and billed with noise σ.
    Sharp edges: a remembered record is read in every step of every later task, so its loss grows with their number;
    `DPCL` and `DPER` use a memory at a smaller price. It forgets as `DPCL` does.
    """

    visible: Literal["average", "each"] = "average"
    """What of the memory's gradients is released: their average, or the gradient of each block."""

    supports_endless: ClassVar[bool] = True
    reference: ClassVar[str] = "Desai et al. 2021, DP-AGEM"
    claim: ClassVar[str] = "Lemma 1: ε_i + (T − i) ε'_i per task, their sum in all"
    certifies: ClassVar[str] = "a record: the larger of its training plan and all planned reads of its memory block"

    def mode(self) -> Mode:
        return self.visible

    def claims(self) -> tuple[Claim, ...]:
        train, reference = self.claimed_pairs()[0]
        return (desai_dp_agem(train, reference, self.budget.delta, 1, self.tasks_learned),)

    def claimed(self) -> Claimed | None:
        if self.stream_.endless:
            return None  # a sum over all tasks is unbounded
        tasks = len(self.tasks_)
        each = [train + (tasks - 1 - i) * reference for i, (train, reference) in enumerate(self.claimed_pairs())]
        return Claimed(per_task=max(each), total=sum(each), delta=self.budget.delta)
