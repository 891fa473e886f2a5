"""How many records a task uses: expected values, from public facts alone. Real numbers of records stay secret."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Consumption:
    """What one task reads, keeps and lets go, in records."""

    trained: float
    """How often a record of the task's training part is read, in all its steps."""
    read: float = 0.0
    """How often a remembered record is read. A rule that leaves some of them out may use fewer, which stays secret."""
    admitted: float = 0.0
    """Records that are remembered after the task."""
    retired: float = 0.0
    """Remembered records that are forgotten for good after it."""
    held: float = 0.0
    """Remembered records that are there while it is learnt."""
