"""The memory itself: parts of earlier tasks that the vault holds, and the grants on them.

Guarantee: a part is read in the tasks of its schedule and in no other; all these reads are in one charge, made before
the first of them. A part whose time is over is retired, in memory and on disk, once the release of the last task that
reads it is kept for good: until then that task can be learnt again after a crash.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn

from tacit.errors import LearnerError
from tacit.memory.schedule import Reading, Schedule
from tacit.privacy.declared import Block, Loss, Read
from tacit.privacy.grant import Grant
from tacit.privacy.vault import Vault

Rule = Callable[[Tensor, Tensor], Tensor]
"""Which records are used: (x, y) of one record → whether."""
Parts = dict[int | None, Block]
"""Of one task's memory, by the number of tasks for which they stay (None: for ever)."""


@dataclass(kw_only=True)
class Memory:
    """The parts held so far, by the number of their task, and the grants on them."""

    schedule: Schedule
    blocks: dict[int, Parts] = field(default_factory=dict)

    def add(self, number: int, block: Block, vault: Vault) -> None:
        """Commit all later reads of the block, in one transaction, and hold it. What is never read is let go."""
        parts = self._cut(block, vault)
        planned = {part: self.schedule.events(number, part) for part in parts}
        if any(planned.values()):
            vault.commit({held: planned[part] for part, held in parts.items() if planned[part]})
        for part, held in parts.items():
            if not planned[part]:
                vault.drop(held)
                continue
            if vault.has_store:
                vault.keep(held)
            self.blocks.setdefault(number, {})[part] = held
        for over in self._over(number - 1).values():  # nobody said that those releases are kept
            vault.drop(over)

    def retire(self, number: int, find: Callable[[int, int], Block], vault: Vault) -> None:
        """Forget every part whose time is over now that the release of task `number` is kept for good. Done again, it
        does nothing. `find`: the handle of a part that an earlier process held."""
        over = self._over(number)
        for block, part in self.schedule.leaving(number):
            if (block, part) not in over and self.schedule.events(block, part):
                over[block, part] = find(block, part)
        for (block, part), held in over.items():
            vault.retire(held)
            left = self.blocks.get(block, {})
            left.pop(part, None)
            if not left:
                self.blocks.pop(block, None)

    def hold(self, number: int, done: int, reopen: Callable[[int | None], Block]) -> None:
        """Take up the parts of task `number` that will be read again after `done` tasks were learnt."""
        for part in self.schedule.parts:
            if self.schedule.to_come(number, part, done):
                self.blocks.setdefault(number, {})[part] = reopen(part)

    def reads(self, number: int, rates: Mapping[int, float] | None = None, select: Rule | None = None) -> list[Read]:
        """The memory's part in a grant of task `number`: at these rates, or in the one grant that it has."""
        if rates is None:
            rates = {block: rate for one in self.schedule.readings(number) for block, rate in one.rates.items()}
        return [Read(part, rate, select=select) for block, rate in rates.items() for part in self._parts(block, number)]

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
        """The right to the reference gradients of task `number`, for one reader."""
        ask = partial(vault.grant, model=model, loss=loss, work=work, reader=reader)
        return References(
            [
                (reading, ask(self.reads(number, reading.rates, select), reading.plan))
                for reading in self.schedule.readings(number)
            ]
        )

    def _cut(self, block: Block, vault: Vault) -> Parts:
        """By the keyed tag of each unit, into the parts that stay 1, 2, … tasks."""
        stays = self.schedule.parts
        if len(stays) == 1:
            return {stays[0]: block}
        return dict(zip(stays, vault.split(block, {str(part): 1 / len(stays) for part in stays}), strict=True))

    def _parts(self, block: int, task: int) -> list[Block]:
        """What of an earlier task is there in this one."""
        wanted = [part for part in self.schedule.parts if task in self.schedule.tasks_of(block, part)]
        held = self.blocks.get(block, {})
        if any(part not in held for part in wanted):
            raise LearnerError(f"the memory of task {block + 1} is not here; restore the learner with its vault")
        return [held[part] for part in wanted]

    def _over(self, number: int) -> dict[tuple[int, int], Block]:
        """What is held, and was to be read in task `number` for the last time, or before."""
        return {
            (block, part): held
            for block, parts in self.blocks.items()
            for part, held in parts.items()
            if part is not None and block + part <= number
        }


class References:
    """The reference gradients of one task, step by step."""

    def __init__(self, grants: Sequence[tuple[Reading, Grant]]) -> None:
        self._grants = grants
        self._of_step = {step: grant for reading, grant in grants for step in reading.at or ()}

    def __bool__(self) -> bool:
        return bool(self._grants)

    def place(self, step: int) -> int | None:
        """Public: the label whose records are read in a step, by its place. None: those of all labels."""
        return self._grants[0][0].plan.place(step)

    def gradient(self, step: int) -> dict[str, Tensor]:
        """g_ref of a step; where every block's gradient leaves by itself, their average."""
        if self._of_step:
            return self._of_step[step].gradient()
        found = [grant.gradient() for _, grant in self._grants]
        if len(found) == 1:
            return found[0]
        return {name: sum((one[name] for one in found[1:]), found[0][name]) / len(found) for name in found[0]}
