"""What lists of events cost, worked out once.

Guarantee: a price is the one of `calibrate.price` and a curve the one of `accounting.rdp_curve`; both are kept under
the hash of the list, and `verify` works them out again. A price is never guessed: what cannot be priced is infinite.
"""

import json
import math
from collections.abc import Iterable
from typing import TypeVar

from sqlalchemy import Connection, insert, select

from tacit.privacy import exchange
from tacit.privacy.accounting import rdp_curve
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.calibrate import nano, price
from tacit.privacy.events import additive_delta
from tacit.privacy.ledger import eventlists
from tacit.privacy.ledger.eventlists import Texts
from tacit.privacy.ledger.tables import prices, rates

Curve = tuple[float, ...]
K = TypeVar("K")
V = TypeVar("V")
_PriceKey = tuple[str, str, float, int]


class Prices:
    """The memo of one open ledger: in memory first, then in the database, then worked out."""

    most = 4096
    """So many of each are remembered in memory, the newest; the database keeps those of all lists."""

    def __init__(self) -> None:
        self._nanos: dict[_PriceKey, int] = {}
        self._curves: dict[tuple[str, str], Curve] = {}
        self._exchanges: dict[tuple[str, str, float], int] = {}

    def nano(self, connection: Connection, events: Texts, budget: Budget, times: int) -> int:
        """The nano-ε, rounded up, of a unit that meets the whole list `times` times."""
        key = (eventlists.digest(events), str(budget.adjacency), budget.delta, times)
        return self._nano(connection, key, events, budget)

    def nano_of(self, connection: Connection, name: str, budget: Budget, times: int) -> int:
        """The same for a stored list."""
        return self._nano(connection, (name, str(budget.adjacency), budget.delta, times), None, budget)

    def exchanged(self, first: Texts, second: Texts, budget: Budget) -> int:
        """The nano-ε, rounded up, of a unit that meets one list exchanged for a unit that meets the other."""
        one, other = sorted((eventlists.digest(first), eventlists.digest(second)))
        key = (one, other, budget.delta)
        if key not in self._exchanges:
            wholes = (eventlists.composed(first), eventlists.composed(second))
            _remember(self._exchanges, key, nano(exchange.epsilon(*wholes, budget.delta)), self.most)
        return self._exchanges[key]

    def curve(self, connection: Connection, events: Texts | str, adjacency: Adjacency) -> Curve:
        """The Rényi curve of the whole list (its texts or its name) on the grid of orders."""
        name = events if isinstance(events, str) else eventlists.digest(events)
        key = (name, str(adjacency))
        if key not in self._curves:
            row = connection.execute(
                select(rates.c.curve).where(rates.c.list_hash == name, rates.c.adjacency == key[1])
            ).scalar_one_or_none()
            found = _load(row) if row else worked_out_curve(_texts(connection, events), adjacency)
            _remember(self._curves, key, found, self.most)
        return self._curves[key]

    def keep(self, connection: Connection, names: Iterable[str]) -> None:
        """Write what was worked out for these stored lists; call inside the write transaction."""
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
                known = worked_out(events or eventlists.get(connection, key[0]), budget, key[3])
            _remember(self._nanos, key, known, self.most)
        return self._nanos[key]


def _remember(memo: dict[K, V], key: K, value: V, most: int) -> None:
    while len(memo) >= most:
        del memo[next(iter(memo))]  # the oldest: dicts keep their order
    memo[key] = value


def worked_out(events: Texts, budget: Budget, times: int) -> int:
    """The price of a list, from its events."""
    return int(price(eventlists.composed(events), budget, times=times))


def worked_out_curve(events: Texts, adjacency: Adjacency) -> Curve:
    """The Rényi curve of a list, from its events."""
    return tuple(float(value) for value in rdp_curve(eventlists.composed(events), adjacency))


def extra_delta(events: Texts) -> float:
    """The additive δ of the whole list."""
    return float(additive_delta(eventlists.composed(events)))


def dump(curve: Curve) -> str:
    return json.dumps([value if math.isfinite(value) else None for value in curve])


def _load(text: str) -> Curve:
    return tuple(math.inf if value is None else value for value in json.loads(text))


def _texts(connection: Connection, events: Texts | str) -> Texts:
    return eventlists.get(connection, events) if isinstance(events, str) else events


def _price_row(connection: Connection, key: _PriceKey) -> int | None:
    name, adjacency, delta, times = key
    here = (prices.c.list_hash == name) & (prices.c.adjacency == adjacency)
    here &= (prices.c.delta == delta) & (prices.c.times == times)
    return connection.execute(select(prices.c.nano).where(here)).scalar_one_or_none()
