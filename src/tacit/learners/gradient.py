"""What learners that follow gradients share: settings, the plan of a task, the update."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, PlanError
from tacit.learners.consumption import Consumption
from tacit.learners.core import Step
from tacit.learners.learner import Learner
from tacit.privacy import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.claims import moments_accountant
from tacit.privacy.grant import Grant
from tacit.privacy.plan import GradientPlan

T = TypeVar("T")
Each: TypeAlias = T | Sequence[T]
"""One value for all tasks, or a list with one for each."""
Gradient = Mapping[str, Tensor]


@dataclass(kw_only=True, eq=False)
class GradientLearner(Learner):
    """SGD or Adam on what the vault lets out. Tasks may differ in steps, batch and noise."""

    steps: Each[int] | None = 300
    """Noisy gradients in a task. None: by `epochs`."""
    epochs: Each[float] | None = None
    """Instead of steps (None then): round(epochs · size / batch) of them, from the public nominal size."""
    batch: Each[float] = 100
    """Expected number of units in a step; over the nominal size it is the sampling rate."""
    lr: Each[float] = 0.1
    """The learning rate."""
    rule: Literal["sgd", "adam"] = "sgd"
    """How a gradient becomes a step; begun afresh in every task."""
    momentum: float = 0.0
    """Of SGD; Adam has its own."""
    clip: float = 1.0
    """The longest gradient of a unit; longer ones are scaled down to it."""
    clipping: str = "flat"
    """How: a name of `tacit.gradients`."""
    noise: Each[float] | None = None
    """Noise multiplier. None: the least that the budget allows."""
    average: float = 0.0
    """Share of a task's last steps whose weights are averaged for its release: less noise, at no cost. 0: none."""

    def start(self, stream: StreamInfo) -> None:
        if self.rule not in ("sgd", "adam"):
            raise LearnerError(f"rule must be 'sgd' or 'adam', got {self.rule!r}")
        if self.rule == "adam" and self.momentum:
            raise LearnerError(f"momentum must be 0 with rule='adam', got {self.momentum:g}; Adam has its own")
        if (self.steps is None) == (self.epochs is None):
            raise LearnerError(
                f"give either steps or epochs, got steps={self.steps} and epochs={self.epochs}; set the other to None"
            )
        super().start(stream)
        for name in ("steps", "epochs", "batch", "lr", "noise") if stream.endless else ():
            if isinstance(value := getattr(self, name), Sequence):
                raise LearnerError(
                    f"{name} has a value for each of {len(value)} tasks, and {stream.name!r} has no last one; give one "
                    "number for all"
                )
        for task in stream.tasks:  # what is missing or impossible in a later task is said before the first
            self.rate_in(task), self.steps_in(task), at(self.lr, task, "lr")
            if self.noise is not None:
                at(self.noise, task, "noise")

    def plan(self, task: TaskInfo) -> GradientPlan:
        """The plan of a task's training part, from the budget or from the given noise. Public facts only."""
        steps, rate, times = self.steps_in(task), self.rate_in(task), self.times_read(task)
        if self.noise is None:
            return GradientPlan.for_budget(
                self.budget,
                rate=rate,
                steps=steps,
                clip=self.clip,
                clipping=self.clipping,
                tasks_per_unit=times,
            )
        noise = at(self.noise, task, "noise")
        plan = GradientPlan(rate=rate, steps=steps, noise=noise, clip=self.clip, clipping=self.clipping)
        return affordable(plan, self.budget, times)

    def charges(self) -> list[list[DpEvent]]:
        return [[self.plan(task).event] for task in self.stream_.tasks]

    def consumption(self, task: TaskInfo) -> Consumption:
        return Consumption(trained=self.steps_in(task) * self.rate_in(task) * self.train_size(task))

    def times_read(self, task: TaskInfo) -> int:
        """How often one unit may meet the plan of a task: in each of its tasks."""
        return self.stream_.tasks_per_unit

    def train_size(self, task: TaskInfo) -> int:
        """Nominal number of units that are trained on."""
        return task.size

    def rate_in(self, task: TaskInfo) -> float:
        """The sampling rate of a task's steps."""
        return rate_of(at(self.batch, task, "batch"), self.train_size(task), task)

    def steps_in(self, task: TaskInfo) -> int:
        """The number of a task's steps."""
        if self.steps is not None:
            return at(self.steps, task, "steps")
        assert self.epochs is not None  # `start` asks for one of them
        epochs = at(self.epochs, task, "epochs")
        if not 0 < epochs < math.inf:
            raise LearnerError(f"epochs must be a number > 0, got {epochs}; 1 is as many units as the task has")
        return max(1, round(epochs / self.rate_in(task)))

    def turns(self, grant: Grant, task: TaskInfo) -> Iterator[int]:
        """The steps of a task, each announced to `watch`; then the average of the last ones, and the task's end."""
        steps = grant.plan.steps
        trained = [p for p in self.model_.parameters() if p.requires_grad]
        last = round(self.average * steps)
        last = min(last, steps - grant.step)  # of work that is taken over, the first steps were drawn before
        totals = [torch.zeros_like(p) for p in trained] if last > 1 else []
        for step in grant:
            self.watch(Step(task=task, step=step, of=steps))
            yield step
            if totals and step >= steps - last:
                torch._foreach_add_(totals, [p.detach() for p in trained])
        with torch.no_grad():
            for parameter, total in zip(trained if totals else (), totals, strict=True):
                parameter.copy_(total / last)
        self.watch(Step(task=task, step=steps, of=steps))

    def optimizer(self, task: TaskInfo, *, momentum: float | None = None) -> torch.optim.Optimizer:
        trained, lr = [p for p in self.model_.parameters() if p.requires_grad], at(self.lr, task, "lr")
        if self.rule == "adam":
            return torch.optim.Adam(trained, lr=lr)
        return torch.optim.SGD(trained, lr=lr, momentum=self.momentum if momentum is None else momentum)

    def update(self, optimizer: torch.optim.Optimizer, gradient: Gradient) -> None:
        for name, parameter in self.model_.named_parameters():
            if parameter.requires_grad:
                parameter.grad = gradient[name]
        optimizer.step()


def at(value: Each[T], task: TaskInfo, name: str) -> T:
    """The task's own value."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    if task.number >= len(value):
        raise LearnerError(
            f"{name} has {len(value)} values and task {task.number + 1} needs its own; give one for each"
        )
    return value[task.number]


def rate_of(batch: float, size: float, task: TaskInfo) -> float:
    """The sampling rate of an expected batch."""
    if not 0 < batch <= size:
        raise LearnerError(
            f"an expected batch of {batch:g} cannot be drawn from {size:g} units of task {task.name!r}; "
            f"choose one above 0 and at most {size:g}"
        )
    return batch / size


def affordable(plan: GradientPlan, budget: Budget, times: int) -> GradientPlan:
    """The plan itself if the budget allows it; else a sentence that says what would be."""
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


def rounded_up(value: float) -> str:
    """Four digits, never less than the value."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(value / unit) * unit:.6g}"


def by_moments(plan: GradientPlan, delta: float, max_order: int = 32) -> float:
    """ε of a plan by the classic moments accountant: how the papers print it."""
    return moments_accountant(plan.rate, plan.noise, plan.steps, delta, max_order)


def project(gradient: Gradient, reference: Gradient, *, always: bool) -> Gradient:
    """A-GEM, Eq. 2: g − (gᵀg_ref / g_refᵀg_ref) g_ref, when they conflict (gᵀg_ref < 0) or always."""
    dot = sum(float(torch.dot(g.flatten(), reference[name].flatten())) for name, g in gradient.items())
    if dot >= 0 and not always:
        return gradient
    square = sum(float(torch.dot(r.flatten(), r.flatten())) for r in reference.values())
    if square == 0:
        return gradient
    return {name: g.sub(reference[name], alpha=dot / square) for name, g in gradient.items()}


def gathered(new: Gradient, velocity: Gradient | None, momentum: float) -> Gradient:
    """Heavy-ball momentum: the velocity that a step follows."""
    if velocity is None or momentum == 0:
        return new
    return {name: value.add(velocity[name], alpha=momentum) for name, value in new.items()}


def smoothed(new: Gradient, mean: Gradient | None, weight: float) -> Gradient:
    """A running mean: `weight` of what it was, the rest of what is new. Only its direction matters to `project`."""
    if mean is None or weight == 0:
        return new
    return {name: mean[name].lerp(value, 1 - weight) for name, value in new.items()}
