"""Triggers: rules that the database enforces, whatever process writes to it.

Formal guarantees:

* Log entries and charges are never changed or deleted.
* A grant starts RESERVED and moves only RESERVED → CHARGED → RELEASED or RESERVED → VOID. Its token never decreases.
* Code of another format than the tables' cannot append entries, and therefore cannot change anything.
"""

from sqlalchemy import Connection

_BAD_MOVE = (
    "OLD.state <> NEW.state AND NOT (OLD.state = 'RESERVED' AND NEW.state IN ('CHARGED', 'VOID')) "
    "AND NOT (OLD.state = 'CHARGED' AND NEW.state = 'RELEASED')"
)
_REWRITTEN = "OLD.id <> NEW.id OR OLD.pin <> NEW.pin OR OLD.holder <> NEW.holder OR OLD.plan <> NEW.plan"

NEWER = "this ledger was brought to a newer format by another process; upgrade tacit"

Rules = tuple[tuple[str, str, str, str | None, str], ...]
"""(name, verb, table, when, message)."""

RULES_0001: Rules = (
    ("log_update", "UPDATE", "log", None, "the log is append-only"),
    ("log_delete", "DELETE", "log", None, "the log is append-only"),
    ("charges_update", "UPDATE", "charges", None, "a charge never changes"),
    ("charges_delete", "DELETE", "charges", None, "a charge is never deleted"),
    ("grants_delete", "DELETE", "grants", None, "a grant is never deleted"),
    ("grants_insert", "INSERT", "grants", "NEW.state <> 'RESERVED'", "a grant starts RESERVED"),
    ("grants_move", "UPDATE", "grants", _BAD_MOVE, "a grant moves only forward"),
    ("grants_token", "UPDATE", "grants", "NEW.token < OLD.token", "a token never goes back"),
    ("grants_fixed", "UPDATE", "grants", _REWRITTEN, "the work of a grant never changes"),
)
"""Frozen, like the migrations that install them."""
RULES_0002: Rules = (("log_format", "INSERT", "log", "NEW.format IS NULL OR NEW.format <> '0002'", NEWER),)
"""Every later migration replaces this rule, since a process with older code may still have the ledger open."""
RULES_0003: Rules = (("log_format", "INSERT", "log", "NEW.format IS NULL OR NEW.format <> '0003'", NEWER),)
"""Replaces RULES_0002: older code would adopt a policy without an officer's signature."""
RULES = (*RULES_0001, *RULES_0003)


def install(connection: Connection, rules: Rules = RULES) -> None:
    """Create the triggers in the dialect of the connection."""
    make = {"sqlite": _sqlite, "postgresql": _postgresql}[connection.dialect.name]
    for rule in rules:
        for statement in make(*rule):
            connection.exec_driver_sql(statement)


def remove(connection: Connection, rules: Rules) -> None:
    """Drop the triggers, so that a migration can replace them."""
    for name, _, table, _, _ in rules:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        else:
            connection.exec_driver_sql(f"DROP TRIGGER {name} ON {table}")
            connection.exec_driver_sql(f"DROP FUNCTION {name}()")


def _sqlite(name: str, verb: str, table: str, when: str | None, message: str) -> list[str]:
    guard = f"WHEN {when} " if when else ""
    body = f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
    return [f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW {guard}{body}"]


def _postgresql(name: str, verb: str, table: str, when: str | None, message: str) -> list[str]:
    guard = f"WHEN ({when}) " if when else ""
    return [
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{message}'; END $$",
        f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW {guard}EXECUTE FUNCTION {name}()",
    ]
