"""Bounds on the loss of one unit: per leaf block, and summed over the tasks that a unit may be in.

A *root* is the block of a whole task, a *leaf* a block that was not split further. A unit is in at most
k = `tasks_per_unit` roots and, within a root, in one leaf.

Formal guarantees:

* `largest_roots` bounds the Rényi curve and the additive δ of every unit: at each order it sums the k largest root
  curves, where a root's curve is the largest of its leaves' curves.
* An open leaf counts with its whole filter, whether or not anything was spent.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, select

from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.epsilon import ORDERS
from tacit.privacy.ledger.limits.prices import Prices, extra_delta
from tacit.privacy.ledger.log import counters, event_lists
from tacit.privacy.ledger.log.event_lists import Texts
from tacit.privacy.ledger.storage.tables import blocks, curves, exposures, profiles

NANO = 1e-9
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LeafBound:
    """What a unit of one leaf may lose: a whole event list, or a whole Rényi filter.

    Attributes:
        name: The hash of the event list, for a committed leaf.
        events: The events of the list, if they are known.
        limits: The filter of an open leaf: (index in the grid of orders, nano-RDP).
    """

    name: str | None = None
    events: Texts | None = field(default=None, compare=False)
    limits: tuple[tuple[int, int], ...] | None = None

    def texts(self, connection: Connection) -> Texts:
        """The events of a committed leaf."""
        return self.events if self.events is not None else event_lists.get(connection, self.name)

    def limit_curve(self) -> Array:
        """The filter of an open leaf on the whole grid of orders."""
        curve = np.full(len(ORDERS), np.inf)
        for index, limit in self.limits or ():
            curve[index] = limit * NANO
        # Rényi divergences increase with the order, so a limit also bounds every lower order.
        return np.minimum.accumulate(curve[::-1])[::-1]

    def curve(self, connection: Connection, adjacency: Adjacency, prices: Prices) -> Array:
        """An upper bound on the Rényi curve of a unit of this leaf."""
        if self.limits is not None:
            return self.limit_curve()
        return np.array(prices.curve(connection, self.events or self.name or (), adjacency))

    def extra_delta(self, connection: Connection) -> float:
        """The additive δ of the leaf's events; a filter admits none."""
        return 0.0 if self.limits is not None else extra_delta(self.texts(connection))


Group = frozenset[LeafBound]
"""The bounds of all leaves of one root."""


def exposed(connection: Connection, stream_id: int) -> bool:
    """Whether unprotected records of the stream were released."""
    query = select(exposures.c.block_id).where(exposures.c.stream_id == stream_id).limit(1)
    return connection.execute(query).first() is not None


class BoundReader:
    """Turns the texts in the column `profiles.faces` into leaf bounds.

    Args:
        connection: The ledger.
        stream_id: The stream that the texts belong to.
        touched: Whether to leave out open blocks on which nothing was spent.
    """

    def __init__(self, connection: Connection, stream_id: int, *, touched: bool) -> None:
        self._connection, self._stream_id = connection, stream_id
        self._counted = {counters.COMMITTED, counters.SPENT} | (set() if touched else {counters.UNSPENT})
        self._known: dict[str, LeafBound] = {}

    def __call__(self, texts: Iterable[str]) -> Group:
        """The bounds of the texts that count."""
        return frozenset(self._bound(text) for text in texts if text.split(" ")[0] in self._counted)

    def _bound(self, text: str) -> LeafBound:
        if text not in self._known:
            kind, name = text.split(" ")
            committed = kind == counters.COMMITTED
            self._known[text] = LeafBound(name=name) if committed else LeafBound(limits=self._limits(name))
        return self._known[text]

    def _limits(self, name: str) -> tuple[tuple[int, int], ...]:
        """The limits of the filter of this name, from any block that has it."""
        same = (blocks.c.stream_id == self._stream_id) & blocks.c.effective_hash.is_(None)
        same &= blocks.c.filter_hash == name
        block = self._connection.execute(select(blocks.c.id).where(same).limit(1)).scalar_one()
        query = select(curves.c.place, curves.c.limit).where(curves.c.block_id == block).order_by(curves.c.place)
        return tuple((index, limit) for index, limit in self._connection.execute(query))


def profile_rows(connection: Connection, stream_id: int) -> list[Row[Any]]:
    """The distinct groups of leaf bounds in the stream, each with the number of its tasks.

    Raises:
        LedgerError: The newest task is missing in the counts.
    """
    counters.require_counted(connection)
    return list(connection.execute(select(profiles).where(profiles.c.stream_id == stream_id).order_by(profiles.c.name)))


def root_groups(
    connection: Connection, stream_id: int, changes: Mapping[int, tuple[int, LeafBound]], *, touched: bool = False
) -> Counter[Group]:
    """The number of roots of the stream with each group of leaf bounds.

    Args:
        connection: The ledger.
        stream_id: The stream.
        changes: For each block that would change: its root and its new bound.
        touched: Whether to leave out open blocks on which nothing was spent.
    """
    read = BoundReader(connection, stream_id, touched=touched)
    found: Counter[Group] = Counter()
    for row in profile_rows(connection, stream_id):
        found[read(json.loads(row.faces))] += row.roots
    changed: dict[int, dict[int, LeafBound]] = defaultdict(dict)
    for block, (root, bound) in changes.items():
        changed[root][block] = bound
    current = counters.leaves(connection, changed)
    for root, bounds in changed.items():
        leaves = current.get(root, {})
        if leaves:  # a block that is about to be created is not counted yet
            found[read(set().union(*leaves.values()))] -= 1
        unchanged = set().union(*(texts for block, texts in leaves.items() if block not in bounds))
        found[read(unchanged) | frozenset(bounds.values())] += 1
    return Counter({group: count for group, count in found.items() if group and count})


def distinct_bounds(connection: Connection, stream_id: int) -> Group:
    """The bounds of all leaves of a stream whose units are in one task."""
    read = BoundReader(connection, stream_id, touched=True)
    return frozenset().union(*(read(json.loads(row.faces)) for row in profile_rows(connection, stream_id)))


def largest_of_stream(
    connection: Connection,
    stream: Row[Any],
    adjacency: Adjacency,
    prices: Prices,
    changes: Mapping[int, tuple[int, LeafBound]] | None = None,
    *,
    touched: bool = False,
    ahead: bool = False,
) -> tuple[Array, float]:
    """`largest_roots` of a stream, for as many of its tasks as a unit may be in."""
    groups = root_groups(connection, stream.id, changes or {}, touched=touched)
    return largest_roots(connection, groups, stream.tasks_per_unit, adjacency, prices, ahead=ahead)


def largest_roots(
    connection: Connection, groups: Counter[Group], k: int, adjacency: Adjacency, prices: Prices, *, ahead: bool = False
) -> tuple[Array, float]:
    """The Rényi curve and the additive δ of a unit in the k costliest roots, taken order by order.

    With `ahead`, roots that are still to come, up to k, are assumed to be as costly as the costliest present one.
    """
    rows: list[Array] = []
    deltas: list[float] = []
    for group, count in groups.items():
        curve = np.max([bound.curve(connection, adjacency, prices) for bound in group], axis=0)
        rows += [curve] * min(count, k)
        deltas += [max(bound.extra_delta(connection) for bound in group)] * min(count, k)
    if not rows:
        return np.zeros(len(ORDERS)), 0.0
    if ahead and len(rows) < k:
        deltas += [max(deltas)] * (k - len(rows))
        rows += [np.max(rows, axis=0)] * (k - len(rows))
    largest = -np.sort(-np.array(rows), axis=0)[:k]
    return largest.sum(axis=0), float(sum(sorted(deltas)[-k:]))
