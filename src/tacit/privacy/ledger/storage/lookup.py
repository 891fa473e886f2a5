"""Rows of streams and blocks, looked up by id or by name."""

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Row, select

from tacit.errors import LedgerError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger.storage.engine import batches
from tacit.privacy.ledger.storage.tables import blocks, streams
from tacit.privacy.ledger.storage.values import BlockRow, StreamTerms
from tacit.privacy.randomness.keys import KeyRing

_COPIED = [field.name for field in fields(BlockRow) if field.name not in ("labels", "committed")]
"""The columns of a block that are copied as they are."""

DECLARED = ("tasks_per_unit", "records_per_unit", "fixed_schedule", "public")
"""The terms of a stream besides its name and its budget."""


def stream_row(connection: Connection, stream_id: int) -> Row[Any]:
    row = connection.execute(select(streams).where(streams.c.id == stream_id)).first()
    if row is None:
        raise LedgerError(f"the ledger has no stream {stream_id}; make it with ledger.stream(terms)")
    return row


def all_streams(connection: Connection) -> list[Row[Any]]:
    return list(connection.execute(select(streams).order_by(streams.c.id)))


def budget_of(stream: Row[Any]) -> Budget:
    """The budget in a row of `streams`."""
    return Budget(epsilon=stream.epsilon, delta=stream.delta, unit=stream.unit, adjacency=stream.adjacency)


def terms_of(stream: Row[Any]) -> StreamTerms:
    """The declared terms in a row of `streams`."""
    return StreamTerms(name=stream.name, budget=budget_of(stream), **{name: getattr(stream, name) for name in DECLARED})


def raw_block(connection: Connection, block_id: int) -> Row[Any]:
    """One row of `blocks`."""
    return raw_blocks(connection, [block_id])[block_id]


def raw_blocks(connection: Connection, ids: Iterable[int]) -> dict[int, Row[Any]]:
    """Rows of `blocks` by their id."""
    wanted = list(ids)
    rows: dict[int, Row[Any]] = {}
    for chunk in batches(wanted):
        rows |= {row.id: row for row in connection.execute(select(blocks).where(blocks.c.id.in_(chunk)))}
    for missing in set(wanted) - set(rows):
        raise LedgerError(f"the ledger has no block {missing}; make it with ledger.block(…)")
    return rows


def block_row(row: Row[Any]) -> BlockRow:
    """A row of `blocks` as a public value."""
    copied = {name: getattr(row, name) for name in _COPIED}
    return BlockRow(**copied, labels=tuple(json.loads(row.labels)), committed=row.list_hash is not None)


def find_block(
    connection: Connection, stream: str, task: str, part: str, keys: KeyRing
) -> tuple[BlockRow, StreamTerms]:
    """A block by the names under which it was declared, and the terms of its stream."""
    owner = connection.execute(select(streams).where(streams.c.identity == keys.identity("stream", stream))).first()
    identity = None if owner is None else keys.identity("block", owner.identity, task, part)
    row = connection.execute(select(blocks).where(blocks.c.identity == identity)).first()
    if owner is None or row is None:
        raise LedgerError(f"the ledger has no block {stream}/{task}/{part}; check the names, or admit its records")
    return block_row(row), terms_of(owner)
