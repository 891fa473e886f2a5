"""A learner's settings as stored in a release: plain values, from which the same learner can be constructed.

Settings that are code (modules, functions) are not stored; a release lists their names, and they are passed again when
it is loaded. Device, ledger and store belong to the machine and are not stored.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from tacit.errors import LearnerError
from tacit.learners.base.networks import NamedNetwork
from tacit.models.backbones import absolute
from tacit.privacy.accounting.budget import Budget
from tacit.words import nearest

ELSEWHERE = ("device", "ledger", "store", "stream")
BACKBONES = ("backbone", "features")
"""Settings that may name a backbone, and therefore a file."""
_BUDGET = ("epsilon", "delta", "unit", "adjacency")


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Stored settings of a learner."""

    plain: Mapping[str, Any] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    """Names of the settings that are user-defined modules or functions."""

    @classmethod
    def of(cls, learner: Any) -> "Stored":
        """Reads the settings of a learner: the values of plain ones, defaults included, and the names of those that are
        code. A function that is its setting's default is left out."""
        named = {item.name: item.default for item in fields(learner) if item.name not in ELSEWHERE}
        values = {name: _plain(name, getattr(learner, name)) for name in named}
        code = [name for name, value in values.items() if not _fits(value)]
        custom = tuple(name for name in code if getattr(learner, name) is not named[name])
        return cls(plain={name: value for name, value in values.items() if name not in code}, code=custom)

    def settings(self, kind: type[Any], changed: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments that construct a learner of this class, with the values in `changed` replaced."""
        known = [item.name for item in fields(kind) if item.init and item.name not in ("ledger", "store", "stream")]
        for name in (*self.plain, *changed):
            if name not in known:
                raise LearnerError(f"{kind.__name__} has no setting {name!r}; {nearest(name, known)}")
        if missing := [name for name in self.code if name not in changed]:
            raise LearnerError(
                f"this release was made with {missing[0]} as code of your own, which no file holds; give it again: "
                f"{kind.__name__}.from_release(folder, {missing[0]}=…)"
            )
        return {name: _made(value) for name, value in self.plain.items()} | dict(changed)


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Budget):
        values = asdict(value)
        return {"budget": values if value.accept_large_delta else {k: v for k, v in values.items() if k in _BUDGET}}
    if isinstance(value, NamedNetwork):
        return {"network": value.name, "options": _paths(value.options)}
    if isinstance(value, np.generic):
        return value.item()
    return _paths({name: value})[name]


def _paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values, with paths of backbones made absolute."""
    return {
        name: absolute(value) if name in BACKBONES and isinstance(value, str) else value
        for name, value in values.items()
    }


def _made(value: Any) -> Any:
    if isinstance(value, dict) and "budget" in value:
        return Budget(**value["budget"])
    if isinstance(value, dict) and "network" in value:
        return NamedNetwork(name=value["network"], options=value["options"])
    return value


def _fits(value: Any) -> bool:
    """Whether the value can be written as JSON."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
