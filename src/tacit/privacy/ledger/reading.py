"""What a stream has promised so far. Reading changes nothing.

Guarantee: the ε of a committed block is that of its whole list, however much of it was used; the ε of an open block
is that of its whole filter once anything was spent on it. Reservations count like charges.
"""

import json
import math
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, select

from tacit.errors import LedgerError
from tacit.privacy.accounting import ORDERS, rdp_to_epsilon
from tacit.privacy.budget import Budget
from tacit.privacy.calibrate import INFINITE_PRICE
from tacit.privacy.filters import UNITS, RenyiFilter
from tacit.privacy.ledger import chain, eventlists, pairs, profile, recurring
from tacit.privacy.ledger.making import row_of, stream_row, terms_of
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.profile import NANO, Face, budget_of
from tacit.privacy.ledger.spending import reservation
from tacit.privacy.ledger.tables import blocks, charges, curves, fingerprints, grants, log, positions
from tacit.privacy.ledger.tables import exposures as exposed
from tacit.privacy.ledger.terms import BlockStatement, GrantStatement, Raise, Statement
from tacit.privacy.policy import Policy

EXACT = "min(PLD, RDP) of whole event lists"
TOP_K = "RDP, sum of the largest tasks"
FILTER = "RDP filter"
NONE = "none: records left the vault unprotected"


def epsilon(connection: Connection, stream: Row[Any], prices: Prices) -> tuple[float, str]:
    """What one unit may have lost, and by which accountant."""
    budget, k = budget_of(stream), stream.tasks_per_unit
    if profile.exposed(connection, stream.id):
        return math.inf, NONE
    if k == 1:
        faces = profile.distinct_faces(connection, stream.id)
        worst = max((face_epsilon(connection, face, budget, prices) for face in faces), default=0.0)
        worst = max(worst, _real(pairs.worst(connection, faces, budget, prices)))
        return worst, FILTER if any(face.limits for face in faces) else EXACT
    groups = profile.roots(connection, stream.id, {}, touched=True)
    if not groups:
        return 0.0, EXACT
    if not stream.fixed_schedule:
        return RenyiFilter.for_budget(budget).epsilon(budget.delta), FILTER
    exact = recurring.worst(connection, groups, k, budget, prices, ahead=False)
    curve, extra = profile.top(connection, groups, k, budget.adjacency, prices)
    by_curves = rdp_to_epsilon(tuple(curve), budget.delta - extra)
    return (by_curves, TOP_K) if exact is None or by_curves < _real(exact) else (_real(exact), EXACT)


def left(connection: Connection, block: Row[Any], holder: str | None) -> RenyiFilter:
    """What an open block may still be charged, order by order. The unfinished grants of `holder` count as not charged:
    the same work finds them again by their pins."""
    if block.mode != "open":
        raise LedgerError(
            f"task {block.task!r} is a committed block, whose reads are all in its first charge, so none can be chosen "
            "from what came out before; admit its records as open, behind a filter"
        )
    rows = connection.execute(select(curves).where(curves.c.block_id == block.id).order_by(curves.c.place)).all()
    rest = [one.limit - one.spent for one in rows]
    mine = select(grants.c.id).join_from(grants, charges).where(charges.c.block_id == block.id).distinct()
    mine = mine.where(grants.c.holder == holder, grants.c.state.in_(("RESERVED", "CHARGED")))
    for grant in connection.execute(mine).scalars().all():
        for costs in (costs for place, costs in reservation(connection, grant)["costs"] if place == block.id):
            rest = [one + cost for one, cost in zip(rest, costs, strict=True)]
    return RenyiFilter(orders=tuple(one.order for one in rows), limits=tuple(one / UNITS for one in rest))


def exposures(connection: Connection, stream_id: int) -> tuple[tuple[int, str], ...]:
    """Where records of the stream left the vault unprotected, and why."""
    here = exposed.c.stream_id == stream_id
    found = connection.execute(select(exposed.c.block_id, exposed.c.why).where(here).order_by(exposed.c.seq))
    return tuple((row.block_id, row.why) for row in found)


def was_exposed(connection: Connection, block: int, why: str) -> bool:
    """Whether it is written already that this block left for this reason."""
    here = (exposed.c.block_id == block) & (exposed.c.why == why)
    return connection.execute(select(exposed.c.block_id).where(here)).first() is not None


def face_epsilon(connection: Connection, face: Face, budget: Budget, prices: Prices) -> float:
    """The ε of a unit that meets this leaf only."""
    if face.limits is not None:
        orders = [ORDERS[place] for place, _ in face.limits]
        return rdp_to_epsilon([limit * NANO for _, limit in face.limits], budget.delta, orders)
    return _real(prices.nano_of(connection, face.name or "", budget, 1))


def statement(connection: Connection, stream_id: int, ledger_id: str, policy: Policy, prices: Prices) -> Statement:
    """Everything a certificate needs, from one snapshot."""
    stream = stream_row(connection, stream_id)
    value, accountant = epsilon(connection, stream, prices)
    return Statement(
        ledger=ledger_id,
        stream_id=stream_id,
        identity=stream.identity,
        terms=terms_of(stream),
        epsilon=value,
        accountant=accountant,
        blocks=of_blocks(connection, stream, prices, blocks.c.stream_id == stream_id),
        grants=of_grants(connection, blocks.c.stream_id == stream_id),
        raises=raises(connection, stream),
        policy=policy.to_dict(),
        policy_digest=policy.digest,
        exposures=exposures(connection, stream_id),
        reanchored=reanchored(connection),
        head=chain.head(connection),
    )


def of_blocks(
    connection: Connection, stream: Row[Any], prices: Prices, which: ColumnElement[bool]
) -> tuple[BlockStatement, ...]:
    """What these blocks of the stream have promised."""
    budget = budget_of(stream)
    texts: dict[str | None, tuple[str, ...]] = {}
    prints: dict[int, list[str]] = {}
    shown = select(fingerprints).join_from(fingerprints, blocks).where(which)
    for one in sorted(connection.execute(shown), key=lambda one: str(one.fingerprint)):
        prints.setdefault(one.block_id, []).append(one.fingerprint)
    out = []
    query = select(blocks).where(which).order_by(blocks.c.id)
    for row in connection.execute(query).all():
        if row.mode == "committed":
            name = row.effective_hash
            if name not in texts:
                texts[name] = eventlists.get(connection, name)
            lost = face_epsilon(connection, Face(name=name), budget, prices) if name else 0.0
            marks = tuple(prints.get(row.id, ()))
            out.append(BlockStatement(row=row_of(row), fingerprints=marks, events=texts[name], epsilon=lost))
            continue
        curve = connection.execute(select(curves).where(curves.c.block_id == row.id).order_by(curves.c.place)).all()
        face = Face(limits=tuple((one.place, one.limit) for one in curve))
        touched = any(one.spent for one in curve)
        out.append(
            BlockStatement(
                row=row_of(row),
                fingerprints=tuple(prints.get(row.id, ())),
                events=_spent_events(connection, row),
                orders=tuple(one.order for one in curve),
                limits=tuple(one.limit for one in curve),
                spent=tuple(one.spent for one in curve),
                epsilon=face_epsilon(connection, face, budget, prices) if touched else 0.0,
            )
        )
    return tuple(out)


def _spent_events(connection: Connection, row: Row[Any]) -> tuple[str, ...]:
    """Of an open block and its ancestors."""
    ids, parent = [row.id], row.parent_id
    while parent is not None:
        ids.append(parent)
        parent = connection.execute(select(blocks.c.parent_id).where(blocks.c.id == parent)).scalar_one()
    query = select(charges.c.event).join_from(charges, grants).where(charges.c.block_id.in_(ids))
    query = query.where(grants.c.state != "VOID").order_by(grants.c.seq, charges.c.place)
    return tuple(connection.execute(query).scalars())


def of_grants(
    connection: Connection, which: ColumnElement[bool], *, newest: int | None = None
) -> tuple[GrantStatement, ...]:
    """The grants on these blocks, with all that they read; or the newest so many."""
    mine = select(charges.c.grant_id).join_from(charges, blocks).where(which)
    joined = select(grants, positions.c.position).join_from(grants, positions, isouter=True)
    found = connection.execute(joined.where(grants.c.id.in_(mine)).order_by(grants.c.seq.desc()).limit(newest)).all()
    wanted = mine if newest is None else [row.id for row in found]
    reads: dict[str, list[tuple[int, str]]] = {}
    query = select(charges).where(charges.c.grant_id.in_(wanted)).order_by(charges.c.grant_id, charges.c.place)
    for row in connection.execute(query):
        reads.setdefault(row.grant_id, []).append((row.block_id, row.event))
    return tuple(
        GrantStatement(
            id=row.id,
            kind=row.kind,
            plan=json.loads(row.plan),
            pin=row.pin,
            holder=row.holder,
            state=row.state,
            generation=row.generation,
            output_hash=row.output_hash,
            position=row.position,
            reads=tuple(reads[row.id]),
        )
        for row in reversed(found)
    )


def raises(connection: Connection, stream: Row[Any]) -> tuple[Raise, ...]:
    """Every raise of the stream's budget."""
    now = budget_of(stream)

    def budget(epsilon: float, delta: float) -> Budget:
        return Budget(epsilon=epsilon, delta=delta, unit=now.unit, adjacency=now.adjacency)

    return tuple(
        Raise(
            seq=seq,
            by=body["by"],
            why=body["why"],
            signed="signatures" in body,
            before=budget(body["from"]["epsilon"], body["from"]["delta"]),
            after=budget(body["epsilon"], body["delta"]),
        )
        for seq, body in _entries(connection, "raise")
        if body["stream"] == stream.id
    )


def reanchored(connection: Connection) -> tuple[str, ...]:
    """Why someone accepted a roll-back of this ledger."""
    return tuple(body["why"] for _, body in _entries(connection, "reanchor"))


def moved(connection: Connection) -> tuple[str, ...]:
    """Why someone said that the ledger was moved, and that no other copy of it is in use."""
    return tuple(body["why"] for _, body in _entries(connection, "move"))


def in_floats(connection: Connection, stream_id: int) -> bool:
    """Whether something of a stream was charged by a version of tacit whose sums and noise were rounded floats.

    Its entries do not say when they were written, and newer ones do, under the seal of the chain. A ledger whose first
    entry says it has none of them."""
    first = connection.execute(select(log.c.body).where(log.c.seq == 1)).scalar_one_or_none()
    if first is None or "at" in json.loads(first):
        return False
    query = (
        select(log.c.body)
        .join(grants, grants.c.seq == log.c.seq)
        .join(charges, charges.c.grant_id == grants.c.id)
        .join(blocks, blocks.c.id == charges.c.block_id)
        .where(blocks.c.stream_id == stream_id, grants.c.state != "VOID")
        .order_by(log.c.seq)
        .limit(1)
    )
    oldest = connection.execute(query).scalar_one_or_none()
    return oldest is not None and "at" not in json.loads(oldest)


def _entries(connection: Connection, kind: str) -> list[tuple[int, dict[str, Any]]]:
    query = select(log.c.seq, log.c.body).where(log.c.kind == kind).order_by(log.c.seq)
    return [(seq, json.loads(body)) for seq, body in connection.execute(query)]


def _real(nano: int) -> float:
    return math.inf if nano >= INFINITE_PRICE else nano / 1e9
