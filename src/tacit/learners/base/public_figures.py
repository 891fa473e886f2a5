"""Public figures that a learner reports: expected numbers of records, and the bound that its paper claims."""

from dataclasses import dataclass

from tacit.memory import MemoryUse


@dataclass(frozen=True, kw_only=True)
class Consumption:
    """Expected numbers of records that one task reads, keeps and retires. The true numbers are private."""

    trained: float
    """Reads of the task's training records, summed over all steps."""
    read: float = 0.0
    """Reads of remembered records. A rule that excludes some of them may use fewer, which is private."""
    admitted: float = 0.0
    """Records that enter the memory after the task."""
    retired: float = 0.0
    """Remembered records that are retired after the task."""
    held: float = 0.0
    """Remembered records that are held during the task."""

    @classmethod
    def of(cls, trained: float, memory: MemoryUse) -> "Consumption":
        return cls(
            trained=trained, read=memory.read, admitted=memory.admitted, retired=memory.retired, held=memory.held
        )


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What the paper's own formula gives after some tasks.

    Attributes:
        per_task: The largest ε of any task.
        total: ε over all tasks.
        delta: The δ of both.
    """

    per_task: float
    total: float
    delta: float
