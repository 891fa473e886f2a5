"""Prices and Rényi curves of event lists, computed once and stored.

Formal guarantees: a price is that of `calibrate.price` and a curve that of `epsilon.rdp_curve`, stored under the hash
of the list and recomputed by `verify`. What cannot be priced has an infinite price.
"""

import json
import math
from collections.abc import Iterable
from typing import TypeVar

from sqlalchemy import Connection, insert, select

from tacit.privacy.accounting import replace_one
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.calibrate import nano, price
from tacit.privacy.accounting.epsilon import rdp_curve
from tacit.privacy.accounting.events import additive_delta
from tacit.privacy.ledger.log import event_lists
from tacit.privacy.ledger.log.event_lists import Texts
from tacit.privacy.ledger.storage.tables import prices, rates

Curve = tuple[float, ...]
K = TypeVar("K")
V = TypeVar("V")
_PriceKey = tuple[str, str, float, int]


class Prices:
    """The prices of one open ledger: from memory, else from the database, else computed."""

    most = 4096
    """How many prices, and how many curves, are kept in memory; the database keeps all."""

    def __init__(self) -> None:
        self._nanos: dict[_PriceKey, int] = {}
        self._curves: dict[tuple[str, str], Curve] = {}
        self._exchanges: dict[tuple[str, str, float], int] = {}

    def nano(self, connection: Connection, events: Texts, budget: Budget, times: int) -> int:
        """The nano-ε, rounded up, of a unit that is charged the whole list `times` times."""
        key = (event_lists.digest(events), str(budget.adjacency), budget.delta, times)
        return self._nano(connection, key, events, budget)

    def nano_of(self, connection: Connection, name: str, budget: Budget, times: int) -> int:
        """The same for a stored list, by its hash."""
        return self._nano(connection, (name, str(budget.adjacency), budget.delta, times), None, budget)

    def exchanged(self, first: Texts, second: Texts, budget: Budget) -> int:
        """The nano-ε, rounded up, of replacing a unit with one list by a unit with the other."""
        lower, upper = sorted((event_lists.digest(first), event_lists.digest(second)))
        key = (lower, upper, budget.delta)
        if key not in self._exchanges:
            wholes = (event_lists.composed(first), event_lists.composed(second))
            _remember(self._exchanges, key, nano(replace_one.epsilon(*wholes, budget.delta)), self.most)
        return self._exchanges[key]

    def curve(self, connection: Connection, events: Texts | str, adjacency: Adjacency) -> Curve:
        """The Rényi curve of the whole list, given by its events or its hash."""
        name = events if isinstance(events, str) else event_lists.digest(events)
        key = (name, str(adjacency))
        if key not in self._curves:
            here = select(rates.c.curve).where(rates.c.list_hash == name, rates.c.adjacency == key[1])
            row = connection.execute(here).scalar_one_or_none()
            texts = event_lists.get(connection, events) if isinstance(events, str) else events
            _remember(self._curves, key, _load(row) if row else computed_curve(texts, adjacency), self.most)
        return self._curves[key]

    def keep(self, connection: Connection, names: Iterable[str]) -> None:
        """Store what was computed for these lists. Call inside the write transaction."""
        wanted = set(names)
        for (name, adjacency, delta, times), cost in self._nanos.items():
            if name in wanted and _price_row(connection, (name, adjacency, delta, times)) is None:
                row = {"list_hash": name, "adjacency": adjacency, "delta": delta, "times": times, "nano": cost}
                connection.execute(insert(prices), row)
        for (name, adjacency), curve in self._curves.items():
            if name in wanted:
                here = (rates.c.list_hash == name) & (rates.c.adjacency == adjacency)
                if connection.execute(select(rates.c.list_hash).where(here)).first() is None:
                    row = {"list_hash": name, "adjacency": adjacency, "curve": dump(curve)}
                    connection.execute(insert(rates), row)

    def _nano(self, connection: Connection, key: _PriceKey, events: Texts | None, budget: Budget) -> int:
        if key not in self._nanos:
            known = _price_row(connection, key)
            if known is None:
                known = computed_price(events or event_lists.get(connection, key[0]), budget, key[3])
            _remember(self._nanos, key, known, self.most)
        return self._nanos[key]


def _remember(memo: dict[K, V], key: K, value: V, most: int) -> None:
    while len(memo) >= most:
        del memo[next(iter(memo))]  # the oldest, since dicts keep insertion order
    memo[key] = value


def computed_price(events: Texts, budget: Budget, times: int) -> int:
    """The price of a list in nano-ε, computed from its events."""
    return int(price(event_lists.composed(events), budget, times=times))


def computed_curve(events: Texts, adjacency: Adjacency) -> Curve:
    """The Rényi curve of a list, computed from its events."""
    return tuple(float(value) for value in rdp_curve(event_lists.composed(events), adjacency))


def extra_delta(events: Texts) -> float:
    """The additive δ of the whole list."""
    return float(additive_delta(event_lists.composed(events)))


def dump(curve: Curve) -> str:
    return json.dumps([value if math.isfinite(value) else None for value in curve])


def _load(text: str) -> Curve:
    return tuple(math.inf if value is None else value for value in json.loads(text))


def _price_row(connection: Connection, key: _PriceKey) -> int | None:
    name, adjacency, delta, times = key
    here = (prices.c.list_hash == name) & (prices.c.adjacency == adjacency)
    here &= (prices.c.delta == delta) & (prices.c.times == times)
    return connection.execute(select(prices.c.nano).where(here)).scalar_one_or_none()
