"""FeCAM (Goswami et al. 2023): NOT PRIVATE. An upper bound for classifiers of class means and covariances.

Features go through Tukey's power transform x^½ and are L2-normalised. The score of a label is minus the Mahalanobis
distance (x − μ)ᵀN⁻¹(x − μ). N is the label's covariance Σ (or that of all labels), shrunk to Σ + V₁I + V₂(1 − I) with
V₁ and V₂ the means of its diagonal and of the rest, and scaled to a diagonal of ones. Records are read raw
(`vault.unsafe`), so it needs data declared public, or a policy that allows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import weights
from tacit.learners.base.callbacks import Step
from tacit.learners.base.frozen_features import feature_map, unit_root
from tacit.learners.base.inference import answering
from tacit.learners.base.learner import Learner
from tacit.learners.closed_form.noisy_moment import packed, unpacked
from tacit.models.devices import check_device
from tacit.privacy.vault import Block, Vault


@dataclass(kw_only=True, eq=False)
class FeCAM(Learner):
    """Mahalanobis distances to class means of frozen features, NOT PRIVATE: one pass, nothing is forgotten.

    Reference: Goswami et al. 2023, FeCAM, on L2-normalised features.
    Claim: none.
    Certified: no finite epsilon.
    Sharp edges: it reads records raw, so it runs only on data that is declared public, or where the policy allows
    it. A covariance for each label needs many records of it; `covariance="shared"` has one for all.
    """

    has_network: ClassVar[bool] = False
    backbone: str | nn.Module | None = None
    """A public backbone; if None, the records are features already."""
    covariance: Literal["class", "shared"] = "class"
    """class: one for each label, as in the paper, which takes as much memory and time. shared: one for all labels."""

    private: ClassVar[bool] = False
    reference: ClassVar[str] = "Goswami et al. 2023, FeCAM"
    certifies: ClassVar[str] = "nothing: records are read raw"

    def start(self, stream: StreamInfo) -> None:
        if self.covariance not in ("class", "shared"):
            raise LearnerError(f"covariance must be 'class' or 'shared', got {self.covariance!r}")
        super().start(stream)
        labels, width = len(self.labels_), self.features_.width
        self.counts_ = torch.zeros(labels)
        self.sums_ = torch.zeros(labels, width)
        self.moments_ = torch.zeros(labels if self.covariance == "class" else 1, width * (width + 1) // 2)

    def build(self) -> nn.Module:
        check_device(self.device)
        self.features_ = feature_map(self.backbone, self.stream_.shape).to(self.device)
        return self.features_

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        x, y = vault.unsafe.records(block, "FeCAM is not private")
        self.report(Step(task=task, step=0, of=1))
        for label in set(y.tolist()):
            rows = self._transformed(x[y == label]).cpu()
            self.counts_[label] += len(rows)
            self.sums_[label] += rows.sum(0)
            self.moments_[self._row(label)] += packed(rows.T @ rows)
        vault.drop(block)
        self.report(Step(task=task, step=1, of=1))

    def _row(self, label: int) -> int:
        """The row of `moments_` that a label's records are in."""
        return label if self.covariance == "class" else 0

    def _transformed(self, x: Tensor) -> Tensor:
        with answering(self.model_):
            features: Tensor = self.model_(x.to(self.device))
        return unit_root(features)

    def logits(self, x: Tensor) -> Tensor:
        """Minus the distance, −∞ for labels not seen; all labels alike before the first is seen."""
        rows = self._transformed(x)
        out = torch.full((len(rows), len(self.labels_)), -torch.inf, device=self.device)
        seen = self.counts_.nonzero().flatten().tolist()
        means = self.sums_ / self.counts_.clamp(min=1)[:, None]
        root = self._root(list(seen), means) if seen and self.covariance == "shared" else None
        for label in seen:
            own = self._root([label], means) if root is None else root
            centre = torch.nn.functional.normalize(means[label], dim=0).to(self.device)
            away = torch.linalg.solve_triangular(own, (rows - centre).T, upper=False)
            out[:, label] = -away.square().sum(0)
        return out if seen else torch.zeros_like(out)

    def _root(self, labels: list[int], means: Tensor) -> Tensor:
        """The Cholesky factor of N: the covariance of these labels within each of them, shrunk and normalised."""
        counts, width = self.counts_[labels], self.features_.width
        own = unpacked(self.moments_[self._row(labels[0])], width).double()
        centres = means[labels].double()
        covariance = (own - (centres.T * counts.double()) @ centres) / counts.sum()
        diagonal = torch.diagonal(covariance).clamp(min=0)
        rest = (covariance.sum() - torch.diagonal(covariance).sum()) / max(1, width * (width - 1))
        eye = torch.eye(width, dtype=torch.float64)
        shrunk = covariance + diagonal.mean().clamp(min=1e-9) * eye + rest * (1 - eye)
        scale = torch.diagonal(shrunk).sqrt()
        root: Tensor = torch.linalg.cholesky(shrunk / torch.outer(scale, scale) + 1e-3 * eye)
        return root.float().to(self.device)

    def tensors(self) -> dict[str, Tensor]:
        """Counts, sums and second moments, which are exact: they are published only where the data is public."""
        held = {"counts": self.counts_, "sums": self.sums_, "moments": self.moments_} if self.stream_.public else {}
        return {name: value.clone() for name, value in held.items()} | weights.keys(self.model_)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        weights.check_keys(self.model_, tensors)
        for name in ("counts", "sums", "moments"):
            mine: Tensor = getattr(self, f"{name}_")
            if name not in tensors or tensors[name].shape != mine.shape:
                raise LearnerError(f"this release has no {name} of these labels and features; give one of this stream")
            mine.copy_(tensors[name])
