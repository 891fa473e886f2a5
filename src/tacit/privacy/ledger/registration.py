"""Registration of streams, blocks and parts of blocks.

Formal guarantees:

* A stream name has one budget. Registering it again with other terms is refused.
* The same records belong to one private block. A keyed fingerprint recognises records that are admitted under a second
  name, unless they were changed.
* The parts of a split block inherit every charge of their parent, and the parent cannot be charged any more.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dp_accounting.dp_event import DpEvent
from sqlalchemy import Connection, Row, exists, func, select

from tacit.errors import LedgerError
from tacit.privacy.accounting.epsilon import ORDERS
from tacit.privacy.accounting.filters import RenyiFilter
from tacit.privacy.ledger.limits import gate
from tacit.privacy.ledger.limits.leaf_bounds import LeafBound
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.limits.prices import Prices
from tacit.privacy.ledger.log.chain import Transaction, canonical
from tacit.privacy.ledger.storage.lookup import DECLARED, block_row, budget_of, raw_block, stream_row
from tacit.privacy.ledger.storage.tables import blocks, charges, fingerprints, grants, log, streams
from tacit.privacy.ledger.storage.values import BlockRow, Mode, Overlap, StreamTerms
from tacit.privacy.randomness.keys import KeyRing


def register_stream(txn: Transaction, terms: StreamTerms, keys: KeyRing, policy: Policy) -> int:
    """Create the stream, or find it; terms that differ from the recorded ones are refused."""
    budget = terms.budget
    values = {
        "unit": str(budget.unit),
        "adjacency": str(budget.adjacency),
        "epsilon": float(budget.epsilon),
        "delta": float(budget.delta),
        **{name: getattr(terms, name) for name in DECLARED},
    }
    identity = keys.identity("stream", terms.name)
    known = txn.connection.execute(select(streams).where(streams.c.identity == identity)).first()
    if known is not None:
        for term, given in values.items():
            if (recorded := getattr(known, term)) != given:
                remedy = "raise it with raise_budget" if term in ("epsilon", "delta") else "use the recorded value"
                raise LedgerError(
                    f"stream {terms.name!r} is recorded with {term} = {recorded}, got {given}; {remedy}, or give other "
                    "data another name"
                )
        return int(known.id)
    gate.check_new(txn.connection, terms, policy)
    stream_id = _next_id(txn.connection, streams.c.id)
    txn.record("stream", {"id": stream_id, "identity": identity, "name": terms.name, **values})
    return stream_id


def register_block(
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
    """Create the block of a task, or find it; declared facts that differ from the recorded ones are refused."""
    connection = txn.connection
    stream = stream_row(connection, stream_id)
    if mode not in ("committed", "open"):
        raise LedgerError(f"mode must be 'committed' or 'open', got {mode!r}")
    if not task or not part or "/" in part:
        raise LedgerError(f"a task and a part need names (a part without '/'), got task {task!r} and part {part!r}")
    if not 0 <= size < 2**62:
        raise LedgerError(f"the nominal size of task {task!r} must be a count ≥ 0, got {size}")
    identity = keys.identity("block", stream.identity, task, part)
    known = connection.execute(select(blocks).where(blocks.c.identity == identity)).first()
    _check_consistent(connection, stream, known, task, part, mode, overlap)
    own_id = None if known is None else known.id
    seen = fingerprint is not None and _seen(connection, fingerprint, own_id, stream=stream.name, public=stream.public)
    if known is not None:
        _check_same_facts(known, size, labels)
        if known.state == "split" and known.overlap == "declared":
            recorded = _split_fingerprint(connection, known.id)
            if recorded != fingerprint if recorded is not None else not seen:
                raise LedgerError(_OTHER_SIDES.format(task=task))
        if fingerprint is not None:  # at every admission, so that the chain does not show whether records changed
            txn.record("refresh", {"block": known.id, "fingerprint": fingerprint})
        return block_row(known)
    block_id = _next_id(connection, blocks.c.id)
    body: dict[str, Any] = {"id": block_id, "identity": identity, "stream_id": stream_id, "task": task, "part": part}
    body |= {"mode": mode, "size": int(size), "labels": _labels_text(labels), "overlap": overlap}
    body |= {"fingerprint": fingerprint, "filter": None}
    if mode == "open":
        share = RenyiFilter.for_budget(budget_of(stream), like=like).share(stream.tasks_per_unit)
        limits = zip(share.orders, share.limit_units, strict=True)
        body["filter"] = rows = [(ORDERS.index(order), order, limit) for order, limit in limits]
        bound = LeafBound(limits=tuple((index, limit) for index, _, limit in rows))
        gate.check(connection, {block_id: (gate.Leaf(stream_id, block_id), bound)}, prices, policy)
    txn.record("block", body)
    return block_row(raw_block(connection, block_id))


def _check_consistent(
    connection: Connection, stream: Row[Any], known: Row[Any] | None, task: str, part: str, mode: str, overlap: str
) -> None:
    """Refuse another part of a known task, or another mode or kind of ids than the block was created with."""
    if known is None:
        same_task = (blocks.c.stream_id == stream.id) & (blocks.c.task == task)
        other = connection.execute(select(blocks.c.part).where(same_task).limit(1)).scalar_one_or_none()
        if other is not None:
            raise LedgerError(
                f"task {task!r} of {stream.name!r} is in the ledger as part {other!r}; split that block to get "
                f"part {part!r}, so that no record is in two blocks"
            )
    elif known.mode != mode:
        raise LedgerError(
            f"task {task!r} of {stream.name!r} is a {known.mode} block, got mode {mode!r}; a block keeps its mode"
        )
    elif known.overlap != overlap:
        raise LedgerError(
            f"the units of task {task!r} were {known.overlap} when it was admitted, now they are {overlap}; give the "
            "same kind of source (with ids, or without) again"
        )


def _check_same_facts(known: Row[Any], size: int, labels: Sequence[Any]) -> None:
    """Public facts are declared once; a later correction could depend on the data."""
    if known.size != int(size):
        raise LedgerError(f"task {known.task!r} was declared with size {known.size}, got {size}; keep the declared one")
    if known.labels != _labels_text(labels):
        raise LedgerError(
            f"task {known.task!r} was declared with other labels, {known.labels}; keep them (in code, "
            "vault.with_labels takes others)"
        )


def _seen(connection: Connection, fingerprint: str, own_id: int | None, *, stream: str, public: bool) -> bool:
    """Whether the block was admitted with these records before.

    Records of another private block are refused. So are, in a private stream, records of which a public stream released
    any part raw: no bound holds for them.
    """
    part = blocks.alias()
    exposed = exists().where(part.c.root_id == blocks.c.id, part.c.exposed).label("exposed")
    query = select(blocks.c.id, blocks.c.task, exposed, streams.c.name, streams.c.public)
    query = query.join_from(blocks, streams).join(fingerprints, fingerprints.c.block_id == blocks.c.id)
    holders = connection.execute(query.where(fingerprints.c.fingerprint == fingerprint)).all()
    for other in holders:
        if other.id != own_id and not other.public and other.name == stream:
            raise LedgerError(
                f"these records were already learned as task {other.task!r}; pass the records of the next task"
            )
        if other.id != own_id and not other.public:
            raise LedgerError(
                f"these records are already in the ledger as stream {other.name!r}, task {other.task!r}; use that "
                "name, or the same budget would be spent twice"
            )
        if other.id != own_id and other.exposed and not public:
            raise LedgerError(
                f"these records were declared public as stream {other.name!r}, task {other.task!r}, and left the vault "
                "raw; they cannot be private now"
            )
    return any(other.id == own_id for other in holders)


def require_not_private(connection: Connection, root: int) -> None:
    """Refuse to release records of a public block raw that a private stream has as well."""
    mine = select(fingerprints.c.fingerprint).where(fingerprints.c.block_id == root)
    query = select(streams.c.name, blocks.c.task).join_from(blocks, streams)
    query = query.join(fingerprints, fingerprints.c.block_id == blocks.c.id)
    other = connection.execute(query.where(fingerprints.c.fingerprint.in_(mine), ~streams.c.public)).first()
    if other is not None:
        raise LedgerError(
            f"these records are also in the private stream {other.name!r}, task {other.task!r}, and cannot leave the "
            "vault raw"
        )


def split_block(
    txn: Transaction,
    block_id: int,
    parts: Mapping[str, int],
    shares: Mapping[str, float],
    keys: KeyRing,
    fingerprint: str | None,
) -> list[BlockRow]:
    """Split a block into parts that inherit its charges; repeating the same split returns the same parts."""
    connection = txn.connection
    parent = raw_block(connection, block_id)
    if not parts or any(not name or "/" in name for name in parts):
        raise LedgerError(f"a split needs part names without '/', got {list(parts)}")
    prefix = "" if parent.part == "all" else parent.part + "/"
    sizes = {prefix + name: int(size) for name, size in parts.items()}
    if parent.state == "split":
        rows = connection.execute(select(blocks).where(blocks.c.parent_id == block_id))
        children = {child.part: child for child in rows}
        wanted = {prefix + name: (int(size), shares.get(name)) for name, size in parts.items()}
        if {part: (child.size, child.share) for part, child in children.items()} != wanted:
            known = ", ".join(f"{part} ({child.share or child.size})" for part, child in children.items())
            raise LedgerError(f"task {parent.task!r} was split into {known}, got {dict(sizes)}; a split is made once")
        recorded = _split_fingerprint(connection, block_id)
        if parent.overlap == "declared" and recorded is not None and fingerprint not in (None, recorded):
            raise LedgerError(_OTHER_SIDES.format(task=parent.task))
        return [block_row(children[name]) for name in sizes]
    if parent.state != "live":
        raise LedgerError(
            f"part {parent.part!r} of task {parent.task!r} is {parent.state}, so it can no longer be split"
        )
    query = select(grants.c.id).join_from(grants, charges).where(charges.c.block_id == block_id)
    was_read = connection.execute(query.where(grants.c.state != "VOID").limit(1)).first() is not None
    if parent.mode == "committed" and was_read:
        raise LedgerError(
            f"task {parent.task!r} has been read, and what is chosen after a release is not committed; split it before "
            "its first read, or admit it as open"
        )
    stream = stream_row(connection, parent.stream_id)
    first_id = _next_id(connection, blocks.c.id)
    new = [
        {
            "id": first_id + index,
            "identity": keys.identity("block", stream.identity, parent.task, name),
            "part": name,
            "size": size,
            "share": shares.get(name.removeprefix(prefix)),
        }
        for index, (name, size) in enumerate(sizes.items())
    ]
    txn.record("split", {"parent": block_id, "children": new, "fingerprint": fingerprint})
    return [block_row(raw_block(connection, first_id + index)) for index in range(len(new))]


_OTHER_SIDES = (
    "the records of task {task!r} are not those that were split, and without ids they would change sides; admit the "
    "same records, or give ids"
)


def _split_fingerprint(connection: Connection, block_id: int) -> str | None:
    """The fingerprint of the records that a block was split with; None if its entry does not say."""
    query = select(log.c.body).where(
        log.c.kind == "split", log.c.body.contains(f'"parent":{block_id}', autoescape=True)
    )
    bodies = (json.loads(text) for text in connection.execute(query).scalars())
    return next((body.get("fingerprint") for body in bodies if body["parent"] == block_id), None)


def _labels_text(labels: Sequence[Any]) -> str:
    """Labels as canonical JSON; NumPy scalars become Python's."""
    return canonical([label.item() if hasattr(label, "item") else label for label in labels])


def _next_id(connection: Connection, column: Any) -> int:
    return int(connection.execute(select(func.coalesce(func.max(column), 0))).scalar_one()) + 1
