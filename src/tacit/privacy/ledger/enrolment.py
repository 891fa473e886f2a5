"""Enrolment of units in tasks: enforces the declared number of tasks per unit.

Formal guarantees:

* Whether a unit is admitted to a task depends on its own earlier tasks only.
* The result is a mask for the vault. Nothing is counted or reported.
* Units are keyed 64-bit names, and the log seals the members of each task with the ledger's key, so `verify` detects a
  removed member.
"""

import json

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, insert, select

from tacit.errors import LedgerError
from tacit.privacy.ledger.log.chain import Transaction
from tacit.privacy.ledger.storage.engine import batches
from tacit.privacy.ledger.storage.lookup import stream_row
from tacit.privacy.ledger.storage.tables import log, members
from tacit.privacy.randomness.keys import KeyRing


def enroll(
    txn: Transaction, stream_id: int, task: str, names: NDArray[np.uint64], tasks_per_unit: int, keys: KeyRing
) -> NDArray[np.bool_]:
    """Record the units of a task; True where a unit may take part."""
    connection = txn.connection
    stream = stream_row(connection, stream_id)
    if stream.tasks_per_unit != tasks_per_unit:
        raise LedgerError(
            f"stream {stream.name!r} is recorded with tasks_per_unit = {stream.tasks_per_unit}, got {tasks_per_unit}"
        )
    units = np.ascontiguousarray(names, dtype=np.uint64).view(np.int64)
    present = _members(connection, stream_id, task)
    full = _full(connection, stream_id, task, units, tasks_per_unit)
    inside = np.isin(units, present)
    allowed: NDArray[np.bool_] = inside | ~np.isin(units, full)
    new = np.unique(units[allowed & ~inside])
    if len(new):
        rows = [{"stream_id": stream_id, "unit": unit, "task": task} for unit in new.tolist()]
        connection.execute(insert(members), rows)
    sealed = _seal(np.union1d(present, new), keys)
    # Written at every admission, so that the chain does not show whether a unit was new.
    txn.record("enroll", {"stream": stream_id, "task": task, "seal": sealed})
    return allowed


def _full(connection: Connection, stream_id: int, task: str, units: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The units that are already in `most` other tasks; only their own rows are read."""
    others = select(members.c.unit).where(members.c.stream_id == stream_id, members.c.task != task)
    others = others.group_by(members.c.unit).having(func.count() >= most)
    full: list[int] = []
    for chunk in batches(np.unique(units).tolist()):
        full += connection.execute(others.where(members.c.unit.in_(chunk))).scalars()
    return np.array(full, dtype=np.int64)


def check(connection: Connection, keys: KeyRing) -> None:
    """Raise LedgerError if the members of a task differ from those that the log sealed last."""
    sealed: dict[tuple[int, str], str] = {}
    for body in connection.execute(select(log.c.body).where(log.c.kind == "enroll").order_by(log.c.seq)).scalars():
        entry = json.loads(body)
        sealed[entry["stream"], entry["task"]] = entry["seal"]
    query = select(members.c.stream_id, members.c.task).distinct()
    stored = {(stream, task) for stream, task in connection.execute(query)}
    for stream, task in sorted(stored | set(sealed)):
        if sealed.get((stream, task)) != _seal(_members(connection, stream, task), keys):
            raise LedgerError(
                f"the members of task {task!r} differ from the log; the ledger was changed, restore it from a backup"
            )


def _members(connection: Connection, stream_id: int, task: str) -> NDArray[np.int64]:
    query = select(members.c.unit).where(members.c.stream_id == stream_id, members.c.task == task)
    return np.sort(np.fromiter(connection.execute(query).scalars(), dtype=np.int64))


def _seal(units: NDArray[np.int64], keys: KeyRing) -> str:
    return keys.identity("members", np.sort(units).astype("<i8").tobytes())
