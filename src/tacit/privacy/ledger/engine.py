"""One way to the database: durable transactions, and database errors as sentences.

Guarantee: a write transaction takes the write lock before it reads (BEGIN IMMEDIATE) and is on disk when it
returns (WAL, synchronous=FULL); on any error nothing of it remains.
"""

import json
import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from tacit.errors import LedgerError, TacitError

WRITE = "tacit_write"
_ENGINES: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def connect(path: Path | None, *, busy_s: float = 30.0) -> Engine:
    """An engine on the file, or on a private in-memory database."""
    if path is None:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": busy_s})

    _listen(engine)
    return engine


def connect_for_reading(path: Path, *, busy_s: float = 30.0) -> Engine:
    """An engine that cannot write."""
    uri = f"file:{quote(str(path))}?mode=ro"
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(uri, uri=True, timeout=busy_s), poolclass=NullPool
    )
    _listen(engine)
    return engine


def _listen(engine: Engine) -> None:
    """Prepare every connection, and say BEGIN as the transaction needs it."""

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # SQLAlchemy's hooks below say BEGIN
        cursor = connection.cursor()
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        write = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    _ENGINES.add(engine)


def _forget_after_fork() -> None:
    """A SQLite connection must not be carried into a child process."""
    for engine in list(_ENGINES):
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget_after_fork)


def keep_write_ahead_log(engine: Engine, where: str) -> None:
    """Once in the life of a file: readers then never wait for a writer."""
    with sentences(where):
        raw = engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode=WAL")
        finally:
            raw.close()


@contextmanager
def transaction(engine: Engine, where: str, *, write: bool) -> Iterator[Connection]:
    """Commit at the end, roll back on any error; database errors leave as one sentence."""
    with sentences(where), engine.connect() as raw:
        connection = raw.execution_options(**{WRITE: write})
        with connection.begin(), _reading_sense(where, write=write):
            yield connection


@contextmanager
def _reading_sense(where: str, *, write: bool) -> Iterator[None]:
    """Rows that make no sense are damage: a missing one, JSON that is none; and, where nothing but the ledger's own
    reading can fail, any other surprise."""
    always = (json.JSONDecodeError, SQLAlchemyError)
    surprises = always if write else (*always, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
    try:
        yield
    except (TacitError, DBAPIError):
        raise
    except surprises:
        raise LedgerError(f"the ledger {where} is damaged; restore the file and its anchor from a backup") from None


@contextmanager
def sentences(where: str) -> Iterator[None]:
    """Turn what the database says into what a person can do about it."""
    try:
        yield
    except (DBAPIError, sqlite3.Error, UnicodeDecodeError) as error:
        raise LedgerError(_sentence(where, error)) from None
    except (NoResultFound, MultipleResultsFound):  # a row that every ledger has once
        raise LedgerError(f"the ledger {where} {DAMAGED}; nothing was charged") from None


def _sentence(where: str, error: DBAPIError | sqlite3.Error | UnicodeDecodeError) -> str:
    text = str(error.orig if isinstance(error, DBAPIError) else error)
    for sign, sentence in _SIGNS:
        if sign in text:
            return f"the ledger {where} {sentence}; nothing was charged"
    return f"the ledger {where} could not be used ({text}); nothing was charged"


DAMAGED = (
    "is damaged; rebuild it from its log with `tacit ledger rebuild --into NEW`, or restore the file and its anchor "
    "from a backup"
)
_SIGNS = (
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
