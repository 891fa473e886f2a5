"""The version of a database's tables, and the upgrade to the current one.

Formal guarantees: a file that is not a ledger is never written to. A newer ledger is refused, an older one is upgraded
in one transaction, and a ledger that another process upgraded meanwhile is not written to. Alembic is imported only for
an upgrade.
"""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from tacit.errors import LedgerError
from tacit.privacy.ledger.storage.triggers import NEWER

CURRENT = "0003"
KNOWN = ("0001", "0002", "0003")


def version(connection: Connection, where: str) -> str | None:
    """The version of the tables; None for an empty database."""
    names = set(inspect(connection).get_table_names())
    if not names:
        return None
    if not {"alembic_version", "log", "grants"} <= names:
        raise LedgerError(f"{where} is a database but not a tacit ledger; choose another path")
    recorded = _recorded(connection)
    if recorded not in KNOWN:
        raise LedgerError(
            f"the ledger {where} has format {recorded}, this version of tacit knows up to {CURRENT}; update tacit"
        )
    return str(recorded)


def require_current(connection: Connection) -> None:
    """Raise LedgerError if another process upgraded the tables since they were opened."""
    if _recorded(connection) != CURRENT:
        raise LedgerError(NEWER)


def _recorded(connection: Connection) -> str | None:
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def upgrade(connection: Connection) -> None:
    """Create the tables, or upgrade older ones, in the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
