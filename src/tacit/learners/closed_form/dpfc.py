"""DP-FC (Mehta et al. 2023): private gradients of a linear layer, preconditioned by a noisy feature covariance.

Each task makes three kinds of releases on one budget: the class sums and the second moment of `MomentsClassifier`, and
then a few full-batch gradients of the cross-entropy over the labels seen so far, taken at the classifier of the moments
and what earlier gradients added to it. All gradients are added up, multiplied by (G + λI)⁻¹ of the noisy second moment
G of all tasks, and shrunk by the share of their squared length that is noise. A record meets the gradients of its own
task only.

Where it departs from the paper: there is no training on all tasks together. The start is the discriminant of noisy
moments, not zero, and a gradient says nothing about labels of later tasks, so it corrects one side of such a border.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.gradients.losses import cross_entropy
from tacit.learners.base.callbacks import Step
from tacit.learners.base.ranges import SHARE, Range
from tacit.learners.closed_form.moments import MomentsClassifier
from tacit.learners.closed_form.noisy_moment import eigen
from tacit.learners.closed_form.prototypes import Prototypes
from tacit.privacy.accounting import calibrate, events
from tacit.privacy.vault import Block, GradientPlan, Read, Vault

RIDGE = 0.5
"""λ over the edge of the spectrum of the noise in G."""
ABSENT = -1e4
"""The logit of a label that was not seen yet."""


@dataclass(kw_only=True, eq=False)
class DPFC(Prototypes):
    """The moments classifier and, after it, private gradients preconditioned by the noisy covariance.

    Reference: Mehta et al. 2023, DP-FC, in tasks.
    Claim: none.
    Certified: a record's privacy cost is that of its own task's sums, second moment and full-batch gradients together,
    once.
    Sharp edges: a gradient says nothing about labels of later tasks, so borders to these are corrected on one side
    only, and joint training stays ahead. Each step reads the whole task.
    """

    gradient_share: float = 0.15
    """Share of the budget, after centring, for the gradients; the rest is for the moments."""
    steps: int = 1
    """Number of full-batch gradients in a task. They share the gradients' budget."""
    lr: float = 10.0
    """Step along the preconditioned mean gradient, which is a Newton step at 2 (the bound of Böhning) to about 20."""
    clip: float = 1.0
    """Clipping norm of a record's gradient, whose features have norm 1."""
    moment_share: float | None = None
    """Share of the moments' budget for the second moment; see `MomentsClassifier`."""
    early: float | None = None
    """Share of the releases before the last task; see `MomentsClassifier`."""

    reference: ClassVar[str] = "Mehta et al. 2023, DP-FC, in tasks"
    claim: ClassVar[str] = "none"
    certifies: ClassVar[str] = "a record: the sums, the second moment and the gradients of its own task, once"
    ranges: ClassVar[Mapping[str, Range]] = {"gradient_share": SHARE}

    def start(self, stream: StreamInfo) -> None:
        super().start(stream)
        self.noise_ = self._least_noise()
        self.head_ = nn.Linear(self.features_.width, len(self.labels_), bias=False).to(self.device)
        self.total_ = torch.zeros(len(self.labels_), self.features_.width)
        """The sum of all gradients."""
        self.variance_ = torch.zeros(len(self.labels_), dtype=torch.float64)
        """Of the noise in every entry of a row of it."""
        self._made: tuple[Tensor, Tensor] | None = None
        self._axes: tuple[Tensor, Tensor] | None = None
        """Eigenvalues and eigenvectors of the second moment, kept within a task."""

    def build(self) -> nn.Module:
        """The frozen feature map, which the moments classifier made."""
        shared = {
            name: getattr(self, name) for name in ("budget", "seed", "device", "backbone", "standardise", "centre")
        }
        self.moments_ = MomentsClassifier(**shared, moment_share=self.moment_share, early=self.early)
        self.moments_.granted = 1 - self.gradient_share
        self.moments_.start(self.stream_)
        self.features_ = self.moments_.features_
        return self.moments_.model_

    def plan(self, task: TaskInfo) -> GradientPlan:
        """The plan of a task's gradients: all of its records in every step."""
        return GradientPlan(rate=1.0, steps=self.steps, noise=self.noise_, clip=self.clip)

    def charges(self) -> list[list[DpEvent]]:
        moments = self.moments_.charges()
        return [[*charge, self.plan(task).event] for charge, task in zip(moments, self.stream_.tasks, strict=True)]

    def claims(self) -> tuple[()]:
        return ()

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        moments, plan = self.moments_, self.plan(task)
        self.report(Step(task=task, step=0, of=self.steps))
        vault.check_map(block, self.model_)
        vault.commit({block: [*moments.reads(task), plan]})
        moments.take_moments(task, block, vault)
        self._made = self._axes = None
        start, seen = moments.classifier()
        seen = seen & torch.stack(moments.inside_).any(0).to(seen.device)
        size, loss = self._sharpness(), partial(seen_cross_entropy, seen=seen)
        self._set(start * size + self._moved())
        grant = vault.grant(Read(block, through=self.model_), plan, self.head_, loss, work=self.settings())
        for step in grant:
            self.report(Step(task=task, step=step, of=self.steps))
            gradient = grant.gradient()["weight"].cpu() * grant.expected_batch * seen.cpu()[:, None]
            self.total_ = self.total_ - gradient / self.steps
            self.variance_ = self.variance_ + (plan.std / self.steps) ** 2 * seen.cpu()
            self._set(start * size + self._moved())
        vault.drop(block)
        self.report(Step(task=task, step=self.steps, of=self.steps))

    def classifier(self) -> tuple[Tensor, Tensor]:
        """The classifier of the moments, moved along the preconditioned gradients."""
        start, seen = self.moments_.classifier()
        if not bool(self.variance_.any()):
            return start, seen
        if self._made is None:
            self._made = start + self._moved() / self._sharpness(), seen
        return self._made

    def _sharpness(self) -> float:
        """Factor from the discriminant's scores to logits: √n, since they are lengths in the metric of a sum."""
        return math.sqrt(self.moments_.second_moment().records)

    def _moved(self) -> Tensor:
        """What the gradients so far add to the logits' weights."""
        if not bool(self.variance_.any()):
            return torch.zeros_like(self.head_.weight)
        moment = self.moments_.second_moment()
        if self._axes is None:
            self._axes = eigen(moment.value)
        values, basis = self._axes
        inverse = 1 / (values.clamp(min=0) + RIDGE * moment.edge + moment.least)
        along = (self.total_.double() @ basis) * inverse
        noise = float(self.variance_.sum() * inverse.square().sum())
        trust = max(0.0, 1 - noise / max(float(along.square().sum()), 1e-300))
        return (self.lr * trust * along @ basis.T).float().to(self.device)

    def _set(self, weights: Tensor) -> None:
        with torch.no_grad():
            self.head_.weight.copy_(weights)

    def _least_noise(self) -> float:
        """The least noise of the gradients for which they and the moments of the first task fit the budget."""
        fixed = self.moments_.charges()[0]
        times = self.stream_.tasks_per_unit

        def charge(noise: float) -> DpEvent:
            plan = GradientPlan(rate=1.0, steps=self.steps, noise=noise, clip=self.clip)
            return events.repeat(events.compose([*fixed, plan.event]), times)

        return calibrate.noise_for(self.budget, charge)

    def tensors(self) -> dict[str, Tensor]:
        """The releases of the moments classifier, and the sum of all gradients."""
        made, _ = self.classifier()
        own = {"gradients": self.total_.clone(), "variance": self.variance_.clone(), "moved": made.cpu().clone()}
        return self.moments_.tensors() | own

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        if "gradients" not in tensors or tensors["gradients"].shape != self.total_.shape:
            raise LearnerError("this release has no gradients of these labels and features; give one of this stream")
        self.moments_.tasks_ = self.tasks_
        self.moments_.load(tensors)
        self._axes = None
        self.total_, self.variance_ = tensors["gradients"].clone(), tensors["variance"].clone()
        _, seen = self.moments_.classifier()
        self._made = tensors["moved"].to(self.device), seen


def seen_cross_entropy(output: Tensor, y: Tensor, seen: Tensor) -> Tensor:
    """Cross-entropy over the labels seen so far."""
    return cross_entropy(output.masked_fill(~seen, ABSENT), y)
