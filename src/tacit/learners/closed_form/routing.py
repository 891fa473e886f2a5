"""Routing of inputs to tasks, and mixtures of the predictions of several models."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.learners.closed_form.noisy_moment import Moment, eigen
from tacit.learners.closed_form.ridge import spectrum

NEGLIGIBLE = 1e-3
"""A model with a smaller weight, and a larger one beside it, is left out of a mixture."""
TRUST = 0.4
"""Ridge λ relative to the edge of the noise spectrum."""


@dataclass
class Router:
    """Predicts the task of an input by linear discriminant analysis on the class sums that were already released."""

    sums: list[Tensor] = field(default_factory=list)
    """Σφ of each label of each task: (labels of the task, features)."""
    noise: list[float] = field(default_factory=list)
    """Standard deviation of the noise in each task's sums."""
    records: list[float] = field(default_factory=list)
    """Nominal number of units of each task, assumed to be divided equally among its labels."""
    _made: tuple[Tensor, Tensor] | None = None

    def add(self, sums: Tensor, std: float, records: float) -> None:
        self.sums.append(sums)
        self.noise.append(std)
        self.records.append(records)
        self._made = None

    def trust(self, unit: Tensor, moment: Moment) -> Tensor:
        """Probability of each task for each row: (rows, tasks). `moment` is the second moment of all tasks together."""
        if self._made is None:
            self._made = self._make(moment)
        directions, lengths = self._made
        logits = unit @ directions.T.to(unit) - lengths.to(unit) / 2
        by_task: Sequence[Tensor] = torch.split(logits, [len(sums) for sums in self.sums], 1)
        return torch.stack([part.logsumexp(1) - math.log(part.shape[1]) for part in by_task], 1).softmax(1)

    def _make(self, moment: Moment) -> tuple[Tensor, Tensor]:
        """mᵀA and mᵀAm of each mean m, where A is the inverse of the mean second moment.

        Each mean is shrunk towards the mean of all tasks by the share of noise in their distance, so that noisy means
        of small tasks do not dominate.
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
        """The router's state. It contains releases only and may be published."""
        tensors = {f"sums.{number}": sums for number, sums in enumerate(self.sums)}
        return tensors | {"facts": torch.tensor([self.noise, self.records], dtype=torch.float64)}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Router":
        """The router with the state returned by `tensors`."""
        noise, records = tensors["facts"].tolist()
        return cls(sums=[tensors[f"sums.{number}"] for number in range(len(noise))], noise=noise, records=records)


def mixture(x: Tensor, trust: Tensor, answers: Callable[[Tensor, int], Tensor], labels: int) -> Tensor:
    """The models' probabilities averaged with weights `trust` (rows, models); negligible weights are set to 0.

    `answers(rows, number)` returns the probabilities of a model."""
    out = torch.zeros(len(x), labels, device=x.device)
    weights = torch.where(trust >= trust.amax(1, keepdim=True).clamp(max=NEGLIGIBLE), trust, 0)
    weights = weights / weights.sum(1, keepdim=True)
    for number in weights.sum(0).nonzero().squeeze(1).tolist():
        rows = weights[:, number].nonzero().squeeze(1)
        out[rows] += weights[rows, number, None] * answers(x[rows], number)
    return out


def logarithm(probabilities: Tensor) -> Tensor:
    """Logarithm that is −∞ with gradient 0 where a probability is 0."""
    zero = probabilities <= 0
    return probabilities.masked_fill(zero, 1).log().masked_fill(zero, -torch.inf)


def entropy(probabilities: Tensor) -> Tensor:
    """Entropy of each row. Labels of probability 0 contribute neither to the value nor to the gradient."""
    return -(probabilities * probabilities.masked_fill(probabilities <= 0, 1).log()).sum(1)
