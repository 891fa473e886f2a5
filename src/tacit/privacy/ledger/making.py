"""Streams, blocks and parts: made once, found again by their keyed identity.

Guarantee: a name has one budget for ever, records have one block, and parts inherit everything that their parent
has promised.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dp_accounting.dp_event import DpEvent
from sqlalchemy import Connection, Row, func, select

from tacit.errors import LedgerError
from tacit.privacy.accounting import ORDERS
from tacit.privacy.filters import RenyiFilter
from tacit.privacy.keys import KeyRing
from tacit.privacy.ledger import gate
from tacit.privacy.ledger.chain import Transaction, canonical
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.profile import Face, budget_of
from tacit.privacy.ledger.tables import blocks, charges, fingerprints, grants, streams
from tacit.privacy.ledger.terms import BlockRow, Mode, Overlap, StreamTerms
from tacit.privacy.policy import Policy

FIELDS = ("unit", "adjacency", "epsilon", "delta", "tasks_per_unit", "records_per_unit", "fixed_schedule", "public")


def stream(txn: Transaction, terms: StreamTerms, keys: KeyRing, policy: Policy) -> int:
    """Create the stream, or find it; other terms than the recorded ones are refused."""
    budget = terms.budget
    values = {
        "unit": str(budget.unit),
        "adjacency": str(budget.adjacency),
        "epsilon": float(budget.epsilon),
        "delta": float(budget.delta),
        "tasks_per_unit": terms.tasks_per_unit,
        "records_per_unit": terms.records_per_unit,
        "fixed_schedule": terms.fixed_schedule,
        "public": terms.public,
    }
    identity = keys.identity("stream", terms.name)
    found = txn.connection.execute(select(streams).where(streams.c.identity == identity)).first()
    if found is not None:
        for field in FIELDS:
            if getattr(found, field) != values[field]:
                raise LedgerError(_other_terms(terms.name, field, getattr(found, field), values[field]))
        return int(found.id)
    gate.check_new(txn.connection, terms, policy)
    number = _next(txn.connection, streams.c.id)
    txn.record("stream", {"id": number, "identity": identity, "name": terms.name, **values})
    return number


def _other_terms(name: str, field: str, recorded: object, given: object) -> str:
    way = "raise it with raise_budget" if field in ("epsilon", "delta") else "use the recorded value"
    return f"stream {name!r} is recorded with {field} = {recorded}, got {given}; {way}, or give other data another name"


def block(
    txn: Transaction,
    stream_id: int,
    task: str,
    *,
    part: str,
    mode: Mode,
    like: DpEvent | None,
    size: int,
    labels: Sequence[Any],
    fingerprint: str | None,
    overlap: Overlap,
    keys: KeyRing,
    prices: Prices,
    policy: Policy,
) -> BlockRow:
    """Create the root block of a task, or find it."""
    connection = txn.connection
    owner = stream_row(connection, stream_id)
    if mode not in ("committed", "open"):
        raise LedgerError(f"mode must be 'committed' or 'open', got {mode!r}")
    if not task or not part or "/" in part:
        raise LedgerError(f"a task and a part need names (a part without '/'), got task {task!r} and part {part!r}")
    if not 0 <= size < 2**62:
        raise LedgerError(f"the nominal size of task {task!r} must be a count ≥ 0, got {size}")
    identity = keys.identity("block", owner.identity, task, part)
    found = connection.execute(select(blocks).where(blocks.c.identity == identity)).first()
    if found is None:
        here = (blocks.c.stream_id == stream_id) & (blocks.c.task == task)
        other = connection.execute(select(blocks.c.part).where(here).limit(1)).scalar_one_or_none()
        if other is not None:
            raise LedgerError(
                f"task {task!r} of {owner.name!r} is in the ledger as part {other!r}; split that block to get "
                f"part {part!r}, so that no record is in two blocks"
            )
    elif found.mode != mode:
        raise LedgerError(
            f"task {task!r} of {owner.name!r} is a {found.mode} block, got mode {mode!r}; a block keeps its mode"
        )
    elif found.overlap != overlap:
        raise LedgerError(
            f"the units of task {task!r} were {found.overlap} when it was admitted, now they are {overlap}; give the "
            "same kind of source (with ids, or without) again"
        )
    own = None if found is None else found.id
    known = fingerprint is not None and _known(connection, fingerprint, own, public=owner.public)
    if found is not None:
        _same_facts(found, size, labels)
        if found.state == "split" and found.overlap == "declared" and not known:
            raise LedgerError(
                f"the records of task {task!r} are not those that were split, and without ids they would change sides; "
                "admit the same records, or give ids"
            )
        if fingerprint is not None:  # at every admission: whether records changed must not show in the chain
            txn.record("refresh", {"block": found.id, "fingerprint": fingerprint})
        return row_of(found)
    number = _next(connection, blocks.c.id)
    body: dict[str, Any] = {
        "id": number,
        "identity": identity,
        "stream_id": stream_id,
        "task": task,
        "part": part,
        "mode": mode,
        "size": int(size),
        "labels": canonical([_plain(label) for label in labels]),
        "fingerprint": fingerprint,
        "overlap": overlap,
        "filter": None,
    }
    if mode == "open":
        body["filter"] = rows = _filter(owner, like)
        places = tuple((place, limit) for place, _, limit in rows)
        face = Face(limits=places)
        gate.check(connection, {number: (gate.Where(stream_id, number), face)}, prices, policy)
    txn.record("block", body)
    return block_row(connection, number)


def _filter(owner: Row[Any], like: DpEvent | None) -> list[tuple[int, float, int]]:
    """One k-th of the stream's filter: (place in the grid, order, nano-RDP)."""
    budget = budget_of(owner)
    whole = RenyiFilter.for_budget(budget) if like is None else RenyiFilter.for_budget(budget, like=like)
    share = whole.share(owner.tasks_per_unit)
    pairs = zip(share.orders, share.limit_units, strict=True)
    return [(ORDERS.index(order), order, limit) for order, limit in pairs]


def _same_facts(found: Row[Any], size: int, labels: Sequence[Any]) -> None:
    """Public facts are declared once: corrected ones would follow the data."""
    if found.size != int(size):
        raise LedgerError(f"task {found.task!r} was declared with size {found.size}, got {size}; keep the declared one")
    if found.labels != canonical([_plain(label) for label in labels]):
        raise LedgerError(
            f"task {found.task!r} was declared with other labels, {found.labels}; keep them (in code, "
            "vault.with_labels takes others)"
        )


def _known(connection: Connection, fingerprint: str, own: int | None, *, public: bool) -> bool:
    """Whether the block has shown these records before. Records of another private block are refused; and in a private
    stream those that left the vault raw as public ones: no bound can be given for them."""
    query = select(blocks.c.id, blocks.c.task, blocks.c.exposed, streams.c.name, streams.c.public)
    query = query.join_from(blocks, streams).join(fingerprints, fingerprints.c.block_id == blocks.c.id)
    found = connection.execute(query.where(fingerprints.c.fingerprint == fingerprint)).all()
    for other in found:
        if other.id != own and not other.public:
            raise LedgerError(
                f"these records are already in the ledger as stream {other.name!r}, task {other.task!r}; use that "
                "name, or the same budget would be spent twice"
            )
        if other.id != own and other.exposed and not public:
            raise LedgerError(
                f"these records were declared public as stream {other.name!r}, task {other.task!r}, and left the vault "
                "raw; they cannot be private now"
            )
    return any(other.id == own for other in found)


def split(
    txn: Transaction, block_id: int, parts: Mapping[str, int], shares: Mapping[str, float], keys: KeyRing
) -> list[BlockRow]:
    """Cut a block into parts that inherit its promises; the same cut again finds them."""
    connection = txn.connection
    parent = raw_block(connection, block_id)
    if not parts or any(not name or "/" in name for name in parts):
        raise LedgerError(f"a split needs part names without '/', got {list(parts)}")
    prefix = "" if parent.part == "all" else parent.part + "/"
    names = {prefix + name: int(size) for name, size in parts.items()}
    if parent.state == "split":
        children = connection.execute(select(blocks).where(blocks.c.parent_id == block_id)).all()
        cut = {prefix + name: (int(size), shares.get(name)) for name, size in parts.items()}
        if {child.part: (child.size, child.share) for child in children} != cut:
            known = ", ".join(f"{child.part} ({child.share or child.size})" for child in children)
            raise LedgerError(f"task {parent.task!r} was split into {known}, got {dict(names)}; a split is made once")
        order = {child.part: child for child in children}
        return [row_of(order[name]) for name in names]
    if parent.state != "live":
        raise LedgerError(f"part {parent.part!r} of task {parent.task!r} is {parent.state} and cannot be split")
    if parent.mode == "committed" and _was_read(connection, block_id):
        raise LedgerError(
            f"task {parent.task!r} has been read, and what is chosen after a release is not committed; split it before "
            "its first read, or admit it as open"
        )
    owner = stream_row(connection, parent.stream_id)
    first = _next(connection, blocks.c.id)
    new = [
        {
            "id": first + place,
            "identity": keys.identity("block", owner.identity, parent.task, name),
            "part": name,
            "size": size,
            "share": shares.get(name.removeprefix(prefix)),
        }
        for place, (name, size) in enumerate(names.items())
    ]
    txn.record("split", {"parent": block_id, "children": new})
    return [block_row(connection, first + place) for place in range(len(new))]


def _was_read(connection: Connection, block_id: int) -> bool:
    query = select(grants.c.id).join_from(grants, charges).where(charges.c.block_id == block_id)
    return connection.execute(query.where(grants.c.state != "VOID").limit(1)).first() is not None


def find(connection: Connection, stream: str, task: str, part: str, keys: KeyRing) -> tuple[BlockRow, StreamTerms]:
    """A block by the names it was declared under."""
    owner = connection.execute(select(streams).where(streams.c.identity == keys.identity("stream", stream))).first()
    identity = None if owner is None else keys.identity("block", owner.identity, task, part)
    row = connection.execute(select(blocks).where(blocks.c.identity == identity)).first()
    if owner is None or row is None:
        raise LedgerError(f"the ledger has no block {stream}/{task}/{part}; check the names, or admit its records")
    return row_of(row), terms_of(owner)


def terms_of(stream: Row[Any]) -> StreamTerms:
    """What a row of `streams` says."""
    return StreamTerms(
        name=stream.name,
        budget=budget_of(stream),
        tasks_per_unit=stream.tasks_per_unit,
        records_per_unit=stream.records_per_unit,
        fixed_schedule=stream.fixed_schedule,
        public=stream.public,
    )


def stream_row(connection: Connection, stream_id: int) -> Row[Any]:
    row = connection.execute(select(streams).where(streams.c.id == stream_id)).first()
    if row is None:
        raise LedgerError(f"the ledger has no stream {stream_id}; make it with ledger.stream(terms)")
    return row


def raw_block(connection: Connection, block_id: int) -> Row[Any]:
    row = connection.execute(select(blocks).where(blocks.c.id == block_id)).first()
    if row is None:
        raise LedgerError(f"the ledger has no block {block_id}; make it with ledger.block(…)")
    return row


def raw_blocks(connection: Connection, ids: Iterable[int]) -> dict[int, Row[Any]]:
    """Many rows at once."""
    wanted = list(ids)
    rows: dict[int, Row[Any]] = {}
    for start in range(0, len(wanted), 500):
        chunk = wanted[start : start + 500]
        rows |= {row.id: row for row in connection.execute(select(blocks).where(blocks.c.id.in_(chunk)))}
    for missing in set(wanted) - set(rows):
        raise LedgerError(f"the ledger has no block {missing}; make it with ledger.block(…)")
    return rows


def block_row(connection: Connection, block_id: int) -> BlockRow:
    return row_of(raw_block(connection, block_id))


def row_of(row: Row[Any]) -> BlockRow:
    """The public face of a row of `blocks`."""
    same = (
        "id",
        "identity",
        "stream_id",
        "root_id",
        "parent_id",
        "task",
        "part",
        "mode",
        "size",
        "overlap",
        "exposed",
        "state",
    )
    values = {key: getattr(row, key) for key in same}
    return BlockRow(**values, labels=tuple(json.loads(row.labels)), committed=row.list_hash is not None)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item() if hasattr(value, "item") else value


def _next(connection: Connection, column: Any) -> int:
    return int(connection.execute(select(func.coalesce(func.max(column), 0))).scalar_one()) + 1
