"""The effect that requested reads would have on their blocks, determined without writing anything.

Formal guarantees. A read is accepted only if its block is live and one of these holds:

* the block's committed list contains the event, and no earlier read used it;
* the block has no list yet, and the list made of these reads passes the gate;
* the block is open, and the event fits its filter at every order.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dp_accounting.dp_event import DpEvent
from sqlalchemy import Connection, Row, select

from tacit.errors import BudgetExceeded, LedgerError
from tacit.privacy.accounting.epsilon import ORDERS, rdp_curve, rdp_to_epsilon
from tacit.privacy.accounting.events import additive_delta, is_planning_only, to_json
from tacit.privacy.accounting.filters import cost_units
from tacit.privacy.ledger.limits import gate
from tacit.privacy.ledger.limits.leaf_bounds import NANO, LeafBound
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.limits.prices import Prices
from tacit.privacy.ledger.log import event_lists
from tacit.privacy.ledger.log.event_lists import Texts
from tacit.privacy.ledger.storage.lookup import budget_of, raw_block, raw_blocks, stream_row
from tacit.privacy.ledger.storage.tables import charges, curves, grants


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What a reservation of the reads would write."""

    reads: tuple[tuple[int, str, float], ...]
    """(block id, event as JSON, additive δ)."""
    implicit: tuple[int, ...]
    """Committed blocks that have no list yet; their list will be these reads."""
    costs: tuple[tuple[int, tuple[int, ...]], ...]
    """(open block id, cost in nano-RDP at each order of its filter)."""
    lists: tuple[str, ...]
    """Hashes of the lists that were priced."""


def of_reads(connection: Connection, reads: Sequence[tuple[int, DpEvent]], prices: Prices, policy: Policy) -> Proposal:
    """Check reads against their blocks, the budgets of their streams and the policy's cap."""
    if not reads:
        raise LedgerError("a grant needs at least one read; pass (block, event) pairs")
    per_block: dict[int, list[DpEvent]] = defaultdict(list)
    for block, event in reads:
        per_block[block].append(billable(event))
    changes: dict[int, tuple[gate.Leaf, LeafBound]] = {}
    costs: list[tuple[int, tuple[int, ...]]] = []
    for block, events in per_block.items():
        row = _live(raw_block(connection, block))
        texts = tuple(to_json(event) for event in events)
        if row.mode == "open":
            costs.append((block, _filter_cost(connection, row, events)))
        elif row.list_hash is not None:
            _check_listed(connection, row, texts)
        else:
            changes[block] = (gate.Leaf(row.stream_id, row.root_id), _new_bound(connection, row, texts))
    gate.check(connection, changes, prices, policy)
    return Proposal(
        reads=tuple((block, to_json(event), float(additive_delta(event))) for block, event in reads),
        implicit=tuple(changes),
        costs=tuple(costs),
        lists=tuple(bound.name for _, bound in changes.values() if bound.name),
    )


def of_lists(
    connection: Connection, wanted: Mapping[int, Sequence[DpEvent]], prices: Prices, policy: Policy
) -> tuple[dict[Texts, list[int]], tuple[str, ...]]:
    """Check whole lists for committed blocks, and group the blocks by list; blocks that have theirs are left out."""
    groups: dict[Texts, list[int]] = defaultdict(list)
    changes: dict[int, tuple[gate.Leaf, LeafBound]] = {}
    bounds: dict[tuple[str | None, Texts], LeafBound] = {}
    texts_of: dict[int, Texts] = {}
    rows = raw_blocks(connection, wanted)
    for block, events in wanted.items():
        row = _live(rows[block])
        key = id(events)
        if key not in texts_of:  # one list for many blocks is encoded once
            texts_of[key] = tuple(to_json(billable(event)) for event in events)
        texts = texts_of[key]
        if row.mode != "committed":
            raise LedgerError(f"{_name(row)} is open and takes no list; reserve its reads one by one")
        if not texts:
            raise LedgerError(f"{_name(row)} got an empty list; commit at least one event")
        if row.list_hash is not None:
            if row.list_hash == event_lists.digest(texts) and not row.implicit:
                continue
            raise BudgetExceeded(
                f"{_name(row)} is committed to another list of events; a list is committed once, admit data that is "
                "read adaptively as open"
            )
        same = (row.inherited_hash, texts)
        if same not in bounds:
            bounds[same] = _new_bound(connection, row, texts)
        changes[block] = (gate.Leaf(row.stream_id, row.root_id), bounds[same])
        groups[texts].append(block)
    gate.check(connection, changes, prices, policy)
    return dict(groups), tuple(bound.name for bound in bounds.values() if bound.name)


def billable(event: DpEvent) -> DpEvent:
    """Refuse events that are for planning only."""
    if is_planning_only(event):
        raise LedgerError(
            "an event with a coin flip cannot be billed; draw the public coin first and bill the reads that it decided"
        )
    return event


def _live(row: Row[Any]) -> Row[Any]:
    """Refuse a block that was split or retired."""
    if row.state != "live":
        remedy = "charge its parts" if row.state == "split" else "its records are gone"
        raise LedgerError(f"{_name(row)} is {row.state} and cannot be charged; {remedy}")
    return row


def _new_bound(connection: Connection, row: Row[Any], texts: Texts) -> LeafBound:
    """The bound of a committed block with its inherited events and this list."""
    whole = (*event_lists.get(connection, row.inherited_hash), *texts)
    return LeafBound(name=event_lists.digest(whole), events=whole)


def _check_listed(connection: Connection, row: Row[Any], texts: Texts) -> None:
    """Refuse reads that the block's committed list does not contain, or no longer."""
    query = select(charges.c.event, grants.c.state).join_from(charges, grants).where(charges.c.block_id == row.id)
    taken = connection.execute(query.where(grants.c.state != "VOID")).all()
    used = Counter(event for event, _ in taken)
    missing = Counter(texts) - (Counter(event_lists.get(connection, row.list_hash)) - used)
    if missing:
        raise BudgetExceeded(f"{_name(row)} {_why_not({state for _, state in taken})}")


def _why_not(states: set[str]) -> str:
    """Why a committed block cannot be read, given the states of the grants on it, and what to do."""
    if states & {"RESERVED", "CHARGED"}:
        return (
            "is held by an unfinished grant: a run started and did not end; continue that run with --resume (in code: "
            "finish or close the grant, or, after a crash, request it again with the same store, plan, initial "
            "weights, loss and work; an unused reservation expires after an hour)"
        )
    if states:
        return (
            "has been read, and no reads beyond those charged then are allowed; use what was released, or give new "
            "records as a new task (in code, vault.commit charges several reads at once, before the first)"
        )
    return "is committed to other reads than this one; use one of the plans that were committed"


def _filter_cost(connection: Connection, row: Row[Any], events: Sequence[DpEvent]) -> tuple[int, ...]:
    """The cost of reads of an open block at the orders of its filter; refused unless it fits at every order."""
    budget = budget_of(stream_row(connection, row.stream_id))
    extra = sum(additive_delta(event) for event in events)
    if extra > 0:
        raise BudgetExceeded(
            f"{_name(row)} is open (its reads are chosen adaptively) and admits no additive δ, got {extra:g}; use "
            "Gaussian noise, or admit it as committed"
        )
    query = select(curves).where(curves.c.block_id == row.id).order_by(curves.c.place)
    rows = connection.execute(query).all()
    whole = [cost_units(rdp_curve(event, budget.adjacency)) for event in events]
    costs = tuple(sum(units[point.place] for units in whole) for point in rows)
    if any(point.spent + cost > point.limit for point, cost in zip(rows, costs, strict=True)):
        orders = [ORDERS[point.place] for point in rows]
        requested = rdp_to_epsilon([cost * NANO for cost in costs], budget.delta, orders)
        left = rdp_to_epsilon([(point.limit - point.spent) * NANO for point in rows], budget.delta, orders)
        share = min((point.limit - point.spent) / cost for point, cost in zip(rows, costs, strict=True) if cost > 0)
        raise BudgetExceeded(
            f"the requested reads of {_name(row)} cost ε = {requested:.4g} and ε = {left:.4g} is left, enough for "
            f"{max(0.0, share):.1%} of them (checked by a Rényi filter); {gate.ADVICE}"
        )
    return costs


def _name(row: Row[Any]) -> str:
    part = "" if row.part == "all" else f" ({row.part})"
    return f"the block of task {row.task!r}{part}"
