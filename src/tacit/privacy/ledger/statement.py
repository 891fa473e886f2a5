"""What the units of a stream may have lost so far, and the statement of all its blocks and grants.

Formal guarantees:

* The ε of a committed block is that of its whole event list, however much of it was used.
* The ε of an open block is that of its whole filter once anything was charged to it.
* Reservations count like charges.
"""

import json
import math
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, select

from tacit.errors import LedgerError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.accounting.calibrate import INFINITE_PRICE
from tacit.privacy.accounting.epsilon import ORDERS, rdp_to_epsilon
from tacit.privacy.accounting.filters import UNITS, RenyiFilter
from tacit.privacy.ledger.grants import reservation
from tacit.privacy.ledger.limits import leaf_bounds, worst_case
from tacit.privacy.ledger.limits.leaf_bounds import NANO, LeafBound
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.limits.prices import Prices
from tacit.privacy.ledger.log import chain, event_lists
from tacit.privacy.ledger.storage.lookup import block_row, budget_of, stream_row, terms_of
from tacit.privacy.ledger.storage.tables import blocks, charges, curves, fingerprints, grants, log, positions
from tacit.privacy.ledger.storage.tables import exposures as exposed
from tacit.privacy.ledger.storage.values import BlockStatement, BudgetRaise, GrantStatement, StreamStatement

EXACT = "min(PLD, RDP) of whole event lists"
TOP_K = "RDP, sum of the largest tasks"
FILTER = "RDP filter"
NONE = "none: records left the vault unprotected"
_COPIED = [field.name for field in fields(GrantStatement) if field.name not in ("plan", "reads")]
"""The columns of a grant that are copied as they are."""


def epsilon(connection: Connection, stream: Row[Any], prices: Prices) -> tuple[float, str]:
    """The ε that one unit may have lost, and the accountant that gives it."""
    budget, k = budget_of(stream), stream.tasks_per_unit
    if leaf_bounds.exposed(connection, stream.id):
        return math.inf, NONE
    if k == 1:
        bounds = leaf_bounds.distinct_bounds(connection, stream.id)
        worst = max((leaf_epsilon(connection, bound, budget, prices) for bound in bounds), default=0.0)
        worst = max(worst, _real(worst_case.exchange(connection, bounds, budget, prices)))
        return worst, FILTER if any(bound.limits for bound in bounds) else EXACT
    groups = leaf_bounds.root_groups(connection, stream.id, {}, touched=True)
    if not groups:
        return 0.0, EXACT
    if not stream.fixed_schedule:
        return RenyiFilter.for_budget(budget).epsilon(budget.delta), FILTER
    exact = worst_case.several_tasks(connection, groups, k, budget, prices, ahead=False)
    curve, extra = leaf_bounds.largest_roots(connection, groups, k, budget.adjacency, prices)
    by_curves = rdp_to_epsilon(tuple(curve), budget.delta - extra)
    return (by_curves, TOP_K) if exact is None or by_curves < _real(exact) else (_real(exact), EXACT)


def remaining(connection: Connection, block: Row[Any], holder: str | None) -> RenyiFilter:
    """What an open block may still be charged, at each order of its filter.

    Unfinished grants of `holder` count as not charged, because the same work resumes them.
    """
    if block.mode != "open":
        raise LedgerError(
            f"task {block.task!r} is a committed block, whose reads are all in its first charge, so no read can depend "
            "on earlier releases; admit its records as open, with a filter"
        )
    rows = connection.execute(select(curves).where(curves.c.block_id == block.id).order_by(curves.c.place)).all()
    rest = [point.limit - point.spent for point in rows]
    mine = select(grants.c.id).join_from(grants, charges).where(charges.c.block_id == block.id).distinct()
    mine = mine.where(grants.c.holder == holder, grants.c.state.in_(("RESERVED", "CHARGED")))
    for grant in connection.execute(mine).scalars().all():
        for costs in (costs for other, costs in reservation(connection, grant)["costs"] if other == block.id):
            rest = [units + cost for units, cost in zip(rest, costs, strict=True)]
    return RenyiFilter(orders=tuple(point.order for point in rows), limits=tuple(units / UNITS for units in rest))


def exposures(connection: Connection, stream_id: int) -> tuple[tuple[int, str], ...]:
    """(block id, reason) of every release of unprotected records of the stream."""
    here = exposed.c.stream_id == stream_id
    found = connection.execute(select(exposed.c.block_id, exposed.c.why).where(here).order_by(exposed.c.seq))
    return tuple((row.block_id, row.why) for row in found)


def was_exposed(connection: Connection, block: int, why: str) -> bool:
    """Whether the exposure of this block for this reason is already recorded."""
    here = (exposed.c.block_id == block) & (exposed.c.why == why)
    return connection.execute(select(exposed.c.block_id).where(here)).first() is not None


def leaf_epsilon(connection: Connection, bound: LeafBound, budget: Budget, prices: Prices) -> float:
    """The ε of a unit that is in this leaf only."""
    if bound.limits is not None:
        orders = [ORDERS[index] for index, _ in bound.limits]
        return rdp_to_epsilon([limit * NANO for _, limit in bound.limits], budget.delta, orders)
    return _real(prices.nano_of(connection, bound.name or "", budget, 1))


def of_stream(
    connection: Connection, stream_id: int, ledger_id: str, policy: Policy, prices: Prices
) -> StreamStatement:
    """The statement of a stream, from one snapshot."""
    stream = stream_row(connection, stream_id)
    here = blocks.c.stream_id == stream_id
    return StreamStatement(
        **facts(connection, stream, ledger_id, policy, prices),
        blocks=of_blocks(connection, stream, prices, here),
        grants=of_grants(connection, here),
        exposures=exposures(connection, stream_id),
    )


def facts(connection: Connection, stream: Row[Any], ledger_id: str, policy: Policy, prices: Prices) -> dict[str, Any]:
    """The fields of `StreamFacts`, except the blocks and the grants."""
    value, accountant = epsilon(connection, stream, prices)
    return {
        "ledger": ledger_id,
        "stream_id": stream.id,
        "identity": stream.identity,
        "terms": terms_of(stream),
        "epsilon": value,
        "accountant": accountant,
        "raises": raises(connection, stream),
        "policy": policy.to_dict(),
        "policy_digest": policy.digest,
        "reanchored": reasons(connection, "reanchor"),
        "head": chain.head(connection),
    }


def of_blocks(
    connection: Connection, stream: Row[Any], prices: Prices, which: ColumnElement[bool]
) -> tuple[BlockStatement, ...]:
    """The statements of the blocks that `which` selects."""
    budget = budget_of(stream)
    texts: dict[str | None, tuple[str, ...]] = {}
    prints: dict[int, list[str]] = {}
    shown = select(fingerprints).join_from(fingerprints, blocks).where(which)
    for row in sorted(connection.execute(shown), key=lambda row: str(row.fingerprint)):
        prints.setdefault(row.block_id, []).append(row.fingerprint)
    statements = []
    query = select(blocks).where(which).order_by(blocks.c.id)
    for row in connection.execute(query).all():
        if row.mode == "committed":
            name = row.effective_hash
            if name not in texts:
                texts[name] = event_lists.get(connection, name)
            value = leaf_epsilon(connection, LeafBound(name=name), budget, prices) if name else 0.0
            marks = tuple(prints.get(row.id, ()))
            statements.append(BlockStatement(row=block_row(row), fingerprints=marks, events=texts[name], epsilon=value))
            continue
        curve = connection.execute(select(curves).where(curves.c.block_id == row.id).order_by(curves.c.place)).all()
        bound = LeafBound(limits=tuple((point.place, point.limit) for point in curve))
        touched = any(point.spent for point in curve)
        statements.append(
            BlockStatement(
                row=block_row(row),
                fingerprints=tuple(prints.get(row.id, ())),
                events=_spent_events(connection, row),
                orders=tuple(point.order for point in curve),
                limits=tuple(point.limit for point in curve),
                spent=tuple(point.spent for point in curve),
                epsilon=leaf_epsilon(connection, bound, budget, prices) if touched else 0.0,
            )
        )
    return tuple(statements)


def _spent_events(connection: Connection, row: Row[Any]) -> tuple[str, ...]:
    """The events charged to an open block and its ancestors."""
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
    """The grants on the blocks that `which` selects, with all their reads; with `newest`, only that many."""
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
            **{name: getattr(row, name) for name in _COPIED}, plan=json.loads(row.plan), reads=tuple(reads[row.id])
        )
        for row in reversed(found)
    )


def raises(connection: Connection, stream: Row[Any]) -> tuple[BudgetRaise, ...]:
    """Every decision to raise the stream's budget."""
    now = budget_of(stream)

    def budget(epsilon: float, delta: float) -> Budget:
        return Budget(epsilon=epsilon, delta=delta, unit=now.unit, adjacency=now.adjacency)

    return tuple(
        BudgetRaise(
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


def reasons(connection: Connection, kind: str) -> tuple[str, ...]:
    """The reasons given in all entries of one kind."""
    return tuple(body["why"] for _, body in _entries(connection, kind))


def in_floats(connection: Connection, stream_id: int) -> bool:
    """Whether a version of tacit that rounded sums and noise to floats charged something of the stream.

    The entries of those versions have no date; newer entries do, and the chain seals it. A ledger whose first entry has
    a date contains none of the old ones.
    """
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
