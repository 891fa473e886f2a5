"""DP-AGEM: A-GEM with the noisy gradients of every memory block, averaged (Desai et al. 2021, the naive algorithm).

g_ref = 1/(T−1) Σ_i g_ref^i, each g_ref^i clipped per example, summed, and given noise σ.

Claim (Lemma 1): ε_i + (T − i) ε'_i, with one δ (the sum of the δ would be right). Certified, for two observers:
visible="average": only g_ref leaves the vault. It is one sum over all blocks with noise multiplier σ√(T−1).
visible="each": every g_ref^i leaves by itself, and each is billed with noise σ.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.learners.core import Claimed
from tacit.learners.projected import Projected
from tacit.memory import Mode
from tacit.privacy.claims import Claim, desai_dp_agem


@dataclass(kw_only=True, eq=False)
class DPAGEM(Projected):
    """DP-CL's step with another memory: all blocks in every step."""

    visible: Literal["average", "each"] = "average"
    """What of the memory's gradients leaves the vault: their average, or that of each block by itself."""

    forever: ClassVar[bool] = True
    reference: ClassVar[str] = "Desai et al. 2021, DP-AGEM"
    claim: ClassVar[str] = "Lemma 1: ε_i + (T − i) ε'_i per task, their sum in all"
    certifies: ClassVar[str] = "a record: the larger of its training plan and all planned reads of its memory block"

    def mode(self) -> Mode:
        return self.visible

    def claims(self) -> tuple[Claim, ...]:
        train, reference = self.claimed_pairs()[0]
        return (desai_dp_agem(train, reference, self.budget.delta, 1, self.learnt),)

    def claimed(self) -> Claimed | None:
        if self.stream_.endless:
            return None  # a sum over all tasks has no end
        tasks = len(self.tasks_)
        each = [train + (tasks - 1 - i) * reference for i, (train, reference) in enumerate(self.claimed_pairs())]
        return Claimed(per_task=max(each), total=sum(each), delta=self.budget.delta)
