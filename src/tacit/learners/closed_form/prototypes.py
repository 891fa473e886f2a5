"""Base class of classifiers computed from released sums of frozen features, without training."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import weights
from tacit.learners.base.frozen_features import Centred, RootAndOne, Spread, Standard, feature_map
from tacit.learners.base.inference import answering
from tacit.learners.base.taskwise import TaskWise
from tacit.models.devices import check_device
from tacit.privacy.vault import Block, SumPlan, Vault


@dataclass(kw_only=True, eq=False)
class Prototypes(TaskWise):
    """A linear classifier computed from released sums of L2-normalised features; one pass over a task's records."""

    has_network: ClassVar[bool] = False
    backbone: str | nn.Module | None = None
    """A public backbone: a name of `tacit.models.backbones`, or a module that returns features. If None, the
    records are features already."""
    standardise: float | None = None
    """Share of the budget for the mean and standard deviation of each feature, estimated in the first task; all records
    (without a backbone, features in [−1, 1]) are standardised by them. If None, records are not standardised."""
    centre: float | None = None
    """Share of the budget for the mean of the features' signed square roots, estimated in the first task; features are
    then these roots minus their mean. For backbones whose features are ≥ 0; 0.05 is a good share. If None, features
    are used as they are."""
    scale: float = 20.0
    """Factor from similarities to logits (an inverse temperature). It does not change which label is predicted."""

    granted = 1.0
    """Share of the budget that this learner may use. Not a setting: a learner that has this one as a part sets it."""

    def start(self, stream: StreamInfo) -> None:
        if not 0 < self.scale < math.inf:
            raise LearnerError(f"scale must be a number > 0, got {self.scale}; 20 makes a cosine of 1 a logit of 20")
        if self.standardise is not None and (self.backbone is not None or not 0 < self.standardise < 1):
            raise LearnerError(
                f"standardise must be a share between 0 and 1, and is for records without a backbone; got "
                f"{self.standardise}, try 0.1"
            )
        if self.centre is not None and (self.standardise is not None or not 0 < self.centre < 1):
            raise LearnerError(
                f"centre must be a share between 0 and 1, and is for features that are not standardised; got "
                f"{self.centre}, try 0.05"
            )
        super().start(stream)

    def build(self) -> nn.Module:
        """The frozen map from records to L2-normalised features."""
        check_device(self.device)
        self.features_ = feature_map(self.backbone, self.stream_.shape)
        if self.standardise is not None:
            self.features_.standard = Standard(self.features_.width)
        if self.centre is not None:
            self.features_.standard = Centred(self.features_.width)
        self.features_ = self.features_.eval().to(self.device)
        return self.features_

    @property
    def rest(self) -> float:
        """Share of the budget for the sums: what remains after standardisation or centring."""
        return self.granted * (1 - (self.standardise or self.centre or 0.0))

    def spread_plan(self, task: TaskInfo) -> list[SumPlan]:
        """The plan of the features' means (and standard deviations), in the first task only."""
        share = self.standardise or self.centre
        if share is None or task.number:
            return []
        return [SumPlan.for_budget(self.budget, share=share, tasks_per_unit=self.stream_.tasks_per_unit)]

    def look(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        """Estimate the features' means (and standard deviations) in the first task, if a share is set for it."""
        for plan in self.spread_plan(task):
            assert self.features_.standard is not None
            through = Spread() if self.centre is None else RootAndOne(self.features_.backbone)
            total = vault.sums(block, plan, by_label=False, through=through.eval())
            self.features_.standard.learn(total[0].to(self.device), plan.std)

    def charges(self) -> list[list[DpEvent]]:
        looks = [[plan.event for plan in self.spread_plan(task)] for task in self.stream_.tasks]
        return [[*look, *charge] for look, charge in zip(looks, super().charges(), strict=True)]

    def known(self) -> dict[str, Tensor]:
        """What standardises, for a release."""
        standard = self.features_.standard
        held = {} if standard is None else dict(standard.named_buffers())
        return {f"standard.{name}": value.cpu().clone() for name, value in held.items()}

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """What `known` gave; a release that was standardised otherwise is refused."""
        held = weights.under(tensors, "standard.")
        standard = self.features_.standard
        expected = {} if standard is None else dict(standard.named_buffers())
        if held.keys() != expected.keys():
            raise LearnerError(
                "this release was standardised otherwise; give the `standardise` or `centre` that it was made with"
            )
        for name, value in expected.items():
            value.copy_(held[name])

    @abstractmethod
    def classifier(self) -> tuple[Tensor, Tensor]:
        """Weights (labels, features), and which labels have been seen."""

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """`scale` · similarity, −∞ for labels not seen; where no allowed label is seen, all of those alike."""
        weights, known = self.classifier()
        allowed = torch.ones_like(known) if task is None else self.mask(task).to(known.device)
        seen = allowed & known
        if not bool(seen.any()):
            return torch.zeros(len(x), len(seen), device=seen.device).masked_fill(~allowed, -torch.inf)
        with answering(self.model_):
            unit: Tensor = self.model_(x.to(self.device))
        return (self.scale * unit @ weights.T).masked_fill(~seen, -torch.inf)
