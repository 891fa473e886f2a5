"""Open blocks: charges that are chosen as one goes, under a curve that was fixed when the block was made.

Guarantee: if every charge is admitted, everything ever released from the block is (α, B(α))-RDP at *every* kept
order α, whatever the charges were and however they were chosen from earlier outputs (the Rényi filter of Feldman
& Zrnic 2021 and Lécuyer 2021, at each order). So it is (ε, δ)-DP with the ε of B. The ε of what was spent so far
is not a guarantee (an odometer is not a filter): `epsilon` is B's and does not move with spending.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from dp_accounting.dp_event import DpEvent

from tacit.errors import PlanError
from tacit.privacy import calibrate, rdp
from tacit.privacy.accounting import ORDERS, rdp_curve, rdp_to_epsilon
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.events import gaussian

UNITS = 10**9
"""Ledgers count Rényi divergence in whole nano-units: costs rounded up, limits rounded down."""
INFINITE_UNITS = 2**62
"""The cost of what has no bound: above every limit, and it still fits a 64-bit integer."""
_USEFUL = 1.1  # an order is kept if B, read at that order alone, is within 10 % of ε


@dataclass(frozen=True, kw_only=True)
class RenyiFilter:
    """B(α) on the kept orders: charges may spend up to it at every one of them."""

    orders: tuple[float, ...]
    limits: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", tuple(map(float, self.orders)))
        object.__setattr__(self, "limits", tuple(map(float, self.limits)))
        if not self.orders or len(self.orders) != len(self.limits):
            raise PlanError(f"a filter needs one limit for every order, got {self.orders} and {self.limits}")
        if not all(order > 1 and math.isfinite(order) for order in self.orders):
            raise PlanError(f"orders must be finite and > 1, got {self.orders}")
        if not all(0 <= limit * UNITS < INFINITE_UNITS for limit in self.limits):
            raise PlanError(f"limits must be >= 0 and below 4e9, got {self.limits}")

    @classmethod
    def for_budget(cls, budget: Budget, like: DpEvent | None = None, additive: float = 0.0) -> Self:
        """The largest multiple of a reference's curve whose ε is at most the budget's.

        The reference is the Gaussian mechanism, or `like`: charges that look like it can use all of B. Only orders
        that matter for ε are kept, so events whose curve explodes at high orders still fit. `additive` is the part
        of δ that is set aside for charges that carry one.
        """
        delta = budget.delta - additive
        if not 0 <= additive < budget.delta:
            raise PlanError(f"additive delta must be >= 0 and below the budget's {budget.delta}, got {additive}")
        shape = np.array(rdp_curve(gaussian(1.0) if like is None else like, budget.adjacency))
        if not np.any(np.isfinite(shape) & (shape > 0)):
            raise PlanError(
                f"reads like this one cannot be chosen as one goes under {budget.adjacency} (no Rényi bound is known); "
                "use add-or-remove, or a learner whose plan is fixed (in code, commit the block's whole plan)"
            )
        low, high = 0.0, 1.0
        while rdp_to_epsilon(high * shape, delta) <= budget.epsilon:
            low, high = high, 2 * high
        for _ in range(200):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            low, high = (middle, high) if rdp_to_epsilon(middle * shape, delta) <= budget.epsilon else (low, middle)
        limits = low * shape
        each = rdp.conversions(limits, delta, np.array(ORDERS))
        keep = np.isfinite(limits) & (limits > 0) & (each <= _USEFUL * max(budget.epsilon, float(np.min(each))))
        if not np.any(keep) or np.min(limits[keep]) * UNITS < 1:
            raise PlanError(
                f"a budget of {budget} is too small for reads that are chosen as one goes (no Rényi order gives it); "
                "raise epsilon, or use a learner whose plan is fixed (in code, commit the block's whole plan)"
            )
        return cls(
            orders=tuple(o for o, kept in zip(ORDERS, keep, strict=True) if kept),
            limits=tuple(float(b) for b, kept in zip(limits, keep, strict=True) if kept),
        )

    def epsilon(self, delta: float) -> float:
        """The ε that a certificate prints: B's. It holds from the first charge to the last."""
        return rdp_to_epsilon(self.limits, delta, self.orders)

    def share(self, parts: int) -> Self:
        """One k-th of every limit, for units that may be in k blocks."""
        if parts < 1:
            raise PlanError(f"a filter is shared by one block or more, got {parts}")
        return type(self)(orders=self.orders, limits=tuple(limit / parts for limit in self.limits))

    def cost(self, event: DpEvent, adjacency: Adjacency) -> tuple[float, ...]:
        """What a charge costs at the kept orders (inf where no bound is known); its additive δ is billed beside."""
        return rdp_curve(event, adjacency, self.orders)

    def admits(self, spent: Sequence[float], cost: Sequence[float]) -> bool:
        """Whether a charge still fits at *every* kept order. NaN, inf and negative costs never do."""
        rows = zip(spent, cost, self.limits, strict=True)
        return all(s >= 0 and c >= 0 and Fraction(s) + Fraction(c) <= Fraction(b) for s, c, b in _finite(rows))

    def less(self, event: DpEvent, adjacency: Adjacency) -> Self | None:
        """What is left after a charge, rounded down; None where it does not fit. Its additive δ is billed beside."""
        cost = cost_units(self.cost(event, adjacency))
        if not self.admits_units((0,) * len(cost), cost):
            return None
        left = (limit - each for limit, each in zip(self.limit_units, cost, strict=True))
        return type(self)(orders=self.orders, limits=tuple(each / UNITS for each in left))

    def least_noise(self, event_of: Callable[[float], DpEvent], adjacency: Adjacency) -> float | None:
        """The least noise for which `event_of(noise)` still fits, within 1e-4 above it; None where none does."""

        def over(log_noise: float) -> float:
            cost = cost_units(self.cost(event_of(math.exp(log_noise)), adjacency))
            return max(map(_log_ratio, cost, self.limit_units))

        found = calibrate.bracketed(
            over, 0.0, math.log(calibrate.MOST_NOISE), math.log(calibrate.LEAST_NOISE), calibrate.TOLERANCE
        )
        return None if found is None else math.exp(found)

    @property
    def limit_units(self) -> tuple[int, ...]:
        """The limits in nano-units, rounded down."""
        return tuple(math.floor(Fraction(limit) * UNITS) for limit in self.limits)

    def admits_units(self, spent: Sequence[int], cost: Sequence[int]) -> bool:
        """The same question in the ledger's integers."""
        return all(s >= 0 and c >= 0 and s + c <= b for s, c, b in zip(spent, cost, self.limit_units, strict=True))


def cost_units(curve: Sequence[float]) -> tuple[int, ...]:
    """A curve in nano-units, rounded up: above 0 costs at least 1, what has no bound more than any limit."""
    return tuple(_units(value) for value in curve)


def _log_ratio(cost: int, limit: int) -> float:
    """At most 0 exactly where the cost is within the limit."""
    if cost == limit:
        return 0.0
    if limit == 0 or cost >= INFINITE_UNITS:
        return math.inf
    return math.log(max(cost, 1e-3) / limit) or math.copysign(1e-15, cost - limit)  # a quotient may be rounded to 1


def _units(value: float) -> int:
    if math.isnan(value) or value < 0 or value == math.inf:
        return INFINITE_UNITS
    return min(math.ceil(Fraction(value) * UNITS), INFINITE_UNITS)


def _finite(rows: "zip[tuple[float, float, float]]") -> list[tuple[float, float, float]]:
    listed = list(rows)
    good = all(math.isfinite(number) for row in listed for number in row)
    return listed if good else [(-1.0, 0.0, 0.0)]
