"""Privacy budgets: (ε, δ), the protected unit, and the neighbouring relation.

The three belong together, so they are one typed value. The neighbouring relations of papers (continual, lifelong,
stream, task-wise) are another type, `ClaimAdjacency`: a claim can be printed beside a certified bound and never becomes
one.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from tacit.errors import PlanError

E = TypeVar("E", bound=StrEnum)


class Adjacency(StrEnum):
    """The neighbouring relation: which change of the data the guarantee hides."""

    ADD_OR_REMOVE = "add-or-remove"
    """One unit is added or removed; the number of units is protected."""
    ZERO_OUT = "zero-out"
    """One unit is replaced by an empty one; the number of units is public."""
    REPLACE_ONE = "replace-one"
    """One unit is replaced by any other; the number of units is public. Costs about twice as much."""


class Unit(StrEnum):
    """The protected unit."""

    RECORD = "record"
    PERSON = "person"


class ClaimAdjacency(StrEnum):
    """The neighbouring relation under which a *paper* states its claim; never that of a certified bound."""

    CONTINUAL = "continual"
    """Desai 2021, Def. 2: one sample of the union of all tasks and one of the union of all memories."""
    LIFELONG = "lifelong"
    """Lai 2022, Def. 2: one tuple may differ in every task and in every memory."""
    STREAM = "stream"
    """Hassanpour 2022: two streams that differ in one element."""
    TASK_WISE = "task-wise"
    """Tobaben 2025, Def. 4.1: in every task, at most one sample is added or removed."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that one unit may lose.

    Args:
        epsilon: ε, finite and > 0.
        delta: δ, between 0 and 1; less than one over the number of units.
        unit: The protected unit, "record" or "person".
        adjacency: The neighbouring relation: "add-or-remove", "zero-out" or "replace-one".
        accept_large_delta: Confirms a δ above one over the number of units. It is not part of the guarantee.

    Raises:
        PlanError: A value is out of range.

    Example:
        >>> print(Budget(epsilon=1.0, delta=1e-5))
        ε = 1, δ = 1e-05 per record, add-or-remove
    """

    epsilon: float
    delta: float
    unit: Unit = Unit.RECORD
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE
    accept_large_delta: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            if isinstance(getattr(self, name), bool) or not isinstance(getattr(self, name), int | float):
                raise PlanError(f"{name} must be a number, got {getattr(self, name)!r}")
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise PlanError(f"epsilon must be a finite number > 0, got {self.epsilon}; 1 is a common choice")
        if not 0 < self.delta < 1:
            raise PlanError(
                f"delta must be between 0 and 1, got {self.delta}; use less than one over the number of units"
            )
        object.__setattr__(self, "unit", _member(Unit, self.unit, "unit"))
        object.__setattr__(self, "adjacency", _member(Adjacency, self.adjacency, "adjacency"))

    def check_units(self, units: float, of: str) -> None:
        """Raise PlanError if δ exceeds one over the declared number of units, unless `accept_large_delta`.

        With such a δ, a mechanism that publishes one unit in full would satisfy the guarantee.

        Args:
            units: The declared number of units.
            of: What declares it, for the message.

        Raises:
            PlanError: δ is too large.
        """
        if self.delta * units > 1 and not self.accept_large_delta:
            raise PlanError(
                f"delta = {self.delta:g} is above 1/{units:.0f}, one over the number of units that {of} declares, so "
                f"that publishing one of them in full would be allowed; use a delta well below {1 / units:.2g}, or "
                "confirm it by accept_large_delta (--accept-large-delta)"
            )

    def __repr__(self) -> str:
        return f"Budget(epsilon={self.epsilon}, delta={self.delta}, unit='{self.unit}', adjacency='{self.adjacency}')"

    def __str__(self) -> str:
        return f"ε = {self.epsilon:g}, δ = {self.delta:g} per {self.unit}, {self.adjacency}"


def _member(kind: type[E], value: str, name: str) -> E:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(repr(str(member)) for member in kind)
        raise PlanError(f"{name} must be one of {choices}, got {value!r}") from None
