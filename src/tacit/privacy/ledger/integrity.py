"""Whether the database file itself is whole: what SQLite says of its pages, and whether tables and triggers are ours.

Guarantee: the checks return only if SQLite's own integrity check finds nothing, and every table, index and trigger is
declared as the migrations declare it (a trigger that was taken away lets the log be rewritten). On PostgreSQL the
server looks after its files, and there is nothing to do here.
"""

from sqlalchemy import Connection, text

from tacit.errors import LedgerError
from tacit.privacy.ledger import engine, schema
from tacit.privacy.ledger.tables import log

WAY_OUT = (
    "stop using it and rebuild it from its log with `tacit ledger rebuild --into NEW`, or restore it from a backup"
)
_MOST = 3


def check_pages(connection: Connection) -> None:
    """Refuse a file whose pages, rows or indexes SQLite finds damaged."""
    if connection.dialect.name != "sqlite":
        return
    found = [row[0] for row in connection.execute(text(f"PRAGMA integrity_check({_MOST})"))]
    if found != ["ok"]:
        raise LedgerError(damaged("; ".join(line.strip().replace("\n", " ") for line in found)))


def check_declared(connection: Connection) -> None:
    """Refuse tables, indexes and triggers that are not ours, and rows that refer to nothing."""
    if connection.dialect.name != "sqlite":
        return
    if connection.execute(text("PRAGMA foreign_key_check")).first() is not None:
        raise LedgerError(damaged("a row refers to one that is not there"))
    have, want = _declared(connection), _expected()
    for name in sorted(have.keys() | want.keys()):
        if have.get(name) != want.get(name):
            raise LedgerError(damaged(f"{name} is not declared as this version of tacit declares it"))
    known = log.c.format.is_(None) | log.c.format.in_(schema.KNOWN)
    if (row := connection.execute(log.select().where(~known).limit(1)).first()) is not None:
        raise LedgerError(damaged(f"entry {row.seq} has an unknown format"))


def damaged(why: str) -> str:
    """The sentence."""
    return f"the ledger is damaged ({why}); {WAY_OUT}"


def _declared(connection: Connection) -> dict[str, str]:
    """Every table, index and trigger, by its text without white space."""
    rows = connection.execute(text("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"))
    return {f"{kind} {name}": f"{table}:{''.join(sql.split())}" for kind, name, table, sql in rows}


def _expected() -> dict[str, str]:
    memory = engine.connect(None)
    try:
        with engine.transaction(memory, "in memory", write=True) as fresh:
            schema.upgrade(fresh)
            return _declared(fresh)
    finally:
        memory.dispose()
