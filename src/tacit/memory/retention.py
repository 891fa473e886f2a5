"""How long the records of an episodic memory stay: public facts that depend on no record.

A remembered record is read in at most `stay` later tasks and is then retired. Its block leaves as a whole, or by
`thinning`: a keyed hash of each unit cuts the block into `stay` parts of equal share, and part k stays for k tasks. A
record is then held at age a if and only if its own hash falls in a part ≥ a, a share 1 − (a − 1)/stay of the block.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

from dp_accounting.dp_event import DpEvent

from tacit.errors import LearnerError

Leave = Literal["together", "thinning"]


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Expected numbers of memory records in one task, computed from public facts. The true numbers are private."""

    read: float
    """Reads of records, summed over all steps and all readers."""
    admitted: float
    """Records that enter the memory after the task."""
    retired: float
    """Records that are retired after the task."""
    held: float
    """Records that are in the memory during the task."""


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Which blocks of the memory are held in which task. Blocks are named by the number of their task, from 0.

    Attributes:
        sizes: Nominal size of the memory block of each task; on an endless stream, of each task of one period.
        stay: The largest number of later tasks that read a record; None: all later tasks.
        leave: `together` retires a block as a whole, `thinning` an equal share of it after each of `stay` tasks.
        endless: Whether the stream has no last task.
    """

    sizes: tuple[float, ...]
    stay: int | None = None
    leave: Leave = "together"
    endless: bool = False

    def __post_init__(self) -> None:
        if self.leave not in ("together", "thinning"):
            raise LearnerError(f"leave must be 'together' or 'thinning', got {self.leave!r}")
        if self.stay is None:
            if self.leave == "thinning":
                raise LearnerError("leave='thinning' retires records over `stay` tasks; set stay to a whole number ≥ 1")
            if self.endless:
                raise LearnerError(
                    "on an endless stream the reads of a memory that is never retired add up without bound; set stay, "
                    "the number of later tasks that read a remembered record"
                )
        elif isinstance(self.stay, bool) or not isinstance(self.stay, int) or self.stay < 1:
            raise LearnerError(f"stay must be a whole number ≥ 1, got {self.stay!r}; None keeps records for all tasks")

    @property
    def parts(self) -> tuple[int | None, ...]:
        """The parts of a block, all of equal share, each named by the number of tasks it stays. None: for ever."""
        return (self.stay,) if self.leave == "together" or self.stay is None else tuple(range(1, self.stay + 1))

    def held(self, task: int) -> range:
        """The blocks that are held, wholly or in part, while `task` is learned."""
        return range(0 if self.stay is None else max(0, task - self.stay), task)

    def tasks_of(self, block: int, part: int | None = None) -> range:
        """The tasks that may read a block, or the part of it that stays for `part` tasks."""
        stay = self.stay if part is None else part
        last = math.inf if stay is None else block + stay
        return range(block + 1, int(min(last, math.inf if self.endless else len(self.sizes) - 1)) + 1)

    def is_read(self, task: int, block: int) -> bool:
        """Whether a held block is read in `task`."""
        return True

    def to_come(self, block: int, part: int | None, done: int) -> bool:
        """Whether a part of a block will be read once `done` tasks are learned."""
        return any(self.is_read(task, block) for task in self.tasks_of(block, part) if task >= done)

    def leaving(self, task: int) -> list[tuple[int, int | None]]:
        """The (block, part) that `task` is the last to read."""
        return [
            (block, part)
            for block in self.held(task)
            for part in self.parts
            if (tasks := self.tasks_of(block, part)) and tasks[-1] == task
        ]

    def events(self, block: int, part: int | None = None) -> list[DpEvent]:
        """What is committed for a unit of the block when the block enters the memory. Here nothing: the exit that
        reads the block charges for its reads."""
        return []

    def use(self, task: int, read: float) -> MemoryUse:
        """The expected numbers of records for `task`, given the expected number of reads."""
        return MemoryUse(
            read=read,
            admitted=self.size_of(task) if self.to_come(task, None, 0) else 0.0,
            retired=sum(self.size_of(block) / len(self.parts) for block, _ in self.leaving(task)),
            held=sum(self.size_of(block) * self.share_held(task, block) for block in self.held(task)),
        )

    def size_of(self, number: int) -> float:
        return self.sizes[self.place(number, self.sizes)]

    def share_held(self, task: int, block: int) -> float:
        """The share of a block that is held in a later task."""
        if self.stay is None or self.leave == "together":
            return 1.0
        return 1 - (task - block - 1) / self.stay

    def place(self, number: int, values: tuple[Any, ...]) -> int:
        """The index of task `number` in a tuple with one value per task, which repeats on an endless stream."""
        return number % len(values) if self.endless else number
