"""Grants: RESERVED → CHARGED → RELEASED, or RESERVED → VOID.

Formal guarantees:

* All blocks of a grant are billed in one transaction.
* A charged grant is never voided; voiding returns only what was never charged.
* After a grant was resumed, its earlier tickets are invalid.
* Every grant has a name that no other grant ever had, from which its noise is derived. Under test keys the name follows
  from the work.
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from dp_accounting.dp_event import DpEvent
from sqlalchemy import Connection, Row, func, select

from tacit.errors import LedgerError
from tacit.privacy.accounting.events import to_json
from tacit.privacy.ledger.log import counters
from tacit.privacy.ledger.log.chain import Transaction, canonical
from tacit.privacy.ledger.proposal import Proposal
from tacit.privacy.ledger.storage.tables import blocks, charges, grants, log, positions, streams
from tacit.privacy.ledger.storage.values import UNBOUNDED, Ticket, Work
from tacit.privacy.randomness.keys import KeyRing


def reserve(txn: Transaction, proposal: Proposal, work: Work, keys: KeyRing) -> Ticket:
    """Record a reservation that the gate accepted."""
    series = None if work.series is None else keys.identity("series", work.series)
    position, generation = None, keys.generation
    if series is not None:
        position, first_generation = _next_position(txn.connection, series, work)
        _check_new_in_series(txn.connection, series, [block for block, _, _ in proposal.reads])
        generation = first_generation or generation
    grant = _new_name(txn, work, proposal, keys)
    body: dict[str, Any] = {name: getattr(work, name) for name in ("pin", "holder", "kind")} | {
        "horizon": work.positions
    }
    body |= {"plan": canonical(dict(work.plan)), "lease_until": _lease_end(work.lease_s)}
    body |= {"reads": proposal.reads, "implicit": proposal.implicit, "costs": proposal.costs}
    body |= {"grant": grant, "generation": generation, "series": series, "position": position}
    txn.record("reserve", body)
    return Ticket(grant=grant, token=1, generation=generation, series=_series_grants(txn.connection, grant))


def _new_name(txn: Transaction, work: Work, proposal: Proposal, keys: KeyRing) -> str:
    """A random name; under test keys, one that follows from the plan, the blocks and the earlier grants of the same.

    It does not follow from the fingerprint: parameters are rounded otherwise on other processors, and a test has to
    meet the same noise there.
    """
    if not keys.test:
        return uuid.uuid4().hex
    what = canonical([work.kind, dict(work.plan), [block for block, _, _ in proposal.reads]])
    names = (keys.identity("grant", what, str(number))[:32] for number in count())
    taken = select(grants.c.id).where
    return next(name for name in names if txn.connection.execute(taken(grants.c.id == name)).first() is None)


def _next_position(connection: Connection, series: str, work: Work) -> tuple[int, int | None]:
    """The next position in a series of correlated noise, and the key generation of its first grant."""
    name, horizon = work.series, work.positions
    if horizon < 1:
        raise LedgerError(f"the horizon of series {name!r} must be ≥ 1, got {horizon}")
    query = select(
        func.max(positions.c.position), func.max(positions.c.horizon), func.min(grants.c.generation)
    ).join_from(positions, grants)
    last, known, generation = connection.execute(query.where(positions.c.series == series)).one()
    if known is not None and known != horizon:
        given = ("none" if number == UNBOUNDED else str(number) for number in (known, horizon))
        raise LedgerError("series {!r} was started with horizon {}, got {}; start a new series".format(name, *given))
    position = 0 if last is None else int(last) + 1
    if position >= horizon:
        raise LedgerError(
            f"series {name!r} has used all {horizon} positions of its horizon; start a new series with fresh noise"
        )
    return position, generation


def _series_grants(connection: Connection, grant: str) -> tuple[str, ...]:
    """The grants at the positions of a grant's series, up to its own; a voided one is replaced by a fixed name."""
    own = connection.execute(select(positions).where(positions.c.grant_id == grant)).first()
    if own is None:
        return ()
    query = select(positions.c.position, positions.c.grant_id).where(positions.c.series == own.series)
    by_position = {row.position: row.grant_id for row in connection.execute(query)}
    return tuple(by_position.get(position, f"{own.series} {position}") for position in range(own.position + 1))


def _check_new_in_series(connection: Connection, series: str, read: list[int]) -> None:
    """Refuse a task that is already in the series: the correlated noise is calibrated for one participation a task."""
    roots = select(blocks.c.root_id).where(blocks.c.id.in_(read))
    taken = select(blocks.c.task).join_from(positions, charges, charges.c.grant_id == positions.c.grant_id)
    taken = taken.join(blocks, blocks.c.id == charges.c.block_id)
    again = taken.where(positions.c.series == series, blocks.c.root_id.in_(roots)).limit(1)
    if (task := connection.execute(again).scalar_one_or_none()) is not None:
        raise LedgerError(f"task {task!r} is in this series already; a task takes part once, use another series")


def key_generations(connection: Connection) -> set[int]:
    """The key generations of unfinished grants and unfinished series."""
    unfinished = select(grants.c.generation).where(grants.c.state.in_(("RESERVED", "CHARGED")))
    query = select(func.min(grants.c.generation), func.max(positions.c.position), func.max(positions.c.horizon))
    series = connection.execute(query.join_from(positions, grants).group_by(positions.c.series)).all()
    ongoing = {generation for generation, last, horizon in series if last + 1 < horizon}
    return set(connection.execute(unfinished).scalars()) | ongoing


def states(connection: Connection, stream: str, task: str) -> set[str] | None:
    """The states of the grants on one task of a stream, by its keyed identity; None if the task is unknown."""
    mine = select(blocks.c.id).join_from(blocks, streams).where(streams.c.identity == stream, blocks.c.task == task)
    parts = connection.execute(mine).scalars().all()
    read = select(grants.c.state).join_from(charges, grants).where(charges.c.block_id.in_(parts)).distinct()
    return set(connection.execute(read.where(grants.c.state != "VOID")).scalars()) if parts else None


def unfinished(connection: Connection, stream_id: int, holder: str) -> list[tuple[str, str]]:
    """(kind, pin) of the holder's grants on the stream that were charged and not released, oldest first."""
    here = (grants.c.state == "CHARGED") & (grants.c.holder == holder)
    rows = connection.execute(select(grants).where(here).order_by(grants.c.seq)).all()
    return [(grant.kind, grant.pin) for grant in rows if stream_id in counters.streams_of(connection, grant.id)]


def unfinished_like(
    connection: Connection, kind: str, reads: Sequence[tuple[int, DpEvent]], plan: Mapping[str, Any], holder: str
) -> list[tuple[str, bool]]:
    """(pin, whether charged) of a holder's unfinished grants with these reads and these values of their plans, outside
    a series."""
    wanted = json.loads(canonical(dict(plan)))
    here = grants.c.state.in_(("RESERVED", "CHARGED")) & (grants.c.holder == holder) & (grants.c.kind == kind)
    rows = connection.execute(select(grants).where(here).order_by(grants.c.seq)).all()
    texts = [(block, to_json(event)) for block, event in reads]
    bodies = [(grant, reservation(connection, grant.id)) for grant in rows]
    return [
        (grant.pin, grant.state == "CHARGED")
        for grant, body in bodies
        if body["series"] is None
        and [(block, event) for block, event, _ in body["reads"]] == texts
        and {name: json.loads(body["plan"]).get(name) for name in wanted} == wanted
    ]


def charge(txn: Transaction, ticket: Ticket) -> None:
    """Charge a reservation. Noise may be drawn once the transaction is committed."""
    grant = current(txn.connection, ticket)
    if grant.state == "CHARGED":
        return  # a resumed grant: same work, same noise, one charge
    if grant.state != "RESERVED":
        raise LedgerError(f"grant {ticket.grant[:8]} is {grant.state} and cannot be charged; {_REMEDIES[grant.state]}")
    txn.record("charge", {"grant": ticket.grant})


def release(txn: Transaction, ticket: Ticket, output_hash: str | None) -> None:
    """Record that the output was released; repeating it has no effect."""
    grant = current(txn.connection, ticket)
    if grant.state == "RELEASED" and grant.output_hash == output_hash:
        return
    if grant.state != "CHARGED":
        raise LedgerError(f"grant {ticket.grant[:8]} is {grant.state} and cannot be released; {_REMEDIES[grant.state]}")
    txn.record("release", {"grant": ticket.grant, "output": output_hash})


def void(txn: Transaction, ticket: Ticket) -> None:
    """Void a reservation; a charged grant is refused."""
    grant = current(txn.connection, ticket)
    if grant.state == "VOID":
        return
    if grant.state != "RESERVED":
        raise LedgerError(f"grant {ticket.grant[:8]} is {grant.state} and cannot be voided; what is charged is spent")
    _record_void(txn, ticket.grant)


def _record_void(txn: Transaction, grant: str) -> None:
    """Record that a reservation is void. The parts of a block that was split meanwhile keep what they inherited."""
    body = reservation(txn.connection, grant)
    alive = blocks.c.id.in_({*body["implicit"], *(block for block, _ in body["costs"])})
    kept = set(txn.connection.execute(select(blocks.c.id).where(alive, blocks.c.state != "split")).scalars())
    implicit = [block for block in body["implicit"] if block in kept]
    costs = [pair for pair in body["costs"] if pair[0] in kept]
    txn.record("void", {"grant": grant, "implicit": implicit, "costs": costs})


def reservation(connection: Connection, grant: str) -> dict[str, Any]:
    """The body of the log entry that reserved a grant."""
    entry = select(log.c.body).join_from(log, grants, log.c.seq == grants.c.seq).where(grants.c.id == grant)
    body: dict[str, Any] = json.loads(connection.execute(entry).scalar_one())
    return body


def void_expired(txn: Transaction, now: float) -> int:
    """Void every reservation whose lease has expired; returns how many."""
    here = (grants.c.state == "RESERVED") & (grants.c.lease_until < int(now * 1000))
    expired = txn.connection.execute(select(grants.c.id).where(here).order_by(grants.c.seq)).scalars().all()
    for grant in expired:
        _record_void(txn, grant)
    return len(expired)


def resume(txn: Transaction, *, pin: str, holder: str, lease_s: float) -> Ticket | None:
    """Issue a new ticket for the newest unfinished grant of this work, which invalidates its earlier tickets."""
    here = (grants.c.pin == pin) & grants.c.state.in_(("RESERVED", "CHARGED"))
    rows = txn.connection.execute(select(grants).where(here).order_by(grants.c.seq.desc())).all()
    own = next((grant for grant in rows if grant.holder == holder), None)
    if own is None:
        if rows:
            raise LedgerError(
                f"this work is held by {rows[0].holder!r}, not by {holder!r}; wait for it, or resume it as that holder"
            )
        return None
    token = own.token + 1
    txn.record("resume", {"grant": own.id, "token": token, "lease_until": _lease_end(lease_s)})
    series, charged = _series_grants(txn.connection, own.id), own.state == "CHARGED"
    return Ticket(grant=own.id, token=token, generation=own.generation, series=series, charged=charged)


def current(connection: Connection, ticket: Ticket) -> Row[Any]:
    """The grant of a ticket; LedgerError if a newer ticket was issued."""
    grant = connection.execute(select(grants).where(grants.c.id == ticket.grant)).first()
    if grant is None:
        raise LedgerError(f"grant {ticket.grant[:8]} is not in this ledger; request a grant from this ledger")
    if grant.token != ticket.token:
        raise LedgerError(
            f"another process resumed this grant (its token is {grant.token}, yours {ticket.token}); stop this process"
        )
    return grant


def require_not_retired(block: Row[Any]) -> None:
    """Refuse a retired block."""
    if block.state == "retired":
        raise LedgerError(f"task {block.task!r} was retired and cannot be read any more; use what was released")


def retire(txn: Transaction, block: Row[Any]) -> None:
    """Forbid further reads of a block; its charges remain."""
    if block.state == "retired":
        return
    if block.state == "split":
        raise LedgerError(f"task {block.task!r} is split; retire its parts")
    open_grants = select(grants.c.id).join_from(grants, charges).where(charges.c.block_id == block.id)
    reserved = txn.connection.execute(open_grants.where(grants.c.state == "RESERVED")).first()
    if reserved is not None:
        raise LedgerError(f"task {block.task!r} has a reserved grant ({reserved.id[:8]}); charge or void it first")
    txn.record("retire", {"block": block.id})


def _lease_end(lease_s: float) -> int:
    """The end of a lease, in milliseconds since 1970."""
    return int((time.time() + lease_s) * 1000)


_REMEDIES = {
    "VOID": "its lease expired or it was cancelled, request a new grant",
    "RESERVED": "charge it first",
    "CHARGED": "it is charged already, resume it",
    "RELEASED": "its output was released",
}
