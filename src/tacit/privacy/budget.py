"""What a guarantee is about: how much, whose, and between which neighbouring data sets.

A number without these three is not a guarantee, so they travel together as typed values. The neighbouring
relations of the papers (continual, lifelong, stream, task-wise) are another type, `ClaimAdjacency`: a claim
can be printed beside a certified bound, never converted into one.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from tacit.errors import PlanError

E = TypeVar("E", bound=StrEnum)


class Adjacency(StrEnum):
    """Which change of the data the guarantee hides."""

    ADD_OR_REMOVE = "add-or-remove"
    """One unit more or one unit less; the number of units is protected too."""
    ZERO_OUT = "zero-out"
    """One unit replaced by a special 'empty' unit; the number of units is public."""
    REPLACE_ONE = "replace-one"
    """One unit exchanged for any other; the number of units is public. Costs about twice as much."""


class Unit(StrEnum):
    """Whom the guarantee protects."""

    RECORD = "record"
    PERSON = "person"


class ClaimAdjacency(StrEnum):
    """The neighbouring relation under which a *paper* states its claim. Never one of ours."""

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
    """The most that one unit may lose: (ε, δ) under one adjacency.

    Example: `Budget(epsilon=1.0, delta=1e-5)` protects single records under add-or-remove.
    """

    epsilon: float
    delta: float
    unit: Unit = Unit.RECORD
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE
    accept_large_delta: bool = field(default=False, compare=False, repr=False)
    """Said a second time: δ may be above one over the number of units. It is no part of what is guaranteed."""

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
        """Refuse a δ above one over the declared number of units, unless it was said twice: with such a δ a mechanism
        may publish a whole unit and keep its promise."""
        if self.delta * units > 1 and not self.accept_large_delta:
            raise PlanError(
                f"delta = {self.delta:g} is above 1/{units:.0f}, one over the number of units that {of} declares, so "
                f"that it would allow to publish one of them in full; use a delta well below {1 / units:.2g}, or say "
                "accept_large_delta (--accept-large-delta) as well"
            )

    def __str__(self) -> str:
        return f"ε = {self.epsilon:g}, δ = {self.delta:g} per {self.unit}, {self.adjacency}"


def _member(kind: type[E], value: str, name: str) -> E:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(repr(str(member)) for member in kind)
        raise PlanError(f"{name} must be one of {choices}, got {value!r}") from None
