"""Privacy loss distributions (PLD): tight upper bounds on ε and δ for a fixed list of events.

dp-accounting discretises the losses by *connect the dots* (Doroshenko et al. 2022) and composes them. This module
chooses the grid, accounts for rounding (`_slack`), and computes Gaussians alone exactly (Balle & Wang 2018).

Formal guarantees:

* Every result is an upper bound on any grid: a coarse grid only costs tightness.
* Cut tails count as infinite loss, and what floating point may hide is added to δ.
* An event without a bound raises `Unsupported`.

Conditions: the events are fixed in advance, and dp-accounting 0.6.0 is installed (private attributes are read).
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as library
from numpy.typing import NDArray
from scipy import special

from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.events import CoinFlipDpEvent, from_json, to_json

Array = NDArray[np.float64]
Parts = dict[str, tuple[dp_event.DpEvent, int]]

_FINENESS = 80  # grid = min(ε, √ε) / (80 √steps): the bias is about steps · grid², some 1e-4 of ε
_FINEST = 1e-7  # below it, differences of δ between grid points are rounding
_STEP_POINTS, _COMPOSED_POINTS = 2**18, 2**20  # of all different events together: a second, and some 100 MB
_MOST_PARTS = 256  # different events: some seconds; beyond, Rényi curves answer
_TAIL = 1e-15  # what a composition may cut off; it counts as infinite loss
_LOG_TAIL, _WIDTH = -36.0, 8.3  # of a Gaussian: e^-36 beyond 8.3 standard deviations counts as infinite loss
_THEIRS = {
    Adjacency.ADD_OR_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
}


class Unsupported(Exception):
    """PLD has no bound for this event, such as an adaptive one (zCDP), or computing it would be too expensive."""


class _TooManyPoints(Exception):
    """The grid has too many points; the first argument is the factor by which it must be coarser."""


def epsilon(event: dp_event.DpEvent, delta: float, adjacency: Adjacency, scale: float) -> float:
    """The smallest ε that PLD shows at δ. `scale` is an estimate of it that determines the grid, not validity."""
    shift = _only_gaussians(_parts(event), adjacency)
    if shift is not None:
        return _gaussian_epsilon(shift, delta)
    inside = _parts(event, coins=True)
    pure, target = _pure(inside, adjacency), delta - _slack(inside, adjacency)
    if target <= 0 or not 0 < scale < math.inf:
        return pure
    losses = _losses(to_json(event), adjacency, _grid(scale, inside, adjacency))
    with np.errstate(all="ignore"):
        found = losses.get_epsilon_for_delta(target)
        holds = losses.get_delta_for_epsilon(found) <= delta  # get_epsilon_for_delta sums e^-loss, which underflows
    return min(pure, _round_up(found) if holds else math.inf)


def delta(event: dp_event.DpEvent, epsilon: float, adjacency: Adjacency, scale: float) -> float:
    """The smallest δ that PLD shows at ε."""
    shift = _only_gaussians(_parts(event), adjacency)
    if shift is not None:
        return _round_up(math.exp(_gaussian_log_delta(shift, epsilon)))
    inside = _parts(event, coins=True)
    if epsilon >= _pure(inside, adjacency):
        return 0.0
    losses = _losses(to_json(event), adjacency, _grid(scale, inside, adjacency))
    with np.errstate(all="ignore"):
        return float(losses.get_delta_for_epsilon(epsilon)) + _slack(inside, adjacency)


def exchange_epsilon(
    removed: dp_event.DpEvent, added: dp_event.DpEvent, both: dp_event.DpEvent, delta: float, scale: float
) -> float:
    """The smallest ε that PLD shows at δ for an exchange: a unit is removed from `removed` while another is added to
    `added`, and `both` reads both. The two act in opposite directions, so one of them is transposed."""
    sides = ((removed, Adjacency.ADD_OR_REMOVE), (added, Adjacency.ADD_OR_REMOVE), (both, Adjacency.REPLACE_ONE))
    shifts = [_only_gaussians(_parts(event), adjacency) for event, adjacency in sides]
    if None not in shifts:
        return _gaussian_epsilon(math.hypot(*(shift for shift in shifts if shift is not None)), delta)
    inside = [(_parts(event), adjacency) for event, adjacency in sides]
    pure = math.fsum(_pure(*side) for side in inside)
    target = delta - math.fsum(_slack(*side) for side in inside)
    if target <= 0 or not 0 < scale < math.inf:
        return pure
    steps = math.fsum(times for parts, _ in inside for _, times in parts.values())
    grid = max(_grid(scale, *side, steps=steps) for side in inside)
    with np.errstate(all="ignore"):
        losses = _exchanged(sides, grid)
        found = losses.get_epsilon_for_delta(target)
        holds = losses.get_delta_for_epsilon(found) <= delta
    return min(pure, _round_up(found) if holds else math.inf)


def profile(event: dp_event.DpEvent, epsilons: Array, adjacency: Adjacency, scale: float) -> tuple[Array, Array]:
    """The δ that PLD shows at each ε ≥ 0, in both directions: for a removed unit, and for an added one."""
    shift = _only_gaussians(_parts(event), adjacency)
    if shift is not None:
        both = np.array([_round_up(math.exp(_gaussian_log_delta(shift, float(epsilon)))) for epsilon in epsilons])
        return both, both
    inside = _parts(event, coins=True)
    losses = _losses(to_json(event), adjacency, _grid(scale, inside, adjacency))
    pure, slack = _pure(inside, adjacency), _slack(inside, adjacency)
    removed, added = (
        np.where(epsilons >= pure, 0.0, _hockey_stick(pmf, epsilons) + slack)
        for pmf in (losses._pmf_remove, losses._pmf_add)
    )
    return removed, added


def exchange_profile(
    removed: dp_event.DpEvent, added: dp_event.DpEvent, both: dp_event.DpEvent, epsilons: Array, scale: float
) -> tuple[Array, Array]:
    """`profile` of an exchange, whose parts are those of `exchange_epsilon`: in both directions."""
    sides = ((removed, Adjacency.ADD_OR_REMOVE), (added, Adjacency.ADD_OR_REMOVE), (both, Adjacency.REPLACE_ONE))
    inside = [(_parts(event), adjacency) for event, adjacency in sides]
    steps = math.fsum(times for parts, _ in inside for _, times in parts.values())
    losses = _exchanged(sides, max(_grid(scale, *side, steps=steps) for side in inside))
    slack = math.fsum(_slack(*side) for side in inside)
    return _hockey_stick(losses._pmf_remove, epsilons) + slack, _hockey_stick(losses._pmf_add, epsilons) + slack


def _hockey_stick(pmf: Any, epsilons: Array) -> Array:
    """δ at each ε, from the tail sums of the discretised losses, with what their rounding may hide."""
    pmf = pmf.to_dense_pmf()
    losses = (np.arange(len(pmf._probs)) + pmf._lower_loss) * pmf._discretization
    probs = np.maximum(pmf._probs, 0.0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        upper = np.append(np.cumsum(probs[::-1])[::-1], 0.0)
        # e^ε Σ p e^-ℓ, relative to the first loss above ε, so that no factor is above 1.
        first = np.searchsorted(losses, epsilons, side="right")
        lower = np.append(_discounted(probs, pmf._discretization), 0.0)[first]
        gap = epsilons - np.append(losses, np.inf)[first]
        found = upper[first] - np.exp(gap) * lower
    rounding = 4 * len(probs) * np.finfo(float).eps * upper[first]
    return np.asarray(pmf._infinity_mass + np.maximum(found, 0.0) + rounding)


def _discounted(probs: Array, grid: float) -> Array:
    """Σ_{j ≥ i} p_j e^-(ℓ_j - ℓ_i) for every i, in blocks in which the exponent stays small."""
    block = max(1, min(len(probs), int(500 / grid)))
    found, later = np.empty(len(probs)), 0.0  # `later`: the sum at the first index of the block that follows
    for start in range((len(probs) - 1) // block * block, -1, -block):
        part = probs[start : start + block]
        weights = np.exp(-grid * np.arange(len(part)))
        sums = np.cumsum((part * weights)[::-1])[::-1] + later * math.exp(-grid * len(part))
        found[start : start + len(part)] = sums / weights
        later = float(found[start])
    return found


def _exchanged(sides: tuple[tuple[dp_event.DpEvent, Adjacency], ...], grid: float) -> Any:
    for _ in range(20):
        try:
            out, into, together = (_composed(event, adjacency, grid) for event, adjacency in sides)
        except _TooManyPoints as too_many:
            grid *= 1.1 * too_many.args[0]
            continue
        turned = library.PrivacyLossDistribution(into._pmf_add, into._pmf_remove)
        return out.compose(turned, _TAIL).compose(together, _TAIL)
    raise Unsupported


def _parts(event: dp_event.DpEvent, times: int = 1, coins: bool = False) -> Parts:
    """The distinct events with their counts; with `coins`, as if every coin flip came up true."""
    match event:
        case dp_event.NoOpDpEvent():
            return {}
        case dp_event.SelfComposedDpEvent():
            return _parts(event.event, times * event.count, coins) if event.count else {}
        case dp_event.PoissonSampledDpEvent(sampling_probability=chance) | CoinFlipDpEvent(probability=chance):
            if chance == 0:
                return {}
            if chance == 1 or (coins and isinstance(event, CoinFlipDpEvent)):
                return _parts(event.event, times, coins)
        case dp_event.ComposedDpEvent():
            found: Parts = {}
            for inner in event.events:
                for key, (part, count) in _parts(inner, times, coins).items():
                    found[key] = (part, count + found.get(key, (part, 0))[1])
            return found
    return {to_json(event): (event, times)}


def _largest_loss(event: dp_event.DpEvent, adjacency: Adjacency) -> float:
    """The largest loss: exact for Laplace noise; for a Gaussian, where the library truncates its tail."""
    sensitivity = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    match event:
        case dp_event.LaplaceDpEvent() if event.noise_multiplier > 0:
            return sensitivity / float(event.noise_multiplier)
        case dp_event.GaussianDpEvent() if event.noise_multiplier > 0:
            shift = sensitivity / float(event.noise_multiplier)
            return (shift / 2 + _WIDTH) * shift
        case dp_event.PoissonSampledDpEvent(sampling_probability=rate):
            inner = _largest_loss(event.event, adjacency)
            return float(np.logaddexp(math.log1p(-rate), math.log(rate) + inner))
    raise Unsupported


def _pure(inside: Parts, adjacency: Adjacency) -> float:
    """The ε at δ = 0, which is finite for Laplace noise only."""
    sampled = dp_event.PoissonSampledDpEvent if adjacency is not Adjacency.REPLACE_ONE else ()
    for event, _ in inside.values():
        if not isinstance(event.event if isinstance(event, sampled) else event, dp_event.LaplaceDpEvent):
            return math.inf
    return _round_up(math.fsum(times * _largest_loss(event, adjacency) for event, times in inside.values()))


def _slack(inside: Parts, adjacency: Adjacency) -> float:
    """The δ that floating point may hide: in a step's FFT, and in e^loss, of which at most the sampled share counts."""

    def one(event: dp_event.DpEvent) -> float:
        return 5e-15 + 1e-15 * _largest_loss(event, adjacency) * getattr(event, "sampling_probability", 1.0)

    return 1e-13 + math.fsum(times * one(event) for event, times in inside.values())


def _grid(scale: float, inside: Parts, adjacency: Adjacency, steps: float | None = None) -> float:
    steps = math.fsum(times for _, times in inside.values()) if steps is None else steps
    width = 2 * math.fsum(_largest_loss(event, adjacency) for event, _ in inside.values())
    grid = max(min(scale, math.sqrt(scale)) / (_FINENESS * math.sqrt(steps)), _FINEST, width / _STEP_POINTS)
    if not grid < 700:  # e^grid overflows
        raise Unsupported
    return grid


@lru_cache(maxsize=4)
def _losses(text: str, adjacency: Adjacency, grid: float) -> Any:
    """The library's distribution, on a grid that is made coarser until it has few enough points."""
    for _ in range(20):
        try:
            with np.errstate(all="ignore"):
                return _composed(from_json(text), adjacency, grid)
        except _TooManyPoints as too_many:
            grid *= 1.1 * too_many.args[0]
    raise Unsupported


def _composed(event: dp_event.DpEvent, adjacency: Adjacency, grid: float) -> Any:
    parts = _parts(event)
    gaussians = {key: part for key, part in parts.items() if isinstance(part[0], dp_event.GaussianDpEvent)}
    counts = [(key, times) for key, (_, times) in parts.items() if key not in gaussians]
    if gaussians:  # their composition is one Gaussian
        counts.append((to_json(dp_event.GaussianDpEvent(1 / _shift(gaussians))), 1))
    if len(counts) > _MOST_PARTS:
        raise Unsupported
    pieces = [(_one(key, adjacency, grid), times) for key, times in counts]
    points = math.fsum(_points(piece, times) for piece, times in pieces)
    if points > _COMPOSED_POINTS:
        raise _TooManyPoints(points / _COMPOSED_POINTS)
    done = [piece.self_compose(times, _TAIL) if times > 1 else piece for piece, times in pieces]
    while len(done) > 1:  # pairwise, so that most convolutions are short
        done = [a.compose(b, _TAIL) for a, b in zip(done[::2], done[1::2], strict=False)] + done[len(done) & ~1 :]
    return done[0] if done else library.identity(grid)


@lru_cache(maxsize=8)
def _one(text: str, adjacency: Adjacency, grid: float) -> Any:
    """The distribution of one event; several coin flips may share it."""
    event, rate = from_json(text), 1.0
    if isinstance(event, CoinFlipDpEvent):
        inner = _composed(event.event, adjacency, grid)
        return inner.compute_mixture(library.identity(grid), event.probability)
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        event, rate = event.event, event.sampling_probability
    replace = adjacency is Adjacency.REPLACE_ONE
    if isinstance(event, dp_event.GaussianDpEvent):
        losses = library.from_gaussian_mechanism(
            event.noise_multiplier,
            value_discretization_interval=grid,
            log_mass_truncation_bound=_LOG_TAIL,
            sampling_prob=rate,
            neighboring_relation=_THEIRS[adjacency],
        )
    elif isinstance(event, dp_event.LaplaceDpEvent) and not (replace and rate < 1):
        noise = event.noise_multiplier / (2 if replace else 1)
        losses = library.from_laplace_mechanism(noise, value_discretization_interval=grid, sampling_prob=rate)
    else:
        raise Unsupported
    return losses.compute_mixture(losses, 0.5)  # the same as an array: the library's dictionaries grow exponentially


def _points(losses: Any, times: int) -> float:
    """An estimate of the length of the library's array after `times` compositions, with fewer Chernoff orders."""
    try:
        masses = [losses._pmf_remove._probs, losses._pmf_add._probs]
    except AttributeError:
        raise RuntimeError("tacit reads private attributes of dp-accounting 0.6.0; install that version") from None
    if times == 1:
        return float(max(map(len, masses)))
    orders = np.array([-20, -5, -1, 1, 5, 20]) / max(map(len, masses))
    bounds = [common.compute_self_convolve_bounds(mass, times, _TAIL, orders) for mass in masses]
    return float(max(high - low + 1 for low, high in bounds))


def _shift(gaussians: Parts) -> float:
    """The shift of the mean by one unit, in standard deviations of all Gaussians together."""
    noises = [(float(event.noise_multiplier), times) for event, times in gaussians.values()]
    if any(noise**2 == 0 for noise, _ in noises):
        return math.inf
    return math.hypot(*(math.sqrt(times) / noise for noise, times in noises))


def _only_gaussians(parts: Parts, adjacency: Adjacency) -> float | None:
    if not all(isinstance(event, dp_event.GaussianDpEvent) for event, _ in parts.values()):
        return None
    return (2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0) * _shift(parts)


def _gaussian_log_delta(shift: float, epsilon: float) -> float:
    """log δ(ε) of N(μ, 1) against N(0, 1): δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), accurate far into the tail."""
    if shift == 0:
        return -math.inf
    if shift == math.inf:
        return 0.0
    first = float(special.log_ndtr(shift / 2 - epsilon / shift))
    second = epsilon + float(special.log_ndtr(-shift / 2 - epsilon / shift))
    if first - second > 1e-7:
        return first + math.log(-math.expm1(second - first))
    # The two numbers are equal in floating point, where dp-accounting returns δ = 0; e^ε ≥ 1 leaves the mass of an
    # interval of length μ.
    return math.log(shift / math.sqrt(2 * math.pi)) - max(0.0, epsilon / shift - shift / 2) ** 2 / 2


def _gaussian_epsilon(shift: float, delta: float) -> float:
    """The exact ε at δ of Gaussians with a total shift of `shift` standard deviations, rounded up."""
    if shift == 0 or delta >= 1:
        return 0.0
    if delta <= 0 or not math.isfinite(shift):
        return math.inf
    goal = math.log(delta)
    if _gaussian_log_delta(shift, 0.0) <= goal:
        return 0.0
    low, high = 0.0, shift**2 / 2 + shift * math.sqrt(2 * -goal)  # Chernoff: δ ≤ P(loss > ε)
    while low < (middle := (low + high) / 2) < high and math.isfinite(high):
        low, high = (low, middle) if _gaussian_log_delta(shift, middle) <= goal else (middle, high)
    return _round_up(high)


def _round_up(value: float) -> float:
    """The value with a margin above its rounding error."""
    return value * (1 + 1e-12)
