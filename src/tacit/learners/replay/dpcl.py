"""DP-CL: A-GEM with noisy gradients of the task and of the memory (Desai et al. 2021, Algorithm 1), and its family.

For each task (`ProjectedReplay.fit`):
    split the task's units by one coin each into a training part and a memory part
    g ← noisy gradient of the training part: per-example clipping, one draw of noise on the sum, a public divisor
    g_ref ← noisy gradient of the memory of earlier tasks
    g̃ ← g − (gᵀg_ref / g_refᵀg_ref) g_ref where gᵀg_ref < 0 (`project`)
    step along g̃; keep the memory part for later tasks

A record is trained on or remembered, so it is charged the larger of the two costs, not their sum.

`ProjectedReplay` is shared by DP-CL, DP-AGEM, the naive Gaussian mechanism and the members of a pool. It also has what
Hassanpour et al. 2022 add: robust A-GEM (Eq. 5, `by_class`) and the efficient memory (Eq. 6, `margin`), docs/robust.md.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from dp_accounting.dp_event import DpEvent
from torch import nn

from tacit.certificate.claims import Claim, desai_dp_cl, moments_accountant
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base.gradient import Gradient, GradientLearner, GradientSettings, by_moments, with_momentum
from tacit.learners.base.public_figures import Claimed, Consumption
from tacit.learners.replay.margin import Margin, MarginRule
from tacit.memory import Leave, Mode, ReplayMemory, Schedule, calibrated
from tacit.memory.calibration import RAISE, raised_to_fit, unit_charges
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.vault import Block, GradientPlan, Vault


def project(gradient: Gradient, reference: Gradient, *, always: bool) -> Gradient:
    """A-GEM's projection (Chaudhry et al. 2019, Eq. 11): g − (gᵀg_ref / g_refᵀg_ref) g_ref.

    Args:
        gradient: g, of the task.
        reference: g_ref, of the memory.
        always: Whether to project in every step; otherwise only where the two conflict (gᵀg_ref < 0).
    """
    dot = sum(float(torch.dot(g.flatten(), reference[name].flatten())) for name, g in gradient.items())
    if dot >= 0 and not always:
        return gradient
    square = sum(float(torch.dot(r.flatten(), r.flatten())) for r in reference.values())
    if square == 0:
        return gradient
    return {name: g.sub(reference[name], alpha=dot / square) for name, g in gradient.items()}


@dataclass(kw_only=True, eq=False)
class ProjectionSettings(GradientSettings):
    """The settings of A-GEM on noisy gradients."""

    memory_share: float = 0.1
    """Share of a task's units that is remembered instead of trained on, by one secret coin per unit."""
    stay: int | None = None
    """Largest number of later tasks that read a remembered record, which is then retired. None: all later tasks."""
    leave: Leave = "together"
    """How a task's remembered records are retired: all after `stay` tasks, or (thinning) an equal share after each of
    them, chosen by a keyed hash of each unit."""
    memory_batch: float = 50
    """Expected number of memory records in a reference gradient."""
    memory_noise: float | None = None
    """Noise multiplier of the reference gradients. None: the least that the budget allows for a unit of the memory."""
    project: Literal["conflict", "always"] = "conflict"
    """Project a step where it conflicts with the memory's gradient, or in every step."""
    smooth: float = 0.0
    """Weight of the past in a running mean of a task's reference gradients: less noise at no privacy cost. 0: none."""
    by_class: bool = False
    """Robust A-GEM: each step is compared with the remembered records of one label; the labels take turns."""
    margin: float | None = None
    """Efficient memory: use a remembered record only while its own margin under the last released model is at least
    this value, between -1 and 1. Below 0, records pass of which that model is unsure. None: use all records."""
    margin_draws: int = 32
    """Number of draws of a noise layer's noise that a margin is averaged over."""
    margin_confidence: float = 0.95
    """Confidence of the bounds of the margin over these draws."""

    def train_size(self, task: TaskInfo) -> int:
        return max(1, round((1 - self.memory_share) * task.size))


@dataclass(kw_only=True, eq=False)
class ProjectedReplay(ProjectionSettings, GradientLearner):
    """A-GEM on noisy gradients: a subclass decides how the memory is read (`mode`) and what its paper claims.

    With momentum the velocity is projected: it has less noise than one gradient, and so has the detected conflict.
    """

    def start(self, stream: StreamInfo) -> None:
        if self.by_class:
            self._check_by_class(stream)
        check_memory_share(self.memory_share)
        super().start(stream)
        self.slack_ = 1.0
        raised = None if self.noise_is_given() else self._raised
        schedule = raised_to_fit(self.schedule(stream), self.budget, self.train_events, raised)
        self.memory_ = ReplayMemory(stream=stream, share=self.memory_share, schedule=schedule)
        if self.margin is not None:
            self._margin_rule(self.margin).check(self.model_, labels=len(self.labels_))
            self.used_records(self.model_)  # refuse a network without a margin before any record is read

    @abstractmethod
    def mode(self) -> Mode:
        """How the memory is read."""

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        train, memory = self.memory_.split(block, vault)
        self.train(task, train, vault, judge=self.model_)
        vault.drop(train)
        self.memory_.add(task.number, memory, vault)

    def train(self, task: TaskInfo, block: Block, vault: Vault, *, judge: nn.Module, reader: str | None = None) -> None:
        """Trains `model_` on the task's training part and on the planned reads of the memory.

        Args:
            task: Public facts of the task.
            block: The training part of the task's block.
            vault: The vault that holds the block and the memory.
            judge: The last released model, which decides about remembered records where `margin` is set.
            reader: Where several networks are trained on one task, the name of this one: each has its own grants.
        """
        model, loss, work, select = self.model_, self.loss_, self.settings(), self.used_records(judge)
        grant = vault.grant(block, self.plan(task), model, loss, work=work, reader=reader)
        references = self.memory_.grants(task.number, vault, model, loss, work, select=select, reader=reader)
        optimizer = self.optimizer_for(model, task, momentum=0)
        velocity: Gradient | None = None
        means: dict[int | None, Gradient] = {}  # of g_ref, by the label that is read
        for step in self.training_steps(grant, task, optimizer):
            velocity = with_momentum(grant.gradient(), velocity, self.momentum)
            direction = velocity
            if references:
                label = references.place(step)
                means[label] = running_mean(references.gradient(step), means.get(label), self.smooth)
                direction = project(velocity, means[label], always=self.project == "always")
            self.update(optimizer, direction)

    def plan(self, task: TaskInfo) -> GradientPlan:
        plan = super().plan(task)
        return plan if self.noise is not None else replace(plan, noise=self.slack_ * plan.noise)

    def charges(self) -> list[list[DpEvent]]:
        return unit_charges(self.memory_.schedule, self.train_events())

    def train_events(self) -> list[list[DpEvent]]:
        """The charges of a unit that is trained on, for each task of the stream (or of its period)."""
        return [[self.plan(task).event] for task in self.stream_.tasks]

    def consumption(self, task: TaskInfo) -> Consumption:
        return Consumption.of(super().consumption(task).trained, self.memory_.schedule.expected(task.number))

    def used_records(self, released: nn.Module) -> Margin | None:
        """Which remembered records are used, as judged by a released model; None: all of them."""
        return (
            None if self.margin is None else self._margin_rule(self.margin).under(released, self.stream_, self.device)
        )

    def noise_is_given(self) -> bool:
        """Whether the user fixed the noise, so that it cannot be raised to fit."""
        return self.noise is not None or self.memory_noise is not None

    def schedule(self, stream: StreamInfo) -> Schedule:
        """All reads of the memory that will be made, from public facts."""
        if self.memory_noise is not None:
            return self.reads(stream, (self.memory_noise,))
        return calibrated(self.budget, self.reads(stream, (1.0,)))

    def reads(self, stream: StreamInfo, noise: tuple[float, ...]) -> Schedule:
        """All reads of the memory, with this noise."""
        return Schedule(
            mode=self.mode(),
            sizes=memory_sizes(self.memory_share, stream),
            steps=tuple(self.steps_in(task) for task in stream.tasks),
            batch=self.memory_batch,
            clip=self.clip,
            clipping=self.clipping,
            noise=noise,
            tasks_per_unit=stream.tasks_per_unit,
            seed=self.seed,
            stay=self.stay,
            leave=self.leave,
            endless=stream.endless,
            classes=tuple(tuple(self.positions(task.labels).tolist()) for task in stream.tasks)
            if self.by_class
            else (),
        )

    def claimed_pairs(self) -> list[tuple[float, float]]:
        """(ε_i, ε'_i) of the tasks learned so far as the paper computes them: by the moments accountant, and the memory
        as if one block were read at its own rate in every step of one task."""
        delta, schedule = self.budget.delta, self.memory_.schedule

        def reference(task: TaskInfo) -> float:
            rate = min(1.0, schedule.batch / schedule.size_of(task.number))
            return moments_accountant(rate, schedule.noise_of(task.number), schedule.steps_of(task.number), delta)

        return [(by_moments(self.plan(task), delta), reference(task)) for task in self.tasks_]

    def _raised(self, schedule: Schedule) -> Schedule:
        self.slack_ *= RAISE
        return replace(schedule, noise=tuple(RAISE * noise for noise in schedule.noise))

    def _margin_rule(self, threshold: float) -> MarginRule:
        return MarginRule(
            threshold=threshold, draws=self.margin_draws, confidence=self.margin_confidence, seed=self.seed
        )

    def _check_by_class(self, stream: StreamInfo) -> None:
        """Refuses robust A-GEM where a unit could be read in the turns of two labels."""
        if self.mode() == "block":
            raise LearnerError(
                "by_class cycles through the labels of the whole memory, and memory='block' reads one block a step; "
                "use memory='union'"
            )
        if stream.records_per_unit > 1 or self.budget.adjacency is not Adjacency.ADD_OR_REMOVE:
            reason = (
                f"units of {stream.name!r} may have {stream.records_per_unit} records in a task"
                if stream.records_per_unit > 1
                else f"the budget protects neighbours by {self.budget.adjacency}"
            )
            raise LearnerError(
                f"by_class charges a unit for the turns of its one label, and {reason}, so of two labels; use "
                "by_class=False, or protect single records that are added or removed"
            )


@dataclass(kw_only=True, eq=False)
class DPCL(ProjectedReplay):
    """A-GEM on noisy gradients, with a memory that is read in one draw from all blocks or one block a step.

    Reference: Desai et al. 2021, Algorithm 1.
    Claim (Lemma 2): ε_i + ε'_i for every T. It does not hold: block i is read in every later task.
    Certified: memory="union" samples every stored record independently at rate q/(T−1), so its privacy loss is bounded
    for any number of tasks. memory="block" (the paper's) reads one block a step, drawn by public coins before the task,
    and the reads that they show are billed exactly.
    Sharp edges: one projection protects the mean of all earlier tasks to first order only, so it forgets far more
    than one model per task does, and less noise hardly helps. The units of the memory are not trained on in their
    own task. Batches of the paper's size drown in noise; take thousands of records.
    """

    memory: Literal["union", "block"] = "union"
    """How the memory is read: in one draw from all blocks, or one block a step."""

    supports_endless: ClassVar[bool] = True
    reference: ClassVar[str] = "Desai et al. 2021, Algorithm 1"
    claim: ClassVar[str] = "Lemma 2: ε_i + ε'_i per task, their sum in all"
    certifies: ClassVar[str] = "a record: the larger of its training plan and all planned reads of its memory block"

    def mode(self) -> Mode:
        return self.memory

    def public_coins(self) -> str | None:
        drawn = f"the memory block of each step, drawn from seed {self.seed} before the first task"
        return drawn if self.memory == "block" else None

    def claims(self) -> tuple[Claim, ...]:
        train, reference = max(self.claimed_pairs(), key=sum)
        return (desai_dp_cl(train, reference, self.budget.delta, 1, self.tasks_learned),)

    def claimed(self) -> Claimed | None:
        if self.stream_.endless:
            return None  # a sum over all tasks is unbounded
        pairs = [train + reference for train, reference in self.claimed_pairs()]
        return Claimed(per_task=max(pairs), total=sum(pairs), delta=self.budget.delta)


def memory_sizes(share: float, stream: StreamInfo) -> tuple[int, ...]:
    """Nominal size of each task's memory part."""
    return tuple(max(1, round(share * task.size)) for task in stream.tasks)


def check_memory_share(share: float) -> None:
    if not 0 < share < 1:
        raise LearnerError(f"memory_share must be between 0 and 1, got {share}; 0.1 remembers a tenth")


def running_mean(new: Gradient, mean: Gradient | None, weight: float) -> Gradient:
    """`weight` of the old mean and the rest of the new gradient. Only its direction matters to `project`."""
    if mean is None or weight == 0:
        return new
    return {name: mean[name].lerp(value, 1 - weight) for name, value in new.items()}
