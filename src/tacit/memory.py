"""Episodic memory: blocks that the vault holds for later tasks, and the reads that are planned for them.

Guarantee: every read of a memory block is planned from public facts before the block is first read, and committed in
one charge (`Memory.add`); the grants of a later task are made from the same plan, so that what is read is what was
billed. A record of the memory is not in its task's training part: it loses one or the other, never both.

Three ways to read in task T, when T − 1 blocks are stored and a batch of b records is wanted:
* union: every stored record by itself, at rate b / (|M_i| (T − 1)): one sum, one draw of noise. The rates fall as 1/T,
  so what a record loses is bounded for any number of tasks.
* block (Desai et al. 2021, Algorithm 1): at each step one block, drawn by a public coin, at rate b / |M_i|. The coins
  are tossed before, from the seed, and the reads they show are billed exactly. A record's loss grows as log T.
* average (DP-AGEM): all blocks at rate b / |M_i|, and the average of their noisy gradients. `each` lets every block's
  gradient out by itself; `average` only their sum, with the noise of all of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
from dp_accounting.dp_event import DpEvent
from torch import Tensor, nn

from tacit.errors import LearnerError
from tacit.privacy import calibrate, events
from tacit.privacy.budget import Budget
from tacit.privacy.declared import Block, Loss, Read
from tacit.privacy.grant import Grant
from tacit.privacy.plan import GradientPlan
from tacit.privacy.vault import Vault

Mode = Literal["union", "block", "average", "each"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One grant of a task: which blocks (by the number of their task) are read, at which rates, in which steps."""

    plan: GradientPlan
    rates: Mapping[int, float]
    at: tuple[int, ...] | None = None
    """The steps of the task in which it is used. None: all of them."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """All that will ever be read of the memory: for every task, its grants. Made of public facts only."""

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

    def readings(self, task: int) -> list[Reading]:
        """The grants of task `task` (from 0)."""
        read = {block: plan for block in range(task) if (plan := self._read(task, block)) is not None}
        if self.alone:
            return [
                Reading(plan=plan, rates={block: plan.rate}, at=self._at(task, block)) for block, plan in read.items()
            ]
        if not read:
            return []
        fastest = max(read.values(), key=lambda plan: plan.rate)
        return [Reading(plan=fastest, rates={block: plan.rate for block, plan in read.items()})]

    def coins(self, task: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Public: the block of each step."""
        return _tossed(self.seed, task, self.steps[task])

    def events(self, block: int) -> list[DpEvent]:
        """All that block `block` will be charged, in the order of the tasks."""
        return [
            plan.event_at(plan.rate, min(self.tasks_per_unit, (1 if self.alone else task) + self.beside))
            for task in range(block + 1, len(self.sizes))
            if (plan := self._read(task, block)) is not None
        ]

    @property
    def alone(self) -> bool:
        """Every block has a draw of its own; otherwise those of a task share one."""
        return self.mode in ("block", "each")

    def _read(self, task: int, block: int) -> GradientPlan | None:
        """How one block is read in a later task, at its own rate; None where the coins never show it.

        Found without the other blocks: all reads of a block take time linear in the number of tasks."""
        at = self._at(task, block)
        if at == ():
            return None
        steps = self.steps[task] if at is None else len(at)
        rate = min(1.0, self.batch / (self.sizes[block] * (task if self.mode == "union" else 1)))
        # The average of T − 1 noisy sums has the noise of a sum with multiplier noise · √(T − 1).
        noise = self.noise_of(block if self.alone else task) * (math.sqrt(task) if self.mode == "average" else 1.0)
        return GradientPlan(rate=rate, steps=steps, noise=noise, clip=self.clip, clipping=self.clipping)

    def _at(self, task: int, block: int) -> tuple[int, ...] | None:
        return tuple(np.flatnonzero(self.coins(task) == block).tolist()) if self.mode == "block" else None

    def noise_of(self, number: int) -> float:
        return self.noise[number] if len(self.noise) > 1 else self.noise[0]


@lru_cache(maxsize=4096)
def _tossed(seed: int, task: int, steps: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Kept, since a search for noise asks for the coins of the same tasks over and over."""
    drawn = np.random.default_rng([seed, task]).integers(0, task, steps)
    drawn.flags.writeable = False
    return drawn


def calibrated(budget: Budget, schedule: Schedule) -> Schedule:
    """The schedule with the least noise that the budget allows for a unit of the memory.

    Blocks with a draw of their own get their own noise. Where blocks share one, the block that is read most decides.
    """
    blocks = range(len(schedule.sizes))
    wanted = [block for block in blocks if schedule.events(block)] if schedule.alone else _most_read(schedule)

    def least(block: int) -> float:
        return calibrate.noise_for(budget, lambda noise: _total(replace(schedule, noise=(noise,)), block))

    found = {block: least(block) for block in wanted}
    most = max(found.values(), default=1.0)  # also of a block that is never read
    if schedule.alone:
        return replace(schedule, noise=tuple(found.get(block, most) for block in blocks))
    return replace(schedule, noise=(most,))


def widened(budget: Budget, schedule: Schedule) -> Schedule:
    """The schedule with the largest batch that the budget allows at its own noise."""

    def most(block: int) -> float:
        whole = schedule.sizes[block] * max(1, len(schedule.sizes) - 1)  # every record of the block in the last task
        return whole * calibrate.rate_for(budget, lambda rate: _total(replace(schedule, batch=rate * whole), block))

    return replace(schedule, batch=min(map(most, _most_read(schedule)), default=schedule.batch))


def _total(schedule: Schedule, block: int) -> DpEvent:
    """All that a unit of the block is charged; a unit of several tasks, at most as often."""
    return events.repeat(events.compose(schedule.events(block)), schedule.tasks_per_unit)


def _most_read(schedule: Schedule) -> list[int]:
    """Blocks that could be the costliest: those smaller (so read at higher rates) than every earlier one."""
    smaller = [b for b, size in enumerate(schedule.sizes) if all(size < schedule.sizes[a] for a in range(b))]
    return [block for block in smaller if schedule.events(block)]


@dataclass(kw_only=True)
class Memory:
    """The blocks held so far, and the grants on them."""

    schedule: Schedule
    blocks: dict[int, Block] = field(default_factory=dict)

    def add(self, number: int, block: Block, vault: Vault) -> None:
        """Commit all later reads of the block, and hold it. A block that is never read is let go."""
        planned = self.schedule.events(number)
        if not planned:
            vault.drop(block)
            return
        vault.commit({block: planned})
        if vault.has_store:
            vault.keep(block)
        self.blocks[number] = block

    def reads(self, number: int) -> list[Read]:
        """The memory's part in the one grant of task `number`."""
        return [
            Read(self.held(block), rate) for one in self.schedule.readings(number) for block, rate in one.rates.items()
        ]

    def held(self, number: int) -> Block:
        if number not in self.blocks:
            raise LearnerError(f"the memory of task {number + 1} is not here; restore the learner with its vault")
        return self.blocks[number]

    def grants(self, number: int, vault: Vault, model: nn.Module, loss: Loss, work: Mapping[str, Any]) -> "References":
        """The right to the reference gradients of task `number`."""
        ask = partial(vault.grant, model=model, loss=loss, work=work)
        return References(
            [
                (reading, ask([Read(self.held(block), rate) for block, rate in reading.rates.items()], reading.plan))
                for reading in self.schedule.readings(number)
            ]
        )


class References:
    """The reference gradients of one task, step by step."""

    def __init__(self, grants: Sequence[tuple[Reading, Grant]]) -> None:
        self._grants = grants
        self._of_step = {step: grant for reading, grant in grants for step in reading.at or ()}

    def __bool__(self) -> bool:
        return bool(self._grants)

    def gradient(self, step: int) -> dict[str, Tensor]:
        """g_ref of a step; where every block's gradient leaves by itself, their average."""
        if self._of_step:
            return self._of_step[step].gradient()
        found = [grant.gradient() for _, grant in self._grants]
        if len(found) == 1:
            return found[0]
        return {name: sum((one[name] for one in found[1:]), found[0][name]) / len(found) for name in found[0]}
