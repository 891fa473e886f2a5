"""The schedule of the memory: who is read in which task, at which rate, for how long. Made of public facts only.

Three ways to read in task T, when n blocks are held and a batch of b records is wanted:
* union: every held record by itself, at rate b / (|M_i| n): one sum, one draw of noise. Without retirement n = T − 1:
  the rates fall as 1/T, so what a record loses is bounded for any number of tasks.
* block (Desai et al. 2021, Algorithm 1): at each step one block, drawn by a public coin, at rate b / |M_i|. The coins
  are tossed before, from the seed, and the reads they show are billed exactly. A record's loss grows as log T.
* average (DP-AGEM): all blocks at rate b / |M_i|, and the average of their noisy gradients. `each` lets every block's
  gradient out by itself; `average` only their sum, with the noise of all of them.

Retirement: a record is read in at most `stay` later tasks. It leaves with its whole block, or by `thinning`: the memory
part is cut by the keyed tag into `stay` parts of equal share, and part k stays k tasks. So a record is held at age a if
and only if its own tag is in a part ≥ a, a share 1 − (a − 1)/stay: a public threshold that never rises. With the shares
s_i that are held, n above is Σ s_i; where a block is read by itself, |M_i| is s_i |M_i|.

By class (robust A-GEM): the steps of a task go through the K labels that are held, in turn; the rates are K times
higher, and a record is read in ⌈steps/K⌉ of the steps (see `GradientPlan.classes`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from dp_accounting.dp_event import DpEvent

from tacit.errors import LearnerError
from tacit.privacy.plan import GradientPlan

Mode = Literal["union", "block", "average", "each"]
Leave = Literal["together", "thinning"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One grant of a task: which blocks (by the number of their task) are read, at which rates, in which steps."""

    plan: GradientPlan
    rates: Mapping[int, float]
    at: tuple[int, ...] | None = None
    """The steps of the task in which it is used. None: all of them."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the public schedule says of the memory's records in one task. Real numbers of records stay secret."""

    read: float
    """How often a record is read, in all steps of all readers."""
    admitted: float
    """Records that enter after the task."""
    retired: float
    """Records that leave for good after it."""
    held: float
    """Records that are there while it is learnt."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """All that will ever be read of the memory: for every task, its grants. What is asked of it takes time linear in
    `stay`, or without one in the number of tasks."""

    mode: Mode
    sizes: tuple[float, ...]
    """Nominal sizes of the memory blocks, one for each task."""
    steps: tuple[int, ...]
    batch: float
    """Expected number of records in a reference gradient (of one block, where each is read by itself)."""
    clip: float
    clipping: str = "flat"
    noise: tuple[float, ...]
    """Noise multipliers: of each block where it has a draw of its own, else of each task; one value serves for all."""
    tasks_per_unit: int = 1
    beside: int = 0
    """How many other tasks share the draw (the training part, where it is in the same grant)."""
    seed: int = 0
    stay: int | None = None
    """In how many later tasks a remembered record is read at most; then it is retired. None: in all of them."""
    leave: Leave = "together"
    readers: tuple[int, ...] = ()
    """How many learners read the memory in each task (an early start has two). (): one."""
    endless: bool = False
    """The tasks go on for ever: sizes, steps, readers, noise and classes come again and again."""
    classes: tuple[tuple[int, ...], ...] = ()
    """By class: for each task, the places of its labels among the outputs. (): a step reads records of all labels."""

    def __post_init__(self) -> None:
        if self.leave not in ("together", "thinning"):
            raise LearnerError(f"leave must be 'together' or 'thinning', got {self.leave!r}")
        if self.stay is None:
            if self.leave == "thinning":
                raise LearnerError("thinning spreads the leaving over `stay` tasks; set stay to a whole number ≥ 1")
            if self.endless:
                raise LearnerError(
                    "a memory that is read for ever adds up without end; set stay, the number of later tasks in which "
                    "a remembered record is read before it is retired"
                )
        elif isinstance(self.stay, bool) or not isinstance(self.stay, int) or self.stay < 1:
            raise LearnerError(f"stay must be a whole number ≥ 1, got {self.stay!r}; left out, records stay for ever")
        if self.mode == "block" and (self.endless or self.classes):
            what = "be planned for a stream without end" if self.endless else "go through the labels in turn"
            raise LearnerError(f"one block a step, drawn by coins, cannot {what}; read the union of the blocks")
        if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in self.readers):
            raise LearnerError(f"readers must be whole numbers ≥ 0, one for each task, got {self.readers}")
        for name, values in (("readers", self.readers), ("classes", self.classes)):
            if values and not self.endless and len(values) != len(self.sizes):
                raise LearnerError(f"{name} has {len(values)} entries for {len(self.sizes)} tasks; give one for each")

    def readings(self, task: int) -> list[Reading]:
        """The grants of task `task` (from 0), of each of its readers."""
        read = {block: plan for block in self.held(task) if (plan := self.plan_in(task, block)) is not None}
        if not read or not self.readers_of(task):
            return []
        if self.alone:
            return [
                Reading(plan=plan, rates={block: plan.rate}, at=self._at(task, block)) for block, plan in read.items()
            ]
        fastest = max(read.values(), key=lambda plan: plan.rate)
        return [Reading(plan=fastest, rates={block: plan.rate for block, plan in read.items()})]

    def coins(self, task: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Public: the block of each step."""
        return _tossed(self.seed, self.held(task).start, task, self.steps_of(task))

    def events(self, block: int, part: int | None = None) -> list[DpEvent]:
        """All that a unit of block `block` will be charged at most, in the order of the tasks; or one of the part that
        stays `part` tasks."""
        return [event for task in self.tasks_of(block, part) for event in self.events_in(task, block)]

    def events_in(self, task: int, block: int) -> list[DpEvent]:
        """What a held part of the block is charged in one task: for each reader."""
        plan = self.plan_in(task, block)
        return [] if plan is None else [plan.event_at(plan.rate, self.shared(task))] * self.readers_of(task)

    def shared(self, task: int) -> int:
        """In how many of the tasks that share a draw one unit may be."""
        return min(self.tasks_per_unit, (1 if self.alone else len(self.held(task))) + self.beside)

    def expected(self, task: int) -> Expected:
        """What task `task` (from 0) reads, takes in and lets go, in records, from public facts alone."""
        readings = self.readings(task)
        read = sum(
            one.plan.steps * rate * self._share(task, block) * self.size_of(block) / max(1, one.plan.classes)
            for one in readings
            for block, rate in one.rates.items()
        )
        return Expected(
            read=read * self.readers_of(task),
            admitted=self.size_of(task) if self.events(task) else 0.0,
            retired=sum(self.size_of(block) / len(self.parts) for block, _ in self.leaving(task)),
            held=sum(self.size_of(block) * self._share(task, block) for block in self.held(task)),
        )

    @property
    def alone(self) -> bool:
        """Every block has a draw of its own; otherwise those of a task share one."""
        return self.mode in ("block", "each")

    @property
    def parts(self) -> tuple[int | None, ...]:
        """Into what a block is cut: for how many tasks each part, all of equal share, stays. None: for ever."""
        return (self.stay,) if self.leave == "together" or self.stay is None else tuple(range(1, self.stay + 1))

    @property
    def period(self) -> int:
        """After so many tasks of an endless stream all public facts come again."""
        return math.lcm(*(len(values) or 1 for values in (self.sizes, self.steps, self.readers, self.classes)))

    @property
    def blocks(self) -> range:
        """Every block, or on an endless stream one of every kind: the first ones, which few others are beside, and one
        period of those that come after."""
        return range((self.stay or 0) + self.period if self.endless else len(self.sizes))

    def held(self, task: int) -> range:
        """The blocks that are there, wholly or in part, while a task is learnt."""
        return range(0 if self.stay is None else max(0, task - self.stay), task)

    def tasks_of(self, block: int, part: int | None = None) -> range:
        """The tasks in which a block, or its part that stays so long, may be read."""
        stay = self.stay if part is None else part
        last = math.inf if stay is None else block + stay
        return range(block + 1, int(min(last, math.inf if self.endless else len(self.sizes) - 1)) + 1)

    def leaving(self, task: int) -> list[tuple[int, int]]:
        """The (block, part) whose time is over when the task is learnt."""
        return [(task - part, part) for part in self.parts if part is not None and part <= task]

    def to_come(self, block: int, part: int | None, done: int) -> bool:
        """Whether the part of a block will be read after `done` tasks were learnt."""
        left = (task for task in self.tasks_of(block, part) if task >= done)
        return any(self.plan_in(task, block) is not None and self.readers_of(task) for task in left)

    def size_of(self, number: int) -> float:
        return self.sizes[self._turn(number, self.sizes)]

    def steps_of(self, number: int) -> int:
        return self.steps[self._turn(number, self.steps)]

    def readers_of(self, number: int) -> int:
        return self.readers[self._turn(number, self.readers)] if self.readers else 1

    def noise_of(self, number: int) -> float:
        return self.noise[self._turn(number, self.noise)] if len(self.noise) > 1 else self.noise[0]

    def places(self, task: int) -> tuple[int, ...]:
        """By class: the labels that the steps of a task go through, those of the blocks that are held."""
        known = (self.classes[self._turn(block, self.classes)] for block in self.held(task)) if self.classes else ()
        return tuple(sorted({place for own in known for place in own}))

    def _turn(self, number: int, values: tuple[Any, ...]) -> int:
        return number % len(values) if self.endless else number

    def plan_in(self, task: int, block: int) -> GradientPlan | None:
        """How one block is read in a later task, at its own rate; None where the coins never show it.

        Found without the plans of the other blocks: all reads of a block take time linear in the number of tasks."""
        at = self._at(task, block)
        if at == ():
            return None
        steps = self.steps_of(task) if at is None else len(at)
        whole = self._shares(task) if self.mode == "union" else self._share(task, block)
        places = self.places(task)
        rate = min(1.0, max(1, len(places)) * self.batch / (self.size_of(block) * whole))
        # The average of n noisy sums has the noise of a sum with multiplier noise · √n.
        noise = self.noise_of(block if self.alone else task)
        noise *= math.sqrt(len(self.held(task))) if self.mode == "average" else 1.0
        return GradientPlan(
            rate=rate, steps=steps, noise=noise, clip=self.clip, clipping=self.clipping,
            classes=len(places), places=places,
        )  # fmt: skip

    def _share(self, task: int, block: int) -> float:
        """Which share of a block is held in a later task."""
        if self.stay is None or self.leave == "together":
            return 1.0
        return 1 - (task - block - 1) / self.stay

    def _shares(self, task: int) -> float:
        """Σ of the shares that are held in a task."""
        blocks = self.held(task)
        if self.stay is None or self.leave == "together":
            return float(len(blocks))
        return sum(self._share(task, block) for block in blocks)

    def _at(self, task: int, block: int) -> tuple[int, ...] | None:
        return tuple(np.flatnonzero(self.coins(task) == block).tolist()) if self.mode == "block" else None


@lru_cache(maxsize=4096)
def _tossed(seed: int, first: int, task: int, steps: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Kept, since a search for noise asks for the coins of the same tasks over and over."""
    drawn = np.random.default_rng([seed, task]).integers(first, task, steps)
    drawn.flags.writeable = False
    return drawn
