"""The cost of an event: ε at a given δ, or δ at a given ε.

Formal guarantees:

* `epsilon` and `delta` return upper bounds: the event is (ε, δ)-DP under the given adjacency.
* `Method.BEST` is the smaller of two upper bounds: privacy loss distributions (`pld`, tight) and Rényi curves (`rdp`).
* A method that fails, overflows or does not support an event returns infinity (for δ: 1), never a smaller number.

Conditions: the event describes what the mechanism did, and it was fixed in advance. For events that are chosen from
earlier outputs only Rényi filters are valid (`filters`).
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

from dp_accounting.dp_event import DpEvent

from tacit.errors import PlanError
from tacit.privacy.accounting import pld, rdp
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.events import additive_delta, from_json, to_json, without_additive_delta
from tacit.privacy.accounting.pld import Unsupported
from tacit.privacy.accounting.rdp import ORDERS

__all__ = ["ORDERS", "Method", "delta", "epsilon", "rdp_curve", "rdp_to_delta", "rdp_to_epsilon"]


_REFINEMENTS = 4  # number of grids tried, each finer
_TYPICAL_DELTA = 1e-6  # the δ at which the grid for δ queries is chosen


class Method(StrEnum):
    """The accountant."""

    BEST = "best"
    PLD = "pld"
    RDP = "rdp"


def epsilon(
    event: DpEvent, delta: float, adjacency: Adjacency = Adjacency.ADD_OR_REMOVE, method: Method | str = Method.BEST
) -> float:
    """An ε such that the event is (ε, δ)-DP.

    Args:
        event: The event.
        delta: δ. The additive δ inside the event is subtracted first.
        adjacency: The neighbouring relation.
        method: The accountant.

    Returns:
        ε; infinite if no bound is known or the event's additive δ is not below `delta`.

    Raises:
        PlanError: An argument is out of range, or the event has invalid parameters.
    """
    adjacency, method = _checked(adjacency, method)
    if not 0 <= delta <= 1:
        raise PlanError(f"delta must be between 0 and 1, got {delta}")
    text, additive = _split(event)
    if delta < 1 and additive > 0:
        delta = math.nextafter(delta - additive, -1.0)  # rounded down
        if delta <= 0:
            return math.inf
    return _epsilon(text, float(delta), adjacency, method)


def delta(
    event: DpEvent, epsilon: float, adjacency: Adjacency = Adjacency.ADD_OR_REMOVE, method: Method | str = Method.BEST
) -> float:
    """A δ such that the event is (ε, δ)-DP; 1 if none is known. Arguments as in `epsilon`."""
    adjacency, method = _checked(adjacency, method)
    if not epsilon >= 0:
        raise PlanError(f"epsilon must be >= 0, got {epsilon}")
    text, additive = _split(event)
    return min(1.0, _delta(text, float(epsilon), adjacency, method) + additive)


def rdp_curve(
    event: DpEvent, adjacency: Adjacency = Adjacency.ADD_OR_REMOVE, orders: tuple[float, ...] = ORDERS
) -> tuple[float, ...]:
    """The event's Rényi curve without its additive δ: an upper bound at every order, infinite where none is known."""
    adjacency, _ = _checked(adjacency, Method.RDP)
    return _rdp_curve(_split(event)[0], adjacency, tuple(orders))


def rdp_to_epsilon(curve: Sequence[float] | rdp.Array, delta: float, orders: Sequence[float] = ORDERS) -> float:
    """The ε at δ of a Rényi curve that holds at all of these orders."""
    return _valid(rdp.to_epsilon(curve, delta, orders), math.inf)


def rdp_to_delta(curve: Sequence[float] | rdp.Array, epsilon: float, orders: Sequence[float] = ORDERS) -> float:
    """The δ at ε of a Rényi curve that holds at all of these orders."""
    return _valid(rdp.to_delta(curve, epsilon, orders), 1.0)


def _checked(adjacency: Adjacency, method: Method | str) -> tuple[Adjacency, Method]:
    if not isinstance(adjacency, Adjacency):  # neither a ClaimAdjacency nor a string is accepted
        choices = ", ".join(f"Adjacency.{member.name}" for member in Adjacency)
        raise PlanError(f"adjacency must be one of {choices}, got {adjacency!r}")
    try:
        return adjacency, Method(method)
    except ValueError:
        raise PlanError(f"method must be one of {', '.join(Method)}, got {method!r}") from None


def _split(event: DpEvent) -> tuple[str, float]:
    """The event without its additive δ, as canonical JSON (which also checks its parameters), and that δ."""
    to_json(event)
    additive = additive_delta(event)
    return to_json(without_additive_delta(event) if additive else event), additive


def _valid(value: float, worst: float) -> float:
    return worst if math.isnan(value) else min(max(0.0, float(value)), worst)


@lru_cache(maxsize=4096)
def _epsilon(text: str, delta: float, adjacency: Adjacency, method: Method) -> float:
    by_rdp = rdp_to_epsilon(_rdp_curve(text, adjacency, ORDERS), delta)
    if method is Method.RDP:
        return by_rdp
    best = math.inf if method is Method.PLD else by_rdp
    event, scale = from_json(text), _scale(text, delta, adjacency)
    for _ in range(_REFINEMENTS):
        try:
            by_pld = _valid(pld.epsilon(event, delta, adjacency, scale), math.inf)
        except (Unsupported, ArithmeticError, ValueError, MemoryError):
            by_pld = math.inf
        best = min(best, by_pld)
        if not 0 < by_pld < scale / 2:
            break
        scale = by_pld  # the Rényi estimate was far off, and the grid too coarse
    return best


@lru_cache(maxsize=4096)
def _delta(text: str, epsilon: float, adjacency: Adjacency, method: Method) -> float:
    best = 1.0 if method is Method.PLD else rdp_to_delta(_rdp_curve(text, adjacency, ORDERS), epsilon)
    if method is Method.RDP or best == 0:
        return best
    scale = _epsilon(text, _TYPICAL_DELTA, adjacency, Method.BEST)
    try:
        by_pld = pld.delta(from_json(text), epsilon, adjacency, max(scale, _TYPICAL_DELTA))
    except (Unsupported, ArithmeticError, ValueError, MemoryError):
        by_pld = 1.0
    return min(best, _valid(by_pld, 1.0))


@lru_cache(maxsize=1024)
def _rdp_curve(text: str, adjacency: Adjacency, orders: tuple[float, ...]) -> tuple[float, ...]:
    if orders != ORDERS and set(orders) <= set(ORDERS):  # a subset of the orders must not change a value
        full = dict(zip(ORDERS, _rdp_curve(text, adjacency, ORDERS), strict=True))
        return tuple(full[order] for order in orders)
    try:
        return tuple(map(float, rdp.curve(from_json(text), adjacency, orders)))
    except (ArithmeticError, ValueError):
        return (math.inf,) * len(orders)


def _scale(text: str, delta: float, adjacency: Adjacency) -> float:
    """An estimate of ε that determines the grid; validity does not depend on it."""
    known = rdp_to_epsilon(_rdp_curve(text, adjacency, ORDERS), max(delta, 1e-15))
    if known == math.inf and adjacency is Adjacency.REPLACE_ONE:
        # Poisson sampling: twice the value under add-or-remove.
        known = 2 * rdp_to_epsilon(_rdp_curve(text, Adjacency.ADD_OR_REMOVE, ORDERS), max(delta, 1e-15))
    return max(known, _TYPICAL_DELTA)  # 0 is a valid ε but not a valid grid
