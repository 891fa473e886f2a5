"""What many tests need and nothing changes between them: the tables of a new ledger, and the prices of events.

Both are computed by tacit's own code the first time. The tables of a new ledger are then copied instead of being built
by three migrations, which takes a tenth of a second each time; older ledgers are still migrated. The pure functions of
the accountants are looked up in a table that the workers of one test session share.
"""

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from tacit.privacy.accounting import epsilon, rdp
from tacit.privacy.ledger.storage import engine, schema


class NewTables:
    """`schema.upgrade`, with the tables of an empty database copied from those that it made first."""

    def __init__(self, migrate: Callable[[Connection], None]) -> None:
        self.migrate = migrate
        self.statements: list[str] = []

    def __call__(self, connection: Connection) -> None:
        if connection.execute(text("SELECT 1 FROM sqlite_master")).first() is not None:
            self.migrate(connection)
            return
        for statement in self.statements or self._first():
            connection.exec_driver_sql(statement)

    def _first(self) -> list[str]:
        with engine.in_memory() as connection:
            self.migrate(connection)
            dump = connection.connection.driver_connection.iterdump()  # type: ignore[union-attr]
            self.statements = [line for line in dump if line not in ("BEGIN TRANSACTION;", "COMMIT;")]
        return self.statements


class Shared:
    """A pure function whose values are stored in memory and in a table that other processes read.

    A process that a test forks computes for itself: SQLite's connections must not cross a fork.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self.function, self.folder = function, folder
        self.name = f"{function.__module__}.{function.__name__}"
        self.cache_clear()

    def cache_clear(self) -> None:
        """Compute from here on, as after `functools.lru_cache`'s: a test that calls it wants to see the work done."""
        self.values: dict[str, Any] = {}
        self.table: sqlite3.Connection | None = None
        self.process = 0

    def __call__(self, *args: Any) -> Any:
        key = f"{self.name}{args!r}"
        if key not in self.values:
            self.values[key] = self._stored(key, args)
        return self.values[key]

    def share(self) -> "Shared":
        """Read and write the shared table."""
        self.table = sqlite3.connect(
            self.folder / "prices.sqlite", isolation_level=None, timeout=60, check_same_thread=False
        )
        self.process = os.getpid()
        self.table.execute("PRAGMA synchronous=OFF")
        self.table.execute("PRAGMA journal_mode=WAL")
        self.table.execute("CREATE TABLE IF NOT EXISTS prices (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
        return self

    def _stored(self, key: str, args: tuple[Any, ...]) -> Any:
        if self.table is None or self.process != os.getpid():
            return self.function(*args)
        row = self.table.execute("SELECT value FROM prices WHERE key = ?", (key,)).fetchone()
        if row is not None:
            value = json.loads(row[0])
            return tuple(value) if isinstance(value, list) else value
        value = self.function(*args)
        as_json = json.dumps([float(one) for one in value] if isinstance(value, tuple) else float(value))
        self.table.execute("INSERT OR IGNORE INTO prices VALUES (?, ?)", (key, as_json))
        return value


def install(folder: Path) -> None:
    """Replace the functions for the whole process."""
    schema.upgrade = NewTables(schema.upgrade)  # type: ignore[assignment]
    for module, name in (
        (epsilon, "_epsilon"),
        (epsilon, "_delta"),
        (epsilon, "_rdp_curve"),
        (rdp, "_poisson_gaussian"),
    ):
        setattr(module, name, Shared(getattr(module, name).__wrapped__, folder).share())
