"""How long a remembered record may stay: what a budget and a given noise allow. Public, and known before it is read.

Where every block of the memory is read by itself, at its own rate, each further task costs the same again: less noise
means a shorter stay, and more records that come and go (Hassanpour et al. 2022, Fig. 11). Where the blocks share one
draw (a union), the batch is spread over more records the longer they stay, and the first ones, which few others are
beside, decide.
"""

from dataclasses import replace

from tacit.errors import PlanError
from tacit.memory import Schedule
from tacit.memory.least import total
from tacit.privacy import calibrate
from tacit.privacy.budget import Budget


def stay_for(budget: Budget, schedule: Schedule) -> int:
    """In how many later tasks a remembered record may be read at most, all of it within the budget at the noise of the
    schedule, whose own `stay` plays no part. No more than there are later tasks; at least 1, or a PlanError."""
    for stay in range(max(1, len(schedule.sizes) - 1), 0, -1):
        planned = replace(schedule, stay=stay)
        if all(calibrate.fits(total(planned, block), budget) for block in _kinds(planned)):
            return stay
    raise PlanError(
        f"a remembered record cannot be read in one later task within {budget}, with noise {schedule.noise_of(0):g} "
        f"and an expected batch of {schedule.batch:g} from {schedule.size_of(0):g} records; use more noise, a smaller "
        "batch or a larger memory"
    )


def _kinds(schedule: Schedule) -> list[int]:
    """One block for each list of reads that occurs."""
    return list({tuple(map(repr, schedule.events(block))): block for block in schedule.blocks}.values())
