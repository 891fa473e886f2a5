"""The policy of a ledger: what the data's owner allows, recorded in the chain.

Formal guarantees: the default allows nothing that weakens the guarantee, an unknown key is an error, and a ledger uses
the policy of its chain whatever a run is configured with. A policy is a TOML file:

    may_raise = ["officer@hospital.org"]
    [unit_cap]
    epsilon = 3.0
    delta = 1e-6
    [deployment]
    intended_use = "triage of visits"
"""

import hashlib
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tacit.errors import PlanError, PolicyError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger.limits.deployment import Actor, Deployment
from tacit.words import nearest

_LATER: dict[str, Any] = {"disjoint": [], "signatures": 1, "allow_code": [], "deployment": None}
"""Keys that were added later, with the value of policies that lack them."""
Switch = Literal["allow_unsafe", "allow_test_keys", "allow_uncharged_tuning"]


class Cap(BaseModel):
    """The most that one unit may lose over all streams of a ledger together.

    Attributes:
        epsilon: The largest ε.
        delta: The largest δ.
        unit: The protected unit; all streams must have it.
        adjacency: The adjacency; all streams must have it.
        counts: What is added. "charges": the events of all streams, under one Rényi filter; each stream counts as if
            all its tasks were present. "budgets": the declared ε and δ of the streams; a stream that fits is never
            stopped.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    epsilon: float
    delta: float
    unit: str = "record"
    adjacency: str = "add-or-remove"
    counts: Literal["charges", "budgets"] = "charges"

    @classmethod
    def of(cls, budget: Budget, *, counts: Literal["charges", "budgets"] = "charges") -> Self:
        """The cap with the numbers of a budget."""
        unit, adjacency = str(budget.unit), str(budget.adjacency)
        return cls(epsilon=budget.epsilon, delta=budget.delta, unit=unit, adjacency=adjacency, counts=counts)

    def model_post_init(self, _context: object, /) -> None:
        self.budget()

    def budget(self) -> Budget:
        try:
            return Budget(epsilon=self.epsilon, delta=self.delta, unit=self.unit, adjacency=self.adjacency)  # type: ignore[arg-type]
        except PlanError as error:
            raise ValueError(str(error)) from None


class Policy(BaseModel):
    """What runs on a ledger may do. The default allows nothing that weakens the guarantee.

    Attributes:
        allow_unsafe: Whether raw records of private data may be released, for baselines; no finite ε is certified then.
        allow_test_keys: Whether private data may be used with keys that anyone can recompute.
        allow_uncharged_tuning: Whether certificates may be issued for models tuned on uncharged private data.
        allow_code: SHA-256 of the Python files that may be run when a release that names them is opened.
        may_raise: Who may raise the budget of a stream.
        unit_cap: The cap of one unit over all streams of the ledger.
        disjoint: Groups of streams of which no unit is in more than one, as the data's owner declares.
        signatures: How many officers must sign a decision, once the ledger has officers.
        deployment: What the owner declares about the deployment; certificates contain it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    allow_unsafe: bool = False
    allow_test_keys: bool = False
    allow_uncharged_tuning: bool = False
    allow_code: tuple[str, ...] = ()
    may_raise: tuple[str, ...] = ()
    unit_cap: Cap | None = None
    disjoint: tuple[tuple[str, ...], ...] = ()
    signatures: int = Field(default=1, ge=1)
    deployment: Deployment | None = None

    @field_validator("allow_code")
    @classmethod
    def _hashes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for digest in value:
            if len(digest) != 64 or set(digest.lower()) - set("0123456789abcdef"):
                raise ValueError("each entry must be a SHA-256, 64 hexadecimal digits (sha256sum FILE prints it)")
        return tuple(digest.lower() for digest in value)

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
        return Cap.of(value) if isinstance(value, Budget) else value

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a policy from a TOML file.

        Args:
            path: The file.

        Returns:
            The policy.

        Raises:
            PolicyError: The file cannot be read, or a key or value is wrong.
        """
        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise PolicyError(f"cannot read the policy {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PolicyError(f"the policy {path} is not valid TOML: {error}") from None
        return cls.parse(data, where=f"the policy {path}")

    @classmethod
    def parse(cls, data: dict[str, Any], *, where: str = "the policy") -> Self:
        """A policy from plain values; `where` names their source in errors.

        Args:
            data: The values by key.
            where: The source of the values, for messages.

        Returns:
            The policy.

        Raises:
            PolicyError: A key or value is wrong.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise PolicyError(_sentence(cls, error, where)) from None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, which `Policy.parse` reads.

        Keys that were added later and have their default are left out, so that the digests of earlier policies do not
        change.

        Returns:
            The values by key.
        """
        values = self.model_dump(mode="json")
        if values["unit_cap"] and values["unit_cap"]["counts"] == "charges":
            del values["unit_cap"]["counts"]
        if self.deployment is not None:
            values["deployment"] = self.deployment.to_dict() or None
        return {key: value for key, value in values.items() if key not in _LATER or value != _LATER[key]}

    @property
    def digest(self) -> str:
        """SHA-256 of the policy, in hexadecimal."""
        body = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(body.encode()).hexdigest()

    @property
    def cap(self) -> Budget | None:
        """`unit_cap` as a budget."""
        return None if self.unit_cap is None else self.unit_cap.budget()

    def slots(self, names: Iterable[str]) -> list[list[str]]:
        """The names, grouped so that a unit is in at most one stream of each group.

        Args:
            names: Names of streams.

        Returns:
            The groups.
        """
        groups: dict[str, list[str]] = {}
        for name in names:
            declared = next((group for group in self.disjoint if name in group), (name,))
            groups.setdefault(declared[0], []).append(name)
        return list(groups.values())

    def require(self, switch: Switch, *, what: str) -> None:
        """Raise PolicyError, naming `what`, unless the switch is on.

        Args:
            switch: The name of the switch.
            what: What needs it, for the message.

        Raises:
            PolicyError: The switch is off.
        """
        if not getattr(self, switch):
            raise PolicyError(
                f"{what} is forbidden by the ledger's policy; it needs {switch} = true, adopted by its owner"
            )

    def require_raiser(self, *by: str) -> None:
        """Raise PolicyError unless one of these people may raise budgets.

        Args:
            by: Names of people.

        Raises:
            PolicyError: None of them may raise budgets.
        """
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
        tables: dict[Any, type[BaseModel]] = {"unit_cap": Cap, "deployment": Deployment}
        table = tables.get(first["loc"][0], cls) if len(first["loc"]) > 1 else cls
        fields = (Actor if len(first["loc"]) > 2 else table).model_fields
        return f"{where} has an unknown key {key!r}; {nearest(str(first['loc'][-1]), fields)}"
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{where} has a wrong value for {key!r}: {message[:1].lower() + message[1:]}, got {first['input']!r}"
