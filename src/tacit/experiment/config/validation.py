"""Validates plain values as a typed section and reports the first error in one sentence."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tacit.errors import ConfigError, TacitError
from tacit.experiment.config.setting_types import looked_up, truth_as_number, unknown, words, wrong

M = TypeVar("M", bound=BaseModel)


class FixedSection(BaseModel):
    """A section with fixed keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def validated(model: type[M], values: Mapping[str, Any]) -> M:
    """The values as a model; the first error is raised as one sentence with its key and value."""
    try:
        found = model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(cause := first.get("ctx", {}).get("error"), TacitError):
            raise (cause if isinstance(cause, ConfigError) else ConfigError(str(cause))) from None
        raise ConfigError(_sentence(model, first)) from None
    if (steps := truth_as_number(values, found)) is not None:
        key = ".".join(steps)
        raise ConfigError(wrong(key, looked_up(values, key), _annotation(model, steps)[1]))
    return found


_RANGES = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "too_short", "string_too_short")


def _sentence(model: type[BaseModel], error: Any) -> str:
    steps = [str(step) for step in error["loc"]]
    key, value = ".".join(steps), error["input"]
    owner, hint = _annotation(model, steps)
    if error["type"] == "missing":
        return f"{key} is missing; it must be {words(hint)}"
    if error["type"] == "extra_forbidden":
        return unknown(key, value, owner.model_fields, f"a key of {'.'.join(steps[:-1]) or 'a configuration'}")
    if error["type"] in _RANGES:
        return f"{key} = {value!r} is out of range: {error['msg'].removeprefix('Input ').lower()}"
    return wrong(key, value, hint)


def _annotation(model: type[BaseModel], steps: list[str]) -> tuple[type[BaseModel], Any]:
    """The model that has the key, and the key's type."""
    owner: type[BaseModel] = model
    hint: Any = Any
    for step in steps:
        if step not in owner.model_fields:
            break
        hint = owner.model_fields[step].annotation
        if isinstance(hint, type) and issubclass(hint, BaseModel):
            owner = hint
    return owner, hint
