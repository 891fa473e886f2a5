"""Lists of events, stored once under their hash."""

import hashlib
import json
from collections.abc import Sequence

from dp_accounting.dp_event import DpEvent
from sqlalchemy import Connection, insert, select

from tacit.privacy.events import compose, from_json
from tacit.privacy.ledger.tables import lists

Texts = tuple[str, ...]
"""Events as the canonical texts of `events.to_json`."""


def body(events: Sequence[str]) -> str:
    """The list as one JSON text."""
    return "[" + ",".join(events) + "]"


def digest(events: Sequence[str]) -> str:
    """The name of a list."""
    return hashlib.sha256(body(events).encode()).hexdigest()


def parse(text: str) -> Texts:
    """The texts of a stored list."""
    return tuple(json.dumps(one, sort_keys=True, separators=(",", ":")) for one in json.loads(text))


def put(connection: Connection, events: Sequence[str]) -> str:
    """Store a list unless it is there; returns its name."""
    name = digest(events)
    if connection.execute(select(lists.c.hash).where(lists.c.hash == name)).first() is None:
        connection.execute(insert(lists), {"hash": name, "events": body(events)})
    return name


def get(connection: Connection, name: str | None) -> Texts:
    """The events of a stored list; none for no list."""
    if name is None:
        return ()
    return parse(connection.execute(select(lists.c.events).where(lists.c.hash == name)).scalar_one())


def composed(events: Sequence[str]) -> DpEvent:
    """All events of a list on one unit."""
    return compose(from_json(one) for one in events)
