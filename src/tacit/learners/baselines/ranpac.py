"""RanPAC (McDonnell et al. 2023): NOT PRIVATE. An upper bound for classifiers of sums of frozen features.

h(x) = relu(Wᵀf(x)) with a public random W. G = Σ hhᵀ and Q = Σ hyᵀ are exact sums over all tasks, scores are
h(x)ᵀ(G + λI)⁻¹Q, and λ minimises the squared error on a fifth of each task's records. Records are read raw
(`vault.unsafe`), so it needs data declared public, or a policy that allows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import weights
from tacit.learners.base.callbacks import Step
from tacit.learners.base.frozen_features import feature_map
from tacit.learners.base.inference import ROWS, answering
from tacit.learners.base.learner import Learner
from tacit.models.devices import check_device
from tacit.privacy.vault import Block, Vault

RIDGES = tuple(10.0**power for power in range(-4, 7))
"""Candidates for λ."""


@dataclass(kw_only=True, eq=False)
class RanPAC(Learner):
    """Ridge regression on random ReLU features, NOT PRIVATE: one pass, exact sums, nothing is forgotten.

    Reference: McDonnell et al. 2023, RanPAC, without its fine-tuning on the first task.
    Claim: none.
    Certified: no finite epsilon.
    Sharp edges: it reads records raw, so it runs only on data that is declared public, or where the policy allows
    it. Memory grows with the square of `width`.
    """

    has_network: ClassVar[bool] = False
    backbone: str | nn.Module | None = None
    """A public backbone; if None, the records are features already."""
    width: int = 2_000
    """Number of random features. The paper has 10,000, which take minutes a task on a CPU."""

    private: ClassVar[bool] = False
    reference: ClassVar[str] = "McDonnell et al. 2023, RanPAC"
    certifies: ClassVar[str] = "nothing: records are read raw"

    def start(self, stream: StreamInfo) -> None:
        super().start(stream)
        self.gram_ = torch.zeros(self.width, self.width, device=self.device)
        self.targets_ = torch.zeros(self.width, len(self.labels_), device=self.device)
        self.weights_ = torch.zeros_like(self.targets_)

    def build(self) -> nn.Module:
        check_device(self.device)
        self.features_ = feature_map(self.backbone, self.stream_.shape).to(self.device)
        coins = torch.Generator().manual_seed(self.seed)
        self.projection_ = torch.randn(self.features_.width, self.width, generator=coins).to(self.device)
        return self.features_

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        x, y = (part.to(self.device) for part in vault.unsafe.records(block, "RanPAC is not private"))
        self.report(Step(task=task, step=0, of=1))
        held = torch.randperm(len(x), generator=torch.Generator().manual_seed(self.seed + task.number)) < len(x) // 5
        self._add(x[~held], y[~held])
        ridge = self._best_ridge(x[held], y[held])
        self._add(x[held], y[held])
        eye = torch.eye(self.width, device=self.device)
        self.weights_ = torch.linalg.solve(self.gram_ + ridge * eye, self.targets_).contiguous()
        vault.drop(block)
        self.report(Step(task=task, step=1, of=1))

    def _add(self, x: Tensor, y: Tensor) -> None:
        for rows, labels in zip(torch.split(x, ROWS), torch.split(y, ROWS), strict=True):
            h = self._expanded(rows)
            self.gram_.addmm_(h.T, h)
            self.targets_.addmm_(h.T, self._one_hot(labels))

    def _best_ridge(self, x: Tensor, y: Tensor) -> float:
        """The λ with the least squared error on these records."""
        if len(x) == 0:
            return 1.0
        values, basis = torch.linalg.eigh(self.gram_)
        along, h = basis.T @ self.targets_, self._expanded(x) @ basis
        errors = [
            float((h @ (along / (values.clamp(min=0) + ridge)[:, None]) - self._one_hot(y)).square().mean())
            for ridge in RIDGES
        ]
        return min(zip(errors, RIDGES, strict=True))[1]

    def _expanded(self, x: Tensor) -> Tensor:
        with answering(self.model_):
            features: Tensor = self.model_(x)
        return (features @ self.projection_).relu()

    def _one_hot(self, y: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(y, len(self.labels_)).float()

    def logits(self, x: Tensor) -> Tensor:
        return self._expanded(x) @ self.weights_

    def tensors(self) -> dict[str, Tensor]:
        """The weights; where the data is public also the exact sums, which a later process needs to resume."""
        sums = {"gram": self.gram_, "targets": self.targets_} if self.stream_.public else {}
        held = {"weights": self.weights_} | sums
        return {name: value.cpu().clone() for name, value in held.items()} | weights.keys(self.model_)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        weights.check_keys(self.model_, tensors)
        if "gram" not in tensors:
            raise LearnerError("this release has no sums, since its data is not public: RanPAC cannot go on from it")
        for name, mine in (("gram", self.gram_), ("targets", self.targets_), ("weights", self.weights_)):
            if tensors[name].shape != mine.shape:
                raise LearnerError(
                    f"this release has {name} of shape {tuple(tensors[name].shape)}, and this stream and width need "
                    f"{tuple(mine.shape)}; give the release of this stream"
                )
            mine.copy_(tensors[name])
