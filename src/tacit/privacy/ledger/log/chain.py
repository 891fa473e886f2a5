"""The hash chain: every change of the ledger is one entry, whose hash covers all entries before it.

Formal guarantees: an entry and its effect on the tables are written in one transaction, or neither is. Changing,
dropping or reordering an entry changes every later hash.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from tacit.errors import LedgerError
from tacit.privacy.ledger.log import effects
from tacit.privacy.ledger.storage import schema
from tacit.privacy.ledger.storage.tables import log
from tacit.privacy.ledger.storage.values import Head

GENESIS = Head(seq=0, hash="0" * 64)
DECISIONS = ("open", "policy", "officer", "raise", "reanchor", "move", "stream")
"""Kinds of entries that a person decides on. Only these have a time of day: others would show how long work on private
records took."""


def canonical(value: object) -> str:
    """Canonical JSON: sorted keys, no spaces, no NaN."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        text.encode()
        return text
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"{str(value)[:80]} cannot be written to the ledger: {error}; use plain JSON values"
        ) from None


def seal(previous: str, seq: int, kind: str, body: str) -> str:
    """The hash of an entry."""
    return hashlib.sha256(f"{previous}|{seq}|{kind}|{body}".encode()).hexdigest()


def head(connection: Connection) -> Head:
    """The newest entry."""
    row = connection.execute(select(log.c.seq, log.c.hash).order_by(log.c.seq.desc()).limit(1)).first()
    return GENESIS if row is None else Head(seq=row.seq, hash=row.hash)


def when(kind: str) -> str:
    """The time of an entry in UTC: to the second for decisions, the date only for work on records."""
    now = datetime.now(UTC)
    return now.isoformat(timespec="seconds") if kind in DECISIONS else now.date().isoformat()


class Transaction:
    """A write transaction that appends entries to the chain and applies them to the tables."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.head = self._before = head(connection)
        self.broken = False

    @property
    def ledger(self) -> str:
        """The ledger's id."""
        first = self.connection.execute(select(log.c.body).where(log.c.seq == 1)).scalar_one()
        return str(json.loads(first)["id"])

    @property
    def grew(self) -> bool:
        """Whether an entry was appended."""
        return self.head != self._before

    def record(self, kind: str, body: Mapping[str, Any]) -> None:
        """Append one entry, with its time, and apply it."""
        text = canonical({"at": when(kind), **body})
        seq, previous = self.head.seq + 1, self.head.hash
        self.head = Head(seq=seq, hash=seal(previous, seq, kind, text))
        row = {"seq": seq, "kind": kind, "body": text, "previous": previous, "hash": self.head.hash}
        self.connection.execute(insert(log), row | {"format": schema.CURRENT})
        effects.apply(self.connection, seq, kind, json.loads(text))
