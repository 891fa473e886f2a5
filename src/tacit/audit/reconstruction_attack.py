"""The adversary against L2DP-ML as published: recovers a training record and its label from released parameters.

It is the adversary of differential privacy: it has every release, the learning rate, the network, and all records but
one, and never sees the noise or a perturbed record. Three tasks are learned by Algorithm 1 of Lai et al. 2022 (one step
per task, with the whole task as batch); the victim is in the first. A step gives a gradient, (θ^{t−1} − θ^t)/lr. At the
papers' noise the hidden layer saturates, and the auto-encoder's gradient is

    G_t = (½ − m_t − c) h̄ᵀ    m_t the mean of the task's records, c = χ₁/λ, h̄ = ±1 + 2χ₂/λ

with the same c and the same h̄ in the second and the third task.

* If gradients that agree are not projected (A-GEM; here they agree, because the shared noise dominates): both tasks are
  known except for the noise, so G₂ − G₃ = (m₃ − m₂)h̄ᵀ gives h̄, and then G₂ gives c, the noise itself. Subtracting it
  and the known records from the first step leaves the victim's.
* If every step is projected, as printed in the papers: G₂ = (m₁ − m₂ + βv)h̄ᵀ with v = ½ − m₁ − c and an unknown scalar
  β. The direction of v is that of G₁, so m₁, and with it the victim, is recovered except for its component along v.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tacit.models.stacked import Stacked

ROUNDS = 3
"""Rounds of refinement: the victim's hidden layer depends on its record, which each round estimates better."""
ENCODER, HEAD = "encoder.weight", "head.weight"


@dataclass(frozen=True, kw_only=True)
class Known:
    """The adversary's knowledge."""

    releases: Sequence[Mapping[str, Tensor]]
    """The parameters before the first task and after each task."""
    records: Sequence[tuple[Tensor, Tensor]]
    """The features in [−1, 1] (rows) and labels of each task; the victim is missing from the first."""
    network: Stacked
    """The public architecture."""
    lr: float
    size: int
    """λ, the number of records of a task."""

    def gradient(self, task: int, name: str) -> Tensor:
        """The gradient of a task's step."""
        return (self.releases[task][name] - self.releases[task + 1][name]) / self.lr

    def before(self, task: int) -> Stacked:
        """The network before a task."""
        network = deepcopy(self.network).double()
        network.load_state_dict(dict(self.releases[task]))
        return network.eval()


def reconstruct(known: Known) -> tuple[Tensor, int]:
    """The record and the label index that are missing from the first task."""
    means = [x.sum(0) / known.size for x, _ in known.records]
    second, apart = known.gradient(1, ENCODER), means[2] - means[1]
    hidden = (second - known.gradient(2, ENCODER)).T @ apart / (apart @ apart)
    shift = 0.5 - means[1] - second @ hidden / (hidden @ hidden)  # c = χ₁/λ
    signs = _hidden(known.before(1), known.records[1][0] + shift).mean(0)
    lift = hidden - signs  # 2χ₂/λ
    network, first = known.before(0), known.gradient(0, ENCODER)
    others = known.records[0][0] + shift
    left = known.size * first - (0.5 - others).T @ (_hidden(network, others) + lift)  # (½ − x̄)h̄ᵀ of the victim
    record = torch.zeros_like(shift)
    for _ in range(ROUNDS):
        own = _hidden(network, (record + shift)[None])[0] + lift
        record = 0.5 - shift - left @ own / (own @ own)
    return record, _label(known, network, torch.cat([others, (record + shift)[None]]), first)


def _label(known: Known, network: Stacked, x: Tensor, first: Tensor) -> int:
    """The label index of the last perturbed record. χ₃ is the same for all classes, so it cancels in their
    differences."""
    signs = _hidden(network, x)
    common = 0.5 - x.mean(0)
    hidden = signs + first.T @ common / (common @ common) - signs.mean(0)  # exact up to its scale
    y = known.records[0][1]
    step = known.size * known.gradient(0, HEAD)
    classes = len(step)

    def unexplained(scale: float) -> Tensor:
        """−y of the victim minus the mean over classes, if the scale is right."""
        with torch.no_grad():
            top = network.body(scale * hidden)
            slopes = 0.5 + network.head(top) / 4
            slopes[:-1] -= one_hot(y, classes)
            left = step - slopes.T @ top
            found: Tensor = (left - left.mean(0)) @ top[-1] / (top[-1] @ top[-1])
            return found

    rest = unexplained(1.0)
    drift = unexplained(1 + 1e-6) - rest
    drift /= drift.norm()
    misses = rest + torch.eye(classes, dtype=rest.dtype) - 1 / classes  # one row per candidate label
    return int((misses - (misses @ drift)[:, None] * drift).norm(dim=1).argmin())


def reconstruct_projected(known: Known) -> tuple[Tensor, int]:
    """Like `reconstruct`, if every step but the first is projected; along one direction the record is set to the
    mean."""
    means = [x.sum(0) / known.size for x, _ in known.records]
    first, second, third = (known.gradient(task, ENCODER) for task in range(3))
    along = torch.linalg.svd(first, full_matrices=False)[0][:, 0]  # of v
    row = torch.linalg.svd(second, full_matrices=False)[2][0]  # of h̄
    # The memory of the third task was the first or the second task; the better fit decides.
    regressors = torch.stack([means[1] - means[2], along], 1)
    fits = []
    for left in (third @ row, (third - second) @ row):
        solution = torch.linalg.lstsq(regressors, left[:, None]).solution[:, 0]
        fits.append((float((regressors @ solution - left).norm()), float(solution[0])))
    _, length = min(fits)
    record = known.size * (second @ row / length + means[1] - means[0])
    record -= ((record - means[0]) @ along) * along
    hidden = length * row
    shift = 0.5 - means[0] - first @ hidden / (hidden @ hidden)
    for _ in range(ROUNDS):
        lift = hidden - _hidden(known.before(1), known.records[1][0] + shift).mean(0)
        begun = _hidden(known.before(0), known.records[0][0] + shift).mean(0) + lift
        shift = 0.5 - means[0] - first @ begun / (begun @ begun)
    x = torch.cat([known.records[0][0], record[None]]) + shift
    return record, _label(known, known.before(0), x, first)


def _hidden(network: Stacked, x: Tensor) -> Tensor:
    with torch.no_grad():
        return network.hidden(x)
