"""What the owner of the data allows: a frozen set of switches that the ledger's chain records.

Guarantee: nothing dangerous is allowed by default, an unknown switch is an error and never ignored, and a
ledger uses the policy of its chain, whatever a run says. A policy is a TOML file:

    may_raise = ["officer@hospital.org"]
    [unit_cap]
    epsilon = 3.0
    delta = 1e-6
"""

import hashlib
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tacit.errors import PlanError, PolicyError
from tacit.privacy.budget import Budget
from tacit.words import nearest

_LATER: dict[str, Any] = {"disjoint": [], "signatures": 1, "allow_code": []}
"""Keys that came later, and the value that policies without them have."""
Switch = Literal["allow_unsafe", "allow_test_keys", "allow_uncharged_tuning"]


class Cap(BaseModel):
    """The most one unit may lose over all streams of a ledger together."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    epsilon: float
    delta: float
    unit: str = "record"
    adjacency: str = "add-or-remove"
    counts: Literal["charges", "budgets"] = "charges"
    """What is added up. `charges`: the events of all streams, under one Rényi filter, each stream as if all its tasks
    were there. `budgets`: the ε and δ that were declared for the streams; a stream that fits is never stopped by it."""

    @classmethod
    def of(cls, budget: Budget, *, counts: Literal["charges", "budgets"] = "charges") -> Self:
        """The cap that is this budget."""
        return cls(
            epsilon=budget.epsilon,
            delta=budget.delta,
            unit=str(budget.unit),
            adjacency=str(budget.adjacency),
            counts=counts,
        )

    def model_post_init(self, _context: object, /) -> None:
        self.budget()

    def budget(self) -> Budget:
        try:
            return Budget(epsilon=self.epsilon, delta=self.delta, unit=self.unit, adjacency=self.adjacency)  # type: ignore[arg-type]
        except PlanError as error:
            raise ValueError(str(error)) from None


class Policy(BaseModel):
    """What runs on this ledger may do. The default allows nothing that weakens the guarantee."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    allow_unsafe: bool = False
    """Exits without noise, for baselines on private data; they are certified as "no finite epsilon"."""
    allow_test_keys: bool = False
    """Keys that anyone can recompute, on private data."""
    allow_uncharged_tuning: bool = False
    """Repeated runs outside an umbrella charge."""
    allow_code: tuple[str, ...] = ()
    """SHA-256 of Python files that a release may name and that are run when it is opened with this ledger."""
    may_raise: tuple[str, ...] = ()
    """Who may raise the budget of a stream."""
    unit_cap: Cap | None = None
    """The cap of one unit over all streams of the ledger."""
    disjoint: tuple[tuple[str, ...], ...] = ()
    """Groups of streams of which no unit is in more than one, as the owner of the data declares."""
    signatures: int = Field(default=1, ge=1)
    """How many officers must sign a decision about the ledger, once it has officers."""

    @field_validator("allow_code")
    @classmethod
    def _hashes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if len(one) != 64 or set(one.lower()) - set("0123456789abcdef"):
                raise ValueError("each entry must be a SHA-256, 64 hexadecimal digits (sha256sum FILE prints it)")
        return tuple(one.lower() for one in value)

    @field_validator("may_raise", "allow_code", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("disjoint", mode="before")
    @classmethod
    def _groups(cls, value: object) -> object:
        if not isinstance(value, list | tuple):
            return value
        return tuple(tuple(group) if isinstance(group, list) else group for group in value)

    @field_validator("disjoint")
    @classmethod
    def _apart(cls, value: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        names = [name for group in value for name in group]
        if len(set(names)) < len(names):
            raise ValueError("a stream may be in one group only, put all streams that are disjoint into it")
        return value

    @field_validator("unit_cap", mode="before")
    @classmethod
    def _cap(cls, value: object) -> object:
        if isinstance(value, Budget):
            return Cap.of(value)
        return value

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a TOML file; an error names the key and the nearest valid one."""
        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise PolicyError(f"cannot read the policy {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PolicyError(f"the policy {path} is not valid TOML: {error}") from None
        return cls.parse(data, where=f"the policy {path}")

    @classmethod
    def parse(cls, data: dict[str, Any], *, where: str = "the policy") -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise PolicyError(_sentence(cls, error, where)) from None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `Policy.parse` reads them back. What is as it always was before there was a key for it is
        left out, so that a policy keeps its digest."""
        found = self.model_dump(mode="json")
        if found["unit_cap"] and found["unit_cap"]["counts"] == "charges":
            del found["unit_cap"]["counts"]
        return {key: value for key, value in found.items() if key not in _LATER or value != _LATER[key]}

    @property
    def digest(self) -> str:
        body = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(body.encode()).hexdigest()

    @property
    def cap(self) -> Budget | None:
        """`unit_cap` as a budget."""
        return None if self.unit_cap is None else self.unit_cap.budget()

    def slots(self, names: Iterable[str]) -> list[list[str]]:
        """The streams of these names, together those of which a unit is in one at most."""
        found: dict[str, list[str]] = {}
        for name in names:
            declared = next((group for group in self.disjoint if name in group), (name,))
            found.setdefault(declared[0], []).append(name)
        return list(found.values())

    def require(self, switch: Switch, *, what: str) -> None:
        """Refuse `what` unless the switch is on."""
        if not getattr(self, switch):
            raise PolicyError(
                f"{what} is forbidden by the ledger's policy; it needs {switch} = true, adopted by its owner"
            )

    def require_raiser(self, *by: str) -> None:
        """Refuse unless one of them may raise budgets."""
        if not set(by) & set(self.may_raise):
            allowed = ", ".join(self.may_raise) or "nobody"
            raise PolicyError(
                f"{', '.join(by)!r} may not raise a budget, the policy allows {allowed}; adopt one whose may_raise "
                "names them"
            )


def _sentence(cls: type[BaseModel], error: ValidationError, where: str) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "policy"
    if first["type"] == "extra_forbidden":
        fields = Cap.model_fields if len(first["loc"]) > 1 else cls.model_fields
        return f"{where} has an unknown key {key!r}; {nearest(str(first['loc'][-1]), fields)}"
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{where} has a wrong value for {key!r}: {message[:1].lower() + message[1:]}, got {first['input']!r}"
