"""Who was in which task, so that a unit is in no more tasks than was declared.

Guarantee: whether a unit is let in depends on its own past only, and the answer leaves the ledger only as a mask for
the vault: nothing is counted or reported. Units are keyed 64-bit names; the log seals each task's members with the
ledger's key, so that `verify` notices one that was removed.
"""

import json

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, insert, select

from tacit.errors import LedgerError
from tacit.privacy.keys import KeyRing
from tacit.privacy.ledger import tally
from tacit.privacy.ledger.chain import Transaction
from tacit.privacy.ledger.making import stream_row
from tacit.privacy.ledger.tables import log, members


def enroll(
    txn: Transaction, stream_id: int, task: str, names: NDArray[np.uint64], tasks_per_unit: int, keys: KeyRing
) -> NDArray[np.bool_]:
    """Let units into a task; True where a unit may take part."""
    connection = txn.connection
    stream = stream_row(connection, stream_id)
    if stream.tasks_per_unit != tasks_per_unit:
        raise LedgerError(
            f"stream {stream.name!r} is recorded with tasks_per_unit = {stream.tasks_per_unit}, got {tasks_per_unit}"
        )
    units = np.ascontiguousarray(names, dtype=np.uint64).view(np.int64)
    here = _of_task(connection, stream_id, task)
    full = _full(connection, stream_id, task, units, tasks_per_unit)
    inside = np.isin(units, here)
    allowed: NDArray[np.bool_] = inside | ~np.isin(units, full)
    new = np.unique(units[allowed & ~inside])
    if len(new):
        rows = [{"stream_id": stream_id, "unit": unit, "task": task} for unit in new.tolist()]
        connection.execute(insert(members), rows)
    sealed = _seal(np.union1d(here, new), keys)
    # At every admission: whether anybody was new must not show in the chain.
    txn.record("enroll", {"stream": stream_id, "task": task, "seal": sealed})
    return allowed


def _full(connection: Connection, stream_id: int, task: str, units: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Which of these units are in so many other tasks already. Only their own rows are looked at."""
    others = select(members.c.unit).where(members.c.stream_id == stream_id, members.c.task != task)
    others = others.group_by(members.c.unit).having(func.count() >= most)
    found: list[int] = []
    for chunk in tally.batches(np.unique(units).tolist()):
        found += connection.execute(others.where(members.c.unit.in_(chunk))).scalars()
    return np.array(found, dtype=np.int64)


def check(connection: Connection, keys: KeyRing) -> None:
    """Refuse if the members of a task are not those that the log sealed last."""
    sealed: dict[tuple[int, str], str] = {}
    for body in connection.execute(select(log.c.body).where(log.c.kind == "enroll").order_by(log.c.seq)).scalars():
        entry = json.loads(body)
        sealed[entry["stream"], entry["task"]] = entry["seal"]
    query = select(members.c.stream_id, members.c.task).distinct()
    found = {(stream, task) for stream, task in connection.execute(query)}
    for stream, task in sorted(found | set(sealed)):
        if sealed.get((stream, task)) != _seal(_of_task(connection, stream, task), keys):
            raise LedgerError(
                f"the members of task {task!r} differ from the log; the ledger was changed, restore it from a backup"
            )


def _of_task(connection: Connection, stream_id: int, task: str) -> NDArray[np.int64]:
    query = select(members.c.unit).where(members.c.stream_id == stream_id, members.c.task == task)
    return np.sort(np.fromiter(connection.execute(query).scalars(), dtype=np.int64))


def _seal(units: NDArray[np.int64], keys: KeyRing) -> str:
    return keys.identity("members", np.sort(units).astype("<i8").tobytes())
