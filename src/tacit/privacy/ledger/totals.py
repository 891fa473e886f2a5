"""What one unit may have lost over all streams of a ledger together.

Guarantee: a worst case from declarations alone. A unit is taken to be in every private stream that protects its kind,
and in as many tasks of each as was declared; who really is in which stream is never looked at. Only streams that the
policy declares disjoint are not added up. The losses are composed one after the other: the sum of the streams' own ε
and δ; or, where all plans were fixed in advance, the smaller of that and the composition of their events at the sum of
their δ. Streams of different neighbouring relations are stated under replace-one, which each of them implies.
Condition: the streams and their plans were fixed in advance. What was spent is no bound on what is chosen from it; the
policy's unit_cap is, and is shown beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row

from tacit.privacy.accounting import rdp_to_epsilon
from tacit.privacy.budget import Adjacency, Budget, Unit
from tacit.privacy.calibrate import INFINITE_PRICE
from tacit.privacy.ledger import profile, reading, recurring
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.profile import Array
from tacit.privacy.policy import Policy

SUM = "sum of the streams' ε"
CURVES = "RDP, sum of the streams' curves"
EVENTS = "min(PLD, RDP) of the events of all streams"
MOST_EVENTS = 64
"""So many events are composed exactly; more, by their Rényi curves."""


@dataclass(frozen=True, kw_only=True)
class StreamLoss:
    """What one unit may have lost in one stream, over as many of its tasks as was declared."""

    stream: str
    adjacency: Adjacency
    epsilon: float
    delta: float
    """0 where nothing was charged yet."""
    budget: float
    """The ε that the stream may lose in all."""
    budget_delta: float


@dataclass(frozen=True, kw_only=True)
class UnitTotal:
    """What one unit of a kind may have lost over all streams that may hold it."""

    unit: Unit
    adjacency: Adjacency
    streams: tuple[StreamLoss, ...]
    disjoint: tuple[tuple[str, ...], ...]
    """Streams of which a unit is in one only, as the policy declares."""
    epsilon: float
    delta: float
    accountant: str
    budget_epsilon: float
    """The sum of the budgets: what it may come to when all are spent."""
    budget_delta: float
    cap: Budget | None
    """The most that the policy lets it lose."""

    @property
    def left(self) -> float | None:
        """Of the cap; None where there is none."""
        return None if self.cap is None else max(0.0, self.cap.epsilon - self.epsilon)


def of_units(connection: Connection, policy: Policy, prices: Prices) -> tuple[UnitTotal, ...]:
    """A total for each kind of unit that the ledger has private streams of."""
    private = [row for row in profile.all_streams(connection) if not row.public]
    kinds = [unit for unit in Unit if any(row.unit == unit for row in private)]
    return tuple(_total(connection, [row for row in private if row.unit == unit], policy, prices) for unit in kinds)


def _total(connection: Connection, rows: Sequence[Row[Any]], policy: Policy, prices: Prices) -> UnitTotal:
    losses = {
        row.name: StreamLoss(
            stream=row.name,
            adjacency=Adjacency(row.adjacency),
            epsilon=reading.epsilon(connection, row, prices)[0],
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
        of = {row.name: row for row in rows}
        for value, by in _by_events(connection, [[of[name] for name in slot] for slot in slots], delta, prices):
            epsilon, accountant = (value, by) if value < epsilon else (epsilon, accountant)
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
    touched = profile.roots(connection, row.id, {}, touched=True)
    return bool(touched) or profile.exposed(connection, row.id)


def composed(slots: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float]:
    """Basic composition: the largest (ε, δ) of each slot, added up."""
    largest = [(max(e for e, _ in slot), max(d for _, d in slot)) for slot in slots]
    return math.fsum(e for e, _ in largest), min(1.0, math.fsum(d for _, d in largest))


def _under(adjacency: Adjacency, loss: StreamLoss) -> tuple[float, float]:
    """(ε, δ) under another neighbouring relation: exchanging a unit is taking it out and putting another in."""
    if loss.adjacency == adjacency or loss.epsilon == 0:
        return loss.epsilon, loss.delta
    if loss.epsilon > 500:  # its exponential is beyond all numbers, and any δ is 1
        return 2 * loss.epsilon, 1.0
    return 2 * loss.epsilon, min(1.0, (1 + math.exp(loss.epsilon)) * loss.delta)


def _by_events(
    connection: Connection, slots: Sequence[Sequence[Row[Any]]], delta: float, prices: Prices
) -> list[tuple[float, str]]:
    """ε of the events of all streams on one unit at the sum of their δ, by every way that can price them."""
    adjacency = Adjacency(slots[0][0].adjacency)
    curve, extra = _curves(connection, slots, adjacency, prices)
    found = [(rdp_to_epsilon(tuple(curve), delta - extra), CURVES)] if extra < delta else []
    lists = [_list(connection, slot) for slot in slots]
    if all(one is not None for one in lists) and sum(len(one or ()) for one in lists) <= MOST_EVENTS:
        events = tuple(sorted(text for one in lists for text in one or ()))
        asked = Budget(epsilon=1.0, delta=delta, adjacency=adjacency)
        nano = prices.nano(connection, events, asked, 1)
        found.append((math.inf if nano >= INFINITE_PRICE else nano / 1e9, EVENTS))
    return found


def _curves(
    connection: Connection, slots: Sequence[Sequence[Row[Any]]], adjacency: Adjacency, prices: Prices
) -> tuple[Array, float]:
    whole: Any = 0.0
    extras = 0.0
    for slot in slots:
        tops = [
            profile.top(
                connection,
                profile.roots(connection, row.id, {}, touched=True),
                row.tasks_per_unit,
                adjacency,
                prices,
            )
            for row in slot
        ]
        whole = whole + np.max([curve for curve, _ in tops], axis=0)
        extras += max(extra for _, extra in tops)
    return np.asarray(whole), extras


def _list(connection: Connection, slot: Sequence[Row[Any]]) -> tuple[str, ...] | None:
    """The one list of events that no unit of these streams exceeds, if there is one."""
    if len(slot) > 1:
        return None
    (row,) = slot
    return recurring.largest(connection, profile.roots(connection, row.id, {}, touched=True), row.tasks_per_unit)
