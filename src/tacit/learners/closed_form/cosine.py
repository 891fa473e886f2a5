"""The cosine classifier of Tobaben et al. 2025 (Algorithm 1): noisy sums of L2-normalised features.

s_o ← s_o + Σ_{x of label o} f(x)/‖f(x)‖ + N(0, σ²I) for every label o of the task's public label space, whether or not
it occurs, each with independent noise (Eq. 8; σ is a standard deviation). The predicted label is that whose sum has the
largest cosine similarity with the input's features (Eq. 9), among the labels of the tasks learned so far.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import weights
from tacit.learners.base.callbacks import Step
from tacit.learners.closed_form.prototypes import Prototypes
from tacit.privacy.vault import Block, SumPlan, Vault


@dataclass(kw_only=True, eq=False)
class CosineClassifier(Prototypes):
    """A cosine classifier of noisy class sums. Its only state is one sum per label.

    Reference: Tobaben et al. 2025, Algorithm 1.
    Claim: Theorems 4.4 and 4.5.
    Certified: one unit changes the sums of its task by at most 1 in L2 norm (a person's records are scaled together),
    so its privacy cost is one Gaussian release per task, composed over the declared number of tasks per unit.
    Sharp edges: a label is one direction: features with a large common mean, or with loud directions that say
    little, are told apart poorly (`MomentsClassifier` corrects both). Every label gets the same noise, so labels
    with few records drown in it at small ε. Features come from a frozen public backbone.
    """

    reference: ClassVar[str] = "Tobaben et al. 2025, Algorithm 1"
    certifies: ClassVar[str] = "a record: one Gaussian release of the sums of its own task, once"

    def start(self, stream: StreamInfo) -> None:
        super().start(stream)
        self.sums_ = torch.zeros(len(self.labels_), self.features_.width, device=self.device)
        self.seen_ = torch.zeros(len(self.labels_), dtype=torch.bool, device=self.device)

    def plan(self, task: TaskInfo) -> SumPlan:
        """The least noise that the budget allows, independent in every task."""
        return SumPlan.for_budget(self.budget, share=self.rest, tasks_per_unit=self.stream_.tasks_per_unit)

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        self.report(Step(task=task, step=0, of=1))
        vault.check_map(block, self.features_)
        vault.commit({block: [*self.spread_plan(task), self.plan(task)]})
        self.look(task, block, vault)
        sums = vault.sums(block, self.plan(task), labels=task.labels, through=self.features_)
        indices = self.positions(task.labels).to(self.device)
        self.sums_.index_add_(0, indices, sums.to(self.device))
        self.seen_[indices] = True
        vault.drop(block)
        self.report(Step(task=task, step=1, of=1))

    def classifier(self) -> tuple[Tensor, Tensor]:
        """The normalised sums, so that similarities are cosines."""
        return torch.nn.functional.normalize(self.sums_, dim=1), self.seen_

    def tensors(self) -> dict[str, Tensor]:
        """The sums, and the key of the public backbone."""
        return {"sums": self.sums_.cpu().clone()} | self.known() | weights.keys(self.features_)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        weights.check_keys(self.features_, tensors)
        self.take(tensors)
        if "sums" not in tensors or tensors["sums"].shape != self.sums_.shape:
            raise LearnerError("this release has no sums of these labels and features; give the one of this stream")
        self.sums_ = tensors["sums"].to(self.device).clone()
        self.seen_ = torch.zeros_like(self.seen_)
        for task in self.tasks_:
            self.seen_ |= self.mask(task).to(self.device)
