"""What one unit of a stream meets: the faces of its roots, and their composition over k tasks.

Guarantee: a unit is in at most k = tasks_per_unit roots and, inside a root, in one leaf. So its cost at every Rényi
order is at most the sum of the k largest root curves, where a root's curve is the largest of its leaves' curves and
an open leaf counts with its whole filter, spent or not.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, select

from tacit.privacy.accounting import ORDERS
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.ledger import eventlists, tally
from tacit.privacy.ledger.eventlists import Texts
from tacit.privacy.ledger.prices import Prices, extra_delta
from tacit.privacy.ledger.tables import blocks, curves, exposures, profiles, streams

NANO = 1e-9
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Face:
    """What a unit of one leaf meets: a whole event list, or a whole filter."""

    name: str | None = None
    events: Texts | None = field(default=None, compare=False)
    limits: tuple[tuple[int, int], ...] | None = None
    """(place in the grid of orders, nano-RDP)."""


def budget_of(stream: Row[Any]) -> Budget:
    """The budget that a row of `streams` holds."""
    return Budget(epsilon=stream.epsilon, delta=stream.delta, unit=stream.unit, adjacency=stream.adjacency)


def all_streams(connection: Connection) -> list[Row[Any]]:
    return list(connection.execute(select(streams).order_by(streams.c.id)))


def exposed(connection: Connection, stream_id: int) -> bool:
    """Whether records of the stream left the vault unprotected."""
    query = select(exposures.c.block_id).where(exposures.c.stream_id == stream_id).limit(1)
    return connection.execute(query).first() is not None


class Shown:
    """The faces that a stream's tally names. With `touched`, open blocks that nothing was spent on show none."""

    def __init__(self, connection: Connection, stream_id: int, *, touched: bool) -> None:
        self._connection, self._stream = connection, stream_id
        self._counted = {tally.COMMITTED, tally.SPENT} | (set() if touched else {tally.UNSPENT})
        self._known: dict[str, Face] = {}

    def __call__(self, faces: Iterable[str]) -> frozenset[Face]:
        """What the counted ones of these are."""
        return frozenset(self._face(one) for one in faces if one.split(" ")[0] in self._counted)

    def _face(self, one: str) -> Face:
        if one not in self._known:
            kind, name = one.split(" ")
            listed = kind == tally.COMMITTED
            self._known[one] = Face(name=name) if listed else Face(limits=self._limits(name))
        return self._known[one]

    def _limits(self, name: str) -> tuple[tuple[int, int], ...]:
        same = (blocks.c.stream_id == self._stream) & blocks.c.effective_hash.is_(None) & (blocks.c.filter_hash == name)
        return limits(self._connection, self._connection.execute(select(blocks.c.id).where(same).limit(1)).scalar_one())


def counted(connection: Connection, stream_id: int) -> list[Row[Any]]:
    """Every set of faces that tasks of the stream show, and how many do; an error where the counts lack a task."""
    tally.require_counted(connection)
    return list(connection.execute(select(profiles).where(profiles.c.stream_id == stream_id).order_by(profiles.c.name)))


def roots(
    connection: Connection, stream_id: int, extra: Mapping[int, tuple[int, Face]], *, touched: bool = False
) -> Counter[frozenset[Face]]:
    """How many roots of the stream show each set of faces.

    `extra` maps a block to (its root, the face it would get). With `touched`, open blocks that nothing was spent on
    do not count.
    """
    shown = Shown(connection, stream_id, touched=touched)
    found: Counter[frozenset[Face]] = Counter()
    for row in counted(connection, stream_id):
        found[shown(json.loads(row.faces))] += row.roots
    changed: dict[int, dict[int, Face]] = defaultdict(dict)
    for block, (root, face) in extra.items():
        changed[root][block] = face
    now = tally.leaves(connection, changed)
    for root, faces in changed.items():
        leaves = now.get(root, {})
        if leaves:  # a block that is about to be made is not counted yet
            found[shown(set().union(*leaves.values()))] -= 1
        kept = set().union(*(one for block, one in leaves.items() if block not in faces))
        found[shown(kept) | frozenset(faces.values())] += 1
    return Counter({faces: count for faces, count in found.items() if faces and count})


def distinct_faces(connection: Connection, stream_id: int) -> frozenset[Face]:
    """The faces of a stream whose units are in one task."""
    shown = Shown(connection, stream_id, touched=True)
    return frozenset().union(*(shown(json.loads(row.faces)) for row in counted(connection, stream_id)))


def limits(connection: Connection, block: int) -> tuple[tuple[int, int], ...]:
    """The filter of an open block."""
    query = select(curves.c.place, curves.c.limit).where(curves.c.block_id == block).order_by(curves.c.place)
    return tuple((place, limit) for place, limit in connection.execute(query))


def face_curve(connection: Connection, face: Face, adjacency: Adjacency, prices: Prices) -> Array:
    """The Rényi curve that a unit of this leaf meets at most."""
    if face.limits is not None:
        curve = np.full(len(ORDERS), np.inf)
        for place, limit in face.limits:
            curve[place] = limit * NANO
        # Rényi divergences grow with the order: a limit also bounds every order below it
        return np.minimum.accumulate(curve[::-1])[::-1]
    return np.array(prices.curve(connection, face.events or face.name or (), adjacency))


def top(
    connection: Connection,
    faces: Counter[frozenset[Face]],
    k: int,
    adjacency: Adjacency,
    prices: Prices,
    *,
    ahead: bool = False,
) -> tuple[Array, float]:
    """The curve and the additive δ of a unit of the k most costly roots, order by order. With `ahead`, roots that are
    still to come, up to k, count as the costliest that are there."""
    rows: list[Array] = []
    extras: list[float] = []
    for group, count in faces.items():
        curve = np.max([face_curve(connection, face, adjacency, prices) for face in group], axis=0)
        extra = max(_extra(connection, face) for face in group)
        rows += [curve] * min(count, k)
        extras += [extra] * min(count, k)
    if not rows:
        return np.zeros(len(ORDERS)), 0.0
    if ahead and len(rows) < k:
        extras += [max(extras)] * (k - len(rows))
        rows += [np.max(rows, axis=0)] * (k - len(rows))
    largest = -np.sort(-np.array(rows), axis=0)[:k]
    return largest.sum(axis=0), float(sum(sorted(extras)[-k:]))


def _extra(connection: Connection, face: Face) -> float:
    if face.limits is not None:
        return 0.0
    return extra_delta(face.events or eventlists.get(connection, face.name))
