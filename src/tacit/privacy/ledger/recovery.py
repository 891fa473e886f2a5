"""Recovery of a damaged ledger: rebuilds it from its log, in another file.

Formal guarantees:

* The damaged file is copied before it is read, and is never written to.
* The new file contains the same chain, at least up to the entry that the anchor names, the tables that follow from it,
  and the members of tasks, which must match their seals in the log.
* `verify` accepts the new file before it gets its name; otherwise no new file is left.

Keys and anchor stay where they are: the new file replaces the old one.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, text

from tacit.errors import LedgerError
from tacit.privacy.ledger import enrolment, history, opening
from tacit.privacy.ledger.history import LogRow
from tacit.privacy.ledger.storage import engine, schema
from tacit.privacy.ledger.storage.anchor import Anchor
from tacit.privacy.ledger.storage.tables import members
from tacit.privacy.ledger.storage.values import Verification
from tacit.privacy.ledger.verification import verify
from tacit.privacy.randomness.keys import KeyRing

_BATCH = 1000


def rebuild(path: str | Path, into: str | Path, *, keys: KeyRing | None = None) -> Verification:
    """Rebuild the damaged ledger at `path` as the new file `into`.

    Args:
        path: The damaged ledger; it is not changed.
        into: The new file; it must not exist.
        keys: The ledger's keys, where they are not at `<path>.keys`.

    Returns:
        What `verify` checked in the new file.

    Raises:
        LedgerError: The log is damaged as well, or ends before the entry that the anchor names.
    """
    damaged, new = Path(path).absolute(), Path(into).absolute()
    if not damaged.is_file():
        raise LedgerError(f"there is no ledger at {damaged}; check the path")
    if new.exists():
        raise LedgerError(f"{new} exists; choose another name, a rebuilt ledger is never written over a file")
    ring = keys or KeyRing.load(damaged.with_name(damaged.name + ".keys"))
    draft = new.with_name(new.name + ".new")
    try:
        with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
            copy = _copied(damaged, Path(folder))
            verified = _rebuilt(copy, draft, ring, Anchor(damaged), str(damaged))
        draft.replace(new)
        return verified
    except OSError as error:
        raise LedgerError(f"cannot rebuild {damaged} as {new}: {error.strerror}; check both folders") from None
    finally:
        for rest in (draft, *(draft.with_name(draft.name + end) for end in ("-wal", "-shm"))):
            rest.unlink(missing_ok=True)


def _copied(damaged: Path, folder: Path) -> Path:
    """A copy of the database with its write-ahead log, in an owner-only folder."""
    for end in ("", "-wal"):
        if (part := damaged.with_name(damaged.name + end)).exists():
            shutil.copyfile(part, folder / f"copy{end}")
    return folder / "copy"


def _rebuilt(copy: Path, draft: Path, keys: KeyRing, anchor: Anchor, where: str) -> Verification:
    opening.touch(draft)
    database = engine.connect(draft)
    try:
        engine.keep_write_ahead_log(database, str(draft))
        with engine.transaction(database, str(draft), write=True) as connection:
            schema.upgrade(connection)
            guards = _drop_guards(connection)
            head = history.apply_log(_entries(copy), connection, keep=True)
            for guard in guards:
                connection.exec_driver_sql(guard)
            if (witnessed := anchor.read()) is not None and not opening.contains(connection, witnessed):
                raise LedgerError(
                    f"the log of {where} ends at entry {head.seq}, its anchor names entry {witnessed.seq}: it cannot "
                    "be rebuilt, restore it from a backup"
                )
            _fill_members(copy, connection, keys)
        with engine.transaction(database, str(draft), write=False) as connection:
            return verify(connection, keys)
    finally:
        database.dispose()


def _drop_guards(connection: Connection) -> list[str]:
    """Drop the log's triggers, which refuse entries of earlier formats; returns their SQL, to restore them."""
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'log'"
    guards = connection.execute(text(query)).all()
    for name, _ in guards:
        connection.exec_driver_sql(f"DROP TRIGGER {name}")
    return [sql for _, sql in guards]


def _entries(copy: Path) -> list[LogRow]:
    """The log in order, read from its table without the indexes."""
    rows = [LogRow._make(row.get(key) for key in LogRow._fields) for row in _rows(copy, "log")]
    known = (row if row.format in schema.KNOWN else row._replace(format=None) for row in rows if type(row.seq) is int)
    return sorted(known, key=lambda row: row.seq)


def _fill_members(copy: Path, connection: Connection, keys: KeyRing) -> None:
    rows = {(row["stream_id"], row["unit"], row["task"]) for row in _rows(copy, "members")}
    listed = [dict(zip(("stream_id", "unit", "task"), row, strict=True)) for row in sorted(rows, key=str)]
    for start in range(0, len(listed), _BATCH):
        connection.execute(insert(members), listed[start : start + _BATCH])
    enrolment.check(connection, keys)


def _rows(copy: Path, table: str) -> Iterator[dict[str, Any]]:
    try:
        with closing(sqlite3.connect(copy)) as source:
            source.text_factory = lambda data: data.decode(errors="replace")  # a wrong text fails its hash
            source.execute("PRAGMA writable_schema = ON")  # damaged declarations of other tables do not matter
            cursor = source.execute(f"SELECT * FROM {table} NOT INDEXED")
            names = [column[0] for column in cursor.description]
            yield from (dict(zip(names, row, strict=True)) for row in cursor)
    except sqlite3.Error as error:
        raise LedgerError(
            f"the table {table} of the ledger cannot be read ({error}), so it cannot be rebuilt; restore it from a "
            "backup"
        ) from None
