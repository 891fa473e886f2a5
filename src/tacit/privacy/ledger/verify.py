"""Trust nothing but the log: run it again and compare.

Guarantee: when `verify` returns, the database finds its file whole and its tables and triggers are those that this
version makes, every hash follows from the one before, every table is what the log makes of an
empty database, every memoised price and curve is what its events cost, every block stays within its list or its
filter, and every stream within its budget. Otherwise it names the first thing that differs.
"""

import json
from collections import Counter
from typing import Any

from sqlalchemy import Connection, Row, Table, func, select, type_coerce
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.types import NullType

from tacit.errors import LedgerError, TacitError
from tacit.privacy.accounting import rdp_curve
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.events import additive_delta, from_json
from tacit.privacy.filters import cost_units
from tacit.privacy.keys import KeyRing
from tacit.privacy.ledger import (
    engine,
    enrolment,
    eventlists,
    gate,
    history,
    integrity,
    officers,
    prices,
    reading,
    tables,
    triggers,
)
from tacit.privacy.ledger.opening import recorded_policy
from tacit.privacy.ledger.profile import all_streams, budget_of
from tacit.privacy.ledger.tables import blocks, charges, curves, grants, lists, log
from tacit.privacy.ledger.terms import Verification


def verify(connection: Connection, keys: KeyRing | None) -> Verification:
    """Check everything; a LedgerError names the first difference. Without keys, who is in which task is left out."""
    try:
        return _verify(connection, keys)
    except (LedgerError, DBAPIError, UnicodeDecodeError):
        raise
    except (TacitError, InvalidRequestError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise LedgerError(integrity.damaged(f"a value cannot be read: {type(error).__name__}")) from None


def _verify(connection: Connection, keys: KeyRing | None) -> Verification:
    integrity.check_pages(connection)
    memory = engine.connect(None)
    try:
        with engine.transaction(memory, "in memory", write=True) as replica:
            tables.metadata.create_all(replica)
            triggers.install(replica)
            head = history.replay(history.entries(connection), replica)
            for table in tables.PROJECTION:
                _compare(connection, replica, table)
        fresh = prices.Prices()
        _check_memos(connection)
        _check_entries(connection)
        _check_use(connection)
        officers.check(connection)
        if keys is not None:
            enrolment.check(connection, keys)
        _check_budgets(connection, fresh)
        integrity.check_declared(connection)
    finally:
        memory.dispose()
    return Verification(
        head=head,
        entries=head.seq,
        streams=_count(connection, tables.streams),
        blocks=_count(connection, blocks),
        grants=_count(connection, grants),
        lists=_count(connection, lists),
    )


def _compare(connection: Connection, replica: Connection, table: Table) -> None:
    # As they are stored, so that no flipped bit hides behind a conversion (of a truth value, 1 and 5 are the same).
    stored = connection.dialect.name == replica.dialect.name
    columns = [type_coerce(one, NullType()).label(one.name) if stored else one for one in table.columns]
    query = select(*columns).order_by(*table.primary_key.columns)
    found = iter(connection.execute(query))
    expected = iter(replica.execute(query))
    while True:
        have, want = next(found, None), next(expected, None)
        if have is None and want is None:
            return
        if have is None or want is None or _typed(have) != _typed(want):
            row = have if have is not None else want
            key = ", ".join(str(getattr(row, column.name)) for column in table.primary_key.columns)
            raise LedgerError(
                f"table {table.name} differs from the log at {key}; the ledger was changed, restore it from a backup"
            )


def _typed(row: Row[Any]) -> list[tuple[type, Any]]:
    return [(type(value), value) for value in row]


def _check_memos(connection: Connection) -> None:
    for row in connection.execute(select(lists)):
        if eventlists.digest(eventlists.parse(row.events)) != row.hash:
            raise LedgerError(f"the event list {row.hash[:12]} does not match its hash; restore the ledger")
    for row in connection.execute(select(tables.prices)).all():
        events = eventlists.get(connection, row.list_hash)
        budget = Budget(epsilon=1.0, delta=row.delta, adjacency=row.adjacency)
        if prices.worked_out(events, budget, row.times) != row.nano:
            raise LedgerError(
                f"the price of event list {row.list_hash[:12]} differs from its events; restore the ledger"
            )
    for row in connection.execute(select(tables.rates)).all():
        events = eventlists.get(connection, row.list_hash)
        if prices.dump(prices.worked_out_curve(events, Adjacency(row.adjacency))) != row.curve:
            raise LedgerError(
                f"the curve of event list {row.list_hash[:12]} differs from its events; restore the ledger"
            )


def _check_entries(connection: Connection) -> None:
    """The costs that reservations wrote follow from their events."""
    known: dict[tuple[str, str], tuple[int, ...]] = {}
    owner = {
        row.id: row.adjacency
        for row in connection.execute(select(blocks.c.id, tables.streams.c.adjacency).join_from(blocks, tables.streams))
    }
    for seq, text in connection.execute(select(log.c.seq, log.c.body).where(log.c.kind == "reserve")).all():
        body = json.loads(text)
        for block, event, extra in body["reads"]:
            if extra != additive_delta(from_json(event)):
                raise LedgerError(f"entry {seq} states another additive δ than its event for block {block}")
        for block, costs in body["costs"]:
            query = select(curves.c.place).where(curves.c.block_id == block).order_by(curves.c.place)
            places = connection.execute(query).scalars().all()
            total = [0] * len(places)
            for event in (event for one, event, _ in body["reads"] if one == block):
                key = (event, owner[block])
                if key not in known:
                    known[key] = cost_units(rdp_curve(from_json(event), Adjacency(owner[block])))
                total = [sum(pair) for pair in zip(total, (known[key][p] for p in places), strict=True)]
            if total != costs:
                raise LedgerError(
                    f"entry {seq} states other costs than its events for block {block}; restore the ledger"
                )


def _check_use(connection: Connection) -> None:
    """No committed block was read more than its list says; no open one is without its costs."""
    query = select(charges.c.block_id, charges.c.event, blocks.c.list_hash, blocks.c.mode, blocks.c.state)
    query = query.join_from(charges, grants).join(blocks, blocks.c.id == charges.c.block_id)
    used: dict[tuple[int, str | None], Counter[str]] = {}
    for row in connection.execute(query.where(grants.c.state != "VOID", blocks.c.mode == "committed")):
        used.setdefault((row.block_id, row.list_hash), Counter())[row.event] += 1
    for (block, name), events in used.items():
        if events - Counter(eventlists.get(connection, name)):
            raise LedgerError(f"block {block} was charged for events that its list does not hold; restore the ledger")


def _check_budgets(connection: Connection, fresh: prices.Prices) -> None:
    for stream in all_streams(connection):
        budget = budget_of(stream)
        lost, _ = reading.epsilon(connection, stream, fresh)
        if lost > budget.epsilon and not reading.exposures(connection, stream.id):
            raise LedgerError(
                f"stream {stream.name!r} lost ε = {lost:.6g}, above its budget of {budget.epsilon:g}; restore the "
                "ledger if that was not so before, else state what was lost with `tacit ledger raise`"
            )
    try:
        gate.check_cap(connection, {}, fresh, recorded_policy(connection), ahead=False)
    except LedgerError as error:
        raise LedgerError(f"the ledger exceeds its policy: {error}") from None


def _count(connection: Connection, table: Table) -> int:
    value: Any = connection.execute(select(func.count()).select_from(table)).scalar_one()
    return int(value)
