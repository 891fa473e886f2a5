"""Totals: what one unit may have lost over all streams of a ledger together.

Formal guarantees: `UnitTotal` bounds the loss of every unit, as a worst case from declarations alone.

* A unit is assumed to be in every private stream that protects its kind, and in as many tasks of each as declared. The
  actual members are never looked at. Only streams that the policy declares disjoint are not added.
* The bound is the sum of the streams' ε and δ or, where all plans were fixed in advance, the composition of their
  events at the sum of their δ, if that is smaller.
* Streams with different adjacencies are stated under replace-one, which each of them implies.

Condition: the streams and their plans were fixed in advance. For streams that are chosen adaptively only the policy's
unit_cap is a bound; it is reported as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row

from tacit.privacy.accounting.budget import Adjacency, Budget, Unit
from tacit.privacy.accounting.calibrate import INFINITE_PRICE
from tacit.privacy.accounting.epsilon import rdp_to_epsilon
from tacit.privacy.ledger import statement
from tacit.privacy.ledger.limits import leaf_bounds, worst_case
from tacit.privacy.ledger.limits.leaf_bounds import Array
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.limits.prices import Prices
from tacit.privacy.ledger.storage.lookup import all_streams

SUM = "sum of the streams' ε"
CURVES = "RDP, sum of the streams' curves"
EVENTS = "min(PLD, RDP) of the events of all streams"
MOST_EVENTS = 64
"""Up to this many events are composed by PLD; more, by their Rényi curves."""


@dataclass(frozen=True, kw_only=True)
class StreamLoss:
    """What one unit may have lost in one stream, over as many of its tasks as declared."""

    stream: str
    adjacency: Adjacency
    epsilon: float
    delta: float
    """0 if nothing was charged yet."""
    budget: float
    """The ε of the stream's budget."""
    budget_delta: float


@dataclass(frozen=True, kw_only=True)
class UnitTotal:
    """What one unit of a kind may have lost over all streams that may contain it."""

    unit: Unit
    adjacency: Adjacency
    streams: tuple[StreamLoss, ...]
    disjoint: tuple[tuple[str, ...], ...]
    """Groups of streams that the policy declares disjoint: a unit is in at most one of each group."""
    epsilon: float
    delta: float
    accountant: str
    budget_epsilon: float
    """The sum of the budgets: the total once all are spent."""
    budget_delta: float
    cap: Budget | None
    """The policy's unit_cap, if it has one for this kind of unit."""

    @property
    def left(self) -> float | None:
        """What is left of the cap's ε; None without a cap."""
        return None if self.cap is None else max(0.0, self.cap.epsilon - self.epsilon)


def of_units(connection: Connection, policy: Policy, prices: Prices) -> tuple[UnitTotal, ...]:
    """A total for each kind of unit that private streams of the ledger protect."""
    private = [row for row in all_streams(connection) if not row.public]
    kinds = [unit for unit in Unit if any(row.unit == unit for row in private)]
    return tuple(_total(connection, [row for row in private if row.unit == unit], policy, prices) for unit in kinds)


def _total(connection: Connection, rows: Sequence[Row[Any]], policy: Policy, prices: Prices) -> UnitTotal:
    losses = {
        row.name: StreamLoss(
            stream=row.name,
            adjacency=Adjacency(row.adjacency),
            epsilon=statement.epsilon(connection, row, prices)[0],
            delta=row.delta if _charged(connection, row) else 0.0,
            budget=row.epsilon,
            budget_delta=row.delta,
        )
        for row in rows
    }
    slots = policy.slots(row.name for row in rows)
    kinds = {loss.adjacency for loss in losses.values()}
    adjacency = next(iter(kinds)) if len(kinds) == 1 else Adjacency.REPLACE_ONE
    spent = [[_under(adjacency, losses[name]) for name in slot] for slot in slots]
    epsilon, delta = composed(spent)
    accountant = SUM if len(slots) > 1 else "the one stream's own"
    tighter = len(slots) > 1 and len(kinds) == 1 and adjacency != Adjacency.REPLACE_ONE and math.isfinite(epsilon)
    if tighter and all(row.fixed_schedule for row in rows):
        by_name = {row.name: row for row in rows}
        grouped = [[by_name[name] for name in slot] for slot in slots]
        for value, method in _by_events(connection, grouped, delta, prices):
            epsilon, accountant = (value, method) if value < epsilon else (epsilon, accountant)
    limits = [[(losses[name].budget, losses[name].budget_delta) for name in slot] for slot in slots]
    cap = policy.cap if policy.cap is not None and policy.cap.unit == rows[0].unit else None
    return UnitTotal(
        unit=Unit(rows[0].unit),
        adjacency=adjacency,
        streams=tuple(losses.values()),
        disjoint=tuple(tuple(slot) for slot in slots if len(slot) > 1),
        epsilon=epsilon,
        delta=delta,
        accountant=accountant,
        budget_epsilon=composed(limits)[0],
        budget_delta=composed(limits)[1],
        cap=cap,
    )


def _charged(connection: Connection, row: Row[Any]) -> bool:
    touched = leaf_bounds.root_groups(connection, row.id, {}, touched=True)
    return bool(touched) or leaf_bounds.exposed(connection, row.id)


def composed(slots: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float]:
    """Basic composition: the sum of the largest (ε, δ) of each group of disjoint streams."""
    largest = [(max(e for e, _ in slot), max(d for _, d in slot)) for slot in slots]
    return math.fsum(e for e, _ in largest), min(1.0, math.fsum(d for _, d in largest))


def _under(adjacency: Adjacency, loss: StreamLoss) -> tuple[float, float]:
    """(ε, δ) under replace-one, as a removal composed with an addition, if the stream has another adjacency."""
    if loss.adjacency == adjacency or loss.epsilon == 0:
        return loss.epsilon, loss.delta
    if loss.epsilon > 500:  # e^ε overflows
        return 2 * loss.epsilon, 1.0
    return 2 * loss.epsilon, min(1.0, (1 + math.exp(loss.epsilon)) * loss.delta)


def _by_events(
    connection: Connection, slots: Sequence[Sequence[Row[Any]]], delta: float, prices: Prices
) -> list[tuple[float, str]]:
    """The ε of all streams' events on one unit at the sum of their δ, with each method that can price them."""
    adjacency = Adjacency(slots[0][0].adjacency)
    curve, extra = _curves(connection, slots, adjacency, prices)
    bounds = [(rdp_to_epsilon(tuple(curve), delta - extra), CURVES)] if extra < delta else []
    lists = [_list(connection, slot) for slot in slots]
    if all(texts is not None for texts in lists) and sum(len(texts or ()) for texts in lists) <= MOST_EVENTS:
        events = tuple(sorted(text for texts in lists for text in texts or ()))
        price = prices.nano(connection, events, Budget(epsilon=1.0, delta=delta, adjacency=adjacency), 1)
        bounds.append((math.inf if price >= INFINITE_PRICE else price / 1e9, EVENTS))
    return bounds


def _curves(
    connection: Connection, slots: Sequence[Sequence[Row[Any]]], adjacency: Adjacency, prices: Prices
) -> tuple[Array, float]:
    whole: Any = 0.0
    extras = 0.0
    for slot in slots:
        tops = [leaf_bounds.largest_of_stream(connection, row, adjacency, prices, touched=True) for row in slot]
        whole = whole + np.max([curve for curve, _ in tops], axis=0)
        extras += max(extra for _, extra in tops)
    return np.asarray(whole), extras


def _list(connection: Connection, slot: Sequence[Row[Any]]) -> tuple[str, ...] | None:
    """The one list of events that covers every unit of these streams, if there is one."""
    if len(slot) > 1:
        return None
    (row,) = slot
    groups = leaf_bounds.root_groups(connection, row.id, {}, touched=True)
    return worst_case.covering_list(connection, groups, row.tasks_per_unit)
