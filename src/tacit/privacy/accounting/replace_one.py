"""Replace-one across parts and tasks: the cost of replacing a unit by one with other events.

Neighbours under replace-one differ in one unit, and the two units need not be in the same part or task. Then the first
unit is removed from one leaf while the second is added to another, and the two losses compose.

Formal guarantees: `epsilon(first, second, δ)` bounds both directions of the exchange, whether the two event lists come
from separate mechanisms or share noise draws. A mechanism that reads both units (a grant on two blocks, a series of
correlated sums, inherited events) has the same unsampled event in both lists. Such events are priced as reading both
units at once, which also bounds separate draws: a removal and an addition with separate noise are an exchange of two
orthogonal contributions under one noise draw.

Condition: both event lists were fixed in advance.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from dp_accounting import dp_event

from tacit.privacy.accounting import epsilon as accounting
from tacit.privacy.accounting import events, pld
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.epsilon import rdp_curve, rdp_to_epsilon
from tacit.privacy.accounting.events import AdditiveDeltaDpEvent

Met = Counter[tuple[str, float]]
"""How often a unit is read by (unsampled event, sampling rate)."""
_LEAST_SCALE = 1e-6
_REFINEMENTS = 4


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The events of an exchange: those of the removed unit, of the added unit, and of both."""

    removed: dp_event.DpEvent
    added: dp_event.DpEvent
    both: dp_event.DpEvent
    additive: float
    """The additive δ of all events."""


def epsilon(first: dp_event.DpEvent, second: dp_event.DpEvent, delta: float) -> float:
    """An ε such that replacing a unit with the events `first` by one with `second` is (ε, δ)-indistinguishable.

    It holds in both directions, and is infinite if no bound is known.
    """
    return _epsilon(*sorted((events.to_json(first), events.to_json(second))), float(delta))


def worst(lists: Iterable[Sequence[str]], delta: float) -> float:
    """The largest ε of an exchange between two of these event lists (JSON texts); 0 for fewer than two.

    A list whose events are contained in another list costs no more and is left out.
    """
    counted = {tuple(sorted(texts)): Counter(texts) for texts in lists}
    largest = sorted(name for name, own in counted.items() if not any(own < other for other in counted.values()))
    wholes = [events.compose(map(events.from_json, name)) for name in largest]
    return max((epsilon(one, other, delta) for one, other in combinations(wholes, 2)), default=0.0)


@lru_cache(maxsize=4096)
def _epsilon(first: str, second: str, delta: float) -> float:
    one, other = events.from_json(first), events.from_json(second)
    # The same leaf, or two leaves with equal lists.
    if all(count(one) == count(other) for count in (_plain, _with_delta)):
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
        scale = tight  # the estimate was far off, and the grid too coarse
    return best


def _guess(found: Exchange, delta: float) -> float:
    """An estimate of ε that determines the grid, since sampled events have no Rényi curve under replace-one."""
    curves = [rdp_curve(one) for one in (found.removed, found.added, found.both, found.both)]
    known = rdp_to_epsilon([sum(values) for values in zip(*curves, strict=True)], max(delta, 1e-15))
    return known if math.isfinite(known) else 1.0


def split(first: dp_event.DpEvent, second: dp_event.DpEvent) -> Exchange:
    """Sort the events of two units into those that read one of them and those that may read both."""
    mine, theirs = _plain(first), _plain(second)
    alone: dict[bool, list[dp_event.DpEvent]] = {True: [], False: []}
    both: list[dp_event.DpEvent] = []
    groups: dict[str, tuple[Met, Met]] = defaultdict(lambda: (Counter(), Counter()))
    for place, met in enumerate((mine, theirs)):
        for (inner, rate), times in met.items():
            groups[_shared(inner)][place][inner, rate] += times
    for name in sorted(groups):
        a, b = groups[name]
        if not (a and b):
            alone[bool(a)] += [_event(*key, times) for key, times in sorted((a or b).items())]
        elif name == "zcdp":
            # An exchange costs four times as much as a removal.
            total = (math.sqrt(_rho(a)) + math.sqrt(_rho(b))) ** 2 / 4
            both.append(events.zcdp(total * (1 + 1e-12)))
        elif (noise := _unsampled_noise(a, b)) is not None:
            # Gaussians with any correlation: at most the sum of both shifts. An exchange shifts twice as much.
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


def _pair(a: Met, b: Met, alone: dict[bool, list[dp_event.DpEvent]], both: list[dp_event.DpEvent]) -> None:
    """Any event of `a` may share noise with any of `b`, each at most once.

    The price increases with the sampling rate. The highest rates of all, as many as there are pairs, bound the pairs,
    and the highest rates of the longer list bound the rest of it.
    """
    pairs, longer = min(a.total(), b.total()), a if a.total() > b.total() else b
    both += _highest(a + b, pairs)
    alone[longer is a] += _highest(longer, longer.total() - pairs)


def _highest(met: Met, most: int) -> list[dp_event.DpEvent]:
    found = []
    for key, times in sorted(met.items(), key=lambda item: -item[0][1]):
        if (taken := min(times, most)) > 0:
            found.append(_event(*key, taken))
        most -= taken
    return found


def _plain(event: dp_event.DpEvent) -> Met:
    return _met(events.without_additive_delta(event))


def _met(event: dp_event.DpEvent, times: int = 1) -> Met:
    found: Met = Counter()
    match event:
        case dp_event.NoOpDpEvent():
            pass
        case dp_event.SelfComposedDpEvent():
            found = _met(event.event, times * event.count) if event.count else found
        case dp_event.ComposedDpEvent():
            for one in event.events:
                found.update(_met(one, times))
        case dp_event.PoissonSampledDpEvent(sampling_probability=rate):
            if rate == 1:
                return _met(event.event, times)
            if rate > 0:
                found[events.to_json(event.event), float(rate)] = times
        case _:
            found[events.to_json(event), 1.0] = times
    return found


def _event(inner: str, rate: float, times: int) -> dp_event.DpEvent:
    event = events.from_json(inner)
    return events.repeat(event if rate == 1 else dp_event.PoissonSampledDpEvent(rate, event), times)


def _shared(inner: str) -> str:
    """A name such that two events with the same name may share a noise draw; all adaptive bounds (zCDP) have one
    name."""
    return "zcdp" if isinstance(events.from_json(inner), dp_event.ZCDpEvent) else inner


def _rho(met: Met) -> float:
    return math.fsum(times * events.from_json(inner).rho for (inner, _), times in met.items())


def _unsampled_noise(a: Met, b: Met) -> float | None:
    """The noise of Gaussian events that read at least one unit unsampled; None for any other events."""
    inner, _ = next(iter(a))
    event = events.from_json(inner)
    unsampled = any(rate == 1 for _, rate in (*a, *b))
    return float(event.noise_multiplier) if unsampled and isinstance(event, dp_event.GaussianDpEvent) else None


def _additive(first: dp_event.DpEvent, second: dp_event.DpEvent) -> float:
    """The additive δ of both lists; equal events count as often as in the list that has more of them."""
    counts = [_with_delta(first), _with_delta(second)]
    texts: Iterable[str] = sorted(set(counts[0]) | set(counts[1]))
    deltas = {text: events.additive_delta(events.from_json(text)) for text in texts}
    return min(1.0, math.fsum(max(c[text] for c in counts) * delta for text, delta in deltas.items()))


def _with_delta(event: dp_event.DpEvent, times: int = 1) -> Counter[str]:
    found: Counter[str] = Counter()
    match event:
        case dp_event.SelfComposedDpEvent() if not isinstance(event.event, AdditiveDeltaDpEvent):
            return _with_delta(event.event, times * event.count)
        case dp_event.SelfComposedDpEvent():
            found[events.to_json(event.event)] = times * event.count
        case dp_event.ComposedDpEvent():
            for one in event.events:
                found.update(_with_delta(one, times))
        case _ if events.additive_delta(event) > 0:
            found[events.to_json(event)] = times
    return found
