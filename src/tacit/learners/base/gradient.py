"""Learners that follow noisy gradients: their settings, the plan of a task, the optimizer and the averaged weights."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor, nn

from tacit.certificate.claims import moments_accountant
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, PlanError
from tacit.learners.base.callbacks import Step
from tacit.learners.base.learner import Learner
from tacit.learners.base.public_figures import Consumption
from tacit.models.interval import with_progress
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.vault import GradientPlan, Grant
from tacit.words import rounded_up

T = TypeVar("T")
Each: TypeAlias = T | Sequence[T]
"""One value for all tasks, or a list with one value per task."""
Gradient = Mapping[str, Tensor]


@dataclass(kw_only=True, eq=False)
class GradientSettings:
    """The settings of DP-SGD, and what follows from them for a task. Tasks may differ in steps, batch, lr and noise."""

    steps: Each[int] | None = 300
    """Number of noisy gradients in a task. None: given by `epochs`."""
    epochs: Each[float] | None = None
    """Instead of steps (which is then None): round(epochs · size / batch) steps, from the public nominal size."""
    batch: Each[float] = 100
    """Expected number of units in a step; divided by the nominal size it is the sampling rate. A task with fewer units
    is read whole in every step (rate 1). A batch larger than every task is refused, and so is one that a list gives to
    a smaller task."""
    lr: Each[float] = 0.1
    """Learning rate."""
    lr_decay: Literal["none", "linear"] = "none"
    """linear: the learning rate falls in a straight line, from `lr` at a task's first step to 0 after its last."""
    rule: Literal["sgd", "adam"] = "sgd"
    """Optimizer; its state is reset in every task."""
    momentum: float = 0.0
    """Momentum of SGD; Adam has its own."""
    clip: float = 1.0
    """Clipping norm: a unit's gradient is scaled down to at most this norm."""
    clipping: str = "flat"
    """Clipping rule, a name of `tacit.gradients`."""
    noise: Each[float] | None = None
    """Noise multiplier. None: the least that the budget allows."""
    shrink: float = 0.0
    """How much every weight is moved towards 0 after a step, times the learning rate (soft threshold; not biases). It
    takes noise out of weights that no record needs, at no privacy cost."""
    average: float = 0.0
    """Share of a task's last steps whose weights are averaged for its release: less noise at no privacy cost."""

    def train_size(self, task: TaskInfo) -> int:
        """Nominal number of units that are trained on."""
        return task.size

    def rate_in(self, task: TaskInfo) -> float:
        """Sampling rate of a task's steps: of the batch, or of the whole task if that is smaller."""
        return rate_of(at(self.batch, task, "batch"), self.train_size(task))

    def steps_in(self, task: TaskInfo) -> int:
        """Number of steps in a task."""
        if self.steps is not None:
            return at(self.steps, task, "steps")
        assert self.epochs is not None  # checked by `check_gradient_settings`
        epochs = at(self.epochs, task, "epochs")
        if not 0 < epochs < math.inf:
            raise LearnerError(f"epochs must be a number > 0, got {epochs}; 1 is as many units as the task has")
        return max(1, round(epochs / self.rate_in(task)))

    def plan_for(
        self, task: TaskInfo, budget: Budget, times: int, *, rate: float | None = None, steps: int | None = None
    ) -> GradientPlan:
        """The plan with the task's noise or, where none is given, with the least noise that the budget allows.

        Args:
            task: Public facts of the task.
            budget: The budget of a unit.
            times: How many times one unit may meet the plan.
            rate: Sampling rate; by default that of the task.
            steps: Number of steps; by default that of the task.

        Raises:
            PlanError: The given noise is too small for the budget.
        """
        rate = self.rate_in(task) if rate is None else rate
        steps = self.steps_in(task) if steps is None else steps
        clip, clipping = self.clip, self.clipping
        if self.noise is None:
            return GradientPlan.for_budget(
                budget, rate=rate, steps=steps, clip=clip, clipping=clipping, tasks_per_unit=times
            )
        noise = at(self.noise, task, "noise")
        plan = GradientPlan(rate=rate, steps=steps, noise=noise, clip=clip, clipping=clipping)
        return affordable(plan, budget, times)

    def check_gradient_settings(self) -> None:
        """Refuses settings that contradict each other."""
        if self.rule not in ("sgd", "adam"):
            raise LearnerError(f"rule must be 'sgd' or 'adam', got {self.rule!r}")
        if self.rule == "adam" and self.momentum:
            raise LearnerError(f"momentum must be 0 with rule='adam', got {self.momentum:g}; Adam has its own")
        if self.lr_decay not in ("none", "linear"):
            raise LearnerError(f"lr_decay must be 'none' or 'linear', got {self.lr_decay!r}")
        if (self.steps is None) == (self.epochs is None):
            raise LearnerError(
                f"give either steps or epochs, got steps={self.steps} and epochs={self.epochs}; set the other to None"
            )

    def check_every_task(self, stream: StreamInfo) -> None:
        """Refuses, before the first task, what is missing or impossible in a later one."""
        for name in ("steps", "epochs", "batch", "lr", "noise") if stream.endless else ():
            if isinstance(value := getattr(self, name), Sequence):
                raise LearnerError(
                    f"{name} has a value for each of {len(value)} tasks, and the stream {stream.name!r} is endless; "
                    "give one number for all tasks"
                )
        self._check_batch(stream.tasks)
        for task in stream.tasks:
            self.steps_in(task), at(self.lr, task, "lr")
            if self.noise is not None:
                at(self.noise, task, "noise")

    def _check_batch(self, tasks: Sequence[TaskInfo]) -> None:
        """Refuses a batch for all tasks that is larger than the largest, and one for a task that is larger than it."""
        single = not isinstance(self.batch, Sequence)
        for task in (max(tasks, key=self.train_size),) if single else tasks:
            batch, size = at(self.batch, task, "batch"), self.train_size(task)
            if not 0 < batch <= size:
                raise LearnerError(
                    f"an expected batch of {batch:g} cannot be drawn from {size:g} units of task {task.name!r}"
                    f"{', the largest' if single and len(tasks) > 1 else ''}; choose one above 0 and at most {size:g}"
                )

    def optimizer_for(
        self, model: nn.Module, task: TaskInfo, *, momentum: float | None = None
    ) -> torch.optim.Optimizer:
        """A new optimizer of the model's trainable parameters."""
        trained, lr = [p for p in model.parameters() if p.requires_grad], at(self.lr, task, "lr")
        if self.rule == "adam":
            return torch.optim.Adam(trained, lr=lr)
        return torch.optim.SGD(trained, lr=lr, momentum=self.momentum if momentum is None else momentum)

    def set_rate(self, optimizer: torch.optim.Optimizer, task: TaskInfo, *, step: int, of: int) -> None:
        """Set the learning rate for a step of a task, as `lr_decay` says."""
        if self.lr_decay == "linear":
            for group in optimizer.param_groups:
                group["lr"] = at(self.lr, task, "lr") * (1 - step / of)


@dataclass(kw_only=True, eq=False)
class GradientLearner(GradientSettings, Learner):
    """A learner that trains one network with SGD or Adam on noisy gradients that the vault releases."""

    def start(self, stream: StreamInfo) -> None:
        self.check_gradient_settings()
        super().start(stream)
        self.check_every_task(stream)

    def plan(self, task: TaskInfo) -> GradientPlan:
        """The plan of a task's training part. It depends on public facts only."""
        return self.plan_for(task, self.budget, self.times_read(task))

    def charges(self) -> list[list[DpEvent]]:
        return [[self.plan(task).event] for task in self.stream_.tasks]

    def consumption(self, task: TaskInfo) -> Consumption:
        return Consumption(trained=self.steps_in(task) * self.rate_in(task) * self.train_size(task))

    def times_read(self, task: TaskInfo) -> int:
        """How many times one unit may meet the plan of a task: once in each task that it is in."""
        return self.stream_.tasks_per_unit

    def training_steps(
        self, grant: Grant, task: TaskInfo, optimizer: torch.optim.Optimizer | None = None
    ) -> Iterator[int]:
        """Iterates over the steps of a grant; after the last one the averaged weights are put into the model.

        Args:
            grant: The grant.
            task: Public facts of the task.
            optimizer: Its learning rate is set before each step; needed with `lr_decay`.

        Raises:
            LearnerError: The learning rate decays, and there is no optimizer.
        """
        if optimizer is None and self.lr_decay != "none":
            raise LearnerError(
                f"lr_decay = {self.lr_decay!r} needs training_steps(grant, task, optimizer); pass the optimizer"
            )
        steps = grant.plan.steps
        average = AveragedWeights(self.model_, share=self.average, steps=steps, first=grant.step)
        for step in with_progress(self.model_, iter(grant), steps):
            self.report(Step(task=task, step=step, of=steps))
            if optimizer is not None:
                self.set_rate(optimizer, task, step=step, of=steps)
            yield step
            average.add(step)
        average.apply()
        self.report(Step(task=task, step=steps, of=steps))

    def optimizer(self, task: TaskInfo) -> torch.optim.Optimizer:
        return self.optimizer_for(self.model_, task)

    def update(self, optimizer: torch.optim.Optimizer, gradient: Gradient) -> None:
        """One step of the optimizer along a gradient."""
        for name, parameter in self.model_.named_parameters():
            if parameter.requires_grad:
                parameter.grad = gradient[name]
        optimizer.step()
        if self.shrink:
            soft_threshold(optimizer, self.shrink)


def soft_threshold(optimizer: torch.optim.Optimizer, shrink: float) -> None:
    """Moves the weights of matrices and kernels towards 0 by at most the learning rate times `shrink`."""
    with torch.no_grad():
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if weight.dim() > 1:
                    weight.copy_(torch.nn.functional.softshrink(weight, group["lr"] * shrink))


class AveragedWeights:
    """The mean of a model's trainable weights over the last steps of a task."""

    def __init__(self, model: nn.Module, *, share: float, steps: int, first: int) -> None:
        """
        Args:
            model: The model that is trained.
            share: Share of the task's steps that are averaged, the last ones.
            steps: Number of steps in the task.
            first: The first step that this process takes: steps before it were taken by an earlier one.
        """
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._steps, self._last = steps, min(round(share * steps), steps - first)
        self._totals = [torch.zeros_like(p) for p in self._trained] if self._last > 1 else []

    def add(self, step: int) -> None:
        """Adds the weights after `step`, if it is one of the last steps."""
        if self._totals and step >= self._steps - self._last:
            torch._foreach_add_(self._totals, [p.detach() for p in self._trained])

    def apply(self) -> None:
        """Puts the mean into the model; does nothing where fewer than two steps are averaged."""
        with torch.no_grad():
            for parameter, total in zip(self._trained if self._totals else (), self._totals, strict=True):
                parameter.copy_(total / self._last)


def at(value: Each[T], task: TaskInfo, name: str) -> T:
    """The value for a task, of a setting that is one value or a list with one per task."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    if task.number >= len(value):
        raise LearnerError(
            f"{name} has {len(value)} values and task {task.number + 1} needs its own; give one for each task"
        )
    return value[task.number]


def rate_of(batch: float, size: float) -> float:
    """The sampling rate of an expected batch; 1 if there are fewer units. It depends on declared sizes only."""
    return min(1.0, batch / size)


def affordable(plan: GradientPlan, budget: Budget, times: int) -> GradientPlan:
    """The plan itself, if the budget allows it `times` times; otherwise a PlanError that names plans that fit."""
    if calibrate.fits(plan.event, budget, times):
        return plan
    noise = calibrate.gradient_noise(budget, plan.rate, plan.steps, times)
    try:
        fewer = f"or at most {calibrate.gradient_steps(budget, plan.rate, plan.noise, times)} steps, "
    except PlanError:
        fewer = ""
    raise PlanError(
        f"{plan.steps} steps at rate {plan.rate:.4g} with noise {plan.noise:g} do not fit {budget}; it takes noise ≥ "
        f"{rounded_up(noise)}, {fewer}or a smaller batch"
    )


def by_moments(plan: GradientPlan, delta: float, max_order: int = 32) -> float:
    """ε of a plan by the classic moments accountant, as the papers print it."""
    return moments_accountant(plan.rate, plan.noise, plan.steps, delta, max_order)


def with_momentum(gradient: Gradient, velocity: Gradient | None, momentum: float) -> Gradient:
    """Heavy-ball momentum: the new velocity."""
    if velocity is None or momentum == 0:
        return gradient
    return {name: value.add(velocity[name], alpha=momentum) for name, value in gradient.items()}
