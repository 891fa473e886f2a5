"""DP-CL: A-GEM with noisy gradients on both sides (Desai et al. 2021, Algorithm 1), done as it must be.

Per example clip, one draw of noise on the sum, a public divisor; a task's records are trained on or kept as memory (one
coin for each), so that a record loses max(train, memory), not their sum.

Claim (Lemma 2): ε_i + ε'_i for every T. It does not hold: block i is read in every later task.
Certified: memory="union": every stored record is drawn by itself at rate q/(T−1): bounded for any number of tasks.
memory="block" (the paper's): one block a step, by public coins tossed before the task: the reads they show, exactly.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.learners.core import Claimed
from tacit.learners.projected import Projected
from tacit.memory import Mode
from tacit.privacy.claims import Claim, desai_dp_cl


@dataclass(kw_only=True, eq=False)
class DPCL(Projected):
    """With one block a step, or the union of all of them."""

    memory: Literal["union", "block"] = "union"
    """How the memory is read: in one draw from all blocks, or one block a step."""

    forever: ClassVar[bool] = True
    reference: ClassVar[str] = "Desai et al. 2021, Algorithm 1"
    claim: ClassVar[str] = "Lemma 2: ε_i + ε'_i per task, their sum in all"
    certifies: ClassVar[str] = "a record: the larger of its training plan and all planned reads of its memory block"

    def mode(self) -> Mode:
        return self.memory

    def public_coins(self) -> str | None:
        drawn = f"the memory block of each step, drawn from seed {self.seed} before the first task"
        return drawn if self.memory == "block" else None

    def claims(self) -> tuple[Claim, ...]:
        train, reference = max(self.claimed_pairs(), key=sum)
        return (desai_dp_cl(train, reference, self.budget.delta, 1, self.learnt),)

    def claimed(self) -> Claimed | None:
        if self.stream_.endless:
            return None  # a sum over all tasks has no end
        pairs = [train + reference for train, reference in self.claimed_pairs()]
        return Claimed(per_task=max(pairs), total=sum(pairs), delta=self.budget.delta)
