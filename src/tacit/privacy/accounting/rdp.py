"""Rényi differential privacy (RDP): the curve of an event on a fixed grid of orders, and its conversions.

Formal guarantees:

* `curve` is an upper bound on the Rényi divergence at every order, and infinite where none is known.
* Curves of composed events add up, also if each event is chosen from earlier outputs, so filters use them.
* `to_epsilon` and `to_delta` are valid if the curve holds at all of their orders.

Conditions: additive δ is not part of a curve and must be billed separately. Poisson sampling has no curve under
replace-one.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant as reference
from numpy.typing import NDArray
from scipy import special

from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.events import CoinFlipDpEvent

ORDERS: tuple[float, ...] = (
    *(1 + k / 20 for k in range(1, 20)),  # 1.05 … 1.95: ε from 20 to 100 and more
    *(2 + k / 10 for k in range(80)),  # 2.0 … 9.9: ε about 1 to 20
    *map(float, range(10, 32)),
    *map(float, range(32, 64, 4)),
    *(2.0**k * (1 + j / 4) for k in range(6, 10) for j in range(4)),  # 64 … 896
    *(2.0**k * (1 + j / 2) for k in range(10, 14) for j in range(2)),  # 1024 … 12288: ε down to 0.001
    16384.0,
)
"""The grid of orders. Ledgers store curves on it, so it never changes; another grid would get another name."""

Array = NDArray[np.float64]
_LEAST = float(np.finfo(float).tiny)  # a read never costs 0, even if its cost underflows
_SMALLEST_NOISE = 0.02  # below it the fractional series loses digits, and the unsampled bound is tight
_SERIES_SLACK = 1e-12  # the relative rounding error of the fractional series
_SERIES_FLOOR = 1e-6  # below it that error would matter, and fractional orders are interpolated


def curve(event: dp_event.DpEvent, adjacency: Adjacency, orders: tuple[float, ...] = ORDERS) -> Array:
    """An upper bound on the Rényi divergence at every order; infinite where none is known.

    Under replace-one a unit has twice the sensitivity, so the noise counts half. A curve under replace-one is at least
    twice the curve under add-or-remove, so a bound on the former also bounds a removal from one block with an addition
    to another.
    """
    with np.errstate(all="ignore"):
        values = _curve(event, adjacency, orders)
    return np.where(np.isnan(values) | (values < 0), math.inf, values)


def to_epsilon(values: Sequence[float] | Array, delta: float, orders: Sequence[float] = ORDERS) -> float:
    """The ε at δ that holds if the curve holds at *every* order (Canonne, Kamath & Steinke 2020, Prop. 12)."""
    r, a = np.asarray(values, float), np.asarray(orders, float)
    if np.any(np.isnan(r)) or np.any(r < 0):
        return math.inf
    if not np.any(r) or delta >= 1:
        return 0.0
    if delta <= 0:
        return math.inf
    each = conversions(r, delta, a)
    return max(0.0, float(np.min(each)))


def conversions(values: Array, delta: float, orders: Array) -> Array:
    """The ε that each order alone gives; a negative value means that 0 holds."""
    with np.errstate(all="ignore"):
        each = values + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
        total_variation = np.sqrt(-np.expm1(-values))  # δ ≤ sqrt(1 − e^{−KL}) at ε = 0, and KL ≤ every order
    each = np.where(total_variation <= delta, np.minimum(each, 0.0), each)
    return np.where(np.isfinite(values), each, math.inf)


def to_delta(values: Sequence[float] | Array, epsilon: float, orders: Sequence[float] = ORDERS) -> float:
    """The δ at ε that holds if the curve holds at every one of these orders."""
    r, a = np.asarray(values, float), np.asarray(orders, float)
    if np.any(np.isnan(r)) or np.any(r < 0):
        return 1.0
    if not np.any(r):
        return 0.0
    with np.errstate(all="ignore"):
        log_delta = (a - 1) * (r - epsilon + np.log1p(-1 / a)) - np.log(a)
        log_delta = np.minimum(log_delta, 0.5 * np.log(-np.expm1(-r)))
    log_delta = np.where(np.isfinite(r), log_delta, 0.0)
    return min(1.0, math.exp(min(0.0, float(np.min(log_delta)))))


def to_deltas(values: Sequence[float] | Array, epsilons: Array, orders: Sequence[float] = ORDERS) -> Array:
    """`to_delta` at many ε."""
    r, a = np.asarray(values, float), np.asarray(orders, float)
    usable = np.isfinite(r)
    if np.any(np.isnan(r)) or np.any(r < 0) or not np.any(usable):
        return np.ones(len(epsilons))
    if not np.any(r):
        return np.zeros(len(epsilons))
    r, a = r[usable], a[usable]
    with np.errstate(all="ignore"):
        total_variation = 0.5 * float(np.min(np.log(-np.expm1(-r))))
        constant = (a - 1) * (r + np.log1p(-1 / a)) - np.log(a)
        found = np.full(len(epsilons), min(0.0, total_variation))
        for slope, height in zip(a - 1, constant, strict=True):
            found = np.minimum(found, height - slope * epsilons)
    return np.asarray(np.exp(found))


def _curve(event: dp_event.DpEvent, adjacency: Adjacency, orders: tuple[float, ...]) -> Array:
    doubled = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    match event:
        case dp_event.NoOpDpEvent():
            return np.zeros(len(orders))
        case dp_event.ComposedDpEvent():
            parts = [_curve(part, adjacency, orders) for part in event.events]
            return np.sum(parts, axis=0) if parts else np.zeros(len(orders))
        case dp_event.SelfComposedDpEvent():
            return event.count * _curve(event.event, adjacency, orders) if event.count else np.zeros(len(orders))
        case dp_event.GaussianDpEvent():
            return _gaussian(event.noise_multiplier / doubled, np.array(orders))
        case dp_event.LaplaceDpEvent():
            return _laplace(event.noise_multiplier / doubled, np.array(orders))
        case dp_event.ZCDpEvent(xi=0):  # two units with rho each: (√rho + √rho)² by Minkowski
            return np.maximum(np.array(orders) * float(event.rho) * doubled**2, _LEAST if event.rho else 0.0)
        case dp_event.PoissonSampledDpEvent() if event.sampling_probability == 0:
            return np.zeros(len(orders))
        case dp_event.PoissonSampledDpEvent() if event.sampling_probability == 1:
            return _curve(event.event, adjacency, orders)
        case dp_event.PoissonSampledDpEvent() if adjacency is not Adjacency.REPLACE_ONE:
            if isinstance(event.event, dp_event.GaussianDpEvent):
                return np.array(_poisson_gaussian(event.sampling_probability, event.event.noise_multiplier, orders))
            if isinstance(event.event, dp_event.LaplaceDpEvent):  # the unsampled curve is a bound
                return _curve(event.event, adjacency, orders)
        case CoinFlipDpEvent():
            return _mixed(event.probability, _curve(event.event, adjacency, orders), np.array(orders))
        case dp_event.RepeatAndSelectDpEvent():
            one = np.nan_to_num(_curve(event.event, adjacency, orders), nan=math.inf, posinf=math.inf)
            if np.any(np.isfinite(one)):
                found = np.asarray(
                    reference._compute_rdp_repeat_and_select(np.array(orders), one, event.mean, event.shape)
                )
                if adjacency is Adjacency.REPLACE_ONE:  # selection itself has a cost
                    found = np.maximum(found, 2 * _curve(event, Adjacency.ADD_OR_REMOVE, orders))
                return found
    return np.full(len(orders), math.inf)


def _gaussian(noise: float, a: Array) -> Array:
    return np.maximum(a / (2 * noise**2), _LEAST) if noise**2 > 0 else np.full(len(a), math.inf)


def _laplace(noise: float, a: Array) -> Array:
    """Mironov 2017, Prop. 6; never above the pure ε = 1/noise, nor above a ε²/2 (pure DP is zCDP)."""
    pure = 1 / noise if noise > 0 else math.inf
    if not math.isfinite(pure):
        return np.full(len(a), math.inf)
    exact = pure + np.log1p((a - 1) * np.expm1(pure * (1 - 2 * a)) / (2 * a - 1)) / (a - 1)
    simple = np.maximum(np.minimum(pure, a * pure**2 / 2), _LEAST)
    if pure < 1e-4:  # the exact formula cancels
        return simple
    return np.minimum(np.where(np.isfinite(exact), exact, math.inf), simple)


def _mixed(weight: float, values: Array, a: Array) -> Array:
    """log(1 + w (e^{(a−1)ρ} − 1)) / (a − 1), without overflow or cancellation."""
    if weight == 0:
        return np.zeros(len(a))
    x = (a - 1) * values
    small = np.log1p(weight * np.expm1(np.minimum(x, 1.0)))
    large = x + math.log(weight) + np.log1p((1 - weight) / weight * np.exp(-np.maximum(x, 1.0)))
    mixed = np.maximum(np.where(x <= 1, small, large) / (a - 1), _LEAST)
    return np.where(np.isfinite(values), mixed, math.inf)


@lru_cache(maxsize=4096)
def _poisson_gaussian(rate: float, noise: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Mironov, Talwar & Zhang 2019: integer orders exactly, others by the series or by interpolation.

    log A is convex in the order (Wang, Balle & Kasiviswanathan 2019, Cor. 10), so interpolation is an upper bound;
    the unsampled Gaussian is another.
    """
    a = np.array(orders)
    unsampled = _gaussian(noise, a)
    if noise < _SMALLEST_NOISE:
        return tuple(unsampled)
    needed = sorted({int(f(order)) for order in orders for f in (math.floor, math.ceil)})
    log_a = {order: log_moment(rate, noise, order) for order in needed}
    bounds = []
    for order in orders:
        low, part = int(order), order - int(order)
        bound = (1 - part) * log_a[low] + (part * log_a[low + 1] if part else 0.0)
        if part and bound > _SERIES_FLOOR:
            bound = min(bound, _log_a_series(rate, noise, order))
        bounds.append(bound)
    return tuple(np.clip(np.array(bounds) / (a - 1), _LEAST, unsampled))


def log_moment(rate: float, noise: float, order: int) -> float:
    """log E_Q (P/Q)^order for the sampled mixture P, as log(1 + positive terms), which is accurate for tiny values."""
    if order < 2:
        return 0.0
    k = np.arange(2.0, order + 1)
    log_binomial = special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
    x = (k * k - k) / (2 * noise**2)
    log_expm1 = np.where(x < 30, np.log(np.expm1(np.minimum(x, 30.0))), x)
    log_terms = log_binomial + k * math.log(rate) + (order - k) * math.log1p(-rate) + log_expm1
    return float(np.logaddexp(0.0, log_sum(log_terms)))


def _log_a_series(rate: float, noise: float, order: float) -> float:
    """Sec. 3.3 of Mironov, Talwar & Zhang 2019: the absolute values of the first terms, and a bound on the rest.

    A term is |binomial(order, i)| times the i-th moment of a value below 1 (hence the split at z0). From i = M on it
    decreases at least like i^-(order+1), so the rest is below term(M)·(M+1)/order.
    """
    i = np.arange(0.0, max(1000.0, 4 * order))
    j = order - i
    z0 = noise**2 * (math.log1p(-rate) - math.log(rate)) + 0.5
    log_binomial = special.gammaln(order + 1) - special.gammaln(i + 1) - special.gammaln(order - i + 1)
    log_rate, log_rest, double = math.log(rate), math.log1p(-rate), 2 * noise**2
    low = log_binomial + i * log_rate + j * log_rest + (i * i - i) / double + special.log_ndtr((z0 - i) / noise)
    high = log_binomial + j * log_rate + i * log_rest + (j * j - j) / double + special.log_ndtr((j - z0) / noise)
    rest = math.log((len(i) + 1) / order) + np.array([low[-1], high[-1]])
    total = float(log_sum(np.concatenate([low, high, rest])))
    return total + _SERIES_SLACK * (1 + abs(total)) if math.isfinite(total) else math.inf


def log_sum(logs: Array) -> np.float64:
    """log Σ exp(logs): bit for bit `scipy.special.logsumexp`, whose overhead was most of the time of a curve."""
    largest = np.max(logs)
    if not np.isfinite(largest):
        return np.float64(largest)
    at_largest = logs == largest
    number = np.float64(np.count_nonzero(at_largest))
    rest = np.sum(np.exp(np.where(at_largest, -np.inf, logs) - largest)) / number
    return np.float64(np.log1p(rest) + np.log(number) + largest)
