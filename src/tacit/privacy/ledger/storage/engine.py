"""Access to the database: durable transactions, and database errors as LedgerError.

Formal guarantees: a write transaction takes the write lock before it reads (BEGIN IMMEDIATE) and is on disk when it
returns (WAL, synchronous=FULL). On any error it is rolled back. Condition: the file system honours fsync.
"""

import json
import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from tacit.errors import LedgerError, TacitError

WRITE = "tacit_write"
_ENGINES: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def connect(path: Path, *, busy_s: float = 30.0) -> Engine:
    """An engine on a file."""
    return _listen(create_engine(f"sqlite:///{path}", connect_args={"timeout": busy_s}))


@contextmanager
def in_memory() -> Iterator[Connection]:
    """A write transaction on a new database in memory, which is deleted at the end."""
    engine = _listen(create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}))
    try:
        with transaction(engine, "in memory", write=True) as connection:
            yield connection
    finally:
        engine.dispose()


def connect_for_reading(path: Path, *, busy_s: float = 30.0) -> Engine:
    """A read-only engine."""
    uri = f"file:{quote(str(path))}?mode=ro"
    opened = partial(sqlite3.connect, uri, uri=True, timeout=busy_s)
    return _listen(create_engine("sqlite://", creator=opened, poolclass=NullPool))


def _listen(engine: Engine) -> Engine:
    """Configure every connection of an engine, and begin transactions with the lock that they need."""

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the hook below issues BEGIN
        cursor = connection.cursor()
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        write = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    _ENGINES.add(engine)
    return engine


def _forget_after_fork() -> None:
    """Drop pooled connections in a child process, where SQLite must not use them."""
    for engine in list(_ENGINES):
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget_after_fork)


def keep_write_ahead_log(engine: Engine, where: str) -> None:
    """Switch a new file to write-ahead logging, so that readers never wait for a writer."""
    with sentences(where):
        raw = engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode=WAL")
        finally:
            raw.close()


def batches(ids: Iterable[int], most: int = 500) -> Iterator[list[int]]:
    """Chunks of a few hundred, since databases limit the parameters of a statement."""
    wanted = list(ids)
    for start in range(0, len(wanted), most):
        yield wanted[start : start + most]


@contextmanager
def transaction(engine: Engine, where: str, *, write: bool) -> Iterator[Connection]:
    """A transaction that is committed at the end and rolled back on any error; database errors become LedgerError."""
    with sentences(where), engine.connect() as raw:
        connection = raw.execution_options(**{WRITE: write})
        with connection.begin(), _report_damage(where, write=write):
            yield connection


@contextmanager
def _report_damage(where: str, *, write: bool) -> Iterator[None]:
    """Report rows that cannot be interpreted as damage: missing rows, invalid JSON and, in a read transaction, in which
    only the ledger's own code can fail, any other error."""
    always = (json.JSONDecodeError, SQLAlchemyError)
    errors = always if write else (*always, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
    try:
        yield
    except (TacitError, DBAPIError):
        raise
    except errors:
        raise LedgerError(f"the ledger {where} is damaged; restore the file and its anchor from a backup") from None


@contextmanager
def sentences(where: str) -> Iterator[None]:
    """Turn database errors into LedgerError with a remedy."""
    try:
        yield
    except (DBAPIError, sqlite3.Error, UnicodeDecodeError) as error:
        raise LedgerError(_sentence(where, error)) from None
    except (NoResultFound, MultipleResultsFound):  # a row that every ledger has exactly once
        raise LedgerError(f"the ledger {where} {DAMAGED}; nothing was charged") from None


def _sentence(where: str, error: DBAPIError | sqlite3.Error | UnicodeDecodeError) -> str:
    text = str(error.orig if isinstance(error, DBAPIError) else error)
    for pattern, message in _MESSAGES:
        if pattern in text:
            return f"the ledger {where} {message}; nothing was charged"
    return f"the ledger {where} could not be used ({text}); nothing was charged"


DAMAGED = (
    "is damaged; rebuild it from its log with `tacit ledger rebuild --into NEW`, or restore the file and its anchor "
    "from a backup"
)
_MESSAGES = (
    ("locked", "is locked by another process; wait for it to finish or end it"),
    ("disk is full", "cannot grow: the disk is full; free some space and try again"),
    ("readonly", "is read-only; make the file and its folder writable"),
    ("read-only", "is read-only; make the file and its folder writable"),
    ("not a database", "is not a SQLite file or is damaged; check the path, or restore the file from its backup"),
    ("malformed", DAMAGED),
    ("decode", DAMAGED),
    ("no such table", DAMAGED),
    ("no such column", DAMAGED),
    ("unable to open", "cannot be opened; check that its folder exists and is writable"),
    ("disk I/O", "could not be read or written (disk error or no space left); check the disk"),
    ("append-only", "refused to change its log: the log is append-only"),
    ("CHECK constraint", "refused a spend above a limit; use more noise or fewer steps"),
)
