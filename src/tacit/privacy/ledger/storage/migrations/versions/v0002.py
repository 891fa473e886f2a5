"""Counts of what tasks promise, so that a stream of thousands is not read as a whole. Frozen, like v0001.

Code of the format before cannot write to a ledger after this, since it would not keep the counts.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

from tacit.privacy.ledger.storage import triggers

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # First, so that a database with many writers waits here for those under way; what they wrote is counted below.
    op.add_column("log", sa.Column("format", sa.String(4)))
    triggers.install(op.get_bind(), triggers.RULES_0002)
    op.create_index("ix_members_task", "members", ["stream_id", "task", "unit"])
    op.create_index("ix_fingerprints_block_id", "fingerprints", ["block_id"])
    roots = op.create_table(
        "roots",
        sa.Column("id", sa.Integer, sa.ForeignKey("blocks.id"), primary_key=True, autoincrement=False),
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("streams.id"), nullable=False),
        sa.Column("label_set", sa.String(64), nullable=False),
        sa.Column("enforced", sa.Boolean, nullable=False),
        sa.Column("shows", sa.String(64), nullable=False),
    )
    op.create_index("ix_roots_stream", "roots", ["stream_id", "id"])
    op.create_index("ix_roots_shows", "roots", ["stream_id", "shows", "id"])
    op.create_index("ix_roots_label_set", "roots", ["stream_id", "label_set"])
    op.create_index("ix_roots_enforced", "roots", ["stream_id", "enforced"])
    profiles = op.create_table(
        "profiles",
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("streams.id"), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("faces", sa.Text, nullable=False),
        sa.Column("roots", sa.Integer, nullable=False),
    )
    uses = op.create_table(
        "uses",
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("streams.id"), primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("through", sa.Boolean, primary_key=True),
        sa.Column("participations", sa.Integer, primary_key=True),
        sa.Column("grants", sa.Integer, nullable=False),
    )
    exposures = op.create_table(
        "exposures",
        sa.Column("block_id", sa.Integer, sa.ForeignKey("blocks.id"), primary_key=True),
        sa.Column("why", sa.Text, primary_key=True),
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("streams.id"), nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_exposures_why", "exposures", ["stream_id", "why"])
    tasks, shown = _tasks()
    for table, rows in ((roots, tasks), (profiles, shown), (uses, _uses()), (exposures, _exposures())):
        if rows:
            op.bulk_insert(table, rows)


def _ask(text: str) -> Any:
    return op.get_bind().execute(sa.text(text)).all()


def _tasks() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    spent = {row.block_id for row in _ask("SELECT DISTINCT block_id FROM curves WHERE spent > 0")}
    found: dict[int, dict[str, Any]] = {}
    faces: dict[int, set[str]] = {}
    for row in _ask("SELECT * FROM blocks ORDER BY id"):
        if row.id == row.root_id:
            enforced = row.overlap == "enforced"
            found[row.id] = {
                "id": row.id, "stream_id": row.stream_id, "label_set": _named(row.labels), "enforced": enforced
            }  # fmt: skip
        if row.state != "split":
            now = _faces(
                row.effective_hash, row.filter_hash, row.state, exposed=bool(row.exposed), spent=row.id in spent
            )
            faces.setdefault(row.root_id, set()).update(now)
    counts: Counter[tuple[int, str, str]] = Counter()
    for root, values in found.items():
        text, values["shows"] = _said(faces[root])
        counts[values["stream_id"], values["shows"], text] += 1
    shown = [
        {"stream_id": stream, "name": name, "faces": text, "roots": count}
        for (stream, name, text), count in counts.items()
    ]
    return list(found.values()), shown


def _uses() -> list[dict[str, Any]]:
    read = _ask(
        "SELECT DISTINCT grants.id, grants.kind, grants.plan, blocks.stream_id FROM grants "
        "JOIN charges ON charges.grant_id = grants.id JOIN blocks ON blocks.id = charges.block_id "
        "WHERE grants.state <> 'VOID'"
    )
    facts = ((row.stream_id, row.kind, _plan_facts(json.loads(row.plan))) for row in read)
    counts = Counter((stream, kind, *plan.values()) for stream, kind, plan in facts)
    names = ("stream_id", "kind", "through", "participations")
    return [dict(zip(names, key, strict=True)) | {"grants": count} for key, count in counts.items()]


def _exposures() -> list[dict[str, Any]]:
    streams = {row.id: row.stream_id for row in _ask("SELECT id, stream_id FROM blocks WHERE exposed")}
    rows = []
    for row in _ask("SELECT seq, body FROM log WHERE kind = 'expose' ORDER BY seq"):
        body = json.loads(row.body)
        block = body["block"]
        rows.append({"block_id": block, "why": body["why"], "stream_id": streams[block], "seq": row.seq})
    return rows


def _faces(effective: str | None, filtered: str | None, state: str, *, exposed: bool, spent: bool) -> set[str]:
    found = {"exposed"} if exposed else set()
    if effective is not None:
        found.add(f"committed {effective}")
    elif filtered is not None:
        kind = "spent" if spent else "unused" if state == "retired" else "unspent"
        found.add(f"{kind} {filtered}")
    return found


def _said(faces: Iterable[str]) -> tuple[str, str]:
    text = json.dumps(sorted(set(faces)))
    return text, _named(text)


def _named(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _plan_facts(plan: Mapping[str, Any]) -> dict[str, Any]:
    shared = int(plan.get("horizon", 1)) > 1
    return {"through": "through" in plan, "participations": int(plan.get("participations", 1)) if shared else 0}
