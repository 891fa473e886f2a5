"""What one unit of a stream meets: the faces of its roots, and their composition over k tasks.

Guarantee: a unit is in at most k = tasks_per_unit roots and, inside a root, in one leaf. So its cost at every Rényi
order is at most the sum of the k largest root curves, where a root's curve is the largest of its leaves' curves and
an open leaf counts with its whole filter, spent or not.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, exists, select

from tacit.privacy.accounting import ORDERS
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.ledger import eventlists
from tacit.privacy.ledger.eventlists import Texts
from tacit.privacy.ledger.prices import Prices, extra_delta
from tacit.privacy.ledger.tables import blocks, curves, streams

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
    query = select(blocks.c.id).where(blocks.c.stream_id == stream_id, blocks.c.exposed).limit(1)
    return connection.execute(query).first() is not None


def roots(
    connection: Connection, stream_id: int, extra: Mapping[int, tuple[int, Face]], *, touched: bool = False
) -> Counter[frozenset[Face]]:
    """How many roots of the stream show each set of faces.

    `extra` maps a block to (its root, the face it would get). With `touched`, open blocks that nothing was spent on
    do not count.
    """
    spent = exists().where(curves.c.block_id == blocks.c.id, curves.c.spent > 0)
    query = select(blocks.c.id, blocks.c.root_id, blocks.c.effective_hash, blocks.c.filter_hash, blocks.c.state)
    query = query.where(blocks.c.stream_id == stream_id, blocks.c.state != "split")
    query = query.where(blocks.c.effective_hash.is_not(None) | blocks.c.filter_hash.is_not(None))
    unused = blocks.c.filter_hash.is_not(None) & ~spent
    query = query.where(~unused) if touched else query.where(~(unused & (blocks.c.state == "retired")))
    shown: dict[int, set[Face]] = defaultdict(set)
    known: dict[tuple[str | None, str | None], Face] = {}
    for block, root, effective, filtered, _ in connection.execute(query):
        if block in extra:
            continue
        key = (effective, filtered)
        if key not in known:
            known[key] = Face(name=effective) if effective else Face(limits=limits(connection, block))
        shown[root].add(known[key])
    for root, face in extra.values():
        shown[root].add(face)
    return Counter(frozenset(faces) for faces in shown.values())


def distinct_faces(connection: Connection, stream_id: int) -> set[Face]:
    """The faces of a stream whose units are in one task: fast, by index."""
    query = select(blocks.c.effective_hash).where(blocks.c.stream_id == stream_id, blocks.c.state != "split")
    names = connection.execute(query.where(blocks.c.effective_hash.is_not(None)).distinct()).scalars()
    faces = {Face(name=name) for name in names}
    spent = exists().where(curves.c.block_id == blocks.c.id, curves.c.spent > 0)
    here = (blocks.c.stream_id == stream_id) & blocks.c.filter_hash.is_not(None)
    for filtered in connection.execute(select(blocks.c.filter_hash).where(here).distinct()).scalars():
        one = select(blocks.c.id).where(here, blocks.c.filter_hash == filtered, spent).limit(1)
        if (block := connection.execute(one).scalar_one_or_none()) is not None:
            faces.add(Face(limits=limits(connection, block)))
    return faces


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
    connection: Connection, faces: Counter[frozenset[Face]], k: int, adjacency: Adjacency, prices: Prices
) -> tuple[Array, float]:
    """The curve and the additive δ of a unit of the k most costly roots, order by order."""
    rows: list[Array] = []
    extras: list[float] = []
    for group, count in faces.items():
        curve = np.max([face_curve(connection, face, adjacency, prices) for face in group], axis=0)
        extra = max(_extra(connection, face) for face in group)
        rows += [curve] * min(count, k)
        extras += [extra] * min(count, k)
    if not rows:
        return np.zeros(len(ORDERS)), 0.0
    largest = -np.sort(-np.array(rows), axis=0)[:k]
    return largest.sum(axis=0), float(sum(sorted(extras)[-k:]))


def _extra(connection: Connection, face: Face) -> float:
    if face.limits is not None:
        return 0.0
    return extra_delta(face.events or eventlists.get(connection, face.name))
