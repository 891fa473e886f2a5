"""The minimum of noisy quadratic objectives: which directions to trust, and what other tasks know, by the noise alone.

To second order a task's loss Σ_k log(1 + e^±z) is ½ tr(WAWᵀ) − tr(WBᵀ) but for a factor and for what all labels share:
A = Σφφᵀ and B = Σyφᵀ depend on the data alone. The minimum is W = B(A + λI)⁻¹. A's noise has a known spectrum (the
semicircle), so eigenvalues inside it count as 0 and those above it are drawn in as a spike's are; λ = c · its edge.

c is found without data: fresh public noise η·E added to the coefficients and −E/η to a copy makes two independent noisy
versions of them. One gives W, the other the objective at W, without bias. In the same way `minimum` decides how much of
the other tasks' coefficients to add to a task's own: none where tasks have nothing in common, all where they are alike.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.learners.second_moment import Moment, eigen, packed, symmetric, unpacked

TRUST = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 2.0, 4.0, 8.0)
"""Candidates for c."""
BORROW = (0.0, 0.1, 0.3, 1.0)
"""Candidates for the weight of the other tasks' coefficients."""
SPLITS, SPREAD = 4, 1.0
"""How many pairs of noisy copies, and η."""
SURE = 2.0
"""Standard errors by which borrowing must be better than not."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A task's noisy coefficients, or those of several tasks together."""

    sums: Tensor
    """B, (labels, features)."""
    std: Tensor
    """Of the noise in each row of B: (labels,)."""
    moment: Moment
    """A."""

    def plus(self, other: "Objective", weight: float) -> "Objective":
        mine, theirs = self.moment, other.moment
        return Objective(
            sums=self.sums + weight * other.sums,
            std=torch.hypot(self.std, weight * other.std),
            moment=Moment(
                value=mine.value + weight * theirs.value,
                std=math.hypot(mine.std, weight * theirs.std),
                records=mine.records + weight * theirs.records,
            ),
        )

    def less(self, part: "Objective") -> "Objective":
        """Without the coefficients of a part of it, and without their noise."""
        mine, theirs = self.moment, part.moment
        return Objective(
            sums=self.sums - part.sums,
            std=(self.std.square() - part.std.square()).clamp(min=0).sqrt(),
            moment=Moment(
                value=mine.value - theirs.value,
                std=math.sqrt(max(0.0, mine.std**2 - theirs.std**2)),
                records=mine.records - theirs.records,
            ),
        )

    def at(self, weights: Tensor) -> float:
        """Its value."""
        bent = weights.float() @ self.moment.value
        return float((weights * bent).sum() / 2 - (weights * self.sums).sum())

    def copies(self, generator: torch.Generator) -> tuple["Objective", "Objective"]:
        """Two of the same coefficients whose noise is independent."""
        e = self.moment.std * symmetric(len(self.moment.value), generator)
        z = self.std[:, None] * torch.randn(self.sums.shape, generator=generator)
        return self._noisier(e, z, SPREAD), self._noisier(e, z, -1 / SPREAD)

    def _noisier(self, e: Tensor, z: Tensor, by: float) -> "Objective":
        more, moment = math.sqrt(1 + by**2), self.moment
        return Objective(
            sums=self.sums + by * z,
            std=more * self.std,
            moment=Moment(value=moment.value + by * e, std=more * moment.std, records=moment.records),
        )

    def tensors(self, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """All of it, to store or to publish; in half precision over the number of records, so that all is at most 1."""
        moment = self.moment
        over = 1.0 if dtype == torch.float32 else moment.records
        return {
            "sums": (self.sums / over).to(dtype),
            "std": self.std,
            "moment": (packed(moment.value) / over).to(dtype),
            "facts": torch.tensor([moment.std, moment.records, over], dtype=torch.float64),
        }

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Objective":
        """What `tensors` gave."""
        std, records, over = tensors["facts"].tolist()
        sums = tensors["sums"].float() * over
        value = unpacked(tensors["moment"].float() * over, sums.shape[1])
        return cls(sums=sums, std=tensors["std"], moment=Moment(value=value, std=std, records=records))


def minimum(own: Objective, others: Objective | None, seed: int, epochs: int | None = None) -> Tensor:
    """Weights, (labels, features). `epochs`: so many steps of gradient descent from 0 instead of the minimum itself."""
    weight, c = _trusted(own, others, seed, epochs)
    mixed = own if others is None or weight == 0 else own.plus(others, weight)
    return next(_path(mixed, (c,), epochs)).float()


def _trusted(own: Objective, others: Objective | None, seed: int, epochs: int | None) -> tuple[float, float]:
    """How much of the others to add, and c. Others are only borrowed from where that is clearly better."""
    generator = torch.Generator().manual_seed(seed)
    borrow = BORROW if others is not None else (0.0,)
    values = torch.zeros(SPLITS, len(borrow), len(TRUST), dtype=torch.float64)
    for split in range(SPLITS):
        fitted, judge = own.copies(generator)
        for place, weight in enumerate(borrow):
            mixed = fitted if others is None or weight == 0 else fitted.plus(others, weight)
            values[split, place] = torch.tensor([judge.at(w) for w in _path(mixed, TRUST, epochs)])
    strength = values.mean(0).argmin(1)
    best = values[:, torch.arange(len(borrow)), strength]
    gain = best[:, :1] - best
    sure = gain.mean(0) > SURE * gain.std(0) / math.sqrt(SPLITS)
    place = int(torch.where(sure, best.mean(0), best[:, 0].mean()).argmin())
    return borrow[place], TRUST[int(strength[place])]


def spectrum(moment: Moment, values: Tensor, c: float) -> Tensor:
    """Eigenvalues of A + λI: the noise's part of each taken off."""
    edge = moment.edge
    spike = (values + (values.square() - edge**2).clamp(min=0).sqrt()) / 2
    return torch.where(values > edge, spike, 0.0) + c * edge + moment.least


def _path(objective: Objective, trust: tuple[float, ...], epochs: int | None) -> Iterator[Tensor]:
    """The minimum for each c."""
    values, basis = eigen(objective.moment.value)
    along = objective.sums.double() @ basis
    for c in trust:
        found = spectrum(objective.moment, values, c)
        reached = 1.0 if epochs is None else 1 - (1 - found / found.max()) ** epochs
        yield (along * reached / found) @ basis.T
