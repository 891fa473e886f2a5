"""Grants: RESERVED → CHARGED → RELEASED, or RESERVED → VOID. There is no way back from CHARGED.

Guarantee: all blocks of a grant are billed in one transaction; a ticket whose grant another process took over can
do nothing; voiding gives back only what was never charged.
"""

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from dp_accounting.dp_event import DpEvent
from sqlalchemy import Connection, Row, func, select

from tacit.errors import LedgerError
from tacit.privacy.events import to_json
from tacit.privacy.keys import KeyRing
from tacit.privacy.ledger import tally
from tacit.privacy.ledger.chain import Transaction, canonical
from tacit.privacy.ledger.proposal import Proposal
from tacit.privacy.ledger.tables import blocks, charges, grants, log, positions, streams
from tacit.privacy.ledger.terms import Ticket, Work


def reserve(txn: Transaction, proposal: Proposal, work: Work, keys: KeyRing) -> Ticket:
    """Write what the gate let through."""
    name = None if work.series is None else keys.identity("series", work.series)
    position, generation = None, keys.generation
    if name is not None:
        position, begun = _position(txn.connection, name, work)
        _once(txn.connection, name, [block for block, _, _ in proposal.reads])
        generation = begun or generation
    grant = _name(txn, work, keys)
    body = {
        "grant": grant,
        "pin": work.pin,
        "holder": work.holder,
        "kind": work.kind,
        "plan": canonical(dict(work.plan)),
        "generation": generation,
        "lease_until": until(work.lease_s),
        "reads": proposal.reads,
        "implicit": proposal.implicit,
        "costs": proposal.costs,
        "series": name,
        "position": position,
        "horizon": work.horizon,
    }
    txn.record("reserve", body)
    return Ticket(grant=grant, token=1, generation=generation, series=_members(txn.connection, grant))


def _name(txn: Transaction, work: Work, keys: KeyRing) -> str:
    """A name that no other grant ever had: noise is derived from it. Under test keys it follows from the work."""
    if not keys.test:
        return uuid.uuid4().hex
    before = select(func.count()).select_from(grants).where(grants.c.pin == work.pin)
    return keys.identity("grant", work.pin, str(txn.connection.execute(before).scalar_one()))[:32]


def _position(connection: Connection, name: str, work: Work) -> tuple[int, int | None]:
    """The next place in a series of correlated noise; its horizon and its keys are those of its first grant."""
    series, horizon = work.series, work.horizon
    if horizon < 1:
        raise LedgerError(f"the horizon of series {series!r} must be ≥ 1, got {horizon}")
    query = select(
        func.max(positions.c.position), func.max(positions.c.horizon), func.min(grants.c.generation)
    ).join_from(positions, grants)
    last, known, begun = connection.execute(query.where(positions.c.series == name)).one()
    if known is not None and known != horizon:
        raise LedgerError(f"series {series!r} was begun with horizon {known}, got {horizon}; begin a new series")
    position = 0 if last is None else int(last) + 1
    if position >= horizon:
        raise LedgerError(
            f"series {series!r} has used all {horizon} positions of its horizon; begin a new series with fresh noise"
        )
    return position, begun


def _members(connection: Connection, grant: str) -> tuple[str, ...]:
    """The grants at the positions of a grant's series, up to its own; one that was given back has left its place."""
    own = connection.execute(select(positions).where(positions.c.grant_id == grant)).first()
    if own is None:
        return ()
    query = select(positions.c.position, positions.c.grant_id).where(positions.c.series == own.series)
    found = {row.position: row.grant_id for row in connection.execute(query)}
    return tuple(found.get(place, f"{own.series} {place}") for place in range(own.position + 1))


def _once(connection: Connection, name: str, read: list[int]) -> None:
    """A task is in a series once: twice, its units would meet noise that is correlated with itself."""
    roots = select(blocks.c.root_id).where(blocks.c.id.in_(read))
    taken = select(blocks.c.task).join_from(positions, charges, charges.c.grant_id == positions.c.grant_id)
    taken = taken.join(blocks, blocks.c.id == charges.c.block_id)
    again = taken.where(positions.c.series == name, blocks.c.root_id.in_(roots)).limit(1)
    if (task := connection.execute(again).scalar_one_or_none()) is not None:
        raise LedgerError(f"task {task!r} is in this series already; a task takes part once, name another series")


def generations(connection: Connection) -> set[int]:
    """Key generations that unfinished grants and unfinished series need."""
    unfinished = select(grants.c.generation).where(grants.c.state.in_(("RESERVED", "CHARGED")))
    query = select(func.min(grants.c.generation), func.max(positions.c.position), func.max(positions.c.horizon))
    series = connection.execute(query.join_from(positions, grants).group_by(positions.c.series)).all()
    ongoing = {generation for generation, last, horizon in series if last + 1 < horizon}
    return set(connection.execute(unfinished).scalars()) | ongoing


def states(connection: Connection, stream: str, task: str) -> set[str] | None:
    """What became of the work on one task of the stream with this identity."""
    mine = select(blocks.c.id).join_from(blocks, streams).where(streams.c.identity == stream, blocks.c.task == task)
    parts = connection.execute(mine).scalars().all()
    read = select(grants.c.state).join_from(charges, grants).where(charges.c.block_id.in_(parts)).distinct()
    found = set(connection.execute(read.where(grants.c.state != "VOID")).scalars())
    return found if parts else None


def unfinished(connection: Connection, stream_id: int, holder: str) -> list[tuple[str, str]]:
    """Charged and not released, oldest first. Few grants are, so they are found by their state."""
    here = (grants.c.state == "CHARGED") & (grants.c.holder == holder)
    found = connection.execute(select(grants).where(here).order_by(grants.c.seq)).all()
    return [(one.kind, one.pin) for one in found if stream_id in tally.streams_of(connection, one.id)]


def unfinished_alike(
    connection: Connection, kind: str, reads: Sequence[tuple[int, DpEvent]], reader: object, holder: str
) -> list[tuple[str, bool]]:
    """A holder's unfinished grants that read the very same blocks by the same events, for the same reader, outside a
    series, oldest first: their pins, and whether they were charged."""
    here = grants.c.state.in_(("RESERVED", "CHARGED")) & (grants.c.holder == holder) & (grants.c.kind == kind)
    found = connection.execute(select(grants).where(here).order_by(grants.c.seq)).all()
    texts = [(block, to_json(event)) for block, event in reads]
    bodies = [(one, reservation(connection, one.id)) for one in found]
    return [
        (one.pin, one.state == "CHARGED")
        for one, body in bodies
        if body["series"] is None
        and [(block, event) for block, event, _ in body["reads"]] == texts
        and json.loads(body["plan"]).get("reader") == reader
    ]


def charge(txn: Transaction, ticket: Ticket) -> None:
    """Make the reservation a spend. Noise may be drawn once this returned."""
    grant = held(txn.connection, ticket)
    if grant.state == "CHARGED":
        return  # a resumed grant: the same work, the same noise, charged once
    if grant.state != "RESERVED":
        raise LedgerError(f"grant {ticket.grant[:8]} is {grant.state} and cannot be charged; {_way(grant.state)}")
    txn.record("charge", {"grant": ticket.grant})


def release(txn: Transaction, ticket: Ticket, output_hash: str | None) -> None:
    """Say that the output left; the same again is nothing."""
    grant = held(txn.connection, ticket)
    if grant.state == "RELEASED" and grant.output_hash == output_hash:
        return
    if grant.state != "CHARGED":
        raise LedgerError(f"grant {ticket.grant[:8]} is {grant.state} and cannot be released; {_way(grant.state)}")
    txn.record("release", {"grant": ticket.grant, "output": output_hash})


def void(txn: Transaction, ticket: Ticket) -> None:
    """Give a reservation back; a charged one cannot be."""
    grant = held(txn.connection, ticket)
    if grant.state == "VOID":
        return
    if grant.state != "RESERVED":
        raise LedgerError(f"grant {ticket.grant[:8]} is {grant.state} and cannot be voided; what is charged is spent")
    undo(txn, ticket.grant)


def undo(txn: Transaction, grant: str) -> None:
    """Record the voiding of a RESERVED grant. What a split block passed on to its parts stays with them."""
    body = reservation(txn.connection, grant)
    alive = blocks.c.id.in_({*body["implicit"], *(block for block, _ in body["costs"])})
    kept = set(txn.connection.execute(select(blocks.c.id).where(alive, blocks.c.state != "split")).scalars())
    implicit = [block for block in body["implicit"] if block in kept]
    costs = [pair for pair in body["costs"] if pair[0] in kept]
    txn.record("void", {"grant": grant, "implicit": implicit, "costs": costs})


def reservation(connection: Connection, grant: str) -> dict[str, Any]:
    """The log entry that made a grant."""
    entry = select(log.c.body).join_from(log, grants, log.c.seq == grants.c.seq).where(grants.c.id == grant)
    body: dict[str, Any] = json.loads(connection.execute(entry).scalar_one())
    return body


def sweep(txn: Transaction, now: float) -> int:
    """Void every reservation whose lease ran out."""
    here = (grants.c.state == "RESERVED") & (grants.c.lease_until < int(now * 1000))
    expired = txn.connection.execute(select(grants.c.id).where(here).order_by(grants.c.seq)).scalars().all()
    for grant in expired:
        undo(txn, grant)
    return len(expired)


def resume(txn: Transaction, *, pin: str, holder: str, lease_s: float) -> Ticket | None:
    """Take over the newest unfinished grant of this very work; older tickets of it are fenced off."""
    here = (grants.c.pin == pin) & grants.c.state.in_(("RESERVED", "CHARGED"))
    found = txn.connection.execute(select(grants).where(here).order_by(grants.c.seq.desc())).all()
    own = next((grant for grant in found if grant.holder == holder), None)
    if own is None:
        if found:
            raise LedgerError(
                f"this work is held by {found[0].holder!r}, not by {holder!r}; wait for it, or resume it as that holder"
            )
        return None
    token = own.token + 1
    txn.record("resume", {"grant": own.id, "token": token, "lease_until": until(lease_s)})
    series, charged = _members(txn.connection, own.id), own.state == "CHARGED"
    return Ticket(grant=own.id, token=token, generation=own.generation, series=series, charged=charged)


def held(connection: Connection, ticket: Ticket) -> Row[Any]:
    """The grant of a ticket that is still the newest one."""
    grant = connection.execute(select(grants).where(grants.c.id == ticket.grant)).first()
    if grant is None:
        raise LedgerError(f"grant {ticket.grant[:8]} is not in this ledger; ask this ledger for a grant")
    if grant.token != ticket.token:
        raise LedgerError(
            f"another process took over this grant (its token is {grant.token}, yours {ticket.token}); stop here"
        )
    return grant


def live(block: Row[Any]) -> None:
    """Refuse a block that was retired."""
    if block.state == "retired":
        raise LedgerError(f"task {block.task!r} was retired, and its records are read no more; use what was released")


def retire(txn: Transaction, block: Row[Any]) -> None:
    """No read of this block any more; what was promised stays on its account."""
    if block.state == "retired":
        return
    if block.state == "split":
        raise LedgerError(f"task {block.task!r} is split; retire its parts")
    open_grants = select(grants.c.id).join_from(grants, charges).where(charges.c.block_id == block.id)
    if (held := txn.connection.execute(open_grants.where(grants.c.state == "RESERVED")).first()) is not None:
        raise LedgerError(f"task {block.task!r} has a reserved grant ({held.id[:8]}); charge or void it first")
    txn.record("retire", {"block": block.id})


def until(lease_s: float) -> int:
    """The end of a lease, in milliseconds since 1970."""
    return int((time.time() + lease_s) * 1000)


def _way(state: str) -> str:
    return {
        "VOID": "its lease ran out or it was cancelled, ask for a new grant",
        "RESERVED": "charge it first",
        "CHARGED": "it is charged already, resume it",
        "RELEASED": "its output was released",
    }[state]
