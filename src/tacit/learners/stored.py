"""The settings of a learner as a release holds them: plain values, from which the same learner is made again.

What is code (modules, functions) no file holds; a release names these settings, and whoever loads it gives them again.
Where a learner computes and charges (device, ledger, store) belongs to the machine and is not among them.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from tacit.errors import LearnerError
from tacit.learners.networks import NamedNetwork
from tacit.models.backbones import absolute
from tacit.privacy.budget import Budget
from tacit.words import nearest

ELSEWHERE = ("device", "ledger", "store", "stream")
BACKBONES = ("backbone", "features")
"""Settings that may name a backbone, and so a file."""
_BUDGET = ("epsilon", "delta", "unit", "adjacency")


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Settings of a learner."""

    plain: Mapping[str, Any] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    """Those that are modules or functions of one's own."""

    @classmethod
    def of(cls, learner: Any) -> "Stored":
        """All settings of a learner (a dataclass), defaults too, but functions that are defaults themselves."""
        named = {one.name: one.default for one in fields(learner) if one.name not in ELSEWHERE}
        values = {name: _plain(name, getattr(learner, name)) for name in named}
        code = [name for name, value in values.items() if not _fits(value)]
        own = tuple(name for name in code if getattr(learner, name) is not named[name])
        return cls(plain={name: value for name, value in values.items() if name not in code}, code=own)

    def settings(self, kind: type[Any], changed: Mapping[str, Any]) -> dict[str, Any]:
        """What makes a learner of this kind again, with other values where they are given."""
        known = [one.name for one in fields(kind) if one.init and one.name not in ("ledger", "store", "stream")]
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
        said = asdict(value)
        return {"budget": said if value.accept_large_delta else {k: v for k, v in said.items() if k in _BUDGET}}
    if isinstance(value, NamedNetwork):
        return {"network": value.name, "options": _paths(value.options)}
    if isinstance(value, np.generic):
        return value.item()
    return _paths({name: value})[name]


def _paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values; names of backbones hold in any folder."""
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
    """Whether JSON can hold it."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
