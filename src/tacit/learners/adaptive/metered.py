"""Full-batch gradient descent under individual Rényi filters: each unit is used until its own privacy loss reaches ρ.

A public schedule has to charge every step as if each gradient had the clipping norm. Here each unit is charged what its
own gradient costs, so that a unit with small gradients is used for more steps. A share of a task's units is not trained
on but remembered (`tacit.memory`): later tasks read it under one filter for all of them, so that what each unit has
left decides how long it helps. Which units are used up is private.

A step follows the task's noisy gradient plus `memory_weight` times the memory's, the mean of the remembered blocks'
noisy gradients weighted by nominal size. (On one seed of permuted digits this beat A-GEM's projection.)

After a crash: what a filter has spent is spent, and no noise is drawn twice, so steps cannot be repeated. A task that
was killed begins again from the last release with what its units have left; the result may be worse than that of an
uninterrupted run. Nothing is charged twice in the ledger.
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
from tacit.learners.base.callbacks import Step
from tacit.learners.base.gradient import Gradient, with_momentum
from tacit.learners.base.learner import Learner
from tacit.learners.base.public_figures import Consumption
from tacit.learners.base.ranges import BELOW_ONE, Range
from tacit.memory import Memory, Retention
from tacit.privacy.vault import Block, FilterPlan, IndividualFilter, SumPlan, Vault

_UP = 1 + 1e-6
"""Above the rounding of the filters: with lasting = 1 a gradient at the clipping norm can be paid in every step."""
_LEFT = "left."


@dataclass(kw_only=True, eq=False)
class MeteredGD(Learner):
    """Gradient descent with an individual privacy filter for each unit and a memory used until its units are spent.

    Reference: Feldman & Zrnic 2021.
    Claim: none.
    Certified: for each unit, over all tasks that read its block, (α, αρ)-RDP at every order α, whether or not the unit
    spent all of it.
    Sharp edges: on permuted tasks it shows no gain over a public schedule (`lasting=1`). Every step reads all
    units, without amplification by sampling; once most units are excluded, steps are mostly noise. A task that was
    killed begins again with what its units have left.
    """

    steps: int = 30
    """Number of steps in a task, each on all units whose filter is not exhausted."""
    lr: float = 2.0
    """Learning rate."""
    momentum: float = 0.0
    """Momentum of the noisy gradients. 0: none."""
    clip: float = 2.0
    """Clipping norm: a unit's gradient is scaled down to at most this norm."""
    noise: float | None = None
    """Noise multiplier of a training block; a remembered block has √(tasks that read it) times as much. If None, given
    by `lasting`."""
    lasting: float = 0.8
    """Share of the steps for which a unit lasts whose gradients all have the clipping norm. 1: all units last, as in a
    public schedule; a smaller share means less noise, and that units with large gradients drop out before the end."""
    memory_share: float = 0.4
    """Share of a task's units that is remembered instead of trained on, by a keyed pseudorandom draw for each unit. 0:
    none."""
    memory_weight: float = 0.5
    """Weight of the memory's gradient relative to that of the task."""
    stay: int | None = None
    """Largest number of later tasks that read a remembered record, which is then retired. If None, all later tasks."""
    count_share: float = 0.0
    """Share of ρ for a noisy count of the remaining units of each block after each task. 0: no counts."""

    ranges: ClassVar[Mapping[str, Range]] = {"memory_share": BELOW_ONE}
    reference: ClassVar[str] = "Feldman & Zrnic 2021, individual Rényi filters"
    supports_endless: ClassVar[bool] = True
    certifies: ClassVar[str] = "a unit: the Rényi filter of its own gradients in each of its tasks, remembered or not"

    def start(self, stream: StreamInfo) -> None:
        self._check_settings(stream)
        super().start(stream)
        self.rho_ = FilterPlan.for_budget(self.budget, stream.tasks_per_unit).rho
        self.noisy_units_left_: dict[int, float] = {}
        """Noisy numbers of remaining units after the last task: of its own block (by its number) and of remembered
        ones. A block whose steps were begun again after a crash has none: its count may have been released before."""
        sizes = [self.memory_share * task.size for task in stream.tasks] if self.memory_share else []
        endless = stream.endless and self.memory_share > 0
        retention = Retention(sizes=tuple(sizes), stay=self.stay if self.memory_share else None, endless=endless)
        self.memory_ = Memory(stream=stream, share=self.memory_share, schedule=retention)
        self._filters: dict[int, IndividualFilter] = {}

    @property
    def plan(self) -> FilterPlan:
        """The filter's plan for every block. It depends on public facts only."""
        return FilterPlan(rho=(1 - self.count_share) * self.rho_)

    def noise_of(self, tasks: int) -> float:
        """Noise multiplier of a block that `tasks` tasks read."""
        single = self.noise or math.sqrt(self.lasting * self.steps / (2 * self.plan.rho)) * _UP
        return single * math.sqrt(tasks)

    def charges(self) -> list[list[DpEvent]]:
        tasks = {1, *(self._later_tasks(task.number) for task in self.stream_.tasks)} - {0}
        return [[self.plan.event, *(plan.event for plan in self._counts(n))] for n in sorted(tasks)]

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        train, memory = (block, None) if self.memory_share == 0 else self.memory_.split(block, vault)
        held = self.memory_.schedule.held(task.number) if self.memory_share else ()
        blocks = {number: self.memory_.parts(number, task.number)[0] for number in held} | {task.number: train}
        try:
            filters = {number: self._filter(part, number, task, vault) for number, part in blocks.items()}
            planned = {number for number in blocks if filters[number].steps == self._steps_before(number, task)}
            self._descend(task, filters, blocks)
            self.noisy_units_left_ = {}
            for number in sorted(planned) if self.count_share else ():
                (plan, *_) = self._counts(self._reads(number, task))
                self.noisy_units_left_[number] = filters[number].noisy_units_left(plan)
        finally:
            if vault.has_store:  # a later task, or process, opens them again
                for meter in self._filters.values():
                    meter.pause()
                self._filters.clear()
        if memory is not None:
            self.memory_.add(task.number, memory, vault)
        vault.drop(train)

    def on_saved(self, block: Block, vault: Vault) -> None:
        """Once a task cannot be learned again its training units are retired, and remembered ones it read last."""
        if any(task.name == block.task for task in self.tasks_):
            given = "" if block.part == "all" else f"{block.part}/"
            part = block.part if self.memory_share == 0 else f"{given}train"
            vault.retire(vault.find(self.stream_.name, block.task, part))
        super().on_saved(block, vault)

    def tensors(self) -> dict[str, Tensor]:
        """The weights, and the noisy counts of the last task."""
        counts = {f"{_LEFT}{number}": torch.tensor(count) for number, count in self.noisy_units_left_.items()}
        return super().tensors() | counts

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        counts = {name: value for name, value in tensors.items() if name.startswith(_LEFT)}
        super().load({name: value for name, value in tensors.items() if name not in counts})
        self.noisy_units_left_ = {int(name.removeprefix(_LEFT)): float(value) for name, value in counts.items()}

    def consumption(self, task: TaskInfo) -> Consumption:
        """As if no unit were used up: which units are is private."""
        trained = self.steps * (1 - self.memory_share) * task.size
        if self.memory_share == 0:
            return Consumption(trained=trained)
        retention = self.memory_.schedule
        held = retention.use(task.number, 0.0).held
        return Consumption.of(trained, retention.use(task.number, self.steps * held))

    def _descend(self, task: TaskInfo, filters: Mapping[int, IndividualFilter], blocks: Mapping[int, Block]) -> None:
        trained = {name: p for name, p in self.model_.named_parameters() if p.requires_grad}
        noises = {number: self.noise_of(self._reads(number, task)) for number in filters}
        held = sum(block.size for number, block in blocks.items() if number != task.number)
        weights = {
            number: 1.0 if number == task.number else self.memory_weight * block.size / held
            for number, block in blocks.items()
        }
        velocity: Gradient | None = None
        for step in range(self.steps):
            self.report(Step(task=task, step=step, of=self.steps))
            total = {name: torch.zeros_like(p) for name, p in trained.items()}
            for number, meter in filters.items():
                gradient = meter.gradient(self.model_, self.loss_, noise=noises[number], clip=self.clip)
                for name, value in total.items():
                    value.add_(gradient[name], alpha=weights[number])
            velocity = with_momentum(total, velocity, self.momentum)
            with torch.no_grad():
                for name, p in trained.items():
                    p.sub_(velocity[name], alpha=self.lr)
        self.report(Step(task=task, step=self.steps, of=self.steps))

    def _filter(self, block: Block, number: int, task: TaskInfo, vault: Vault) -> IndividualFilter:
        if block.id not in self._filters:
            if counts := self._counts(self._reads(number, task)):
                vault.commit({block: [self.plan, *counts]})
            self._filters[block.id] = vault.individual_filter(block, self.plan)
        return self._filters[block.id]

    def _counts(self, tasks: int) -> list[SumPlan]:
        """One count after each of the `tasks` tasks that read a block; together they cost their share of ρ."""
        if self.count_share == 0:
            return []
        return [SumPlan(noise=math.sqrt(tasks / (2 * self.count_share * self.rho_)) * _UP)] * tasks

    def _later_tasks(self, number: int) -> int:
        """How many later tasks read the memory of a task."""
        return len(self.memory_.schedule.tasks_of(number))

    def _reads(self, number: int, task: TaskInfo) -> int:
        """How many tasks read the block of task `number` that this task reads: its training part, or its memory."""
        return 1 if number == task.number else self._later_tasks(number)

    def _steps_before(self, number: int, task: TaskInfo) -> int:
        """How many steps a block's filter has taken before a task, where no task was begun again."""
        return 0 if number == task.number else (task.number - number - 1) * self.steps

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
                f"the stream {stream.name!r} is endless, so remembered records must be retired at some time: give "
                "stay=2, or memory_share=0"
            )
