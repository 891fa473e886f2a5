"""The adversary against L2DP-ML as published: recovers a training record and its label from released parameters.

It is the adversary of differential privacy: it has the parameters before and after a step, the learning rate, the
network, and all records of the batch but one, and never sees the noise or a perturbed record. One step of Algorithm 1
of Lai et al. 2022 (the whole task is one batch) is enough. It gives a gradient, G = (θ − θ')/lr, and of the
auto-encoder

    λG = Σ_r (½ − x_r − χ₁/λ) h̄_rᵀ = −Σ_r (x_r − m) h̄_rᵀ    for any m, since Σ_r h̄_r = 0

h̄ is normalised per unit over the batch, which subtracts whatever all records share: χ₂, χ₁ inside h, and, because h̄
then sums to zero, χ₁ in front of it. The noise is in no coefficient, at any scale: G is a function of the records
alone. All of them are known but one, and G has hundreds of thousands of numbers: the victim is what explains them,
found by least squares. m is the mean of the known records, around which the victim enters by (x − m)h̄ᵀ alone: its
direction is that of the largest singular value of what the known records leave, up to a sign; the better of the two
fits decides.

Of the head, λG = Σ_r (½ − y_r + z_r/4) h_π,r + χ₃: the noise is shared by all classes, so that it cancels in their
differences, and the label is what explains these.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tacit.models.autoencoder_classifier import Stacked

STEPS = 300
"""Largest number of steps of the least squares, which need about 50."""
EXPLAINED = 1e-6
"""A fit that leaves less than this of the victim's share needs no second start."""
ENCODER, HEAD = "encoder.weight", "head.weight"


@dataclass(frozen=True, kw_only=True)
class Known:
    """The adversary's knowledge."""

    before: Mapping[str, Tensor]
    """The parameters before the step."""
    after: Mapping[str, Tensor]
    """The parameters that were released after it."""
    records: Tensor
    """The features in [−1, 1] (rows) of all records but one."""
    labels: Tensor
    network: Stacked
    """The public architecture."""
    lr: float

    def total(self, name: str) -> Tensor:
        """The sum of the records' gradients: λG."""
        return (self.before[name] - self.after[name]) / self.lr * (len(self.records) + 1)


def reconstruct(known: Known) -> tuple[Tensor, int]:
    """The missing record and its label's index."""
    network = known.network
    network.load_state_dict(dict(known.before))
    total, mean = known.total(ENCODER), known.records.mean(0)

    def unexplained(victim: Tensor) -> Tensor:
        x = torch.cat([known.records, victim[None]])
        found: Tensor = total + (x - mean).T @ network.encoder(x).flatten(1)
        return found

    with torch.no_grad():
        left = unexplained(mean)
        along, share = torch.linalg.svd(left, full_matrices=False)[0][:, 0], float(left.square().sum())
        length = float((known.records - mean).norm(dim=1).mean())
    found = least, victim = _fit(unexplained, mean + length * along)
    if least > EXPLAINED * share:
        victim = min(found, _fit(unexplained, mean - length * along), key=lambda fit: fit[0])[1]
    return victim, _label(known, torch.cat([known.records, victim[None]]))


def _fit(unexplained: Callable[[Tensor], Tensor], start: Tensor) -> tuple[float, Tensor]:
    """The least sum of squares from this start, and where it is."""
    victim = start.detach().clone().requires_grad_()
    search = torch.optim.LBFGS(
        [victim], max_iter=STEPS, history_size=30, line_search_fn="strong_wolfe",
        tolerance_grad=1e-14, tolerance_change=1e-18,
    )  # fmt: skip

    def loss() -> Tensor:
        value = unexplained(victim).square().sum()
        (victim.grad,) = torch.autograd.grad(value, [victim])
        return value.detach()

    search.step(loss)  # type: ignore[no-untyped-call]
    return float(loss()), victim.detach()


def _label(known: Known, x: Tensor) -> int:
    """The label's index of the last record: of the candidates, the one that leaves least of the head's gradient, after
    the mean over classes is subtracted."""
    with torch.no_grad():
        top = known.network.top(known.network.encoder(x))
        slopes = 0.5 + known.network.head(top) / 4
    classes = slopes.shape[1]
    slopes[:-1] -= one_hot(known.labels, classes)
    left = known.total(HEAD) - slopes.T @ top
    left = left - left.mean(0)  # −(y − 1/classes) h_πᵀ of the victim
    choices = torch.eye(classes, dtype=left.dtype) - 1 / classes
    return int((left + choices[:, :, None] * top[-1]).flatten(1).norm(dim=1).argmin())
