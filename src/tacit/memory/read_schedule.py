"""The schedule of a replay memory: which blocks each task reads, at which rates, in which steps. Public facts only.

Four modes of reading in task T, when n blocks are held, block i has nominal size |M_i|, and b records are expected:
* union (union-Poisson): every held record of every block is sampled independently, at rate b / (|M_i| n), into one sum
  with one noise draw, so each block's event is `events.poisson_gaussian` at its own rate. Without retirement n = T − 1:
  the rates fall as 1/T, so a record's privacy loss stays bounded for any number of tasks.
* block (Desai et al. 2021, Algorithm 1): each step reads one block, chosen by public randomness, at rate b / |M_i|.
  The choices are drawn from the seed before the task, and exactly these reads are charged. A record's privacy loss
  grows as log T.
* each and average (DP-AGEM): all blocks at rate b / |M_i|. `each` releases the noisy gradient of every block; `average`
  releases only their sum, with the noise of all of them.

With retirement (see `retention`) n is Σ s_i, the sum of the shares s_i that are held; where a block is read on its own,
the rate uses s_i |M_i| in place of |M_i|.

By class (robust A-GEM): the steps of a task cycle through the K labels that are held; the rates are K times higher, and
a record is read in ⌈steps/K⌉ of the steps (see `GradientPlan.classes`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from dp_accounting.dp_event import DpEvent

from tacit.errors import LearnerError
from tacit.memory.retention import MemoryUse, Retention
from tacit.privacy.vault import GradientPlan

Mode = Literal["union", "block", "average", "each"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One grant of a task on the memory.

    Attributes:
        plan: The plan of the grant.
        rates: The sampling rate of each block, by the number of the block's task.
        at: The steps of the task that use the grant. None: all of them.
    """

    plan: GradientPlan
    rates: Mapping[int, float]
    at: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Schedule(Retention):
    """All reads of the memory that will ever be made: the grants of every task.

    Every method takes time linear in `stay` or, without one, in the number of tasks.

    Attributes:
        mode: How the memory is read: `union`, `block`, `average` or `each` (see the module's docstring).
        steps: Steps of each task.
        batch: Expected number of records in a reference gradient; of one block, where blocks are read on their own.
        clip: Clipping norm of a unit's gradient.
        clipping: Clipping rule, a name of `tacit.gradients`.
        noise: Noise multipliers: one per block where each block has its own draw of noise, else one per task. A
            single value serves for all.
        tasks_per_unit: The largest number of tasks that one unit is in.
        other_tasks_per_draw: Number of other tasks that share a draw of noise (1 where the
            training part is in the same grant).
        seed: Seed of the public randomness of mode `block`.
        readers: Number of learners that read the memory in each task. (): one.
        classes: By class: for each task, the indices of its labels among the outputs. (): a step reads all labels.
    """

    mode: Mode
    steps: tuple[int, ...]
    batch: float
    clip: float
    clipping: str = "flat"
    noise: tuple[float, ...]
    tasks_per_unit: int = 1
    other_tasks_per_draw: int = 0
    seed: int = 0
    readers: tuple[int, ...] = ()
    classes: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode == "block" and (self.endless or self.classes):
            what = "be planned for an endless stream" if self.endless else "cycle through the labels"
            raise LearnerError(
                f"memory='block', one block drawn by public randomness in each step, cannot {what}; use memory='union'"
            )
        if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in self.readers):
            raise LearnerError(f"readers must be whole numbers ≥ 0, one for each task, got {self.readers}")
        for name, values in (("readers", self.readers), ("classes", self.classes)):
            if values and not self.endless and len(values) != len(self.sizes):
                raise LearnerError(f"{name} has {len(values)} entries for {len(self.sizes)} tasks; give one for each")

    def readings(self, task: int) -> list[Reading]:
        """The grants of `task` on the memory; each reader of the task has all of them."""
        read = {block: plan for block in self.held(task) if (plan := self.plan_in(task, block)) is not None}
        if not read or not self.readers_of(task):
            return []
        if self.separate_noise:
            return [
                Reading(plan=plan, rates={block: plan.rate}, at=self._at(task, block)) for block, plan in read.items()
            ]
        fastest = max(read.values(), key=lambda plan: plan.rate)
        return [Reading(plan=fastest, rates={block: plan.rate for block, plan in read.items()})]

    def coins(self, task: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The block that each step reads in mode `block`. Public."""
        return _coins(self.seed, self.held(task).start, task, self.steps_of(task))

    def events(self, block: int, part: int | None = None) -> list[DpEvent]:
        """The most that a unit of the block is ever charged, in the order of the tasks; with a part, a unit of it."""
        return [event for task in self.tasks_of(block, part) for event in self.events_in(task, block)]

    def events_in(self, task: int, block: int) -> list[DpEvent]:
        """What a held unit of the block is charged in one task: one event per reader."""
        plan = self.plan_in(task, block)
        return [] if plan is None else [plan.event_at(plan.rate, self.shared(task))] * self.readers_of(task)

    def is_read(self, task: int, block: int) -> bool:
        return self.plan_in(task, block) is not None and self.readers_of(task) > 0

    def leaving(self, task: int) -> list[tuple[int, int | None]]:
        """The (block, part) whose `stay` ends with the task. What is left when the stream ends stays in the store."""
        return [(task - part, part) for part in self.parts if part is not None and part <= task]

    def shared(self, task: int) -> int:
        """The largest number of tasks sharing one draw of noise that a unit may be in."""
        return min(
            self.tasks_per_unit, (1 if self.separate_noise else len(self.held(task))) + self.other_tasks_per_draw
        )

    def expected(self, task: int) -> MemoryUse:
        """The expected numbers of records that `task` reads, admits and retires, from public facts."""
        read = sum(
            one.plan.steps * rate * self.share_held(task, block) * self.size_of(block) / max(1, one.plan.classes)
            for one in self.readings(task)
            for block, rate in one.rates.items()
        )
        return self.use(task, read * self.readers_of(task))

    @property
    def separate_noise(self) -> bool:
        """Whether every block has its own draw of noise; otherwise the blocks of a task share one."""
        return self.mode in ("block", "each")

    @property
    def period(self) -> int:
        """The number of tasks after which all public facts of an endless stream repeat."""
        return math.lcm(*(len(values) or 1 for values in (self.sizes, self.steps, self.readers, self.classes)))

    @property
    def blocks(self) -> range:
        """Every block; on an endless stream one of every kind: the first ones, which share a task with fewer others,
        and one period of those that follow."""
        return range((self.stay or 0) + self.period if self.endless else len(self.sizes))

    def steps_of(self, number: int) -> int:
        return self.steps[self.place(number, self.steps)]

    def readers_of(self, number: int) -> int:
        return self.readers[self.place(number, self.readers)] if self.readers else 1

    def noise_of(self, number: int) -> float:
        return self.noise[self.place(number, self.noise)] if len(self.noise) > 1 else self.noise[0]

    def places(self, task: int) -> tuple[int, ...]:
        """By class: the indices of the labels that the steps of a task cycle through, those of the held blocks."""
        known = (self.classes[self.place(block, self.classes)] for block in self.held(task)) if self.classes else ()
        return tuple(sorted({place for own in known for place in own}))

    def plan_in(self, task: int, block: int) -> GradientPlan | None:
        """How one block is read in a later task, at its own rate; None if the coins never show it.

        It needs no plan of another block, so that all reads of a block take time linear in the number of tasks."""
        at = self._at(task, block)
        if at == ():
            return None
        steps = self.steps_of(task) if at is None else len(at)
        whole = self._shares_held(task) if self.mode == "union" else self.share_held(task, block)
        places = self.places(task)
        rate = min(1.0, max(1, len(places)) * self.batch / (self.size_of(block) * whole))
        # The average of n noisy sums has the noise of a sum with multiplier noise · √n.
        noise = self.noise_of(block if self.separate_noise else task)
        noise *= math.sqrt(len(self.held(task))) if self.mode == "average" else 1.0
        return GradientPlan(
            rate=rate, steps=steps, noise=noise, clip=self.clip, clipping=self.clipping,
            classes=len(places), places=places,
        )  # fmt: skip

    def _shares_held(self, task: int) -> float:
        """The sum of the shares of all blocks that are held in a task."""
        blocks = self.held(task)
        if self.stay is None or self.leave == "together":
            return float(len(blocks))
        return sum(self.share_held(task, block) for block in blocks)

    def _at(self, task: int, block: int) -> tuple[int, ...] | None:
        return tuple(np.flatnonzero(self.coins(task) == block).tolist()) if self.mode == "block" else None


@lru_cache(maxsize=4096)
def _coins(seed: int, first: int, task: int, steps: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Cached: a search for the noise asks for the coins of the same tasks many times."""
    drawn = np.random.default_rng([seed, task]).integers(first, task, steps)
    drawn.flags.writeable = False
    return drawn
