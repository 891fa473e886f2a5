"""A ledger that is only looked at: without its keys, and also where nothing can be written.

Guarantee: looking changes no byte of the ledger, its anchor or its keys. A ledger that lacks what its anchor names is
refused as it is elsewhere. What could not be checked (no anchor, no keys) is said in `notes`.
"""

import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from sqlalchemy import Engine, select

from tacit.errors import LedgerError
from tacit.privacy.keys import KeyRing
from tacit.privacy.ledger import chain, copies, engine, opening, schema
from tacit.privacy.ledger.anchor import Anchor
from tacit.privacy.ledger.chain import Transaction
from tacit.privacy.ledger.ledger import Ledger
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.tables import log

NO_ANCHOR = "there is no anchor beside it, so a roll-back would not be noticed"
NO_KEYS = "its keys are not here, so which units are in which task was not checked"

TRIES = 20
"""So often a ledger that is being written to is copied again."""


class LedgerView(Ledger):
    """A ledger opened for reading: every question of `Ledger`, and no write.

    Example: `with LedgerView("copy-for-the-officer.ledger") as book: book.totals()`
    """

    notes: tuple[str, ...]
    """What could not be checked when it was opened."""

    def __init__(self, path: str | Path) -> None:
        place = Path(path).absolute()
        if not place.exists():
            raise LedgerError(f"there is no ledger at {place}; check the path")
        if place.is_dir():
            raise LedgerError(f"{place} is a folder and not a ledger; give the ledger's file")
        if place.stat().st_size == 0:
            raise LedgerError(f"{place} is an empty file and no ledger; check the path")
        self._look(place)

    def _look(self, path: Path) -> None:
        self.path = path
        self._begin(Prices(), Anchor(path))
        self._folder = tempfile.TemporaryDirectory(prefix="tacit-view-")
        try:
            self._engine = _opened(path, Path(self._folder.name), self.busy_s)
        except BaseException:
            self._folder.cleanup()
            raise
        try:
            self._check(path)
        except BaseException:
            self.close()
            raise

    def _check(self, path: Path) -> None:
        witnessed = self._anchor.read() if self._anchor else None
        with self._read() as connection:
            first = connection.execute(select(log.c.body).where(log.c.seq == 1)).scalar_one_or_none()
            if first is None:
                raise LedgerError(f"there is no ledger at {path}; check the path")
            body = json.loads(first)
        seen = copies.recall(body["id"])  # before the snapshot: others write
        with self._read() as connection:
            if witnessed is not None and not opening.contains(connection, witnessed):
                raise LedgerError(opening.rolled_back(str(path), witnessed))
            young = chain.head(connection).seq <= 2
            older = seen is not None and copies.watched(connection) and copies.lacks(connection, seen)
        self.id = body["id"]
        self.keys = _ring(path)
        if self.keys.present and self.keys.identity("ledger", self.id) != body["check"]:
            raise LedgerError(f"the keys beside {path} belong to another ledger; restore the right ones")
        missing = f"it lacks entry {seen.head.seq}, which was written to {seen.path}" if seen and older else ""
        found = {NO_ANCHOR: witnessed is None and not young, NO_KEYS: not self.keys.present, missing: older}
        self.notes = tuple(note for note, holds in found.items() if holds)

    @property
    def is_throwaway(self) -> bool:
        return False

    @contextmanager
    def _write(self) -> Iterator[Transaction]:
        self._refuse()
        yield

    def _refuse(self) -> NoReturn:
        raise LedgerError(f"the ledger {self.path} was opened for reading; open it with Ledger(path) to write to it")


def _ring(path: Path) -> KeyRing:
    """The keys beside the ledger if they can be read. They are needed for no number."""
    try:
        return KeyRing.load(path.with_name(path.name + ".keys"))
    except LedgerError:
        return KeyRing.absent()


def _opened(path: Path, folder: Path, busy_s: float) -> Engine:
    """The database as it is; or a copy of it, where reading would have to make files beside it that cannot be made or
    that its owner could not use, or where it is of an older format."""
    try:
        writable = os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
        if not writable or os.geteuid() not in (0, path.stat().st_uid):
            path = _copied(path, folder)
    except OSError as error:
        raise LedgerError(f"cannot read the ledger {path}: {error.strerror}; check its owner") from None
    base = engine.connect_for_reading(path, busy_s=busy_s)
    with engine.transaction(base, str(path), write=False) as connection:
        found = schema.version(connection, str(path))
    if found is None:
        raise LedgerError(f"there is no ledger at {path}; check the path")
    if found == schema.CURRENT:
        return base
    copy = folder / "upgraded"
    with engine.sentences(str(path)), closing(sqlite3.connect(copy)) as target:
        raw = base.raw_connection()
        try:
            assert isinstance(raw.driver_connection, sqlite3.Connection)
            raw.driver_connection.backup(target)
        finally:
            raw.close()
    newer = engine.connect(copy)
    with engine.transaction(newer, str(path), write=True) as connection:
        schema.upgrade(connection)
    return newer


def _copied(path: Path, folder: Path) -> Path:
    """A copy of the database and of its write-ahead log, taken while nobody wrote to them."""
    left = path.with_name(path.name + "-wal")
    for _ in range(TRIES):
        before = _state(path, left)
        (folder / "copy-wal").unlink(missing_ok=True)
        shutil.copyfile(path, folder / "copy")
        with suppress(FileNotFoundError):  # a ledger that nobody has open has none
            shutil.copyfile(left, folder / "copy-wal")
        if _state(path, left) == before:
            return folder / "copy"
        time.sleep(0.1)
    raise LedgerError(f"the ledger {path} is being written to; look again later")


def _state(*files: Path) -> list[tuple[int, int] | None]:
    found: list[tuple[int, int] | None] = []
    for file in files:
        try:
            found.append((file.stat().st_mtime_ns, file.stat().st_size))
        except FileNotFoundError:
            found.append(None)
    return found
