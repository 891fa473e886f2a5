"""Verification: applies the log to an empty database and compares.

Formal guarantees. If `verify` returns:

* the database reports no damage, and its tables and triggers are those that this version declares;
* every hash follows from the previous one, and every table is what the log makes of an empty database;
* every stored price and curve is what its events cost;
* every block is within its event list or its filter, every stream within its budget, and all streams within the cap;
* every decision carries the signatures that it needed.

Otherwise it raises LedgerError and names the first difference.
"""

import json
from collections import Counter
from typing import Any

from sqlalchemy import Connection, Row, Table, func, select, type_coerce
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.types import NullType

from tacit.errors import LedgerError, TacitError
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.epsilon import rdp_curve
from tacit.privacy.accounting.events import additive_delta, from_json
from tacit.privacy.accounting.filters import cost_units
from tacit.privacy.ledger import enrolment, history, officers, statement
from tacit.privacy.ledger.limits import gate, prices
from tacit.privacy.ledger.log import event_lists
from tacit.privacy.ledger.opening import recorded_policy
from tacit.privacy.ledger.storage import engine, integrity, tables, triggers
from tacit.privacy.ledger.storage.lookup import all_streams, budget_of
from tacit.privacy.ledger.storage.tables import blocks, charges, curves, grants, lists, log
from tacit.privacy.ledger.storage.values import Verification
from tacit.privacy.randomness.keys import KeyRing


def verify(connection: Connection, keys: KeyRing | None) -> Verification:
    """Check everything. Without keys, the members of tasks are not checked.

    Raises:
        LedgerError: Something differs; the message names the first difference.
    """
    try:
        return _verify(connection, keys)
    except (LedgerError, DBAPIError, UnicodeDecodeError):
        raise
    except (TacitError, InvalidRequestError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise LedgerError(integrity.damaged(f"a value cannot be read: {type(error).__name__}")) from None


def _verify(connection: Connection, keys: KeyRing | None) -> Verification:
    integrity.check_pages(connection)
    with engine.in_memory() as replica:
        tables.metadata.create_all(replica)
        triggers.install(replica)
        head = history.apply_log(history.rows(connection), replica)
        for table in tables.PROJECTION:
            _compare(connection, replica, table)
    _check_prices(connection)
    _check_costs(connection)
    _check_reads(connection)
    officers.check(connection)
    if keys is not None:
        enrolment.check(connection, keys)
    _check_budgets(connection, prices.Prices())
    integrity.check_declared(connection)
    counted = (tables.streams, blocks, grants, lists)
    counts = {table.name: connection.execute(select(func.count()).select_from(table)).scalar_one() for table in counted}
    return Verification(head=head, entries=head.seq, **counts)


def _compare(connection: Connection, replica: Connection, table: Table) -> None:
    # Compared as stored, so that no conversion hides a flipped bit (as Booleans, 1 and 5 are the same).
    raw = connection.dialect.name == replica.dialect.name
    columns = [type_coerce(column, NullType()).label(column.name) if raw else column for column in table.columns]
    query = select(*columns).order_by(*table.primary_key.columns)
    stored = iter(connection.execute(query))
    expected = iter(replica.execute(query))
    while True:
        have, want = next(stored, None), next(expected, None)
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


def _check_prices(connection: Connection) -> None:
    for row in connection.execute(select(lists)):
        if event_lists.digest(event_lists.parse(row.events)) != row.hash:
            raise LedgerError(f"the event list {row.hash[:12]} does not match its hash; restore the ledger")
    for row in connection.execute(select(tables.prices)).all():
        events = event_lists.get(connection, row.list_hash)
        budget = Budget(epsilon=1.0, delta=row.delta, adjacency=row.adjacency)
        if prices.computed_price(events, budget, row.times) != row.nano:
            raise LedgerError(
                f"the price of event list {row.list_hash[:12]} differs from its events; restore the ledger"
            )
    for row in connection.execute(select(tables.rates)).all():
        events = event_lists.get(connection, row.list_hash)
        if prices.dump(prices.computed_curve(events, Adjacency(row.adjacency))) != row.curve:
            raise LedgerError(
                f"the curve of event list {row.list_hash[:12]} differs from its events; restore the ledger"
            )


def _check_costs(connection: Connection) -> None:
    """The recorded costs of reservations follow from their events."""
    known: dict[tuple[str, str], tuple[int, ...]] = {}
    owner = {
        row.id: row.adjacency
        for row in connection.execute(select(blocks.c.id, tables.streams.c.adjacency).join_from(blocks, tables.streams))
    }
    for seq, text in connection.execute(select(log.c.seq, log.c.body).where(log.c.kind == "reserve")).all():
        body = json.loads(text)
        for block, event, extra in body["reads"]:
            if extra != additive_delta(from_json(event)):
                raise LedgerError(
                    f"entry {seq} states another additive δ than its event for block {block}; restore the ledger"
                )
        for block, costs in body["costs"]:
            query = select(curves.c.place).where(curves.c.block_id == block).order_by(curves.c.place)
            indices = connection.execute(query).scalars().all()
            total = [0] * len(indices)
            for event in (event for other, event, _ in body["reads"] if other == block):
                key = (event, owner[block])
                if key not in known:
                    known[key] = cost_units(rdp_curve(from_json(event), Adjacency(owner[block])))
                total = [sum(pair) for pair in zip(total, (known[key][index] for index in indices), strict=True)]
            if total != costs:
                raise LedgerError(
                    f"entry {seq} states other costs than its events for block {block}; restore the ledger"
                )


def _check_reads(connection: Connection) -> None:
    """No committed block was read beyond its list."""
    query = select(charges.c.block_id, charges.c.event, blocks.c.list_hash, blocks.c.mode, blocks.c.state)
    query = query.join_from(charges, grants).join(blocks, blocks.c.id == charges.c.block_id)
    used: dict[tuple[int, str | None], Counter[str]] = {}
    for row in connection.execute(query.where(grants.c.state != "VOID", blocks.c.mode == "committed")):
        used.setdefault((row.block_id, row.list_hash), Counter())[row.event] += 1
    for (block, name), events in used.items():
        if events - Counter(event_lists.get(connection, name)):
            raise LedgerError(
                f"block {block} was charged for events that its list does not contain; restore the ledger"
            )


def _check_budgets(connection: Connection, fresh: prices.Prices) -> None:
    for stream in all_streams(connection):
        budget = budget_of(stream)
        lost, _ = statement.epsilon(connection, stream, fresh)
        if lost > budget.epsilon and not statement.exposures(connection, stream.id):
            raise LedgerError(
                f"stream {stream.name!r} lost ε = {lost:.6g}, above its budget of {budget.epsilon:g}; restore the "
                "ledger if that was not so before, else state what was lost with `tacit ledger raise`"
            )
    try:
        gate.check_cap(connection, {}, fresh, recorded_policy(connection), ahead=False)
    except LedgerError as error:
        raise LedgerError(f"the ledger exceeds its policy: {error}") from None
