"""Ridge regression on noisy coefficients; λ and the weight of other tasks are chosen from the known noise.

To second order a task's loss Σ_k log(1 + e^±z) is ½ tr(WAWᵀ) − tr(WBᵀ) up to a factor and terms common to all labels:
A = Σφφᵀ and B = Σyφᵀ depend on the data only. The minimum is W = B(A + λI)⁻¹. A's noise has a known spectrum (the
semicircle), so eigenvalues inside it are set to 0 and larger ones are shrunk as in the spiked model; λ = c · its edge.

c is found without data: fresh public noise η·E added to the coefficients and −E/η to a copy makes two independent noisy
versions of them. One gives W, the other the objective at W, without bias.

How much of the other tasks' coefficients to add to a task's own (`kinship`): a label's mean here, less that of all
labels, is its mean elsewhere plus a difference of variance D² in each entry. Squared distances of what was released,
less the known noise, estimate D²; then both are weighted by how well they tell the mean (normal empirical Bayes). It is
next to nothing for tasks that have nothing in common, or that are known well enough by themselves.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.learners.closed_form.noisy_moment import Moment, centred, eigen, packed, symmetric, unpacked

TRUST = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 2.0, 4.0, 8.0)
"""Candidates for c."""
SPLITS, SPREAD = 4, 1.0
"""Number of pairs of noisy copies, and η."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A task's noisy coefficients, or those of several tasks together."""

    sums: Tensor
    """B, (labels, features)."""
    std: Tensor
    """Standard deviation of the noise in each row of B: (labels,)."""
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
        """The objective minus one of its terms, with that term's noise variance subtracted."""
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
        """The value of the objective at these weights."""
        bent = weights.float() @ self.moment.value
        return float((weights * bent).sum() / 2 - (weights * self.sums).sum())

    def copies(self, generator: torch.Generator) -> tuple["Objective", "Objective"]:
        """Two noisy versions of the coefficients with independent noise."""
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
        """The coefficients, to store or publish; in half precision divided by the number of records, so at most 1."""
        moment = self.moment
        over = 1.0 if dtype == torch.float32 else moment.records
        return {
            "sums": (self.sums / over).to(dtype),
            "std": self.std.clone(),
            "moment": (packed(moment.value) / over).to(dtype),
            "facts": torch.tensor([moment.std, moment.records, over], dtype=torch.float64),
        }

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Objective":
        """The objective with the state returned by `tensors`."""
        std, records, over = tensors["facts"].tolist()
        sums = tensors["sums"].float() * over
        value = unpacked(tensors["moment"].float() * over, sums.shape[1])
        return cls(sums=sums, std=tensors["std"], moment=Moment(value=value, std=std, records=records))


def minimum(own: Objective, others: Objective | None, seed: int, epochs: int | None = None) -> Tensor:
    """Weights (labels, features): the minimum, or the result of `epochs` steps of gradient descent from 0."""
    weight = 0.0 if others is None else kinship(own, others)

    def mixed(objective: Objective) -> Objective:
        return objective if others is None or weight == 0 else objective.plus(others, weight)

    generator = torch.Generator().manual_seed(seed)
    values = torch.zeros(len(TRUST), dtype=torch.float64)
    for _ in range(SPLITS):
        fitted, judge = own.copies(generator)
        values += torch.tensor([judge.at(w) for w in _path(mixed(fitted), TRUST, epochs)], dtype=torch.float64)
    return next(_path(mixed(own), (TRUST[int(values.argmin())],), epochs)).float()


def kinship(own: Objective, others: Objective) -> float:
    """The weight of the other tasks' coefficients relative to the task's own."""
    shared = (own.sums != 0).any(1) & (others.sums != 0).any(1)
    labels, width = int(shared.sum()), own.sums.shape[1]
    if labels < 2:
        return 0.0
    (mine, known), (theirs, there) = (
        (centred(one.sums[shared].double()) / n, float(one.std[shared].double().square().mean()) / n**2 + spread / n)
        for one, n, spread in ((one, one.moment.records, 1 / (labels * width)) for one in (own, others))
    )
    inside = 1 - 1 / labels  # share of a variance that remains after subtracting the mean over labels
    between = max(0.0, float((mine - theirs).square().mean()) - inside * (known + there))
    return inside * known / (inside * there + between) * own.moment.records / others.moment.records


def spectrum(moment: Moment, values: Tensor, c: float) -> Tensor:
    """Eigenvalues of A + λI, corrected for the noise."""
    edge = moment.edge
    spike = (values + (values.square() - edge**2).clamp(min=0).sqrt()) / 2
    return torch.where(values > edge, spike, 0.0) + c * edge + moment.least


def _path(objective: Objective, trust: tuple[float, ...], epochs: int | None) -> Iterator[Tensor]:
    """The weights for each c."""
    values, basis = eigen(objective.moment.value)
    along = objective.sums.double() @ basis
    for c in trust:
        eigenvalues = spectrum(objective.moment, values, c)
        reached = 1.0 if epochs is None else 1 - (1 - eigenvalues / eigenvalues.max()) ** epochs
        yield (along * reached / eigenvalues) @ basis.T
