"""Episodic memory: blocks that the vault holds for later tasks, and the reads that are planned for them.

Guarantee: every read of a memory block is planned from public facts before the block is first read, and committed in
one charge (`Memory.add`); the grants of a later task are made from the same plan, so that what is read is what was
billed. A record of the memory is not in its task's training part: it loses one or the other, never both. When a record
comes, when it goes and at which rate it is read hangs on public facts and its own secret tag alone: nobody enters
because somebody left.
"""

from tacit.memory.held import Memory, References
from tacit.memory.least import calibrated, most_read, widened
from tacit.memory.schedule import Expected, Leave, Mode, Reading, Schedule

__all__ = [
    "Expected",
    "Leave",
    "Memory",
    "Mode",
    "Reading",
    "References",
    "Schedule",
    "calibrated",
    "most_read",
    "widened",
]
