"""The moments classifier: noisy sums per (task, label) and a noisy second moment; one pass (tacit's own method).

Each task makes two releases on one budget: Σφ of the L2-normalised features of each label of the stream, and Σφφᵀ.
Their noise is correlated over the planned tasks (`toeplitz`), which reduces the noise of sums over tasks. The rest is
post-processing with the known noise variances: estimate which tasks contain a label and the label's mean
(`class_means`), then a regularised linear discriminant (`discriminant`). There are no hyperparameters to tune, and the
result hardly depends on the order of tasks. docs/moments.md has the derivation and the measurements.
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
from tacit.learners.base import weights
from tacit.learners.base.callbacks import Step
from tacit.learners.closed_form.class_means import class_means
from tacit.learners.closed_form.discriminant import discriminant
from tacit.learners.closed_form.noisy_moment import Moment, packed, unpacked
from tacit.learners.closed_form.prototypes import Prototypes
from tacit.privacy.accounting import calibrate, toeplitz
from tacit.privacy.vault import Block, SumPlan, Vault


@dataclass(kw_only=True, eq=False)
class MomentsClassifier(Prototypes):
    """A linear classifier of noisy class sums and a noisy second moment: one pass, no training.

    `MomentsClassifier(stream=info, backbone="efficientnet-lite0").partial_fit(images, labels)` learns one task.

    Reference: tacit.
    Claim: none.
    Certified: a record's privacy cost is that of the two Gaussian releases of its own task, once. For a unit with
    records in several tasks, the correlated series is accounted for all of them together.
    Sharp edges: it is linear in frozen features, and as good as these: weak on raw pixels. Every label of the
    stream gets the same noise, so labels with few records drown in it at small ε. Features with a large common
    mean, as after a ReLU, gain from `centre=0.05`. The second moment is a matrix of the features' width squared.
    """

    moment_share: float | None = None
    """Share of the budget (in 1/σ²) for the second moment; the rest is for the sums. If None,
    0.1 + 0.1·min(1, 1/σ) with the σ of the budget: with less noise more of the second moment is usable."""

    early: float | None = None
    """Share of a record's part in the releases that those before the last task may use. Less of it means less noise at
    the end of the stream, where labels recur in many tasks, and noisier releases before. If None, every release counts
    alike. For streams whose records are in one task each."""

    reference: ClassVar[str] = "tacit"
    claim: ClassVar[str] = "none"
    certifies: ClassVar[str] = "a record: the sums and the second moment of its own task, together, once"

    def start(self, stream: StreamInfo) -> None:
        if self.moment_share is not None and not 0 < self.moment_share < 1:
            raise LearnerError(
                f"moment_share must be between 0 and 1, got {self.moment_share}; leave it out, or try 0.15"
            )
        if self.early is not None and (stream.tasks_per_unit > 1 or len(stream.tasks) < 2):
            raise LearnerError(
                f"early = {self.early:g} is for streams of several tasks, with units in one task each; leave it out"
            )
        super().start(stream)
        self.sums_: list[Tensor] = []
        self.inside_: list[Tensor] = []
        """Mask of the labels in each task's public label set."""
        self.moment_ = torch.zeros(self.features_.width, self.features_.width)
        self._made: tuple[Tensor, Tensor] | None = None

    def plan(self, task: TaskInfo) -> SumPlan:
        """The plan of the class sums, which take the larger share of the budget."""
        return self._series("class sums", self.rest * (1 - self._share()))

    def moment_plan(self) -> SumPlan:
        return self._series("second moment", self.rest * self._share())

    def _share(self) -> float:
        if self.moment_share is not None:
            return self.moment_share
        return 0.1 + 0.1 * min(1.0, 1 / calibrate.gaussian_noise(self.budget))

    def charges(self) -> list[list[DpEvent]]:
        return [[*charge, self.moment_plan().event] for charge in super().charges()]

    def claims(self) -> tuple[()]:
        return ()

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        self.report(Step(task=task, step=0, of=1))
        vault.check_map(block, self.model_)
        vault.commit({block: self.reads(task)})
        self.take_moments(task, block, vault)
        vault.drop(block)
        self.report(Step(task=task, step=1, of=1))

    def reads(self, task: TaskInfo) -> list[SumPlan]:
        """The plans of all that a task releases."""
        return [*self.spread_plan(task), self.plan(task), self.moment_plan()]

    def take_moments(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        """The releases of a task, for which its block was committed."""
        self.look(task, block, vault)
        self.sums_.append(vault.sums(block, self.plan(task), labels=self.labels_, through=self.model_))
        self.inside_.append(self.mask(task))
        self.moment_ = self.moment_ + vault.second_moment(block, self.moment_plan(), through=self.model_)
        self._made = None

    def classifier(self) -> tuple[Tensor, Tensor]:
        """Recomputed after each task from all releases."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> tuple[Tensor, Tensor]:
        done, tasks = len(self.sums_), self.stream_.tasks
        if done == 0:
            nothing = torch.zeros(len(self.labels_), self.features_.width, device=self.device)
            return nothing, torch.zeros(len(self.labels_), dtype=torch.bool, device=self.device)
        sums = self.plan(tasks[0])
        means = class_means(
            torch.stack(self.sums_),
            torch.tensor(toeplitz.mixing(sums.horizon, done, sums.participations, sums.early)),
            sums.std,
            torch.stack(self.inside_),
        )
        directions = discriminant(means, self.second_moment(), self.seed)
        return directions.float().to(self.device), means.present.to(self.device)

    def second_moment(self) -> Moment:
        """The second moment of all tasks so far, and what is known of its noise."""
        done, plan = len(self.sums_), self.moment_plan()
        noise = plan.std * toeplitz.total_noise(plan.horizon, done, plan.participations, plan.early)
        records = float(sum(task.size for task in self.stream_.tasks[:done]))
        return Moment(value=self.moment_, std=noise, records=records)

    def _series(self, name: str, share: float) -> SumPlan:
        """A plan with noise correlated over all planned tasks; independent noise for a stream of one task."""
        horizon = len(self.stream_.tasks)
        if horizon == 1:
            return SumPlan.for_budget(self.budget, share=share)
        times = min(self.stream_.tasks_per_unit, horizon)
        return SumPlan.for_budget(
            self.budget, share=share, horizon=horizon, participations=times, series=name, early=self.early
        )

    def tensors(self) -> dict[str, Tensor]:
        """The releases, the classifier computed from them, and the key of the public backbone."""
        made, seen = self.classifier()
        tensors = {f"sums.{number}": sums.clone() for number, sums in enumerate(self.sums_)}
        tensors |= {"moment": packed(self.moment_), "weights": made.cpu(), "seen": seen.cpu()}
        tensors |= {"inside": torch.stack(self.inside_)} if self.inside_ else {}
        return tensors | self.known() | weights.keys(self.model_)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        weights.check_keys(self.model_, tensors)
        self.take(tensors)
        width, labels = self.features_.width, len(self.labels_)
        sums = weights.under(tensors, "sums.")
        fits = all(value.shape == (labels, width) for value in sums.values()) and len(sums) == len(self.tasks_)
        if not fits or "moment" not in tensors or len(tensors["moment"]) != math.comb(width + 1, 2):
            raise LearnerError("this release has no moments of these labels and features; give the one of this stream")
        self.sums_ = [sums[str(number)].clone() for number in range(len(sums))]
        self.inside_ = list(tensors["inside"]) if self.sums_ else []
        self.moment_ = unpacked(tensors["moment"], width)
        self._made = (tensors["weights"].to(self.device), tensors["seen"].to(self.device))
