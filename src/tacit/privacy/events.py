"""What a mechanism did, as a value: the currency in which blocks are billed.

An event says everything an accountant may use, and nothing else is ever used. Events are DpEvents of
`dp_accounting` and two of ours. `to_json` is canonical and exact: equal events have equal text, floats come back
bit for bit, and a "type" name never changes its meaning (a new meaning gets a new name, "gaussian-2"). NaN,
negative or infinite parameters are refused on the way in and on the way out.
"""

import hashlib
import json
import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import attr
from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)

from tacit.errors import PlanError

MAX_TIMES = 2**53
"""More repetitions than this are refused: beyond it a float no longer counts exactly."""


@attr.s(frozen=True, slots=True, auto_attribs=True)
class CoinFlipDpEvent(DpEvent):  # type: ignore[misc]
    """With `probability`, and by a *public* coin, `event` happens; otherwise nothing is read.

    For planning only: a coin that was tossed is billed as what it showed, so a ledger refuses this event.
    """

    probability: float
    event: DpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class AdditiveDeltaDpEvent(DpEvent):  # type: ignore[misc]
    """`event`, and with probability at most `delta` anything at all (a stable histogram's threshold, say)."""

    event: DpEvent
    delta: float


def gaussian(noise: float) -> DpEvent:
    """A sum whose units move it by at most 1 in L2, plus N(0, noise²). Noise 0: ε = inf."""
    return GaussianDpEvent(_real("noise", noise))


def laplace(noise: float) -> DpEvent:
    """A sum whose units move it by at most 1 in L1, plus Laplace noise of scale `noise`."""
    return LaplaceDpEvent(_real("noise", noise))


def zcdp(rho: float) -> DpEvent:
    """Whatever happened, chosen as one goes, under a bound of α·rho on the Rényi divergence of every order α."""
    return ZCDpEvent(_real("rho", rho))


def poisson_gaussian(rate: float, noise: float, steps: int = 1) -> DpEvent:
    """`steps` times: every unit joins by its own secret coin of probability `rate`, then a noisy sum."""
    return repeat(PoissonSampledDpEvent(_share("rate", rate), gaussian(noise)), steps)


def compose(events: Iterable[DpEvent]) -> DpEvent:
    """All of them on the same unit, each chosen with the outputs before it. Flat, without NoOps."""
    flat: list[DpEvent] = []
    for event in events:
        if isinstance(event, ComposedDpEvent):
            inner = compose(event.events)
            flat.extend(inner.events if isinstance(inner, ComposedDpEvent) else [inner])
        else:
            flat.append(event)
    flat = [event for event in flat if not isinstance(event, NoOpDpEvent)]
    return ComposedDpEvent(flat) if len(flat) > 1 else flat[0] if flat else NoOpDpEvent()


def repeat(event: DpEvent, times: int) -> DpEvent:
    """The event `times` times on the same unit; nothing at all for 0."""
    times = _count("times", times)
    if isinstance(event, SelfComposedDpEvent):
        event, times = event.event, _count("times", times * event.count)
    if times == 0 or isinstance(event, NoOpDpEvent):
        return NoOpDpEvent()
    return event if times == 1 else SelfComposedDpEvent(event, times)


def repeat_and_select(event: DpEvent, mean: float, shape: float) -> DpEvent:
    """Run `event` a random number of times, release only the best run (Papernot & Steinke 2022).

    The number of runs has the given mean; `shape` 0 is logarithmic, 1 geometric, math.inf Poisson.
    """
    mean = _real("mean", mean)
    if mean < 1:
        raise PlanError(f"mean must be >= 1 runs, got {mean}; a single run needs no selection")
    return RepeatAndSelectDpEvent(event, mean, shape if shape == math.inf else _real("shape", shape))


def coin_flip(probability: float, event: DpEvent) -> DpEvent:
    """Planning only: a public coin decides whether `event` happens."""
    return CoinFlipDpEvent(_share("probability", probability), event)


def with_additive_delta(event: DpEvent, delta: float) -> DpEvent:
    """The event, plus an additive δ."""
    return AdditiveDeltaDpEvent(event, _share("delta", delta))


def is_planning_only(event: DpEvent) -> bool:
    """Whether a coin that was not tossed yet is anywhere inside: a ledger must refuse such an event."""
    return isinstance(event, CoinFlipDpEvent) or any(map(is_planning_only, _children(event)))


def additive_delta(event: DpEvent) -> float:
    """The sum of every additive δ inside, each as often as it happens, at most 1.

    Inside a sampled or selected event an additive δ has no simple sum: it counts as 1, so no budget allows it.
    """
    if isinstance(event, AdditiveDeltaDpEvent):
        return min(1.0, float(event.delta) + additive_delta(event.event))
    if isinstance(event, SelfComposedDpEvent):
        return min(1.0, int(event.count) * additive_delta(event.event))
    total = math.fsum(map(additive_delta, _children(event)))
    if total > 0 and isinstance(event, PoissonSampledDpEvent | RepeatAndSelectDpEvent):
        return 1.0
    return min(1.0, total)


def without_additive_delta(event: DpEvent) -> DpEvent:
    """The event with every additive δ taken off; bill `additive_delta(event)` beside it."""
    if isinstance(event, AdditiveDeltaDpEvent):
        return without_additive_delta(event.event)
    if isinstance(event, ComposedDpEvent):
        return compose(map(without_additive_delta, event.events))
    if isinstance(event, SelfComposedDpEvent):
        return repeat(without_additive_delta(event.event), event.count)
    if isinstance(event, CoinFlipDpEvent):
        return CoinFlipDpEvent(event.probability, without_additive_delta(event.event))
    return event  # under a sampled or selected event additive_delta is already 1


def to_json(event: DpEvent) -> str:
    """Canonical text: sorted keys, exact floats, stable type names. Equal events give equal text."""
    try:
        return json.dumps(_encode(event), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise PlanError("an event is nested too deeply to be written; compose its parts in one list") from None


def from_json(text: str) -> DpEvent:
    """The event of `to_json`, bit for bit. Unknown types, keys and parameters are refused by name."""
    try:
        return _decode(json.loads(text))
    except (json.JSONDecodeError, RecursionError, TypeError) as error:
        raise PlanError(f"an event must be the text of to_json, got {str(text)[:80]!r} ({error})") from None


def event_hash(event: DpEvent) -> str:
    """SHA-256 of the canonical text, in hexadecimal."""
    return hashlib.sha256(to_json(event).encode()).hexdigest()


def _children(event: DpEvent) -> list[DpEvent]:
    if isinstance(event, ComposedDpEvent):
        return list(event.events)
    inner = getattr(event, "event", None)
    return [inner] if isinstance(inner, DpEvent) else []


def _encode(event: DpEvent) -> dict[str, Any]:
    match event:
        case GaussianDpEvent():
            return {"type": "gaussian", "noise": _real("noise", event.noise_multiplier)}
        case LaplaceDpEvent():
            return {"type": "laplace", "noise": _real("noise", event.noise_multiplier)}
        case ZCDpEvent(xi=0):
            return {"type": "zcdp", "rho": _real("rho", event.rho)}
        case PoissonSampledDpEvent():
            rate = _share("rate", event.sampling_probability)
            return {"type": "poisson", "rate": rate, "event": _encode(event.event)}
        case ComposedDpEvent():
            return {"type": "composed", "events": [_encode(one) for one in event.events]}
        case SelfComposedDpEvent():
            return {"type": "repeated", "times": _count("times", event.count), "event": _encode(event.event)}
        case RepeatAndSelectDpEvent():
            shape = "poisson" if event.shape == math.inf else _real("shape", event.shape)
            mean = _real("mean", event.mean)
            return {"type": "repeat-and-select", "mean": mean, "shape": shape, "event": _encode(event.event)}
        case CoinFlipDpEvent():
            chance = _share("probability", event.probability)
            return {"type": "coin-flip", "probability": chance, "event": _encode(event.event)}
        case AdditiveDeltaDpEvent():
            return {
                "type": "additive-delta",
                "delta": _share("delta", event.delta),
                "event": _encode(event.event),
            }
        case NoOpDpEvent():
            return {"type": "nothing"}
        case NonPrivateDpEvent():
            return {"type": "not-private"}
    raise PlanError(f"events of type {type(event).__name__} cannot be billed; build them with tacit.privacy.events")


_DECODERS: dict[str, tuple[tuple[str, ...], Callable[..., DpEvent]]] = {
    "gaussian": (("noise",), gaussian),
    "laplace": (("noise",), laplace),
    "zcdp": (("rho",), zcdp),
    "poisson": (("rate", "event"), lambda rate, event: PoissonSampledDpEvent(_share("rate", rate), event)),
    "composed": (("events",), ComposedDpEvent),
    "repeated": (("times", "event"), lambda times, event: SelfComposedDpEvent(event, _count("times", times))),
    "repeat-and-select": (
        ("event", "mean", "shape"),
        lambda event, mean, shape: repeat_and_select(event, mean, math.inf if shape == "poisson" else shape),
    ),
    "coin-flip": (("probability", "event"), coin_flip),
    "additive-delta": (("event", "delta"), with_additive_delta),
    "nothing": ((), NoOpDpEvent),
    "not-private": ((), NonPrivateDpEvent),
}


def _decode(node: Any) -> DpEvent:
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        raise PlanError(f'an event must be an object with a "type", got {str(node)[:80]!r}')
    kind = node["type"]
    if kind not in _DECODERS:
        raise PlanError(f"event type {kind!r} is unknown to this version; known are {', '.join(sorted(_DECODERS))}")
    keys, build = _DECODERS[kind]
    if set(node) != {"type", *keys}:
        raise PlanError(f"event type {kind!r} has the keys {sorted(keys)}, got {sorted(set(node) - {'type'})}")
    values = {key: node[key] for key in keys}
    if "event" in values:
        values["event"] = _decode(values["event"])
    if "events" in values:
        if not isinstance(values["events"], list):
            raise PlanError(f"events must be a list, got {str(values['events'])[:80]!r}")
        values["events"] = [_decode(one) for one in values["events"]]
    return build(**values)


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise PlanError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise PlanError(f"{name} must be a finite number >= 0, got {value!r}")
    return number + 0.0  # -0.0 becomes 0.0: equal events have equal text


def _share(name: str, value: object) -> float:
    number = _real(name, value)
    if number > 1:
        raise PlanError(f"{name} must be between 0 and 1, got {value!r}")
    return number


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise PlanError(f"{name} must be a whole number >= 0, got {value!r}")
    number = int(value)
    if not 0 <= number <= MAX_TIMES:
        raise PlanError(f"{name} must be between 0 and 2^53, got {value!r}")
    return number
