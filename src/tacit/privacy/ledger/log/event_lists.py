"""Event lists, stored once under their hash."""

import hashlib
import json
from collections.abc import Sequence

from dp_accounting.dp_event import DpEvent
from sqlalchemy import Connection, insert, select

from tacit.privacy.accounting.events import compose, from_json
from tacit.privacy.ledger.storage.tables import lists

Texts = tuple[str, ...]
"""Events as canonical JSON (`accounting.events.to_json`)."""


def body(events: Sequence[str]) -> str:
    """The list as one JSON text."""
    return "[" + ",".join(events) + "]"


def digest(events: Sequence[str]) -> str:
    """The hash of a list."""
    return hashlib.sha256(body(events).encode()).hexdigest()


def parse(text: str) -> Texts:
    """The events of a stored list."""
    return tuple(json.dumps(event, sort_keys=True, separators=(",", ":")) for event in json.loads(text))


def put(connection: Connection, events: Sequence[str]) -> str:
    """Store a list if it is new; returns its hash."""
    name = digest(events)
    if connection.execute(select(lists.c.hash).where(lists.c.hash == name)).first() is None:
        connection.execute(insert(lists), {"hash": name, "events": body(events)})
    return name


def get(connection: Connection, name: str | None) -> Texts:
    """The events of a stored list; empty for None."""
    if name is None:
        return ()
    return parse(connection.execute(select(lists.c.events).where(lists.c.hash == name)).scalar_one())


def composed(events: Sequence[str]) -> DpEvent:
    """The composition of all events of a list."""
    return compose(from_json(event) for event in events)
