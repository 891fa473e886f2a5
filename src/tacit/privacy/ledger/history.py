"""The log run again, from an empty database: all of it, or up to an entry.

Guarantee: only the log is read, and each entry is checked against its hash before it is applied, so what comes out
follows from the chain alone, whatever the tables of the file say.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, insert, select

from tacit.errors import LedgerError
from tacit.privacy.ledger import chain, engine, opening, projection, summary, tables
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.tables import log, streams
from tacit.privacy.ledger.terms import Head, Summary


class Entry(NamedTuple):
    """A row of the log."""

    seq: int
    kind: str
    body: str
    previous: str
    hash: str
    format: str | None


def entries(connection: Connection, until: Head | None = None) -> Iterator[Entry]:
    """The log, or its beginning up to an entry, in order."""
    query = select(*(log.c[name] for name in Entry._fields)).order_by(log.c.seq)
    for row in connection.execute(query if until is None else query.where(log.c.seq <= until.seq)):
        yield Entry(*row)


def replay(found: Iterable[Entry], replica: Connection, *, keep: bool = False) -> Head:
    """Check and apply each entry; with `keep`, also write it into the replica's own log."""
    head = chain.GENESIS
    for row in found:
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
            projection.apply(replica, row.seq, row.kind, json.loads(row.body))
        except Exception as error:  # whatever a forged entry provokes
            raise LedgerError(
                f"entry {row.seq} of the log ({row.kind}) cannot be applied ({type(error).__name__}); restore it"
            ) from None
        head = Head(seq=row.seq, hash=row.hash)
    return head


def summary_at(connection: Connection, head: Head, stream: str, ledger_id: str) -> Summary:
    """What a certificate of the stream of this identity said, or should have said, just after an entry."""
    memory = engine.connect(None)
    try:
        with engine.transaction(memory, "in memory", write=True) as replica:
            tables.metadata.create_all(replica)
            if replay(entries(connection, head), replica, keep=True) != head:
                raise LedgerError(f"the ledger has no entry {head.seq} of this hash: it was rolled back, or is another")
            row = replica.execute(select(streams.c.id).where(streams.c.identity == stream)).first()
            if row is None:
                raise LedgerError(f"the ledger held no such stream after entry {head.seq}")
            policy = opening.recorded_policy(replica)
            return summary.of_stream(replica, row.id, ledger_id, policy, Prices())
    finally:
        memory.dispose()
