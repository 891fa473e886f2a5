"""What learners share that keep released sums of frozen features and train nothing."""

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.core import answering
from tacit.learners.features import feature_map
from tacit.learners.taskwise import TaskWise


@dataclass(kw_only=True, eq=False)
class Prototypes(TaskWise):
    """One pass over a task's records: sums of unit features leave the vault, a linear classifier is made of them.

    `network` plays no part."""

    backbone: str | nn.Module | None = None
    """A public backbone: a name of `tacit.models.backbones`, or a module that returns features. None: the records are
    features already."""
    scale: float = 20.0
    """A logit is so many times the similarity. It decides how sure probabilities look, never which label is the
    likeliest."""

    def start(self, stream: StreamInfo) -> None:
        if not 0 < self.scale < math.inf:
            raise LearnerError(f"scale must be a number > 0, got {self.scale}; 20 makes a cosine of 1 a logit of 20")
        super().start(stream)

    def build(self) -> nn.Module:
        """The frozen map from records to unit features."""
        self.check_device()
        self.features_ = feature_map(self.backbone, self.stream_.shape).to(self.device)
        return self.features_

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
