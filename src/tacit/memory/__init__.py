"""Episodic memory: records of earlier tasks that the vault holds, and the reads that are planned for them.

`Schedule` plans every read from public facts, `calibrated` finds its noise from a budget, `Memory` and `ReplayMemory`
hold the blocks and make the grants.
"""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.memory.calibration import calibrated, most_read, stay_for, widened
    from tacit.memory.episodic_memory import Memory, References, ReplayMemory
    from tacit.memory.read_schedule import Mode, Reading, Schedule
    from tacit.memory.retention import Leave, MemoryUse, Retention

__all__ = [
    "Leave",
    "Memory",
    "MemoryUse",
    "Mode",
    "Reading",
    "References",
    "ReplayMemory",
    "Retention",
    "Schedule",
    "calibrated",
    "most_read",
    "stay_for",
    "widened",
]

__getattr__, __dir__ = attach(__name__, __file__)
