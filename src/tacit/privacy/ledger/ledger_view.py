"""A read-only view of a ledger, which needs neither its keys nor write access.

Formal guarantees: a view changes no byte of the ledger, its anchor or its keys. A ledger that lacks the entry its
anchor names is refused. `LedgerView.notes` states what could not be checked.
"""

import json
import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import NoReturn

from sqlalchemy import Engine, select

from tacit.errors import LedgerError
from tacit.privacy.ledger import opening
from tacit.privacy.ledger.ledger import Ledger
from tacit.privacy.ledger.limits.prices import Prices
from tacit.privacy.ledger.log import chain
from tacit.privacy.ledger.storage import copy_detection, engine, schema
from tacit.privacy.ledger.storage.anchor import Anchor
from tacit.privacy.ledger.storage.tables import log
from tacit.privacy.ledger.storage.values import Head
from tacit.privacy.randomness.keys import KeyRing

NO_ANCHOR = "there is no anchor beside it, so a roll-back would not be noticed"
NO_KEYS = "its keys are not here, so which units are in which task was not checked"

TRIES = 20
"""How often a ledger that is being written to is copied again."""


class LedgerView(Ledger):
    """A ledger opened for reading: every query of `Ledger`, and no write.

    While a writer has the ledger open, later queries see what it writes; otherwise the view is of a copy, made now.

    Args:
        path: The ledger's file.

    Attributes:
        notes: What could not be checked when it was opened.

    Raises:
        LedgerError: There is no ledger at the path, or it was rolled back.

    Example:
        >>> with LedgerView("hospital.ledger") as view:
        ...     print(view.totals())
    """

    notes: tuple[str, ...]

    def __init__(self, path: str | Path) -> None:
        file = Path(path).absolute()
        if not file.exists():
            raise LedgerError(f"there is no ledger at {file}; check the path")
        if file.is_dir():
            raise LedgerError(f"{file} is a folder and not a ledger; give the ledger's file")
        if file.stat().st_size == 0:
            raise LedgerError(f"{file} is an empty file and no ledger; check the path")
        self.path = file
        self._init_state(Prices(), Anchor(file))
        wal = _wal(file)
        for _ in range(TRIES):
            before = _state(file, wal)
            # A writer that begins while the file is copied leaves a copy that lacks what it wrote.
            if not self._look_at(file) or _state(file, wal) == before:
                return
            self.close()
        raise LedgerError(f"the ledger {file} is being written to; look again later")

    def _look_at(self, file: Path) -> bool:
        """Opens the ledger; returns whether it lacks the entry that was written last."""
        witnessed = self._anchor.read() if self._anchor else None  # before the snapshot, since others may write
        self._folder = tempfile.TemporaryDirectory(prefix="tacit-view-")
        try:
            self._engine = _opened(file, Path(self._folder.name), self.busy_s)
        except BaseException:
            self._folder.cleanup()
            raise
        try:
            return self._check_opened(file, witnessed)
        except BaseException:
            self.close()
            raise

    def _check_opened(self, path: Path, witnessed: Head | None) -> bool:
        with self._read() as connection:
            first = connection.execute(select(log.c.body).where(log.c.seq == 1)).scalar_one_or_none()
            if first is None:
                raise LedgerError(f"there is no ledger at {path}; check the path")
            body = json.loads(first)
        last = copy_detection.last_write(body["id"])  # read before the snapshot, since others may write
        with self._read() as connection:
            if witnessed is not None and not opening.contains(connection, witnessed):
                raise LedgerError(opening.rolled_back(str(path), witnessed))
            new = chain.head(connection).seq <= 2
            outdated = copy_detection.watched(connection) and copy_detection.lacks(connection, last)
        self.id = body["id"]
        self.keys = _ring(path, test=body.get("test"))
        if self.keys.present and self.keys.identity("ledger", self.id) != body["check"]:
            raise LedgerError(f"the keys beside {path} belong to another ledger; restore the right ones")
        lacks = f"it lacks entry {last.head.seq}, which was written to {last.path}" if last and outdated else ""
        notes = {NO_ANCHOR: witnessed is None and not new, NO_KEYS: not self.keys.present, lacks: outdated}
        self.notes = tuple(note for note, holds in notes.items() if holds)
        return outdated

    @property
    def is_throwaway(self) -> bool:
        return False

    def _write(self) -> NoReturn:
        raise LedgerError(f"the ledger {self.path} was opened for reading; open it with Ledger(path) to write to it")


def _ring(path: Path, test: bool | None) -> KeyRing:
    """The keys beside the ledger, if they can be read. Numbers depend only on whether they are test keys."""
    try:
        return KeyRing.load(path.with_name(path.name + ".keys"))
    except LedgerError:
        return KeyRing.absent(test=test)


def _opened(path: Path, folder: Path, busy_s: float) -> Engine:
    """The database itself, or a copy of it.

    A copy is made where SQLite would have to create files beside the database, which a reader cannot delete again (it
    needs those of the write-ahead log, which exist while a writer has the database open), and where the database has an
    older format.
    """
    try:
        writable = os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
        is_open = _wal(path).exists()
        if not (writable and is_open) or os.geteuid() not in (0, path.stat().st_uid):
            path = _copied(path, folder)
    except OSError as error:
        raise LedgerError(f"cannot read the ledger {path}: {error.strerror}; check its owner") from None
    database = engine.connect_for_reading(path, busy_s=busy_s)
    with engine.transaction(database, str(path), write=False) as connection:
        version = schema.version(connection, str(path))
    if version is None:
        raise LedgerError(f"there is no ledger at {path}; check the path")
    if version == schema.CURRENT:
        return database
    copy = folder / "upgraded"
    with engine.sentences(str(path)), closing(sqlite3.connect(copy)) as target:
        raw = database.raw_connection()
        try:
            assert isinstance(raw.driver_connection, sqlite3.Connection)
            raw.driver_connection.backup(target)
        finally:
            raw.close()
    upgraded = engine.connect(copy)
    with engine.transaction(upgraded, str(path), write=True) as connection:
        schema.upgrade(connection)
    return upgraded


def _copied(path: Path, folder: Path) -> Path:
    """A copy of the database and its write-ahead log, taken while neither was written to."""
    wal = _wal(path)
    for _ in range(TRIES):
        before = _state(path, wal)
        (folder / "copy-wal").unlink(missing_ok=True)
        shutil.copyfile(path, folder / "copy")
        with suppress(FileNotFoundError):  # there is none while no process has the ledger open
            shutil.copyfile(wal, folder / "copy-wal")
        if _state(path, wal) == before:
            return folder / "copy"
        time.sleep(0.1)
    raise LedgerError(f"the ledger {path} is being written to; look again later")


def _wal(path: Path) -> Path:
    """The write-ahead log, which exists while a writer has the database open."""
    return path.with_name(path.name + "-wal")


def _state(*files: Path) -> list[tuple[int, int] | None]:
    states: list[tuple[int, int] | None] = []
    for file in files:
        try:
            states.append((file.stat().st_mtime_ns, file.stat().st_size))
        except FileNotFoundError:
            states.append(None)
    return states
