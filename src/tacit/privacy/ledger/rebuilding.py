"""A damaged ledger made anew from its log, in another file.

Guarantee: the damaged file is copied before it is read and never written to. The new file holds the same chain, up to
the entry that the anchor names at least, tables that follow from it, and the members of tasks, which the log only
seals, as far as the seals confirm them; `verify` has accepted it before it gets its name. Otherwise there is no new
file. Keys and anchor stay where they are: the new file takes the place of the old one.
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
from tacit.privacy.keys import KeyRing
from tacit.privacy.ledger import engine, enrolment, history, opening, schema
from tacit.privacy.ledger.anchor import Anchor
from tacit.privacy.ledger.history import Entry
from tacit.privacy.ledger.tables import members
from tacit.privacy.ledger.terms import Verification
from tacit.privacy.ledger.verify import verify

_MANY = 1000


def rebuild(path: str | Path, into: str | Path, *, keys: KeyRing | None = None) -> Verification:
    """Make the ledger at `path` anew at `into`, or say in one sentence why its log does not allow it."""
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
            found = _made(copy, draft, ring, Anchor(damaged), str(damaged))
        draft.replace(new)
        return found
    except OSError as error:
        raise LedgerError(f"cannot rebuild {damaged} as {new}: {error.strerror}; check both folders") from None
    finally:
        for left in (draft, *(draft.with_name(draft.name + end) for end in ("-wal", "-shm"))):
            left.unlink(missing_ok=True)


def _copied(damaged: Path, folder: Path) -> Path:
    """With what was written and not yet moved into the file; owner-only, like the folder."""
    for end in ("", "-wal"):
        if (part := damaged.with_name(damaged.name + end)).exists():
            shutil.copyfile(part, folder / f"copy{end}")
    return folder / "copy"


def _made(copy: Path, draft: Path, keys: KeyRing, anchor: Anchor, where: str) -> Verification:
    opening.touch(draft)
    base = engine.connect(draft)
    try:
        engine.keep_write_ahead_log(base, str(draft))
        with engine.transaction(base, str(draft), write=True) as connection:
            schema.upgrade(connection)
            guards = _without_guards(connection)
            head = history.replay(_entries(copy), connection, keep=True)
            for guard in guards:
                connection.exec_driver_sql(guard)
            if (witnessed := anchor.read()) is not None and not opening.contains(connection, witnessed):
                raise LedgerError(
                    f"the log of {where} ends at entry {head.seq}, its anchor names entry {witnessed.seq}: it cannot "
                    "be rebuilt, restore it from a backup"
                )
            _fill_members(copy, connection, keys)
        with engine.transaction(base, str(draft), write=False) as connection:
            return verify(connection, keys)
    finally:
        base.dispose()


def _without_guards(connection: Connection) -> list[str]:
    """Take the triggers of the log away, which refuse entries of earlier formats; their texts, to put them back."""
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'log'"
    guards = connection.execute(text(query)).all()
    for name, _ in guards:
        connection.exec_driver_sql(f"DROP TRIGGER {name}")
    return [sql for _, sql in guards]


def _entries(copy: Path) -> list[Entry]:
    """The log as the table has it, without its indexes, in order."""
    found = [Entry._make(row.get(key) for key in Entry._fields) for row in _rows(copy, "log")]
    known = (one if one.format in schema.KNOWN else one._replace(format=None) for one in found if type(one.seq) is int)
    return sorted(known, key=lambda entry: entry.seq)


def _fill_members(copy: Path, connection: Connection, keys: KeyRing) -> None:
    rows = {(row["stream_id"], row["unit"], row["task"]) for row in _rows(copy, "members")}
    listed = [dict(zip(("stream_id", "unit", "task"), row, strict=True)) for row in sorted(rows, key=str)]
    for start in range(0, len(listed), _MANY):
        connection.execute(insert(members), listed[start : start + _MANY])
    enrolment.check(connection, keys)


def _rows(copy: Path, table: str) -> Iterator[dict[str, Any]]:
    try:
        with closing(sqlite3.connect(copy)) as source:
            source.text_factory = lambda data: data.decode(errors="replace")  # what is not text fails its hash
            source.execute("PRAGMA writable_schema = ON")  # a damaged declaration elsewhere is not needed
            cursor = source.execute(f"SELECT * FROM {table} NOT INDEXED")
            names = [column[0] for column in cursor.description]
            yield from (dict(zip(names, row, strict=True)) for row in cursor)
    except sqlite3.Error as error:
        raise LedgerError(
            f"the table {table} of the ledger cannot be read ({error}), so it cannot be rebuilt; restore it from a "
            "backup"
        ) from None
