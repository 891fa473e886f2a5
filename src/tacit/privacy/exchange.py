"""One unit exchanged for another that meets other events: what replace-one costs across parts and tasks.

Two data sets are neighbours under replace-one if one has a unit where the other has another. The two units need not be
in the same part of a task, nor in the same task: then the first leaves one leaf, a removal, and the second enters
another, an addition. Both happen at once, so their losses compose.

Guarantee: `epsilon(first, second, δ)` bounds both directions of the exchange, whether the two lists come from separate
mechanisms or share draws of noise. A mechanism that both units meet (a grant that reads two blocks, a series of
correlated sums, what a part inherited) has the same unsampled event in both lists. Such events are priced as met by
both units at once, which also bounds separate draws: a removal and an addition with separate noise are an exchange of
two orthogonal contributions under one noise.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)

from tacit.privacy import accounting, events, pld
from tacit.privacy.accounting import rdp_curve, rdp_to_epsilon
from tacit.privacy.budget import Adjacency
from tacit.privacy.events import AdditiveDeltaDpEvent

Met = Counter[tuple[str, float]]
"""How often a unit meets (unsampled event, sampling rate)."""
_LEAST_SCALE = 1e-6
_REFINEMENTS = 4


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What the two units meet, each alone and both together."""

    removed: DpEvent
    added: DpEvent
    both: DpEvent
    additive: float
    """The additive δ of all of it."""


def epsilon(first: DpEvent, second: DpEvent, delta: float) -> float:
    """An ε such that exchanging a unit that meets `first` for one that meets `second` is (ε, δ)-indistinguishable, in
    both directions; infinite where none is known."""
    return _epsilon(*sorted((events.to_json(first), events.to_json(second))), float(delta))


def worst(lists: Iterable[Sequence[str]], delta: float) -> float:
    """The largest ε of an exchange between two of these lists of events (texts of `to_json`); 0 for fewer than two.

    A list whose events are all in another one can only cost less, and is left out."""
    counted = {tuple(sorted(one)): Counter(one) for one in lists}
    largest = sorted(name for name, own in counted.items() if not any(own < other for other in counted.values()))
    wholes = [events.compose(map(events.from_json, name)) for name in largest]
    return max((epsilon(one, other, delta) for one, other in combinations(wholes, 2)), default=0.0)


@lru_cache(maxsize=4096)
def _epsilon(first: str, second: str, delta: float) -> float:
    one, other = events.from_json(first), events.from_json(second)
    if all(count(one) == count(other) for count in (_plain, _with_delta)):  # one leaf, or two alike
        return accounting.epsilon(one, delta, Adjacency.REPLACE_ONE)
    found = split(one, other)
    if found.additive > 0 and delta < 1:
        delta = math.nextafter(delta - found.additive, -1.0)
    if delta <= 0:
        return math.inf
    one_sided = [rdp_curve(one) for one in (found.removed, found.added)]
    curve = [sum(values) for values in zip(*one_sided, rdp_curve(found.both, Adjacency.REPLACE_ONE), strict=True)]
    best = rdp_to_epsilon(curve, delta)
    scale = max(_LEAST_SCALE, best if math.isfinite(best) else _guess(found, delta))
    for _ in range(_REFINEMENTS):
        try:
            tight = pld.exchange_epsilon(found.removed, found.added, found.both, delta, scale)
        except (pld.Unsupported, ArithmeticError, ValueError, MemoryError):
            tight = math.inf
        best = min(best, math.inf if math.isnan(tight) else max(0.0, tight))
        if not 0 < tight < scale / 2:
            break
        scale = tight  # the guess was far off, and the grid too coarse
    return best


def _guess(found: Exchange, delta: float) -> float:
    """About the answer, to choose a grid with: sampled events have no Rényi curve under replace-one."""
    curves = [rdp_curve(one) for one in (found.removed, found.added, found.both, found.both)]
    known = rdp_to_epsilon([sum(values) for values in zip(*curves, strict=True)], max(delta, 1e-15))
    return known if math.isfinite(known) else 1.0


def split(first: DpEvent, second: DpEvent) -> Exchange:
    """Sort the events of two units into those that one of them meets and those that both may meet."""
    mine, theirs = _plain(first), _plain(second)
    alone: dict[bool, list[DpEvent]] = {True: [], False: []}
    both: list[DpEvent] = []
    groups: dict[str, tuple[Met, Met]] = defaultdict(lambda: (Counter(), Counter()))
    for place, met in enumerate((mine, theirs)):
        for (inner, rate), times in met.items():
            groups[_shared(inner)][place][inner, rate] += times
    for name in sorted(groups):
        a, b = groups[name]
        if not (a and b):
            alone[bool(a)] += [_event(*key, times) for key, times in sorted((a or b).items())]
        elif name == "zcdp":
            total = (math.sqrt(_rho(a)) + math.sqrt(_rho(b))) ** 2 / 4  # an exchange costs four times as much
            both.append(events.zcdp(total * (1 + 1e-12)))
        elif (noise := _unsampled_noise(a, b)) is not None:
            # Gaussians that may be correlated in any way: at most the sum of both shifts. An exchange moves by twice.
            shift = (math.sqrt(a.total()) + math.sqrt(b.total())) / 2 * (1 + 1e-12)
            both.append(events.gaussian(noise / shift))
        else:
            _pair(a, b, alone, both)
    return Exchange(
        removed=events.compose(alone[True]),
        added=events.compose(alone[False]),
        both=events.compose(both),
        additive=_additive(first, second),
    )


def _pair(a: Met, b: Met, alone: dict[bool, list[DpEvent]], both: list[DpEvent]) -> None:
    """Any of `a` may share noise with any of `b`, each at most once. The price grows with the rate, so the highest
    rates of all, as many as there are pairs, bound the pairs, and the highest of the longer list what is left of it."""
    pairs, longer = min(a.total(), b.total()), a if a.total() > b.total() else b
    both += _highest(a + b, pairs)
    alone[longer is a] += _highest(longer, longer.total() - pairs)


def _highest(met: Met, most: int) -> list[DpEvent]:
    found = []
    for key, times in sorted(met.items(), key=lambda one: -one[0][1]):
        if (taken := min(times, most)) > 0:
            found.append(_event(*key, taken))
        most -= taken
    return found


def _plain(event: DpEvent) -> Met:
    return _met(events.without_additive_delta(event))


def _met(event: DpEvent, times: int = 1) -> Met:
    found: Met = Counter()
    match event:
        case NoOpDpEvent():
            pass
        case SelfComposedDpEvent():
            found = _met(event.event, times * event.count) if event.count else found
        case ComposedDpEvent():
            for one in event.events:
                found.update(_met(one, times))
        case PoissonSampledDpEvent(sampling_probability=rate):
            if rate == 1:
                return _met(event.event, times)
            if rate > 0:
                found[events.to_json(event.event), float(rate)] = times
        case _:
            found[events.to_json(event), 1.0] = times
    return found


def _event(inner: str, rate: float, times: int) -> DpEvent:
    event = events.from_json(inner)
    return events.repeat(event if rate == 1 else PoissonSampledDpEvent(rate, event), times)


def _shared(inner: str) -> str:
    """Two events of one name may share a draw of noise. Bounds chosen as one goes differ between blocks."""
    return "zcdp" if isinstance(events.from_json(inner), ZCDpEvent) else inner


def _rho(met: Met) -> float:
    return math.fsum(times * events.from_json(inner).rho for (inner, _), times in met.items())


def _unsampled_noise(a: Met, b: Met) -> float | None:
    """The noise of Gaussians that at least one unit meets without sampling; None for anything else."""
    inner, _ = next(iter(a))
    event = events.from_json(inner)
    unsampled = any(rate == 1 for _, rate in (*a, *b))
    return float(event.noise_multiplier) if unsampled and isinstance(event, GaussianDpEvent) else None


def _additive(first: DpEvent, second: DpEvent) -> float:
    """Additive δ of both lists; of equal events as often as the one that meets more of them does."""
    counts = [_with_delta(first), _with_delta(second)]
    texts: Iterable[str] = sorted(set(counts[0]) | set(counts[1]))
    return min(1.0, math.fsum(max(c[text] for c in counts) * _delta_of(text) for text in texts))


def _with_delta(event: DpEvent, times: int = 1) -> Counter[str]:
    found: Counter[str] = Counter()
    match event:
        case SelfComposedDpEvent() if not isinstance(event.event, AdditiveDeltaDpEvent):
            return _with_delta(event.event, times * event.count)
        case SelfComposedDpEvent():
            found[events.to_json(event.event)] = times * event.count
        case ComposedDpEvent():
            for one in event.events:
                found.update(_with_delta(one, times))
        case _ if events.additive_delta(event) > 0:
            found[events.to_json(event)] = times
    return found


def _delta_of(text: str) -> float:
    return events.additive_delta(events.from_json(text))
