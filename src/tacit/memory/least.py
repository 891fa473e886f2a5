"""From a budget to a schedule: the least noise, or the largest batch, that still fits all reads of a record."""

import math
from dataclasses import replace
from itertools import zip_longest

from dp_accounting.dp_event import DpEvent

from tacit.memory.schedule import Schedule
from tacit.privacy import calibrate, events
from tacit.privacy.budget import Budget

Cost = tuple[float, ...]
"""Rate, 1/noise and number of a block's reads in one task: each of them larger is dearer. (): none."""


def calibrated(budget: Budget, schedule: Schedule) -> Schedule:
    """The schedule with the least noise that the budget allows for a unit of the memory.

    Blocks with a draw of their own get their own noise. Where blocks share one, the block that is read most decides. An
    endless schedule is decided by its first `stay` blocks, beside which few others are read, and one period.
    """
    wanted = [block for block in schedule.blocks if schedule.events(block)] if schedule.alone else most_read(schedule)
    known: dict[str, float] = {}

    def least(block: int) -> float:
        same = events.to_json(total(schedule, block))
        if same not in known:
            known[same] = calibrate.noise_for(budget, lambda noise: total(replace(schedule, noise=(noise,)), block))
        return known[same]

    found = {block: least(block) for block in wanted}
    most = max(found.values(), default=1.0)  # also of a block that is never read
    if not schedule.alone:
        return replace(schedule, noise=(most,))
    turns = range(schedule.period if schedule.endless else len(schedule.sizes))
    like = {turn: [noise for block, noise in found.items() if block % len(turns) == turn] for turn in turns}
    return replace(schedule, noise=tuple(max(like[turn], default=most) for turn in turns))


def widened(budget: Budget, schedule: Schedule) -> Schedule:
    """The schedule with the largest batch that the budget allows at its own noise."""
    beside = max((len(schedule.held(task)) for task in schedule.blocks), default=0)

    def most(block: int) -> float:
        whole = schedule.size_of(block) * max(1, beside)  # every record of the block, in every task
        return whole * calibrate.rate_for(budget, lambda rate: total(replace(schedule, batch=rate * whole), block))

    return replace(schedule, batch=min(map(most, most_read(schedule)), default=schedule.batch))


def total(schedule: Schedule, block: int) -> DpEvent:
    """All that a unit of the block is charged; a unit of several tasks, at most as often."""
    return events.repeat(events.compose(schedule.events(block)), schedule.tasks_per_unit)


def most_read(schedule: Schedule) -> list[int]:
    """Blocks that could be the costliest, where blocks share a draw: for any other, one of them costs as much."""
    if schedule.stay is None:
        # Those smaller (so read at higher rates) than every earlier one, which is read in the same tasks and more.
        size = schedule.sizes
        smaller = [block for block in schedule.blocks if all(size[block] < size[a] for a in range(block))]
        return [block for block in smaller if schedule.events(block)]
    found: dict[int, list[Cost]] = {}
    for block in schedule.blocks:
        own = _costs(schedule, block)
        if any(own) and not any(_covers(other, own) for other in found.values()):
            found = {one: costs for one, costs in found.items() if not _covers(own, costs)} | {block: own}
    return list(found)


def _costs(schedule: Schedule, block: int) -> list[Cost]:
    """Of a block's reads in the first later task, the second, …; () where it is not read."""

    def cost(task: int) -> Cost:
        plan, readers = schedule.plan_in(task, block), schedule.readers_of(task)
        if plan is None or not readers:
            return ()
        return plan.rate, math.sqrt(schedule.shared(task)) / plan.noise, plan.turns * readers

    return [cost(task) for task in schedule.tasks_of(block)]


def _covers(dearer: list[Cost], other: list[Cost]) -> bool:
    """Whether every read of one block costs at least what the other's of the same age does."""
    pairs = zip_longest(dearer, other, fillvalue=())
    return all(not two or (bool(one) and all(a >= b for a, b in zip(one, two, strict=True))) for one, two in pairs)
