"""Rényi filters: limits for adaptively chosen charges (Feldman & Zrnic 2021, Lécuyer 2021).

Formal guarantees. Let B(α) be the limits of a filter that was fixed before the first charge.

* If the filter admits every charge, everything released is (α, B(α))-RDP at *every* kept order α, however the charges
  were chosen from earlier outputs. It is therefore (ε, δ)-DP with the ε of B.
* Costs are rounded up and limits down to integers (nano-RDP), so rounding never admits too much.

Conditions: every charge has a Rényi curve and no additive δ, unless a part of δ was set aside for it. The ε of what was
spent so far is not a guarantee, because an odometer is not a filter: `epsilon` returns that of B.

These filters limit a block. Those for each unit are in `tacit.privacy.vault.exits.individual_filter`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from dp_accounting.dp_event import DpEvent

from tacit.errors import PlanError
from tacit.privacy.accounting import calibrate, rdp
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.epsilon import ORDERS, rdp_curve, rdp_to_epsilon
from tacit.privacy.accounting.events import gaussian

UNITS = 10**9
"""Rényi divergence is counted in integer nano-units: costs are rounded up, limits down."""
INFINITE_UNITS = 2**62
"""The cost of an event without a bound: above every limit, and a 64-bit integer."""
_USEFUL = 1.1  # an order is kept if its own ε is within 10 % of the budget's


@dataclass(frozen=True, kw_only=True)
class RenyiFilter:
    """The limits B(α) of a filter.

    Attributes:
        orders: The kept Rényi orders.
        limits: The largest total Rényi divergence at each order.
    """

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
        """The largest multiple of a reference curve whose ε is at most the budget's.

        Only orders that matter for ε are kept, so events whose curve diverges at high orders still fit.

        Args:
            budget: The budget.
            like: The event with the reference curve, by default the Gaussian mechanism; charges of the same shape can
                use the whole filter.
            additive: The part of δ that is set aside for charges with an additive δ.

        Raises:
            PlanError: No Rényi bound is known for `like`, or the budget is too small for a filter.
        """
        delta = budget.delta - additive
        if not 0 <= additive < budget.delta:
            raise PlanError(f"additive delta must be >= 0 and below the budget's {budget.delta}, got {additive}")
        shape = np.array(rdp_curve(gaussian(1.0) if like is None else like, budget.adjacency))
        if not np.any(np.isfinite(shape) & (shape > 0)):
            raise PlanError(
                f"reads like this one cannot be chosen adaptively under {budget.adjacency} (no Rényi bound is known); "
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
                f"a budget of {budget} is too small for adaptively chosen reads (no Rényi order gives it); "
                "raise epsilon, or use a learner whose plan is fixed (in code, commit the block's whole plan)"
            )
        return cls(
            orders=tuple(o for o, kept in zip(ORDERS, keep, strict=True) if kept),
            limits=tuple(float(b) for b, kept in zip(limits, keep, strict=True) if kept),
        )

    def epsilon(self, delta: float) -> float:
        """The ε of the whole filter, which certificates state. It does not depend on what was spent."""
        return rdp_to_epsilon(self.limits, delta, self.orders)

    def share(self, parts: int) -> Self:
        """A filter with 1/parts of every limit, for units that may be in that many blocks."""
        if parts < 1:
            raise PlanError(f"parts must be ≥ 1, got {parts}; it is the number of blocks that a unit may be in")
        return type(self)(orders=self.orders, limits=tuple(limit / parts for limit in self.limits))

    def cost(self, event: DpEvent, adjacency: Adjacency) -> tuple[float, ...]:
        """The cost of a charge at the kept orders, without its additive δ; infinite where no bound is known."""
        return rdp_curve(event, adjacency, self.orders)

    def less(self, event: DpEvent, adjacency: Adjacency) -> Self | None:
        """The filter that is left after a charge, rounded down; None if the charge does not fit."""
        cost = cost_units(self.cost(event, adjacency))
        if not self.admits_units((0,) * len(cost), cost):
            return None
        left = (limit - each for limit, each in zip(self.limit_units, cost, strict=True))
        return type(self)(orders=self.orders, limits=tuple(each / UNITS for each in left))

    def least_noise(self, event_of: Callable[[float], DpEvent], adjacency: Adjacency) -> float | None:
        """The least noise for which `event_of(noise)` fits, up to 1e-4; None if none does."""

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
        """Whether a charge in nano-units fits at every kept order."""
        return all(s >= 0 and c >= 0 and s + c <= b for s, c, b in zip(spent, cost, self.limit_units, strict=True))


def cost_units(curve: Sequence[float]) -> tuple[int, ...]:
    """A curve in nano-units, rounded up: a positive cost is at least 1, an unbounded one exceeds every limit."""
    return tuple(_units(value) for value in curve)


def _log_ratio(cost: int, limit: int) -> float:
    """log(cost / limit), which is at most 0 exactly if the cost is within the limit."""
    if cost == limit:
        return 0.0
    if limit == 0 or cost >= INFINITE_UNITS:
        return math.inf
    return math.log(max(cost, 1e-3) / limit) or math.copysign(1e-15, cost - limit)  # the quotient may round to 1


def _units(value: float) -> int:
    if math.isnan(value) or value < 0 or value == math.inf:
        return INFINITE_UNITS
    return min(math.ceil(Fraction(value) * UNITS), INFINITE_UNITS)
