"""Checks settings of a learner, network or scenario against the code's own signatures before anything runs.

The fields of the dataclass, or the keyword parameters of the function, are the settings; their annotations are the
types, and their defaults are filled in. A wrong setting is reported in one sentence with the key, the value and the
nearest valid names.
"""

import dataclasses
import inspect
import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from tacit.errors import ConfigError
from tacit.words import close, nearest

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    type(None): "null",
    Any: "a value",
}


ELSEWHERE = {
    "model.backbone": "data.features",
    "model.features": "data.features",
    "learner.network": "model.network",
    "learner.epsilon": "budget.epsilon",
    "learner.delta": "budget.delta",
    "learner.seed": "seeds",
    "learner.device": "device",
    "model.method": "learner.method",
}
"""Keys that are looked for in the wrong section, and where they are."""


def checked(
    section: str,
    owner: str,
    make: Callable[..., Any],
    given: Mapping[str, Any],
    *,
    but: Collection[str],
    keys: Collection[str] = (),
) -> dict[str, Any]:
    """The settings that `make` takes, with the given values converted to their types and defaults for the rest.

    Parameters named in `but` are filled in by the run. `keys` are keys of the section besides the settings."""
    known = {name: default for name, default in parameters(make).items() if name not in but}
    for name in given:
        if name not in known:
            key, names = f"{section}.{name}", [*known, *keys]
            elsewhere = ELSEWHERE.get(key)
            raise ConfigError(unknown(key, given[name], names, f"a setting of {owner}", elsewhere=elsewhere))
    hints = get_type_hints(make)
    # A tuple default is converted as if read from a file, so that a written configuration reads back unchanged.
    values = {name: list(default) for name, default in known.items() if isinstance(default, tuple)} | dict(given)
    found = {
        name: typed(f"{section}.{name}", hints.get(name, Any), values[name]) if name in values else default
        for name, default in known.items()
    }
    for name, value in found.items():
        if value is inspect.Parameter.empty:
            raise ConfigError(f"{section}.{name} is missing; {owner} needs it as {words(hints.get(name, Any))}")
    return found


def parameters(make: Callable[..., Any]) -> dict[str, Any]:
    """The settings and their defaults by name (`inspect.Parameter.empty` if there is no default)."""
    if dataclasses.is_dataclass(make):
        return {one.name: _default(one) for one in dataclasses.fields(make)}
    return {one.name: one.default for one in inspect.signature(make).parameters.values()}


def typed(key: str, hint: Any, value: Any) -> Any:
    """The value converted to its type; a ConfigError if that is impossible."""
    try:
        found = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
    except ValidationError:
        raise ConfigError(wrong(key, value, hint)) from None
    if truth_as_number(value, found) is not None:
        raise ConfigError(wrong(key, value, hint))
    if not _finite(found):
        raise ConfigError(f"{key} must be a finite number, got {value!r}")
    return found


def truth_as_number(given: Any, found: Any) -> list[str] | None:
    """The path of keys to a boolean in the given values that was converted to a number; None if there is none."""
    if isinstance(given, bool):
        return [] if isinstance(found, int | float) and not isinstance(found, bool) else None
    pairs: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(given, Mapping):
        inner = dict(found) if isinstance(found, BaseModel | Mapping) else {}
        pairs = ((key, value, inner.get(key)) for key, value in given.items())
    elif isinstance(given, list | tuple) and isinstance(found, list | tuple):
        pairs = ((place, *pair) for place, pair in enumerate(zip(given, found, strict=False)))
    inside = ((key, truth_as_number(value, made)) for key, value, made in pairs)
    return next(([str(key), *where] for key, where in inside if where is not None), None)


def _finite(value: Any) -> bool:
    """Whether all numbers in the value are finite, since JSON has neither infinity nor NaN."""
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def unknown(
    key: str,
    value: Any,
    known: Iterable[str],
    what: str,
    *,
    name: str | None = None,
    elsewhere: str | None = None,
) -> str:
    """The error message for an unknown key, or for a value that is not one of the known names. `elsewhere`: the key of
    another section that was probably meant."""
    first = [] if elsewhere is None else [elsewhere]
    return f"{key} = {value!r} is not {what}; {nearest(str(name or key.rpartition('.')[2]), sorted(known), first)}"


def wrong(key: str, value: Any, hint: Any) -> str:
    """The error message for a value of the wrong type."""
    allowed = [str(one) for one in choices(hint)]
    near = close(str(value), allowed)  # the message lists all choices already
    return f"{key} must be {words(hint)}, got {value!r}" + (f"; {nearest(str(value), near)}" if near else "")


def choices(hint: Any) -> list[Any]:
    """The values that a type allows, if they can be listed."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return [str(member) for member in hint]
    return [one for part in get_args(hint) for one in choices(part)] if _is_union(hint) else []


MISSING = object()


def looked_up(values: Any, key: str) -> Any:
    """The value of a dotted key in plain values, or `MISSING`."""
    for step in key.split("."):
        if not isinstance(values, Mapping) or step not in values:
            return MISSING
        values = values[step]
    return values


def words(hint: Any) -> str:
    """A type in words."""
    if allowed := (choices(hint) if not _is_union(hint) else []):
        return "one of " + ", ".join(repr(one) for one in allowed)
    if _is_union(hint):
        return " or ".join(dict.fromkeys(words(part) for part in get_args(hint)))
    if get_origin(hint) is not None and hasattr(hint, "__metadata__"):  # Annotated: its first argument is the type
        return words(get_args(hint)[0])
    origin, parts = get_origin(hint), [part for part in get_args(hint) if part is not Ellipsis]
    if origin in (list, tuple, set) or (inspect.isclass(origin) and issubclass(origin, Sequence)):
        return f"a list, each {words(parts[0])}" if parts else "a list"
    if origin is dict or (inspect.isclass(origin) and issubclass(origin, Mapping)):
        return "a mapping"
    if inspect.isclass(hint) and issubclass(hint, BaseModel):  # users know the keys of a section, not its class
        return f"a section with keys such as {', '.join(list(hint.model_fields)[:3])}"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return inspect.Parameter.empty if field.default_factory is dataclasses.MISSING else field.default_factory()
