"""What an attacker can achieve at most: true positives, advantage, µ-GDP and group privacy, by a whole privacy profile.

A *profile* bounds δ(ε) = sup P(S) − e^ε Q(S) at many ε ≥ 0, for the outputs P and Q of two neighbouring data sets, in
both directions: of the data with a unit against those without it (`removed`), and the other way round (`added`).

Formal guarantees. For every test of one data set against the other, with false positives α and true positives β:

* β ≤ e^ε α + δ(ε), and β ≤ 1 − e^−ε (1 − α − δ'(ε)), where δ' is the profile of the opposite direction (Wasserman &
  Zhou 2010; Kairouz, Oh & Viswanath 2015). Every ε gives a valid bound, so the grid costs tightness only.
* β − α ≤ δ(0).
* δ(ε) ≤ δ_µ(ε) + δ0 for all ε ≥ 0, in both directions, makes β at most Φ(Φ⁻¹(α) + µ) + δ0 (Dong, Roth & Su 2022).
* If β ≤ T(α) for one unit, then β ≤ T(T(…T(α))) for k units (Dong, Roth & Su 2022, Theorem 2.14): whoever of the k is
  added or removed, and in whatever order. It is exact for Gaussians, where it multiplies µ by k.

An additive δ is part of the profile. Conditions are those of the accountants: events that were fixed in advance, or a
Rényi curve that a filter enforces.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from dp_accounting import dp_event
from numpy.typing import NDArray

from tacit.privacy.accounting import epsilon as accounting
from tacit.privacy.accounting import events, pld, rdp, replace_one
from tacit.privacy.accounting import gaussian_dp as gaussian
from tacit.privacy.accounting.budget import Adjacency

Array = NDArray[np.float64]
POINTS = 20_000
"""ε of a profile."""
_REACH = (1e-16, 1e-12, 1e-9, 1e-6)  # δ down to which a profile reaches, if there is a finite ε for it
_MOST_EPSILON = 600.0  # e^ε beyond it is near the largest float
_LEAST_SCALE = 1e-6
_FALSE_POSITIVES = np.unique(
    np.concatenate([[0.0], np.logspace(-60, -14, 20_000), np.logspace(-14, 0, 60_000), np.linspace(0, 1, 20_001)])
)
_ROUNDING = 1e-12
PLD, RENYI, PAIR = "privacy loss distribution", "Rényi curve", "certified (ε, δ)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """Upper bounds on δ(ε) of one mechanism.

    Attributes:
        epsilons: Increasing, from 0.
        removed: δ of the data with the unit against those without it.
        added: δ of the data without the unit against those with it.
        method: What the bounds are computed from.
        mu: A µ such that the mechanism is µ-GDP without any addition; infinite if none is known.
    """

    epsilons: Array
    removed: Array
    added: Array
    method: str
    mu: float = math.inf

    @property
    def worst(self) -> Array:
        """δ in the worse direction."""
        return np.maximum(self.removed, self.added)


def of_event(event: dp_event.DpEvent, adjacency: Adjacency, *, exact: bool = True) -> Profile:
    """The profile of an event.

    Args:
        event: The event.
        adjacency: The neighbouring relation.
        exact: Whether to compute a privacy loss distribution, which takes up to some seconds, besides the Rényi curve.

    Returns:
        The smaller of the two bounds at every ε, plus the event's additive δ.
    """
    additive, plain = events.additive_delta(event), events.without_additive_delta(event)
    curve = accounting.rdp_curve(plain, adjacency)
    grid = _grid(_reach(plain, adjacency) if exact else _curve_reach(curve, rdp.ORDERS))
    by_curve = rdp.to_deltas(curve, grid)
    removed = added = by_curve
    method = RENYI
    if exact:
        try:
            scale = max(_LEAST_SCALE, min(_MOST_EPSILON, accounting.epsilon(plain, 1e-6, adjacency)))
            found = pld.profile(plain, grid, adjacency, scale)
            removed, added, method = *(np.fmin(by_curve, one) for one in found), PLD
        except (pld.Unsupported, ArithmeticError, ValueError, MemoryError):
            pass
    mu = gaussian.mu_of_event(plain, adjacency) if additive == 0 else math.inf
    return _profile(grid, removed + additive, added + additive, method, mu)


def of_exchange(first: dp_event.DpEvent, second: dp_event.DpEvent) -> Profile:
    """The profile of replacing a unit with the events `first` by one with `second`, or the other way round.

    Args:
        first: The events of one unit.
        second: The events of the other.

    Returns:
        The profile, with the additive δ of both.
    """
    found = replace_one.split(first, second)
    sided = [accounting.rdp_curve(one) for one in (found.removed, found.added)]
    curve = [sum(at) for at in zip(*sided, accounting.rdp_curve(found.both, Adjacency.REPLACE_ONE), strict=True)]
    scale = replace_one.epsilon(first, second, min(1.0, 1e-6 + found.additive))
    grid = _grid(max(_curve_reach(curve, rdp.ORDERS), 2 * scale if math.isfinite(scale) else 0.0))
    removed = added = rdp.to_deltas(curve, grid)
    method = RENYI
    try:
        parts = (found.removed, found.added, found.both)
        tight = pld.exchange_profile(*parts, grid, max(_LEAST_SCALE, min(_MOST_EPSILON, scale)))
        removed, added, method = np.fmin(removed, tight[0]), np.fmin(added, tight[1]), PLD
    except (pld.Unsupported, ArithmeticError, ValueError, MemoryError):
        pass
    return _profile(grid, removed + found.additive, added + found.additive, method)


def of_curve(curve: Sequence[float], orders: Sequence[float], additive: float = 0.0) -> Profile:
    """The profile of a Rényi curve that holds at all of these orders, and an additive δ.

    Args:
        curve: The Rényi divergence at each order.
        orders: The orders.
        additive: The additive δ.

    Returns:
        The profile; it is the same in both directions.
    """
    grid = _grid(_curve_reach(curve, orders))
    both = rdp.to_deltas(curve, grid, orders) + additive
    return _profile(grid, both, both, RENYI)


def of_pair(epsilon: float, delta: float) -> Profile:
    """The profile of everything that is (ε, δ)-DP, which is known to no more than that.

    Args:
        epsilon: ε.
        delta: δ.

    Returns:
        The profile; it is the same in both directions.
    """
    grid = np.unique(np.append(_grid(max(epsilon, _LEAST_SCALE)), epsilon))
    both = delta_of_pair(grid, epsilon, delta)
    return _profile(grid, both, both, PAIR, gaussian.mu_of_pure(epsilon) if delta == 0 else math.inf)


def delta_of_pair(epsilons: Array, epsilon: float, delta: float) -> Array:
    """The δ at other ε of what is (ε, δ)-DP: with probability δ all is shown, otherwise it is a randomised response."""
    least = np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilons - epsilon)) / (1 + math.exp(-min(epsilon, 700.0))))
    return delta + (1 - delta) * least


def within(profile: Profile, epsilon: float, delta: float) -> Profile:
    """The profile of a mechanism that is known to be (ε, δ)-DP besides.

    Args:
        profile: The profile.
        epsilon: ε.
        delta: δ.

    Returns:
        A profile that is nowhere above.
    """
    most = delta_of_pair(profile.epsilons, epsilon, delta) * (1 + _ROUNDING)
    lower = (np.minimum(profile.removed, most), np.minimum(profile.added, most))
    return _profile(profile.epsilons, *lower, profile.method, profile.mu)


def true_positives(profiles: Sequence[Profile], false_positives: float, *, units: int = 1) -> float:
    """The largest share of true positives at a share of false positives.

    Args:
        profiles: The mechanisms of which the worst applies.
        false_positives: α.
        units: How many units differ.

    Returns:
        An upper bound.
    """
    return float(_iterated(profiles, np.array([false_positives]), units)[0])


def advantage(profiles: Sequence[Profile], *, units: int = 1) -> float:
    """The largest difference between true and false positives. Arguments as in `true_positives`."""
    at_zero = max((float(one.worst[0]) for one in profiles), default=0.0) if units == 1 else 1.0
    after = _curve(tuple(profiles), units)
    # Between two points β is at most that of the right one, and α at least the left one. A Rényi curve's δ(0) is loose.
    return min(1.0, at_zero, float(np.max(after[1:] - _FALSE_POSITIVES[:-1], initial=float(after[0]))))


def group_epsilon(profiles: Sequence[Profile], delta: float, units: int) -> float:
    """An ε such that data that differ in `units` units are (ε, δ)-indistinguishable; infinite if none was found."""
    after = _curve(tuple(profiles), units)
    left, right = _FALSE_POSITIVES[:-1], after[1:]
    above = right > delta
    if not np.any(above):
        return 0.0
    if np.any(left[above] == 0) or after[0] > delta:
        return math.inf
    return max(0.0, float(np.max(np.log((right[above] - delta) / left[above])))) * (1 + _ROUNDING)


def gaussian_dp(profiles: Sequence[Profile], additive: float) -> float:
    """The smallest µ for which everything is µ-GDP up to an additive δ; infinite if there is none.

    Args:
        profiles: The mechanisms of which the worst applies.
        additive: The probability that is added to the true positives of µ-GDP. With 0, µ is known for compositions of
            Gaussians and Laplace mechanisms, sampled or not: where δ(ε) stays above 0 there is none.

    Returns:
        µ, rounded up.
    """
    alone = max((one.mu for one in profiles), default=0.0)
    return alone if additive <= 0 else min(alone, max((_mu_up_to(one, additive) for one in profiles), default=0.0))


def _mu_up_to(profile: Profile, additive: float) -> float:
    """δ falls with ε, so δ(ε_i) ≤ δ_µ(ε_{i+1}) + δ0 at every step, and δ ≤ δ0 at the end, imply it everywhere."""
    excess = profile.worst - additive
    if excess[-1] > 0:
        return math.inf
    ahead, needed = profile.epsilons[1:], excess[:-1]
    ahead, needed = ahead[needed > 0], needed[needed > 0]
    if not len(needed):
        return 0.0
    low, high = 0.0, 1.0
    while not np.all(gaussian.delta_of_mu(high, ahead) >= needed):
        low, high = high, 2 * high
        if high > 1e3:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        fits = bool(np.all(gaussian.delta_of_mu(middle, ahead) >= needed))
        low, high = (low, middle) if fits else (middle, high)
    return high


@lru_cache(maxsize=32)
def _curve(profiles: tuple[Profile, ...], units: int) -> Array:
    """T applied `units` times to every point of the grid of false positives."""
    return _largest(profiles, _curve(profiles, units - 1)) if units else _FALSE_POSITIVES


def _iterated(profiles: Sequence[Profile], false_positives: Array, units: int) -> Array:
    found = false_positives
    for _ in range(units):
        found = _largest(profiles, found)
    return found


def _largest(profiles: Sequence[Profile], alpha: Array) -> Array:
    """T(α): the largest true positives over all mechanisms and both directions."""
    found = alpha
    for one in profiles:
        growth = np.exp(np.minimum(one.epsilons, _MOST_EPSILON))
        pairs = [(one.removed, one.added), (one.added, one.removed)]
        for forward, backward in pairs[: 1 if one.removed is one.added else 2]:
            upper = _least_line(forward[::-1], growth[::-1], alpha)
            lower = _least_line(1 - (1 - backward) / growth, 1 / growth, alpha)
            found = np.maximum(found, np.minimum(upper, lower))
    return np.minimum(1.0, found * (1 + _ROUNDING))


def _least_line(heights: Array, slopes: Array, at: Array) -> Array:
    """The value at every x of the lowest line, height + slope · x; the lines come with falling slopes.

    Every line is a bound, so one that is not quite the lowest costs tightness only.
    """
    with np.errstate(all="ignore"):
        turns = np.maximum.accumulate(np.nan_to_num((heights[1:] - heights[:-1]) / (slopes[:-1] - slopes[1:]), nan=0.0))
    index = np.searchsorted(turns, at)
    found = heights[index] + slopes[index] * at
    for near in (np.maximum(index - 1, 0), np.minimum(index + 1, len(heights) - 1)):
        found = np.minimum(found, heights[near] + slopes[near] * at)
    return np.asarray(np.minimum(found, 1.0))


def _profile(grid: Array, removed: Array, added: Array, method: str, mu: float = math.inf) -> Profile:
    """A profile within [0, 1] that never rises, as δ does not."""
    both = [np.minimum.accumulate(np.clip(np.where(np.isnan(one), 1.0, one), 0.0, 1.0)) for one in (removed, added)]
    return Profile(epsilons=grid, removed=both[0], added=both[1], method=method, mu=mu)


def _grid(reach: float) -> Array:
    return np.linspace(0.0, min(reach, _MOST_EPSILON), POINTS)


def _reach(event: dp_event.DpEvent, adjacency: Adjacency) -> float:
    found = (accounting.epsilon(event, delta, adjacency) for delta in _REACH)
    return max(_LEAST_SCALE, next((one for one in found if math.isfinite(one)), _MOST_EPSILON))


def _curve_reach(curve: Sequence[float], orders: Sequence[float]) -> float:
    found = rdp.to_epsilon(curve, _REACH[0], orders)
    return max(_LEAST_SCALE, found if math.isfinite(found) else _MOST_EPSILON)
