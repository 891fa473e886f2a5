"""What a set of reads would do to its blocks, found out without writing anything.

Guarantee: a read is refused unless its block is live and either holds the very event in its committed list, or has
no list yet (the reads become it), or is open and has room at every order of its filter.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dp_accounting.dp_event import DpEvent
from sqlalchemy import Connection, Row, select

from tacit.errors import BudgetExceeded, LedgerError
from tacit.privacy.accounting import ORDERS, rdp_curve, rdp_to_epsilon
from tacit.privacy.events import additive_delta, is_planning_only, to_json
from tacit.privacy.filters import cost_units
from tacit.privacy.ledger import eventlists, gate, making
from tacit.privacy.ledger.eventlists import Texts
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.profile import NANO, Face, budget_of
from tacit.privacy.ledger.tables import charges, curves, grants
from tacit.privacy.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What would be written."""

    reads: tuple[tuple[int, str, float], ...]
    """(block, event, additive δ)."""
    implicit: tuple[int, ...]
    """Committed blocks without a list: these reads become it."""
    costs: tuple[tuple[int, tuple[int, ...]], ...]
    """(open block, nano-RDP at each order of its filter)."""
    lists: tuple[str, ...]
    """Names of the lists that were priced."""


def of_reads(connection: Connection, reads: Sequence[tuple[int, DpEvent]], prices: Prices, policy: Policy) -> Proposal:
    """Check reads against their blocks, their streams and the cap."""
    if not reads:
        raise LedgerError("a grant needs at least one read; pass (block, event) pairs")
    per_block: dict[int, list[DpEvent]] = defaultdict(list)
    for block, event in reads:
        per_block[block].append(billable(event))
    changes: dict[int, tuple[gate.Where, Face]] = {}
    costs: list[tuple[int, tuple[int, ...]]] = []
    for block, events in per_block.items():
        row = live(connection, block)
        texts = tuple(to_json(event) for event in events)
        if row.mode == "open":
            costs.append((block, _open(connection, row, events)))
        elif row.list_hash is not None:
            _consume(connection, row, texts)
        else:
            changes[block] = change(connection, row, texts)
    gate.check(connection, changes, prices, policy)
    return Proposal(
        reads=tuple((block, to_json(event), float(additive_delta(event))) for block, event in reads),
        implicit=tuple(changes),
        costs=tuple(costs),
        lists=tuple(face.name for _, face in changes.values() if face.name),
    )


def of_lists(
    connection: Connection, wanted: Mapping[int, Sequence[DpEvent]], prices: Prices, policy: Policy
) -> tuple[dict[Texts, list[int]], tuple[str, ...]]:
    """Check whole lists for committed blocks; blocks that already hold the very list are left out."""
    groups: dict[Texts, list[int]] = defaultdict(list)
    changes: dict[int, tuple[gate.Where, Face]] = {}
    faces: dict[tuple[str | None, Texts], Face] = {}
    texts_of: dict[int, Texts] = {}
    rows = making.raw_blocks(connection, wanted)
    for block, events in wanted.items():
        row = _alive(rows[block])
        key = id(events)
        if key not in texts_of:  # one list for many blocks is read once
            texts_of[key] = tuple(to_json(billable(event)) for event in events)
        texts = texts_of[key]
        if row.mode != "committed":
            raise LedgerError(f"{_said(row)} is open and takes no list; reserve its reads one by one")
        if not texts:
            raise LedgerError(f"{_said(row)} got an empty list; commit at least one event")
        if row.list_hash is not None:
            if row.list_hash == eventlists.digest(texts) and not row.implicit:
                continue
            raise BudgetExceeded(
                f"{_said(row)} is committed to another list of events; a list is committed once, admit data that is "
                "read adaptively as open"
            )
        same = (row.inherited_hash, texts)
        if same not in faces:
            faces[same] = change(connection, row, texts)[1]
        changes[block] = (gate.Where(row.stream_id, row.root_id), faces[same])
        groups[texts].append(block)
    gate.check(connection, changes, prices, policy)
    return dict(groups), tuple(face.name for face in faces.values() if face.name)


def billable(event: DpEvent) -> DpEvent:
    """Refuse what has no price yet."""
    if is_planning_only(event):
        raise LedgerError(
            "a coin that was not tossed yet cannot be billed; toss it (it is public) and bill the reads it showed"
        )
    return event


def live(connection: Connection, block: int) -> Row[Any]:
    """The row of a block that may still be read."""
    return _alive(making.raw_block(connection, block))


def _alive(row: Row[Any]) -> Row[Any]:
    if row.state != "live":
        way = "charge its parts" if row.state == "split" else "its records are gone"
        raise LedgerError(f"{_said(row)} is {row.state} and cannot be charged; {way}")
    return row


def change(connection: Connection, row: Row[Any], texts: Texts) -> tuple[gate.Where, Face]:
    """The face of a committed block with this list after what it inherited."""
    whole = (*eventlists.get(connection, row.inherited_hash), *texts)
    return gate.Where(row.stream_id, row.root_id), Face(name=eventlists.digest(whole), events=whole)


def _consume(connection: Connection, row: Row[Any], texts: Texts) -> None:
    query = select(charges.c.event, grants.c.state).join_from(charges, grants).where(charges.c.block_id == row.id)
    taken = connection.execute(query.where(grants.c.state != "VOID")).all()
    used = Counter(event for event, _ in taken)
    missing = Counter(texts) - (Counter(eventlists.get(connection, row.list_hash)) - used)
    if missing:
        raise BudgetExceeded(f"{_said(row)} {_why_not({state for _, state in taken})}")


def _why_not(states: set[str]) -> str:
    """Three situations, three ways out."""
    if states & {"RESERVED", "CHARGED"}:
        return (
            "is held by an unfinished grant, that is by work which began and did not end; go on with that run by "
            "--resume (in code: finish or close the grant, or, after a crash, ask again with the same store, plan, "
            "initial weights, loss and work; a reservation that was never used lapses after an hour)"
        )
    if states:
        return (
            "has been read, and what was charged then is all that may ever be read of it; use what was released, or "
            "give new records as a new task (in code, vault.commit charges several reads at once, before the first)"
        )
    return "is committed to other reads than this one; use one of the plans that were committed"


def _open(connection: Connection, row: Row[Any], events: Sequence[DpEvent]) -> tuple[int, ...]:
    stream = making.stream_row(connection, row.stream_id)
    budget = budget_of(stream)
    extra = sum(additive_delta(event) for event in events)
    if extra > 0:
        raise BudgetExceeded(
            f"{_said(row)} takes reads that are chosen as one goes (it is an open block), and none with an additive δ "
            f"of {extra:g}; use Gaussian noise, or admit it as committed"
        )
    query = select(curves).where(curves.c.block_id == row.id).order_by(curves.c.place)
    rows = connection.execute(query).all()
    whole = [cost_units(rdp_curve(event, budget.adjacency)) for event in events]
    costs = tuple(sum(units[one.place] for units in whole) for one in rows)
    if any(one.spent + cost > one.limit for one, cost in zip(rows, costs, strict=True)):
        orders = [ORDERS[one.place] for one in rows]
        asked = rdp_to_epsilon([cost * NANO for cost in costs], budget.delta, orders)
        left = rdp_to_epsilon([(one.limit - one.spent) * NANO for one in rows], budget.delta, orders)
        share = min((one.limit - one.spent) / cost for one, cost in zip(rows, costs, strict=True) if cost > 0)
        raise BudgetExceeded(
            f"{_said(row)} was asked for ε = {asked:.4g} and has ε = {left:.4g} left, so that "
            f"{max(0.0, share):.1%} of these reads would fit (at the tightest order of its Rényi filter); {gate.ADVICE}"
        )
    return costs


def _said(row: Row[Any]) -> str:
    part = "" if row.part == "all" else f" ({row.part})"
    return f"the block of task {row.task!r}{part}"
