"""Counts that spare a ledger of many tasks from being read as a whole: what its tasks promise, what was granted.

Guarantee: the counts follow from the log, entry by entry, so `verify` makes them again and compares. What they answer
about a stream costs as much as it has different plans, however many tasks follow them.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from tacit.errors import LedgerError
from tacit.privacy.ledger.tables import blocks, charges, curves, profiles, roots, uses

COMMITTED, SPENT, UNSPENT, UNUSED, EXPOSED = "committed", "spent", "unspent", "unused", "exposed"
"""A face is one of these words and, but for the last, the name of a list or a filter: a whole list; a filter that
something was spent on; one that nothing was; one whose records were retired before; records that left raw."""
_MANY = 500


def faces_of(effective: str | None, filtered: str | None, state: str, *, exposed: bool, spent: bool) -> set[str]:
    """What a unit of one leaf meets."""
    found = {EXPOSED} if exposed else set()
    if effective is not None:
        found.add(f"{COMMITTED} {effective}")
    elif filtered is not None:
        kind = SPENT if spent else UNUSED if state == "retired" else UNSPENT
        found.add(f"{kind} {filtered}")
    return found


def said(faces: Iterable[str]) -> tuple[str, str]:
    """The one text of a set of faces, and its name."""
    text = json.dumps(sorted(set(faces)))
    return text, named(text)


def named(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plan_facts(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What a certificate asks of every plan; `participations` is 0 where no noise is shared between tasks."""
    shared = int(plan.get("horizon", 1)) > 1
    return {"through": "through" in plan, "participations": int(plan.get("participations", 1)) if shared else 0}


def begin(connection: Connection, root: int, stream: int, labels: str, *, enforced: bool, filtered: str | None) -> None:
    """Count a task that was made just now: it promises nothing yet, or its filter."""
    text, name = said(faces_of(None, filtered, "live", exposed=False, spent=False))
    row = {"id": root, "stream_id": stream, "label_set": named(labels), "enforced": enforced, "shows": name}
    connection.execute(insert(roots), row)
    _add(connection, profiles, {"stream_id": stream, "name": name}, {"faces": text}, "roots", 1)


def leaves(connection: Connection, ids: Iterable[int]) -> dict[int, dict[int, set[str]]]:
    """The faces of every leaf of these roots, as they are now."""
    found: dict[int, dict[int, set[str]]] = defaultdict(dict)
    columns = (blocks.c.root_id, blocks.c.id, blocks.c.effective_hash, blocks.c.filter_hash)
    query = select(*columns, blocks.c.exposed, blocks.c.state).where(blocks.c.state != "split")
    for chunk in batches(ids):
        rows = connection.execute(query.where(blocks.c.root_id.in_(chunk))).all()
        spent = _spent(connection, [row.id for row in rows if row.filter_hash is not None])
        for row in rows:
            found[row.root_id][row.id] = faces_of(
                row.effective_hash, row.filter_hash, row.state, exposed=row.exposed, spent=row.id in spent
            )
    return found


def recount(connection: Connection, ids: Iterable[int]) -> None:
    """Count these roots by what they show now."""
    moved: Counter[tuple[int, str]] = Counter()
    texts: dict[str, str] = {}
    wanted = sorted(set(ids))
    now = leaves(connection, wanted)
    for chunk in batches(wanted):
        found = connection.execute(select(roots).where(roots.c.id.in_(chunk))).all()
        if len(found) < len(chunk):
            raise LedgerError(_not_counted(min(set(chunk) - {root.id for root in found})))
        for root in found:
            text, name = said(face for faces in now[root.id].values() for face in faces)
            if name != root.shows:
                texts[name] = text
                moved[root.stream_id, name] += 1
                moved[root.stream_id, root.shows] -= 1
                connection.execute(update(roots).where(roots.c.id == root.id).values(shows=name))
    for (stream, name), by in sorted(moved.items()):
        _add(connection, profiles, {"stream_id": stream, "name": name}, {"faces": texts.get(name)}, "roots", by)


def require_counted(connection: Connection) -> None:
    """Refuse to answer from counts that lack the newest task."""
    joined = select(blocks.c.root_id, roots.c.id).join_from(blocks, roots, roots.c.id == blocks.c.root_id, isouter=True)
    newest = connection.execute(joined.order_by(blocks.c.id.desc()).limit(1)).first()
    if newest is not None and newest.id is None:
        raise LedgerError(_not_counted(newest.root_id))


def _not_counted(root: int) -> str:
    return (
        f"block {root} is missing in the ledger's counts, so they say too little; restore the newest backup that "
        "`verify` accepts"
    )


def grant(connection: Connection, streams: Iterable[int], kind: str, plan: str, by: int) -> None:
    """Count a grant that was reserved (+1), or given back (−1)."""
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


def batches(ids: Iterable[int], most: int = _MANY) -> Iterator[list[int]]:
    """A few hundred at a time: databases limit how much one statement may name."""
    wanted = list(ids)
    for start in range(0, len(wanted), most):
        yield wanted[start : start + most]
