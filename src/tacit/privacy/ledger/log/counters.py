"""Counters over tasks and grants, so that a stream of many tasks need not be read as a whole.

`profiles` counts the tasks of a stream by their charges, `uses` the grants by kind. Both follow from the log entry by
entry, and `verify` recomputes them. A query costs as much as there are different plans, not tasks.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from tacit.errors import LedgerError
from tacit.privacy.ledger.storage.engine import batches
from tacit.privacy.ledger.storage.tables import blocks, charges, curves, profiles, roots, uses

COMMITTED, SPENT, UNSPENT, UNUSED, EXPOSED = "committed", "spent", "unspent", "unused", "exposed"
"""The kinds of stored leaf bounds. All but `EXPOSED` are followed by a space and the hash of an event list (committed)
or of a filter: one that was charged, one that was not, or one that was retired before any charge."""


def leaf_texts(effective: str | None, filtered: str | None, state: str, *, exposed: bool, spent: bool) -> set[str]:
    """The stored texts of one leaf's bound."""
    texts = {EXPOSED} if exposed else set()
    if effective is not None:
        texts.add(f"{COMMITTED} {effective}")
    elif filtered is not None:
        kind = SPENT if spent else UNUSED if state == "retired" else UNSPENT
        texts.add(f"{kind} {filtered}")
    return texts


def group_text(texts: Iterable[str]) -> tuple[str, str]:
    """The stored text of a task's leaf bounds, and its hash."""
    text = json.dumps(sorted(set(texts)))
    return text, text_hash(text)


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plan_facts(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a plan that certificates need; `participations` is 0 without correlated noise."""
    shared = plan.get("horizon", 1) != 1  # None: a series without a horizon
    return {
        "through": "through" in plan or "map" in plan,
        "participations": int(plan.get("participations", 1)) if shared else 0,
    }


def begin(connection: Connection, root: int, stream: int, labels: str, *, enforced: bool, filtered: str | None) -> None:
    """Count a new task, which has no charges yet, or only its filter."""
    text, name = group_text(leaf_texts(None, filtered, "live", exposed=False, spent=False))
    row = {"id": root, "stream_id": stream, "label_set": text_hash(labels), "enforced": enforced, "shows": name}
    connection.execute(insert(roots), row)
    _add(connection, profiles, {"stream_id": stream, "name": name}, {"faces": text}, "roots", 1)


def leaves(connection: Connection, ids: Iterable[int]) -> dict[int, dict[int, set[str]]]:
    """For each of these roots, the stored texts of every leaf."""
    found: dict[int, dict[int, set[str]]] = defaultdict(dict)
    columns = (blocks.c.root_id, blocks.c.id, blocks.c.effective_hash, blocks.c.filter_hash)
    query = select(*columns, blocks.c.exposed, blocks.c.state).where(blocks.c.state != "split")
    for chunk in batches(ids):
        rows = connection.execute(query.where(blocks.c.root_id.in_(chunk))).all()
        spent = _spent(connection, [row.id for row in rows if row.filter_hash is not None])
        for row in rows:
            found[row.root_id][row.id] = leaf_texts(
                row.effective_hash, row.filter_hash, row.state, exposed=row.exposed, spent=row.id in spent
            )
    return found


def recount(connection: Connection, ids: Iterable[int]) -> None:
    """Update the counters for these roots after their charges changed."""
    moved: Counter[tuple[int, str]] = Counter()
    group_texts: dict[str, str] = {}
    wanted = sorted(set(ids))
    current = leaves(connection, wanted)
    for chunk in batches(wanted):
        found = connection.execute(select(roots).where(roots.c.id.in_(chunk))).all()
        if len(found) < len(chunk):
            raise LedgerError(_not_counted(min(set(chunk) - {root.id for root in found})))
        for root in found:
            text, name = group_text(one for texts in current[root.id].values() for one in texts)
            if name != root.shows:
                group_texts[name] = text
                moved[root.stream_id, name] += 1
                moved[root.stream_id, root.shows] -= 1
                connection.execute(update(roots).where(roots.c.id == root.id).values(shows=name))
    for (stream, name), by in sorted(moved.items()):
        _add(connection, profiles, {"stream_id": stream, "name": name}, {"faces": group_texts.get(name)}, "roots", by)


def require_counted(connection: Connection) -> None:
    """Raise LedgerError if the counters lack the newest task."""
    joined = select(blocks.c.root_id, roots.c.id).join_from(blocks, roots, roots.c.id == blocks.c.root_id, isouter=True)
    newest = connection.execute(joined.order_by(blocks.c.id.desc()).limit(1)).first()
    if newest is not None and newest.id is None:
        raise LedgerError(_not_counted(newest.root_id))


def _not_counted(root: int) -> str:
    return (
        f"block {root} is missing in the ledger's counts, so they are too small; restore the newest backup that "
        "`verify` accepts"
    )


def grant(connection: Connection, streams: Iterable[int], kind: str, plan: str, by: int) -> None:
    """Count a grant that was reserved (+1) or voided (−1)."""
    facts = plan_facts(json.loads(plan))
    for stream in sorted(set(streams)):
        _add(connection, uses, {"stream_id": stream, "kind": kind, **facts}, {}, "grants", by)


def streams_of(connection: Connection, grant: str) -> set[int]:
    """The streams that a grant reads."""
    query = select(blocks.c.stream_id).join_from(charges, blocks).where(charges.c.grant_id == grant).distinct()
    return set(connection.execute(query).scalars())


def _add(
    connection: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any], count: str, by: int
) -> None:
    if by == 0:
        return
    here = [table.c[name] == value for name, value in key.items()]
    changed = connection.execute(update(table).where(*here).values({count: table.c[count] + by}))
    if changed.rowcount == 0:
        connection.execute(insert(table), {**key, **values, count: by})
    elif by < 0:
        connection.execute(delete(table).where(*here, table.c[count] == 0))


def _spent(connection: Connection, opened: list[int]) -> set[int]:
    found: set[int] = set()
    for chunk in batches(opened):
        query = select(curves.c.block_id).where(curves.c.block_id.in_(chunk), curves.c.spent > 0).distinct()
        found |= set(connection.execute(query).scalars())
    return found
