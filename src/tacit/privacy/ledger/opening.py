"""Opening a ledger: its file, tables, keys and anchor must belong together.

Formal guarantees: a foreign, newer, damaged, rolled-back or keyless ledger is refused and left unchanged. A new ledger
is complete (tables, keys, first entries) or does not exist.
"""

import json
import os
import uuid
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import InvalidRequestError

from tacit.errors import LedgerError
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.log import chain
from tacit.privacy.ledger.storage import copy_detection, schema
from tacit.privacy.ledger.storage.anchor import Anchor
from tacit.privacy.ledger.storage.engine import DAMAGED, keep_write_ahead_log, transaction
from tacit.privacy.ledger.storage.tables import log
from tacit.privacy.ledger.storage.values import Head
from tacit.privacy.randomness.keys import KeyRing


def touch(path: Path) -> None:
    """Create an owner-only empty file unless there is one."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except FileNotFoundError:
        raise LedgerError(
            f"the folder {path.parent} does not exist; create it first (a ledger is kept for years)"
        ) from None
    except OSError as error:
        raise LedgerError(f"cannot open the ledger {path}: {error.strerror}; check the path and its owner") from None


def prepare(
    engine: Engine, path: Path, anchor: Anchor | None, keys: KeyRing | None, policy: Policy | None, why: str
) -> tuple[str, KeyRing]:
    """The id and the keys of the ledger in this database; a new ledger is initialised."""
    where = str(path)
    if not begun(engine, where):
        with anchor.locked() if anchor else nullcontext():
            if not begun(engine, where):  # another process may have initialised it
                if anchor is not None and (witnessed := anchor.read()) is not None:
                    raise LedgerError(rolled_back(where, witnessed))
                keep_write_ahead_log(engine, where)
                with transaction(engine, where, write=True) as connection:
                    if schema.version(connection, where) != schema.CURRENT:
                        schema.upgrade(connection)
                    if chain.head(connection).seq == 0:
                        _begin(connection, _keys(path, keys, new=True), policy, why)
    witnessed = None if anchor is None else _witnessed(engine, anchor, where)  # before the snapshot: others may write
    with transaction(engine, where, write=False) as connection:
        body = _first(connection, where)
    last = None if anchor is None else copy_detection.last_write(body["id"])  # before the snapshot as well
    with transaction(engine, where, write=False) as connection:
        if witnessed is not None and not contains(connection, witnessed):
            raise LedgerError(rolled_back(where, witnessed))
        if anchor is not None and copy_detection.watched(connection):
            if last is not None and copy_detection.lacks(connection, last):
                raise LedgerError(copy_detection.outdated(where, last))
            if not anchor.is_of(path):
                raise LedgerError(copy_detection.moved(where))
    ring = _keys(path, keys, new=False)
    if ring.identity("ledger", body["id"]) != body["check"]:
        raise LedgerError(f"the keys given for {where} belong to another ledger; restore the right ones")
    return body["id"], ring


def _first(connection: Connection, where: str) -> dict[str, Any]:
    """The ledger's id and the check value of its keys, from the first entry."""
    try:
        body = json.loads(connection.execute(select(log.c.body).where(log.c.seq == 1)).scalar_one())
        return {name: body[name] for name in ("id", "check")}
    except (InvalidRequestError, ValueError, TypeError, LookupError):
        raise LedgerError(f"the ledger {where} {DAMAGED}; nothing was charged") from None


def begun(engine: Engine, where: str) -> bool:
    """Whether the database contains a ledger; one of an older format is upgraded."""
    with transaction(engine, where, write=False) as connection:
        version = schema.version(connection, where)
        if version == schema.CURRENT or version is None:
            return version is not None and chain.head(connection).seq > 0
    with transaction(engine, where, write=True) as connection:
        if schema.version(connection, where) != schema.CURRENT:
            schema.upgrade(connection)
        return chain.head(connection).seq > 0


def _keys(path: Path, given: KeyRing | None, *, new: bool) -> KeyRing:
    if given is not None:
        return given
    file = path.with_name(path.name + ".keys")
    return KeyRing.create(file) if new and not file.exists() else KeyRing.load(file)


def _begin(connection: Connection, keys: KeyRing, policy: Policy | None, why: str) -> None:
    txn = chain.Transaction(connection)
    name = uuid.uuid4().hex
    txn.record(
        "open", {"id": name, "format": schema.CURRENT, "check": keys.identity("ledger", name), "test": keys.test}
    )
    first = {"policy": (policy or Policy()).to_dict(), "by": "tacit", "why": why}
    txn.record("policy", first)


def _witnessed(engine: Engine, anchor: Anchor, where: str) -> Head:
    """The head that the anchor names. A new ledger without an anchor gets one here; otherwise a missing one is
    refused."""
    if (head := anchor.read()) is not None:
        return head
    with anchor.locked():
        if (head := anchor.read()) is not None:
            return head
        with transaction(engine, where, write=False) as connection:
            head = chain.head(connection)
        if head.seq > 2:
            raise LedgerError(
                f"the anchor {anchor.path} is missing, so a roll-back would not be noticed; restore it, or "
                "accept the ledger as it is with `tacit ledger reanchor --why …`"
            )
        anchor.draft(head)
        anchor.publish()
        return head


def contains(connection: Connection, head: Head) -> bool:
    """Whether the chain contains this entry."""
    return connection.execute(select(log.c.hash).where(log.c.seq == head.seq)).scalar_one_or_none() == head.hash


def recorded_policy(connection: Connection) -> Policy:
    """The policy that was adopted last."""
    query = select(log.c.body).where(log.c.kind == "policy").order_by(log.c.seq.desc()).limit(1)
    return Policy.parse(json.loads(connection.execute(query).scalar_one())["policy"], where="the ledger's policy")


def rolled_back(where: str, witnessed: Head) -> str:
    """The error message for a ledger that lacks an entry."""
    return (
        f"the ledger {where} was rolled back: it does not contain entry {witnessed.seq} that its anchor names; restore "
        "the newest file, or accept the loss with `tacit ledger reanchor --why …`"
    )
