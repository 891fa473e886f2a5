"""Validation of a learner's settings: types from the class annotations, ranges by name.

Settings are checked before anything is built, read or charged. Rules that involve several settings, or the stream, are
checked by the learner.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from tacit.errors import LearnerError
from tacit.words import nearest


@dataclass(frozen=True, kw_only=True)
class Range:
    """An interval; an open end is excluded."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        if self.high == math.inf:
            return "" if self.low == -math.inf else f" {'>' if self.open_low else '≥'} {self.low:g}"
        if self.open_low and self.open_high:
            return f" between {self.low:g} and {self.high:g}"
        ends = ("<" if is_open else "≤" for is_open in (self.open_low, self.open_high))
        return " with {:g} {} {{}} {} {:g}".format(self.low, *ends, self.high)


ANY = Range()
POSITIVE = Range(low=0, open_low=True)
NOT_NEGATIVE = Range(low=0)
FROM_ONE = Range(low=1)
SHARE = Range(low=0, high=1, open_low=True, open_high=True)
UP_TO_ONE = Range(low=0, high=1)
BELOW_ONE = Range(low=0, high=1, open_high=True)
RATE = Range(low=0, high=1000, open_low=True)
"""Learning rates; larger values are assumed to be typos."""

RANGES = {
    "average": UP_TO_ONE,
    "batch": POSITIVE,
    "by_step": FROM_ONE,
    "charged_rate": Range(low=0, high=1, open_low=True),
    "centre": SHARE,
    "check": FROM_ONE,
    "claimed_reference": POSITIVE,
    "clip": POSITIVE,
    "count_share": BELOW_ONE,
    "early": SHARE,
    "encoder_share": SHARE,
    "encoder_width": FROM_ONE,
    "epochs": POSITIVE,
    "epsilon1": POSITIVE,
    "epsilon2": POSITIVE,
    "factor": Range(low=1, open_low=True),
    "features": FROM_ONE,
    "fine_tune_epochs": POSITIVE,
    "fine_tune_lr": RATE,
    "finished": NOT_NEGATIVE,
    "hidden": FROM_ONE,
    "kernel": FROM_ONE,
    "lasting": POSITIVE,
    "layer_noise": NOT_NEGATIVE,
    "learner_budget": POSITIVE,
    "learners": FROM_ONE,
    "least": Range(low=0, high=1, open_low=True),
    "lr": RATE,
    "margin": Range(low=-1, high=1),
    "margin_confidence": SHARE,
    "margin_draws": FROM_ONE,
    "memory_batch": POSITIVE,
    "memory_batches": FROM_ONE,
    "memory_noise": POSITIVE,
    "memory_per_class": FROM_ONE,
    "memory_share": SHARE,
    "memory_weight": UP_TO_ONE,
    "moment_share": SHARE,
    "momentum": BELOW_ONE,
    "most": FROM_ONE,
    "noise": POSITIVE,
    "power": POSITIVE,
    "rank": FROM_ONE,
    "record_budget": POSITIVE,
    "replay": POSITIVE,
    "router_share": SHARE,
    "scale": POSITIVE,
    "seed": NOT_NEGATIVE,
    "sharpness": NOT_NEGATIVE,
    "shrink": NOT_NEGATIVE,
    "smooth": BELOW_ONE,
    "standardise": SHARE,
    "stay": FROM_ONE,
    "steps": FROM_ONE,
    "target": SHARE,
    "tasks_per_learner": FROM_ONE,
    "usual_size": FROM_ONE,
    "watch_share": SHARE,
    "weight_decay": NOT_NEGATIVE,
    "width": FROM_ONE,
}
"""Range of each setting by name, for all learners; a class overrides them in `ranges`."""


def check_types(learner: Any) -> None:
    """Raise a LearnerError for the first setting of a wrong type."""
    for name, value, kind in _settings(type(learner), vars(learner)):
        if kind.choices:
            _check_choice(name, value, kind)
        elif not _is_kind(value, kind):
            raise LearnerError(f"{name} must be {_words(name, kind, _range(type(learner), name))}, got {value!r}")


def check_ranges(learner: Any) -> None:
    """Raise a LearnerError for the first setting outside its range. A class's `ranges` take precedence."""
    check_values(type(learner), vars(learner))


def check_values(learner: type, values: Mapping[str, Any], *, prefix: str = "") -> None:
    """Raise a LearnerError for the first value outside its range; each has the type of its setting.

    Args:
        learner: The class of a learner.
        values: Settings by name.
        prefix: What the names of settings begin with in the message, such as `learner.` in a configuration.
    """
    for name, value, kind in _settings(learner, values):
        if kind.number in ("whole", "real") and not (math.isfinite(value) and value in _range(learner, name)):
            shown = f"{prefix}{name} must be {_words(f'{prefix}{name}', kind, _range(learner, name))}"
            raise LearnerError(f"{shown}, got {value!r}")


def _settings(learner: type, values: Mapping[str, Any]) -> Iterator[tuple[str, Any, "_Kind"]]:
    """Name, value and kind of every setting with a checkable type; each value of a list separately."""
    for name, kind in _kinds(cast(Hashable, learner)).items():
        value: Any = values.get(name)
        if value is not None or (name in values and not kind.none):
            yield from ((name, item, kind) for item in (value if kind.each and _is_list(value) else (value,)))


def _range(learner: type, name: str) -> Range:
    overrides: Mapping[str, Range] = getattr(learner, "ranges", {})
    return overrides.get(name, RANGES.get(name, ANY))


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What the type of a setting allows."""

    number: Literal["whole", "real", "truth"] | None = None
    choices: tuple[Any, ...] = ()
    none: bool = False
    each: bool = False
    """A list, one value for each task."""


@cache
def _kinds(learner: Hashable) -> dict[str, _Kind]:
    """Checkable settings of a learner class."""
    assert isinstance(learner, type)
    try:
        hints = get_type_hints(learner)
    except (NameError, TypeError, AttributeError):  # a user-defined learner whose annotations cannot be resolved
        return {}
    kinds = {item.name: _kind(hints[item.name]) for item in fields(learner) if item.init and item.name in hints}
    return {name: kind for name, kind in kinds.items() if kind.number or kind.choices}


def _kind(hint: Any) -> _Kind:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    none = NoneType in kinds
    each = any(get_origin(kind) is Sequence for kind in kinds)
    plain = [kind for kind in kinds if kind is not NoneType and get_origin(kind) is not Sequence]
    if len(plain) == 1 and get_origin(plain[0]) is Literal:
        return _Kind(choices=get_args(plain[0]), none=none, each=each)
    if plain == [bool]:
        return _Kind(number="truth", none=none, each=each)
    if plain == [int]:
        return _Kind(number="whole", none=none, each=each)
    return _Kind(number="real", none=none, each=each) if plain in ([float], [float, int], [int, float]) else _Kind()


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _check_choice(name: str, value: Any, kind: _Kind) -> None:
    if value not in kind.choices:
        known = [*map(repr, kind.choices), *(["None"] if kind.none else [])]
        near = f"; {nearest(value, map(str, kind.choices))}" if isinstance(value, str) and len(known) > 3 else ""
        raise LearnerError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, got {value!r}{near}")


def _is_kind(value: Any, kind: _Kind) -> bool:
    truth = isinstance(value, bool | np.bool_)
    if kind.number == "truth":
        return truth
    return not truth and isinstance(value, Integral if kind.number == "whole" else Real)


def _words(name: str, kind: _Kind, allowed: Range) -> str:
    """The allowed values of a setting, in words."""
    if kind.number == "truth":
        return "true or false"
    what = "a whole number" if kind.number == "whole" else "a finite number"
    return f"{what}{str(allowed).format(name)}{', or None' if kind.none else ''}"
