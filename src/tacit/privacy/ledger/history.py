"""The history of a ledger: its log, applied to an empty database, wholly or up to an entry.

Formal guarantees: only the log is read, and every entry is checked against its hash before it is applied. The result
follows from the chain alone, whatever the file's tables contain.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, insert, select

from tacit.errors import LedgerError
from tacit.privacy.ledger import opening, stream_summary
from tacit.privacy.ledger.limits.prices import Prices
from tacit.privacy.ledger.log import chain, effects
from tacit.privacy.ledger.storage import engine, tables
from tacit.privacy.ledger.storage.tables import log, streams
from tacit.privacy.ledger.storage.values import Head, StreamSummary


class LogRow(NamedTuple):
    """A row of the log, as stored."""

    seq: int
    kind: str
    body: str
    previous: str
    hash: str
    format: str | None


def rows(connection: Connection, until: Head | None = None) -> Iterator[LogRow]:
    """The log in order, wholly or up to an entry."""
    query = select(*(log.c[name] for name in LogRow._fields)).order_by(log.c.seq)
    for row in connection.execute(query if until is None else query.where(log.c.seq <= until.seq)):
        yield LogRow(*row)


def apply_log(entries: Iterable[LogRow], replica: Connection, *, keep: bool = False) -> Head:
    """Check each entry and apply it to the replica; with `keep`, also write it into the replica's own log."""
    head = chain.GENESIS
    for row in entries:
        if row.seq != head.seq + 1:
            raise LedgerError(f"the log has no entry {head.seq + 1}; the ledger was changed, restore it from a backup")
        sealed = chain.seal(head.hash, row.seq, row.kind, row.body)
        if row.previous != head.hash or row.hash != sealed:
            raise LedgerError(
                f"entry {row.seq} of the log ({row.kind}) does not match its hash; the ledger was changed, restore it"
            )
        try:
            if keep:
                replica.execute(insert(log), row._asdict())
            effects.apply(replica, row.seq, row.kind, json.loads(row.body))
        except Exception as error:  # a forged entry may cause any exception
            raise LedgerError(
                f"entry {row.seq} of the log ({row.kind}) cannot be applied ({type(error).__name__}); restore it"
            ) from None
        head = Head(seq=row.seq, hash=row.hash)
    return head


def summary_at(connection: Connection, head: Head, stream: str, ledger_id: str) -> StreamSummary:
    """The summary of a stream, by its keyed identity, as it was just after an entry."""
    with engine.in_memory() as replica:
        tables.metadata.create_all(replica)
        if apply_log(rows(connection, head), replica, keep=True) != head:
            raise LedgerError(f"the ledger has no entry {head.seq} of this hash: it was rolled back, or is another")
        row = replica.execute(select(streams.c.id).where(streams.c.identity == stream)).first()
        if row is None:
            raise LedgerError(f"the ledger held no such stream after entry {head.seq}")
        return stream_summary.of_stream(replica, row.id, ledger_id, opening.recorded_policy(replica), Prices())
