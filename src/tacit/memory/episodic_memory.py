"""An episodic memory: blocks of earlier tasks that the vault holds, and the grants on them.

Formal guarantees:
* A block is read only in the tasks of its schedule. With a `Schedule`, all these reads are committed in one charge
  before the first of them, and the grants of a later task are made from the same schedule: what is read is what was
  billed.
* A unit is either trained on in its task or remembered, never both.
* When a record enters, when it is retired and at which rate it is read depends on public facts and on a keyed hash of
  its own unit, not on any other record.
* A part is retired, in memory and on disk, once the release of the last task that reads it is saved. Until then that
  task can be learned again after a crash.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, VaultError
from tacit.memory.read_schedule import Reading, Schedule
from tacit.memory.retention import Retention
from tacit.privacy.vault import Block, Grant, Loss, Read, Vault

Rule = Callable[[Tensor, Tensor], Tensor]
"""(x, y) of one record → whether the record is used."""
Parts = dict[int | None, Block]
"""The parts of one task's memory, by the number of tasks for which they stay (None: for ever)."""


@dataclass(kw_only=True)
class Memory:
    """Blocks of earlier tasks, by the number of their task.

    Attributes:
        stream: Public facts of the stream.
        share: The share of a task's units that is remembered instead of trained on.
        schedule: Which block is held in which task.
        blocks: The parts of each task's memory that are held in this process.
    """

    stream: StreamInfo
    share: float
    schedule: Retention
    blocks: dict[int, Parts] = field(default_factory=dict)

    def split(self, block: Block, vault: Vault) -> tuple[Block, Block]:
        """Cuts a task's block by one keyed coin per unit into its training part and its memory part."""
        train, memory = vault.split(block, {"train": 1 - self.share, "memory": self.share})
        return train, memory

    def add(self, number: int, block: Block, vault: Vault) -> None:
        """Holds the memory part of task `number` for later tasks and drops what no later task reads.

        All later reads that the schedule knows are committed in one transaction before."""
        parts = self._cut(block, vault)
        planned = {part: self.schedule.events(number, part) for part in parts}
        if any(planned.values()):
            vault.commit({held: planned[part] for part, held in parts.items() if planned[part]})
        for part, held in parts.items():
            if not self.schedule.to_come(number, part, 0):
                vault.drop(held)
                continue
            if vault.has_store:
                vault.keep(held)
            self.blocks.setdefault(number, {})[part] = held
        for expired in self._expired(number - 1).values():  # for a caller that does not report saved releases
            vault.drop(expired)

    def retire(self, block: Block, tasks: Sequence[TaskInfo], vault: Vault) -> None:
        """Retires every part that is never read again, now that the release of a task is saved.

        Idempotent. It also finds parts that an earlier process held.

        Args:
            block: The block of the task that was saved.
            tasks: The tasks learned so far.
            vault: The vault that holds the blocks.
        """
        number = next((task.number for task in reversed(tasks) if task.name == block.task), None)
        if number is None:
            return
        expired = self._expired(number)
        for task, part in self.schedule.leaving(number):
            if (task, part) not in expired and self.schedule.to_come(task, part, 0):
                expired[task, part] = self.find(task, part, block.part, vault)
        for (task, part), held in expired.items():
            vault.retire(held)
            left = self.blocks.get(task, {})
            left.pop(part, None)
            if not left:
                self.blocks.pop(task, None)

    def retire_all(self, learned: int, vault: Vault) -> None:
        """Retires every part that is still to be read, where the learner ends before the stream does. Idempotent."""
        for number in self.schedule.held(learned):
            for part in self.schedule.parts:
                if part is not None and self.schedule.to_come(number, part, learned):
                    vault.retire(self.find(number, part, "all", vault))
        self.blocks.clear()

    def reopen(self, learned: int, given: str, vault: Vault) -> None:
        """Holds again, in a new process, the parts that are read after `learned` tasks.

        Args:
            learned: Number of tasks learned so far.
            given: The part of each task's records that the learner was given ("all", or a part's name).
            vault: A vault with the store that the parts were kept in.
        """
        for number in self.schedule.held(learned):
            for part in self.schedule.parts:
                if self.schedule.to_come(number, part, learned):
                    name = self._part_name(given, part)
                    held = reopen_kept(vault, self.stream, self._task(number), name)
                    self.blocks.setdefault(number, {})[part] = held

    def parts(self, number: int, task: int) -> list[Block]:
        """The held parts of the memory of task `number` that `task` may read."""
        wanted = [part for part in self.schedule.parts if task in self.schedule.tasks_of(number, part)]
        held = self.blocks.get(number, {})
        if any(part not in held for part in wanted):
            raise LearnerError(f"the memory of task {number + 1} is not here; restore the learner with its vault")
        return [held[part] for part in wanted]

    def find(self, number: int, part: int | None, given: str, vault: Vault) -> Block:
        """The handle of a part of an earlier task's memory."""
        return vault.find(self.stream.name, self._task(number).name, self._part_name(given, part))

    def _cut(self, block: Block, vault: Vault) -> Parts:
        """Cuts a block by a keyed hash of each unit into the parts that stay 1, 2, … tasks."""
        stays = self.schedule.parts
        if len(stays) == 1:
            return {stays[0]: block}
        return dict(zip(stays, vault.split(block, {str(part): 1 / len(stays) for part in stays}), strict=True))

    def _expired(self, number: int) -> dict[tuple[int, int | None], Block]:
        """The held parts whose `stay` ended with task `number` or before."""
        return {
            (task, part): held
            for task, parts in self.blocks.items()
            for part, held in parts.items()
            if part is not None and task + part <= number
        }

    def _part_name(self, given: str, part: int | None) -> str:
        whole = "memory" if given == "all" else f"{given}/memory"
        return f"{whole}/{part}" if len(self.schedule.parts) > 1 else whole

    def _task(self, number: int) -> TaskInfo:
        task = self.stream.task(number)
        assert task is not None  # it was learned
        return task


@dataclass(kw_only=True)
class ReplayMemory(Memory):
    """A memory whose reads are all planned before: it makes the grants of each task from its schedule."""

    schedule: Schedule

    def reads(self, number: int, rates: Mapping[int, float] | None = None, select: Rule | None = None) -> list[Read]:
        """The reads of the memory in a grant of task `number`.

        Args:
            number: The task.
            rates: Sampling rate of each block. None: those of the task's only grant.
            select: Which records are used; None: all.
        """
        if rates is None:
            rates = {block: rate for one in self.schedule.readings(number) for block, rate in one.rates.items()}
        return [Read(part, rate, select=select) for block, rate in rates.items() for part in self.parts(block, number)]

    def grants(
        self,
        number: int,
        vault: Vault,
        model: nn.Module,
        loss: Loss,
        work: Mapping[str, Any],
        *,
        select: Rule | None = None,
        reader: str | None = None,
    ) -> "References":
        """The grants of task `number` on the memory, for one reader."""
        grant = partial(vault.grant, model=model, loss=loss, work=work, reader=reader)
        return References(
            [
                (reading, grant(self.reads(number, reading.rates, select), reading.plan))
                for reading in self.schedule.readings(number)
            ]
        )


class References:
    """The reference gradients g_ref of one task, step by step. False where the task has none."""

    def __init__(self, grants: Sequence[tuple[Reading, Grant]]) -> None:
        self._grants = grants
        self._of_step = {step: grant for reading, grant in grants for step in reading.at or ()}

    def __bool__(self) -> bool:
        return bool(self._grants)

    def place(self, step: int) -> int | None:
        """The index of the label whose records a step reads; None: records of all labels. Public."""
        return self._grants[0][0].plan.place(step)

    def gradient(self, step: int) -> dict[str, Tensor]:
        """g_ref of a step; where the gradient of every block is released, their average."""
        if self._of_step:
            return self._of_step[step].gradient()
        gradients = [grant.gradient() for _, grant in self._grants]
        if len(gradients) == 1:
            return gradients[0]
        first, *others = gradients
        return {name: sum((one[name] for one in others), first[name]) / len(gradients) for name in first}


def reopen_kept(vault: Vault, info: StreamInfo, task: TaskInfo, part: str) -> Block:
    """A part of an earlier task that was kept in the vault's store, with targets indexed by the stream's labels.

    Raises:
        LearnerError: The vault has no store, or the store does not hold the part.
    """
    if not vault.has_store:
        raise LearnerError(
            "this learner remembers records, and they are in its store: give from_release(folder, ledger=…, store=…) "
            "the store that it was trained with; without its store and ledger it can only predict"
        )
    try:
        block = vault.reopen(vault.find(info.name, task.name, part))
    except VaultError as error:
        raise LearnerError(
            f"this store does not hold the memory of task {task.name!r}; give the store that the learner was trained "
            "with"
        ) from error
    return block if block.labels == info.labels else vault.with_labels(block, info.labels)
