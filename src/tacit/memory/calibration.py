"""From a budget to a schedule: the least noise, the largest batch or the longest stay that the budget allows."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest

from dp_accounting.dp_event import DpEvent

from tacit.errors import PlanError
from tacit.memory.read_schedule import Schedule
from tacit.privacy.accounting import calibrate, events
from tacit.privacy.accounting.budget import Budget

RAISE = 1.02
"""Factor by which noise is raised until training and memory fit the budget together."""
MOST_RAISED = 2.0
Cost = tuple[float, ...]
"""Rate, 1/noise and number of a block's reads in one task: each is larger for a costlier read. (): no read."""


def calibrated(budget: Budget, schedule: Schedule) -> Schedule:
    """The schedule with the least noise that the budget allows for a unit of the memory.

    Blocks with their own draw of noise get their own noise multiplier. Where blocks share a draw, the block that is
    read most decides. On an endless stream the first `stay` blocks, which share a task with fewer others, and one
    period of the following ones decide.

    Args:
        budget: What a unit may lose by all reads of the memory.
        schedule: All reads; its own noise multipliers are ignored.

    Returns:
        The same schedule with these noise multipliers.
    """
    wanted = (
        [block for block in schedule.blocks if schedule.events(block)]
        if schedule.separate_noise
        else most_read(schedule)
    )
    known: dict[str, float] = {}

    def least(block: int) -> float:
        same = events.to_json(total(schedule, block))
        if same not in known:
            known[same] = calibrate.noise_for(budget, lambda noise: total(replace(schedule, noise=(noise,)), block))
        return known[same]

    noise = {block: least(block) for block in wanted}
    most = max(noise.values(), default=1.0)  # also for a block that is never read
    if not schedule.separate_noise:
        return replace(schedule, noise=(most,))
    count = schedule.period if schedule.endless else len(schedule.sizes)
    alike = [[value for block, value in noise.items() if block % count == index] for index in range(count)]
    return replace(schedule, noise=tuple(max(values, default=most) for values in alike))


def widened(budget: Budget, schedule: Schedule) -> Schedule:
    """The schedule with the largest batch that the budget allows at the schedule's noise.

    Args:
        budget: What a unit may lose by all reads of the memory.
        schedule: All reads; its own batch is kept if no block is ever read.

    Returns:
        The same schedule with this batch.
    """
    beside = max((len(schedule.held(task)) for task in schedule.blocks), default=0)

    def most(block: int) -> float:
        whole = schedule.size_of(block) * max(1, beside)  # every record of the block, in every task
        return whole * calibrate.rate_for(budget, lambda rate: total(replace(schedule, batch=rate * whole), block))

    return replace(schedule, batch=min(map(most, most_read(schedule)), default=schedule.batch))


def stay_for(budget: Budget, schedule: Schedule) -> int:
    """The largest `stay` for which all reads of a remembered record fit the budget at the schedule's noise.

    Where every block is read on its own, each further task costs the same again, so less noise means a shorter stay
    (Hassanpour et al. 2022, Fig. 11). Where blocks share a draw of noise, the batch is spread over more records the
    longer they stay, and the first blocks, which share a task with few others, decide.

    Args:
        budget: What a unit may lose by all reads of the memory.
        schedule: All reads; its own `stay` is ignored.

    Returns:
        At most the number of later tasks, at least 1.

    Raises:
        PlanError: Not even one later task can read a record.
    """
    for stay in range(max(1, len(schedule.sizes) - 1), 0, -1):
        planned = replace(schedule, stay=stay)
        different = {tuple(map(repr, planned.events(block))): block for block in planned.blocks}
        if all(calibrate.fits(total(planned, block), budget) for block in different.values()):
            return stay
    raise PlanError(
        f"a remembered record cannot be read in one later task within {budget}, with noise {schedule.noise_of(0):g} "
        f"and an expected batch of {schedule.batch:g} from {schedule.size_of(0):g} records; use more noise, a smaller "
        "batch or a larger memory"
    )


def raised_to_fit(
    schedule: Schedule,
    budget: Budget,
    train: Callable[[], list[list[DpEvent]]],
    raised: Callable[[Schedule], Schedule] | None,
) -> Schedule:
    """The schedule with its noise raised until training and memory fit the budget together.

    A unit that recurs may be trained on in one task and remembered in another, and the mixture can cost slightly more
    than either.

    Args:
        schedule: All reads of the memory.
        budget: The budget of a unit.
        train: The events of a unit that is trained on, a list for each task, at the current noise.
        raised: Raises the noise of training and memory by `RAISE` and returns the new schedule. None: the user fixed
            the noise.

    Raises:
        PlanError: The reads do not fit.
    """
    factor = 1.0
    while not calibrate.fits_mixed(unit_charges(schedule, train()), budget, schedule.tasks_per_unit):
        if raised is None or factor > MOST_RAISED:
            raise PlanError(
                f"the planned reads of the memory do not fit {budget} for a unit in {schedule.tasks_per_unit} task(s); "
                "leave noise and batch of the memory to the budget, or use fewer steps"
            )
        factor *= RAISE
        schedule = raised(schedule)
    return schedule


def unit_charges(schedule: Schedule, train: list[list[DpEvent]]) -> list[list[DpEvent]]:
    """The lists of events that a unit may be charged in one of its tasks: it is either trained on or remembered."""
    # A unit that does not recur is in one block: the costliest blocks stand for all. Otherwise every block counts.
    few = schedule.tasks_per_unit == 1 and not schedule.separate_noise
    blocks = most_read(schedule) if few else schedule.blocks
    return train + [planned for block in blocks if (planned := schedule.events(block))]


def total(schedule: Schedule, block: int) -> DpEvent:
    """All charges of a unit of the block, repeated for each task that the unit may be in."""
    return events.repeat(events.compose(schedule.events(block)), schedule.tasks_per_unit)


def most_read(schedule: Schedule) -> list[int]:
    """The blocks that may be charged most, where blocks share a draw of noise: any other is charged at most as much.

    Args:
        schedule: All reads of the memory.

    Returns:
        Their numbers, in the order of the tasks.
    """
    if schedule.stay is None:
        # A block smaller than every earlier one is read at a higher rate; earlier ones are read in the same tasks too.
        size = schedule.sizes
        smaller = [block for block in schedule.blocks if all(size[block] < size[a] for a in range(block))]
        return [block for block in smaller if schedule.events(block)]
    costliest: dict[int, list[Cost]] = {}
    for block in schedule.blocks:
        own = _costs(schedule, block)
        if any(own) and not any(_covers(other, own) for other in costliest.values()):
            costliest = {other: costs for other, costs in costliest.items() if not _covers(own, costs)} | {block: own}
    return list(costliest)


def _costs(schedule: Schedule, block: int) -> list[Cost]:
    """The costs of a block's reads in the first later task, the second, …; () where it is not read."""

    def cost(task: int) -> Cost:
        plan, readers = schedule.plan_in(task, block), schedule.readers_of(task)
        if plan is None or not readers:
            return ()
        return plan.rate, math.sqrt(schedule.shared(task)) / plan.noise, plan.turns * readers

    return [cost(task) for task in schedule.tasks_of(block)]


def _covers(dearer: list[Cost], other: list[Cost]) -> bool:
    """Whether every read of one block costs at least what the other block's read of the same age does."""
    pairs = zip_longest(dearer, other, fillvalue=())
    return all(not two or (bool(one) and all(a >= b for a, b in zip(one, two, strict=True))) for one, two in pairs)
