"""DP-CL: A-GEM with noisy gradients on both sides (Desai et al. 2021, Algorithm 1), done as it must be.

Per example clip, one draw of noise on the sum, a public divisor; a task's records are trained on or kept as memory (one
coin for each), so that a record loses max(train, memory), not their sum.

Claim (Lemma 2): ε_i + ε'_i for every T. It does not hold: block i is read in every later task.
Certified: memory="union": every stored record is drawn by itself at rate q/(T−1): bounded for any number of tasks.
memory="block" (the paper's): one block a step, by public coins tossed before the task: the reads they show, exactly.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.data.stream import TaskInfo
from tacit.learners.core import Claimed
from tacit.learners.gradient import Gradient, gathered, project, smoothed
from tacit.learners.replay import ReplayLearner
from tacit.memory import Mode
from tacit.privacy.claims import Claim, desai_dp_cl
from tacit.privacy.declared import Block
from tacit.privacy.vault import Vault


@dataclass(kw_only=True, eq=False)
class AGEMStep(ReplayLearner):
    """The noisy gradient of the task, projected where it conflicts with that of the memory (Lines 5 to 17).

    With momentum the velocity is projected: it carries less noise than one gradient, and so does the conflict."""

    project: Literal["conflict", "always"] = "conflict"
    smooth: float = 0.0
    """Weight of the past in a running mean of the reference gradients of a task: less noise, at no cost. 0: none."""

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        train, memory = self.cut(block, vault)
        grant = vault.grant(train, self.plan(task), self.model_, self.loss_, work=self.settings())
        references = self.memory_.grants(task.number, vault, self.model_, self.loss_, self.settings())
        optimizer = self.optimizer(task, momentum=0)
        velocity: Gradient | None = None
        reference: Gradient | None = None
        for step in self.turns(grant, task):
            velocity = gathered(grant.gradient(), velocity, self.momentum)
            direction = velocity
            if references:
                reference = smoothed(references.gradient(step), reference, self.smooth)
                direction = project(velocity, reference, always=self.project == "always")
            self.update(optimizer, direction)
        vault.drop(train)
        self.memory_.add(task.number, memory, vault)


@dataclass(kw_only=True, eq=False)
class DPCL(AGEMStep):
    """With one block a step, or the union of all of them."""

    memory: Literal["union", "block"] = "union"

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
        return (desai_dp_cl(train, reference, self.budget.delta, 1, len(self.tasks_)),)

    def claimed(self) -> Claimed:
        pairs = [train + reference for train, reference in self.claimed_pairs()]
        return Claimed(per_task=max(pairs), total=sum(pairs), delta=self.budget.delta)
