"""Integrity of the database file: SQLite's check of its pages, and the declarations of tables and triggers.

Formal guarantees: the checks return only if SQLite's integrity check finds nothing, and every table, index and trigger
is declared as the migrations declare it (without its triggers the log could be rewritten). On PostgreSQL the server is
responsible for its files, and nothing is checked here.
"""

from sqlalchemy import Connection, text

from tacit.errors import LedgerError
from tacit.privacy.ledger.storage import engine, schema
from tacit.privacy.ledger.storage.tables import log

WAY_OUT = (
    "stop using it and rebuild it from its log with `tacit ledger rebuild --into NEW`, or restore it from a backup"
)
_MAX_REPORTED = 3


def check_pages(connection: Connection) -> None:
    """Raise LedgerError if SQLite finds damaged pages, rows or indexes."""
    if connection.dialect.name != "sqlite":
        return
    problems = [row[0] for row in connection.execute(text(f"PRAGMA integrity_check({_MAX_REPORTED})"))]
    if problems != ["ok"]:
        raise LedgerError(damaged("; ".join(line.strip().replace("\n", " ") for line in problems)))


def check_declared(connection: Connection) -> None:
    """Raise LedgerError on unknown or changed tables, indexes and triggers, and on dangling references."""
    if connection.dialect.name != "sqlite":
        return
    if connection.execute(text("PRAGMA foreign_key_check")).first() is not None:
        raise LedgerError(damaged("a row refers to one that does not exist"))
    with engine.in_memory() as fresh:
        schema.upgrade(fresh)
        want = _declared(fresh)
    have = _declared(connection)
    for name in sorted(have.keys() | want.keys()):
        if have.get(name) != want.get(name):
            raise LedgerError(damaged(f"{name} is not declared as this version of tacit declares it"))
    known = log.c.format.is_(None) | log.c.format.in_(schema.KNOWN)
    if (row := connection.execute(log.select().where(~known).limit(1)).first()) is not None:
        raise LedgerError(damaged(f"entry {row.seq} has an unknown format"))


def damaged(why: str) -> str:
    """The error message for a damaged ledger."""
    return f"the ledger is damaged ({why}); {WAY_OUT}"


def _declared(connection: Connection) -> dict[str, str]:
    """The SQL of every table, index and trigger, without white space."""
    rows = connection.execute(text("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"))
    return {f"{kind} {name}": f"{table}:{''.join(sql.split())}" for kind, name, table, sql in rows}
