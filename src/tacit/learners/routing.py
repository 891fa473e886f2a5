"""Which task an input comes from, and what several models say of it together."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.learners.ridge import spectrum
from tacit.learners.second_moment import Moment, eigen

TRUST = 0.4
"""λ over the edge of the noise."""


@dataclass
class Router:
    """Tasks told apart by the means of their labels: linear discriminant analysis on sums that were released anyway."""

    sums: list[Tensor] = field(default_factory=list)
    """Σφ of each label of each task: (labels of the task, features)."""
    noise: list[float] = field(default_factory=list)
    """Standard deviation of the noise in it."""
    records: list[float] = field(default_factory=list)
    """Nominal number of the task's units; its labels are taken to share them."""
    _made: tuple[Tensor, Tensor] | None = None

    def add(self, sums: Tensor, std: float, records: float) -> None:
        self.sums.append(sums)
        self.noise.append(std)
        self.records.append(records)
        self._made = None

    def trust(self, unit: Tensor, moment: Moment) -> Tensor:
        """How likely each task is the source of each row: (rows, tasks). `moment`: of all tasks together."""
        if self._made is None:
            self._made = self._make(moment)
        directions, lengths = self._made
        found = unit @ directions.T.to(unit) - lengths.to(unit) / 2
        by_task: Sequence[Tensor] = torch.split(found, [len(one) for one in self.sums], 1)
        return torch.stack([of.logsumexp(1) - math.log(of.shape[1]) for of in by_task], 1).softmax(1)

    def _make(self, moment: Moment) -> tuple[Tensor, Tensor]:
        """mᵀA and mᵀAm of each mean m, A the inverse of the mean second moment. A mean is drawn to that of all tasks by
        how much of their distance is noise: what little is known of a small task must not speak louder than the rest.
        """
        values, basis = eigen(moment.value)
        sharp = moment.records / spectrum(moment, values, TRUST)
        share = torch.cat([torch.full((len(s),), len(s) / n) for s, n in zip(self.sums, self.records, strict=True)])
        std = torch.cat([torch.full((len(s),), n) for s, n in zip(self.sums, self.noise, strict=True)])
        along = (torch.cat(self.sums) * share[:, None]).double() @ basis
        centre = (torch.cat(self.sums).sum(0) / sum(self.records)).double() @ basis
        noise = (share * std).double().square() * sharp.sum()
        signal = ((along - centre).square() @ sharp - noise).clamp(min=0)
        along = centre + (signal / (signal + noise).clamp(min=1e-300))[:, None] * (along - centre)
        return ((along * sharp) @ basis.T).float(), (along.square() @ sharp).float()

    def tensors(self) -> dict[str, Tensor]:
        """All of it, to store or to publish."""
        kept = {f"sums.{number}": one for number, one in enumerate(self.sums)}
        return kept | {"facts": torch.tensor([self.noise, self.records], dtype=torch.float64)}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Router":
        """What `tensors` gave."""
        noise, records = tensors["facts"].tolist()
        return cls(sums=[tensors[f"sums.{number}"] for number in range(len(noise))], noise=noise, records=records)


def mixture(x: Tensor, trust: Tensor, answers: Callable[[Tensor, int], Tensor], labels: int) -> Tensor:
    """Σ over models of trust (rows, models) · the model's probabilities; one that hardly counts for a row is not asked.

    `answers(rows, number)`: the probabilities of a model."""
    out = torch.zeros(len(x), labels, device=x.device)
    kept = torch.where(trust >= trust.amax(1, keepdim=True).clamp(max=1e-3), trust, 0)
    kept = kept / kept.sum(1, keepdim=True)
    for number in kept.sum(0).nonzero().squeeze(1).tolist():
        rows = kept[:, number].nonzero().squeeze(1)
        out[rows] += kept[rows, number, None] * answers(x[rows], number)
    return out


def logarithm(probabilities: Tensor) -> Tensor:
    """−∞ where there is none. There the gradient is 0, which that of the plain logarithm is not."""
    none = probabilities <= 0
    return probabilities.masked_fill(none, 1).log().masked_fill(none, -torch.inf)


def entropy(probabilities: Tensor) -> Tensor:
    """Of each row. A label without probability adds nothing, and nothing to the gradient."""
    return -(probabilities * probabilities.masked_fill(probabilities <= 0, 1).log()).sum(1)
