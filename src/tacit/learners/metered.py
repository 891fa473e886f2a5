"""Full-batch noisy gradients, each unit retired in silence by its own meter: individual Rényi filters as a learner.

A public schedule has to charge every step as if each gradient were as long as the clip. Here each unit pays what its
own gradient costs (`vault.meter`) and is used until its own losses reach ρ: one with small gradients lasts longer than
the clip would allow. A share of a task's units is not trained on but remembered: they are read in later tasks, by one
meter over all of them, so that what each has left decides how long it helps. Nobody learns who is out.

A step follows the task's noisy gradient and `memory_weight` of the memory's, which is the mean of the remembered
blocks' noisy gradients, each as heavy as its nominal size. (On one seed of permuted digits it beat A-GEM's projection.)

After a crash: what a meter spent is spent, and no noise is drawn twice, so steps cannot be redone. A task that was
killed begins again from the last release with what its units have left; it ends, and may be worse than one that ran
through. Nothing is charged twice in the ledger.

Reference: Feldman & Zrnic 2021. Claim: none. Certified: α·ρ at every Rényi order, however much of it was spent.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.consumption import Consumption
from tacit.learners.core import Step
from tacit.learners.gradient import Gradient, gathered
from tacit.learners.kept import reopened
from tacit.learners.learner import Learner
from tacit.learners.ranges import BELOW_ONE, Range
from tacit.privacy.declared import Block
from tacit.privacy.meter import Meter, MeterPlan
from tacit.privacy.plan import SumPlan
from tacit.privacy.vault import Vault

_UP = 1 + 1e-6
"""More than the meters' rounding: with lasting = 1 a gradient at the clip can be paid for in every step."""
_LEFT = "left."


@dataclass(kw_only=True, eq=False)
class MeteredGD(Learner):
    """Gradient descent with a meter for each unit, and a memory whose units are used until they are spent."""

    steps: int = 30
    """In every task, each on all units that have something left."""
    lr: float = 2.0
    """The learning rate."""
    momentum: float = 0.0
    """Of the noisy gradients. 0: none."""
    clip: float = 2.0
    """The longest gradient of a unit; longer ones are scaled down to it."""
    noise: float | None = None
    """Noise multiplier of a training block; that of a remembered one is √(tasks that read it) times as much. None: by
    `lasting`."""
    lasting: float = 0.8
    """The share of all its steps for which a unit lasts whose gradients are as long as the clip. 1: all units last, as
    in a public schedule; less of it means less noise, and that others than the longest gradients carry the end."""
    memory_share: float = 0.4
    """Of a task's units, how many are remembered instead of trained on, by one secret coin each. 0: none."""
    memory_weight: float = 0.5
    """Of the memory's gradient, beside that of the task."""
    stay: int | None = None
    """In how many later tasks remembered units are read at most; then they are retired for good. None: in all."""
    count_share: float = 0.0
    """The share of ρ that pays for a noisy count of who is left, of each block after each task. 0: nobody counts."""

    ranges: ClassVar[Mapping[str, Range]] = {"memory_share": BELOW_ONE}
    """0: nothing is remembered."""
    reference: ClassVar[str] = "Feldman & Zrnic 2021, individual Rényi filters"
    forever: ClassVar[bool] = True
    certifies: ClassVar[str] = "a unit: the Rényi filter of its own gradients in each of its tasks, remembered or not"

    def start(self, stream: StreamInfo) -> None:
        self._check_settings(stream)
        super().start(stream)
        self.rho_ = MeterPlan.for_budget(self.budget, stream.tasks_per_unit).rho
        self.left_: dict[int, float] = {}
        """Noisy numbers of units that are not out, after the last task: of its own (by its number), and of what is
        remembered of earlier ones. A block whose steps were begun again after a crash has none: its count may have been
        asked for before."""
        self.memory_: dict[int, Block] = {}
        self._meters: dict[int, Meter] = {}

    @property
    def plan(self) -> MeterPlan:
        """Of every block. Public facts only."""
        return MeterPlan(rho=(1 - self.count_share) * self.rho_)

    def noise_of(self, tasks: int) -> float:
        """The noise multiplier of a block that is read in so many tasks."""
        one = self.noise or math.sqrt(self.lasting * self.steps / (2 * self.plan.rho)) * _UP
        return one * math.sqrt(tasks)

    def charges(self) -> list[list[DpEvent]]:
        tasks = {1, *(self._tasks_of(task.number) for task in self.stream_.tasks)} - {0}
        return [[self.plan.event, *(plan.event for plan in self._counts(n))] for n in sorted(tasks)]

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        train, memory = self._cut(block, vault)
        blocks = {number: self._held(number) for number in self._read_in(task.number)} | {task.number: train}
        try:
            meters = {number: self._meter(one, number, task, vault) for number, one in blocks.items()}
            planned = {number for number in blocks if meters[number].steps == self._before(number, task)}
            self._descend(task, meters, blocks)
            self.left_ = {}
            for number in sorted(planned) if self.count_share else ():
                (plan, *_) = self._counts(self._reads(number, task))
                self.left_[number] = meters[number].left(plan)
        finally:
            if vault.has_store:  # a later task, or process, takes them up
                for meter in self._meters.values():
                    meter.pause()
                self._meters.clear()
        if memory is not None:
            self._remember(task, memory, vault)
        vault.drop(train)

    def saved(self, block: Block, vault: Vault) -> None:
        """Once a task cannot be learnt again its units are retired, and remembered ones whose last task it was."""
        number = next((task.number for task in reversed(self.tasks_) if task.name == block.task), None)
        if number is None:
            return
        vault.retire(self._found(number, "train", block.part, vault))
        for one in self._read_last_in(number):
            vault.retire(self._found(one, "memory", block.part, vault))
            self.memory_.pop(one, None)

    @property
    def holds(self) -> bool:
        return bool(self.memory_)

    def take_up(self, vault: Vault, part: str) -> None:
        for number in self._read_in(self.learnt):
            self.memory_[number] = reopened(vault, self.stream_, self._task(number), self._part(part, "memory"))

    def tensors(self) -> dict[str, Tensor]:
        """The weights, and the noisy counts of the last task."""
        counts = {f"{_LEFT}{number}": torch.tensor(count) for number, count in self.left_.items()}
        return super().tensors() | counts

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        counts = {name: value for name, value in tensors.items() if name.startswith(_LEFT)}
        super().load({name: value for name, value in tensors.items() if name not in counts})
        self.left_ = {int(name.removeprefix(_LEFT)): float(value) for name, value in counts.items()}

    def consumption(self, task: TaskInfo) -> Consumption:
        """As if nobody were out: who is, is secret."""
        read = self._read_in(task.number)
        sizes = {one: self.memory_share * self._task(one).size for one in (*read, task.number)}
        held = sum(sizes[one] for one in read)
        return Consumption(
            trained=self.steps * (1 - self.memory_share) * task.size,
            read=self.steps * held,
            admitted=sizes[task.number] if self._tasks_of(task.number) else 0.0,
            retired=sum(sizes[one] for one in self._read_last_in(task.number)),
            held=held,
        )

    def _descend(self, task: TaskInfo, meters: Mapping[int, Meter], blocks: Mapping[int, Block]) -> None:
        trained = {name: p for name, p in self.model_.named_parameters() if p.requires_grad}
        noises = {number: self.noise_of(self._reads(number, task)) for number in meters}
        held = sum(block.size for number, block in blocks.items() if number != task.number)
        weights = {
            number: 1.0 if number == task.number else self.memory_weight * block.size / held
            for number, block in blocks.items()
        }
        velocity: Gradient | None = None
        for step in range(self.steps):
            self.watch(Step(task=task, step=step, of=self.steps))
            total = {name: torch.zeros_like(p) for name, p in trained.items()}
            for number, meter in meters.items():
                found = meter.gradient(self.model_, self.loss_, noise=noises[number], clip=self.clip)
                for name, value in total.items():
                    value.add_(found[name], alpha=weights[number])
            velocity = gathered(total, velocity, self.momentum)
            with torch.no_grad():
                for name, p in trained.items():
                    p.sub_(velocity[name], alpha=self.lr)
        self.watch(Step(task=task, step=self.steps, of=self.steps))

    def _meter(self, block: Block, number: int, task: TaskInfo, vault: Vault) -> Meter:
        if block.id not in self._meters:
            if counts := self._counts(self._reads(number, task)):
                vault.commit({block: [self.plan, *counts]})
            self._meters[block.id] = vault.meter(block, self.plan)
        return self._meters[block.id]

    def _counts(self, tasks: int) -> list[SumPlan]:
        """One after each task that reads a block; all of them together cost their share of ρ."""
        if self.count_share == 0:
            return []
        return [SumPlan(noise=math.sqrt(tasks / (2 * self.count_share * self.rho_)) * _UP)] * tasks

    def _tasks_of(self, number: int) -> int:
        """How many later tasks read what is remembered of a task."""
        if self.memory_share == 0:
            return 0
        later = None if self.stream_.endless else len(self.stream_.tasks) - 1 - number
        return min(n for n in (later, self.stay) if n is not None)

    def _reads(self, number: int, task: TaskInfo) -> int:
        """How many tasks read the block of task `number` that this task reads: its training part, or its memory."""
        return 1 if number == task.number else self._tasks_of(number)

    def _read_in(self, number: int) -> list[int]:
        """The tasks whose memory is read in a task."""
        first = 0 if self.stay is None else max(0, number - self.stay)
        return [one for one in range(first, number) if one + self._tasks_of(one) >= number]

    def _read_last_in(self, number: int) -> list[int]:
        """Those of them that no later task reads."""
        return [one for one in self._read_in(number) if one + self._tasks_of(one) == number]

    def _before(self, number: int, task: TaskInfo) -> int:
        """How many steps a block's meter has taken before a task, where none was begun again."""
        return 0 if number == task.number else (task.number - number - 1) * self.steps

    def _cut(self, block: Block, vault: Vault) -> tuple[Block, Block | None]:
        if self.memory_share == 0:
            return block, None
        train, memory = vault.split(block, {"train": 1 - self.memory_share, "memory": self.memory_share})
        return train, memory

    def _remember(self, task: TaskInfo, memory: Block, vault: Vault) -> None:
        if self._tasks_of(task.number) == 0:
            vault.drop(memory)
            return
        if vault.has_store:
            vault.keep(memory)
        self.memory_[task.number] = memory

    def _held(self, number: int) -> Block:
        if number not in self.memory_:
            raise LearnerError(f"the memory of task {number + 1} is not here; restore the learner with its vault")
        return self.memory_[number]

    def _found(self, number: int, part: str, given: str, vault: Vault) -> Block:
        return vault.find(self.stream_.name, self._task(number).name, self._part(given, part))

    def _part(self, given: str, part: str) -> str:
        """The name of a part, where the learner gets this part of a task's records."""
        if self.memory_share == 0:
            return given
        return part if given == "all" else f"{given}/{part}"

    def _task(self, number: int) -> TaskInfo:
        task = self.stream_.task(number)
        assert task is not None  # it was learnt, or is
        return task

    def _check_settings(self, stream: StreamInfo) -> None:
        for name, value in (("steps", self.steps), ("stay", self.stay)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise LearnerError(f"{name} must be a whole number ≥ 1, got {value!r}")
        if not 0 < self.lasting <= 1:
            raise LearnerError(f"lasting must be above 0 and at most 1, got {self.lasting}; 1 is a public schedule")
        for name in ("memory_share", "count_share"):
            if not 0 <= (share := getattr(self, name)) < 1:
                raise LearnerError(f"{name} must be at least 0 and below 1, got {share}")
        for name, positive in (
            ("clip", self.clip),
            ("noise", self.noise),
            ("memory_weight", self.memory_weight),
        ):
            if positive is not None and not 0 < positive < math.inf:
                raise LearnerError(f"{name} must be a finite number > 0, got {positive}")
        if stream.endless and self.memory_share and self.stay is None:
            raise LearnerError(
                f"{stream.name!r} has no last task, so remembered units must leave at some time: give stay=2, or "
                "memory_share=0"
            )
