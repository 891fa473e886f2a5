"""Events: what a mechanism did, as a value that accountants price and ledgers store.

Events are DpEvents of `dp_accounting` and two more classes: `CoinFlipDpEvent` and `AdditiveDeltaDpEvent`.

Formal guarantees:

* An event contains everything that an accountant uses.
* `to_json` is canonical and exact: equal events have equal text, and `from_json` restores floats bit for bit. A "type"
  name never changes its meaning; a new meaning would get a new name.
* NaN, negative and infinite parameters are refused on encoding and on decoding.
"""

import json
import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import attr
from dp_accounting import dp_event

from tacit.errors import PlanError

MAX_TIMES = 2**53
"""The largest number of repetitions: beyond it floats no longer represent every integer."""


@attr.s(frozen=True, slots=True, auto_attribs=True)
class CoinFlipDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """A *public* coin decides with `probability` whether `event` happens; otherwise nothing is read.

    For planning only: after the coin is drawn, what it decided is billed. A ledger refuses this event.
    """

    probability: float
    event: dp_event.DpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class AdditiveDeltaDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """`event` with an additive δ: with probability at most `delta` the output may be arbitrary, as in a stable
    histogram."""

    event: dp_event.DpEvent
    delta: float


def gaussian(noise: float) -> dp_event.DpEvent:
    """A sum of L2 sensitivity 1 plus N(0, noise²). Without noise ε is infinite."""
    return dp_event.GaussianDpEvent(_real("noise", noise))


def laplace(noise: float) -> dp_event.DpEvent:
    """A sum of L1 sensitivity 1 plus Laplace noise of scale `noise`."""
    return dp_event.LaplaceDpEvent(_real("noise", noise))


def zcdp(rho: float) -> dp_event.DpEvent:
    """An adaptive mechanism whose Rényi divergence of every order α is at most α·rho."""
    return dp_event.ZCDpEvent(_real("rho", rho))


def poisson_gaussian(rate: float, noise: float, steps: int = 1) -> dp_event.DpEvent:
    """`steps` noisy sums, each over a secret Poisson sample: every unit is included independently with `rate`.

    Also the event of each block in a union-Poisson read, where one step samples several blocks, each at its own rate
    (`tacit.memory.read_schedule`).
    """
    return repeat(dp_event.PoissonSampledDpEvent(_share("rate", rate), gaussian(noise)), steps)


def compose(events: Iterable[dp_event.DpEvent]) -> dp_event.DpEvent:
    """The composition of events on the same unit, flattened and without NoOps."""
    flat: list[dp_event.DpEvent] = []
    for event in events:
        if isinstance(event, dp_event.ComposedDpEvent):
            inner = compose(event.events)
            flat.extend(inner.events if isinstance(inner, dp_event.ComposedDpEvent) else [inner])
        else:
            flat.append(event)
    flat = [event for event in flat if not isinstance(event, dp_event.NoOpDpEvent)]
    return dp_event.ComposedDpEvent(flat) if len(flat) > 1 else flat[0] if flat else dp_event.NoOpDpEvent()


def repeat(event: dp_event.DpEvent, times: int) -> dp_event.DpEvent:
    """The event `times` times on the same unit; a NoOp for 0."""
    times = _count("times", times)
    if isinstance(event, dp_event.SelfComposedDpEvent):
        event, times = event.event, _count("times", times * event.count)
    if times == 0 or isinstance(event, dp_event.NoOpDpEvent):
        return dp_event.NoOpDpEvent()
    return event if times == 1 else dp_event.SelfComposedDpEvent(event, times)


def repeat_and_select(event: dp_event.DpEvent, mean: float, shape: float) -> dp_event.DpEvent:
    """`event` run a random number of times, with only the best run released (Papernot & Steinke 2022).

    The number of runs has the given mean; `shape` 0 is logarithmic, 1 geometric, math.inf Poisson.
    """
    mean = _real("mean", mean)
    if mean < 1:
        raise PlanError(f"mean must be >= 1 runs, got {mean}; a single run needs no selection")
    return dp_event.RepeatAndSelectDpEvent(event, mean, shape if shape == math.inf else _real("shape", shape))


def coin_flip(probability: float, event: dp_event.DpEvent) -> dp_event.DpEvent:
    """A public coin decides whether `event` happens; for planning only."""
    return CoinFlipDpEvent(_share("probability", probability), event)


def with_additive_delta(event: dp_event.DpEvent, delta: float) -> dp_event.DpEvent:
    """The event with an additive δ."""
    return AdditiveDeltaDpEvent(event, _share("delta", delta))


def is_planning_only(event: dp_event.DpEvent) -> bool:
    """Whether the event contains a coin flip, so that a ledger must refuse it."""
    return isinstance(event, CoinFlipDpEvent) or any(map(is_planning_only, _children(event)))


def additive_delta(event: dp_event.DpEvent) -> float:
    """The sum of all additive δ in an event, counted with repetitions, at most 1.

    Inside a sampled or selected event an additive δ has no simple sum. It counts as 1, so no budget allows it.
    """
    if isinstance(event, AdditiveDeltaDpEvent):
        return min(1.0, float(event.delta) + additive_delta(event.event))
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return min(1.0, int(event.count) * additive_delta(event.event))
    total = math.fsum(map(additive_delta, _children(event)))
    if total > 0 and isinstance(event, dp_event.PoissonSampledDpEvent | dp_event.RepeatAndSelectDpEvent):
        return 1.0
    return min(1.0, total)


def without_additive_delta(event: dp_event.DpEvent) -> dp_event.DpEvent:
    """The event without its additive δ, which `additive_delta` returns and which must be billed separately."""
    if isinstance(event, AdditiveDeltaDpEvent):
        return without_additive_delta(event.event)
    if isinstance(event, dp_event.ComposedDpEvent):
        return compose(map(without_additive_delta, event.events))
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return repeat(without_additive_delta(event.event), event.count)
    if isinstance(event, CoinFlipDpEvent):
        return CoinFlipDpEvent(event.probability, without_additive_delta(event.event))
    return event  # inside a sampled or selected event, additive_delta is already 1


def to_json(event: dp_event.DpEvent) -> str:
    """The canonical JSON of an event: sorted keys, exact floats, stable type names.

    Raises:
        PlanError: The event has an unsupported type or an invalid parameter.
    """
    try:
        return json.dumps(_encode(event), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise PlanError("an event is nested too deeply to be written; compose its parts in one list") from None


def from_json(text: str) -> dp_event.DpEvent:
    """The event of a canonical JSON text.

    Raises:
        PlanError: A type, key or parameter is unknown or invalid.
    """
    try:
        return _decode(json.loads(text))
    except (json.JSONDecodeError, RecursionError, TypeError) as error:
        raise PlanError(f"an event must be the text of to_json, got {str(text)[:80]!r} ({error})") from None


def _children(event: dp_event.DpEvent) -> list[dp_event.DpEvent]:
    if isinstance(event, dp_event.ComposedDpEvent):
        return list(event.events)
    inner = getattr(event, "event", None)
    return [inner] if isinstance(inner, dp_event.DpEvent) else []


def _encode(event: dp_event.DpEvent) -> dict[str, Any]:
    match event:
        case dp_event.GaussianDpEvent():
            return {"type": "gaussian", "noise": _real("noise", event.noise_multiplier)}
        case dp_event.LaplaceDpEvent():
            return {"type": "laplace", "noise": _real("noise", event.noise_multiplier)}
        case dp_event.ZCDpEvent(xi=0):
            return {"type": "zcdp", "rho": _real("rho", event.rho)}
        case dp_event.PoissonSampledDpEvent():
            rate = _share("rate", event.sampling_probability)
            return {"type": "poisson", "rate": rate, "event": _encode(event.event)}
        case dp_event.ComposedDpEvent():
            return {"type": "composed", "events": [_encode(part) for part in event.events]}
        case dp_event.SelfComposedDpEvent():
            return {"type": "repeated", "times": _count("times", event.count), "event": _encode(event.event)}
        case dp_event.RepeatAndSelectDpEvent():
            shape = "poisson" if event.shape == math.inf else _real("shape", event.shape)
            mean = _real("mean", event.mean)
            return {"type": "repeat-and-select", "mean": mean, "shape": shape, "event": _encode(event.event)}
        case CoinFlipDpEvent():
            chance = _share("probability", event.probability)
            return {"type": "coin-flip", "probability": chance, "event": _encode(event.event)}
        case AdditiveDeltaDpEvent():
            return {"type": "additive-delta", "delta": _share("delta", event.delta), "event": _encode(event.event)}
        case dp_event.NoOpDpEvent():
            return {"type": "nothing"}
        case dp_event.NonPrivateDpEvent():
            return {"type": "not-private"}
    raise PlanError(
        f"events of type {type(event).__name__} cannot be billed; build them with tacit.privacy.accounting.events"
    )


_DECODERS: dict[str, tuple[tuple[str, ...], Callable[..., dp_event.DpEvent]]] = {
    "gaussian": (("noise",), gaussian),
    "laplace": (("noise",), laplace),
    "zcdp": (("rho",), zcdp),
    "poisson": (("rate", "event"), lambda rate, event: dp_event.PoissonSampledDpEvent(_share("rate", rate), event)),
    "composed": (("events",), dp_event.ComposedDpEvent),
    "repeated": (("times", "event"), lambda times, event: dp_event.SelfComposedDpEvent(event, _count("times", times))),
    "repeat-and-select": (
        ("event", "mean", "shape"),
        lambda event, mean, shape: repeat_and_select(event, mean, math.inf if shape == "poisson" else shape),
    ),
    "coin-flip": (("probability", "event"), coin_flip),
    "additive-delta": (("event", "delta"), with_additive_delta),
    "nothing": ((), dp_event.NoOpDpEvent),
    "not-private": ((), dp_event.NonPrivateDpEvent),
}


def _decode(node: Any) -> dp_event.DpEvent:
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
        values["events"] = [_decode(part) for part in values["events"]]
    return build(**values)


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise PlanError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise PlanError(f"{name} must be a finite number >= 0, got {value!r}")
    return number + 0.0  # -0.0 becomes 0.0, so that equal events have equal text


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
