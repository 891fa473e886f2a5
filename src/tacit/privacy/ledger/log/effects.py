"""The effect of each kind of log entry on the tables.

Formal guarantees: the tables are a function of the log. `apply` reads only the entry and what earlier entries wrote, so
`verify` can recompute all tables.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from tacit.privacy.ledger.log import counters, event_lists
from tacit.privacy.ledger.storage.engine import batches
from tacit.privacy.ledger.storage.tables import (
    blocks,
    charges,
    curves,
    exposures,
    fingerprints,
    grants,
    positions,
    streams,
)

Body = dict[str, Any]


def apply(connection: Connection, seq: int, kind: str, body: Body) -> None:
    """Apply an entry to the tables."""
    _EFFECTS[kind](connection, seq, {key: value for key, value in body.items() if key != "at"})


def _none(connection: Connection, seq: int, body: Body) -> None:
    """Entries without an effect: open, policy, officer, reanchor, move, enroll (the members are a private table)."""


def _stream(connection: Connection, seq: int, body: Body) -> None:
    connection.execute(insert(streams), body)


def _block(connection: Connection, seq: int, body: Body) -> None:
    row = {key: body[key] for key in ("id", "identity", "stream_id", "task", "part", "mode", "size")}
    row |= {key: body[key] for key in ("labels", "overlap")}
    row |= {"root_id": body["id"], "exposed": False, "share": None}
    row |= {"parent_id": None, "list_hash": None, "inherited_hash": None, "effective_hash": None}
    row |= {"implicit": False, "state": "live", "filter_hash": _filter_hash(body["filter"])}
    connection.execute(insert(blocks), row)
    if body["fingerprint"] is not None:
        _refresh(connection, seq, {"block": body["id"], "fingerprint": body["fingerprint"]})
    if body["filter"]:
        rows = [
            {"block_id": body["id"], "place": place, "order": order, "limit": limit, "spent": 0}
            for place, order, limit in body["filter"]
        ]
        connection.execute(insert(curves), rows)
    enforced, filtered = body["overlap"] == "enforced", row["filter_hash"]
    counters.begin(connection, body["id"], body["stream_id"], body["labels"], enforced=enforced, filtered=filtered)


def _refresh(connection: Connection, seq: int, body: Body) -> None:
    """The block was admitted again, perhaps with changed records; its charges stay."""
    row = {"block_id": body["block"], "fingerprint": body["fingerprint"]}
    here = (fingerprints.c.block_id == row["block_id"]) & (fingerprints.c.fingerprint == row["fingerprint"])
    if connection.execute(select(fingerprints).where(here)).first() is None:
        connection.execute(insert(fingerprints), row)


def _split(connection: Connection, seq: int, body: Body) -> None:
    parent = connection.execute(select(blocks).where(blocks.c.id == body["parent"])).one()
    connection.execute(update(blocks).where(blocks.c.id == parent.id).values(state="split"))
    kept = ("stream_id", "root_id", "task", "mode", "labels", "overlap", "exposed", "effective_hash", "filter_hash")
    shared = {name: getattr(parent, name) for name in kept}
    shared |= {"parent_id": parent.id, "list_hash": None, "inherited_hash": parent.effective_hash}
    shared |= {"implicit": False, "state": "live"}
    connection.execute(insert(blocks), [shared | child for child in body["children"]])
    spent = connection.execute(select(curves).where(curves.c.block_id == parent.id)).mappings().all()
    if spent:
        rows = [dict(row) | {"block_id": child["id"]} for child in body["children"] for row in spent]
        connection.execute(insert(curves), rows)
    counters.recount(connection, [parent.root_id])


def _commit(connection: Connection, seq: int, body: Body) -> None:
    roots: set[int] = set()
    for group in body["lists"]:
        own = event_lists.put(connection, group["events"])
        inherited: dict[str | None, list[int]] = defaultdict(list)
        for chunk in batches(group["blocks"]):
            query = select(blocks.c.id, blocks.c.root_id, blocks.c.inherited_hash).where(blocks.c.id.in_(chunk))
            for row in connection.execute(query):
                inherited[row.inherited_hash].append(row.id)
                roots.add(row.root_id)
        for before, ids in inherited.items():
            whole = event_lists.put(connection, (*event_lists.get(connection, before), *group["events"]))
            values = {"list_hash": own, "effective_hash": whole, "implicit": False}
            statement = update(blocks).where(blocks.c.id == bindparam("the_block")).values(values)
            connection.execute(statement, [{"the_block": block} for block in ids])
    counters.recount(connection, roots)


def _reserve(connection: Connection, seq: int, body: Body) -> None:
    row = {key: body[key] for key in ("pin", "holder", "kind", "plan", "generation", "lease_until")}
    row |= {"id": body["grant"], "token": 1, "state": "RESERVED", "output_hash": None, "seq": seq}
    connection.execute(insert(grants), row)
    rows = [
        {"grant_id": body["grant"], "place": place, "block_id": block, "event": event, "additive_delta": extra}
        for place, (block, event, extra) in enumerate(body["reads"])
    ]
    connection.execute(insert(charges), rows)
    for block in body["implicit"]:
        own = [event for other, event, _ in body["reads"] if other == block]
        before = connection.execute(select(blocks.c.inherited_hash).where(blocks.c.id == block)).scalar_one()
        whole = event_lists.put(connection, (*event_lists.get(connection, before), *own))
        values = {"list_hash": event_lists.put(connection, own), "effective_hash": whole, "implicit": True}
        connection.execute(update(blocks).where(blocks.c.id == block).values(values))
    for block, costs in body["costs"]:
        _spend(connection, block, costs)
    if body["series"] is not None:
        position = {key: body[key] for key in ("series", "position", "horizon")}
        connection.execute(insert(positions), position | {"grant_id": body["grant"]})
    counters.grant(connection, counters.streams_of(connection, body["grant"]), body["kind"], body["plan"], 1)
    counters.recount(connection, _roots(connection, body))


def _charge(connection: Connection, seq: int, body: Body) -> None:
    connection.execute(update(grants).where(grants.c.id == body["grant"]).values(state="CHARGED"))


def _release(connection: Connection, seq: int, body: Body) -> None:
    values = {"state": "RELEASED", "output_hash": body["output"]}
    connection.execute(update(grants).where(grants.c.id == body["grant"]).values(values))


def _void(connection: Connection, seq: int, body: Body) -> None:
    """Return the cost of a reservation. The entry leaves out blocks that were split meanwhile."""
    connection.execute(update(grants).where(grants.c.id == body["grant"]).values(state="VOID"))
    connection.execute(delete(positions).where(positions.c.grant_id == body["grant"]))
    for block, costs in body["costs"]:
        _spend(connection, block, [-cost for cost in costs])
    for block in body["implicit"]:
        before = connection.execute(select(blocks.c.inherited_hash).where(blocks.c.id == block)).scalar_one()
        values = {"list_hash": None, "effective_hash": before, "implicit": False}
        connection.execute(update(blocks).where(blocks.c.id == block).values(values))
    grant = connection.execute(select(grants.c.kind, grants.c.plan).where(grants.c.id == body["grant"])).one()
    counters.grant(connection, counters.streams_of(connection, body["grant"]), grant.kind, grant.plan, -1)
    counters.recount(connection, _roots(connection, body))


def _retire(connection: Connection, seq: int, body: Body) -> None:
    connection.execute(update(blocks).where(blocks.c.id == body["block"]).values(state="retired"))
    row = _row(connection, body["block"])
    if row.filter_hash is not None:  # a committed list counts whether or not the records remain
        counters.recount(connection, [row.root_id])


def _expose(connection: Connection, seq: int, body: Body) -> None:
    connection.execute(update(blocks).where(blocks.c.id == body["block"]).values(exposed=True))
    row = _row(connection, body["block"])
    exposure = {"block_id": row.id, "why": body["why"], "stream_id": row.stream_id, "seq": seq}
    connection.execute(insert(exposures), exposure)
    counters.recount(connection, [row.root_id])


def _raise(connection: Connection, seq: int, body: Body) -> None:
    values = {"epsilon": body["epsilon"], "delta": body["delta"]}
    connection.execute(update(streams).where(streams.c.id == body["stream"]).values(values))


def _resume(connection: Connection, seq: int, body: Body) -> None:
    values = {"token": body["token"], "lease_until": body["lease_until"]}
    connection.execute(update(grants).where(grants.c.id == body["grant"]).values(values))


def _row(connection: Connection, block: int) -> Row[Any]:
    return connection.execute(select(blocks).where(blocks.c.id == block)).one()


def _roots(connection: Connection, body: Body) -> set[int]:
    """The root blocks whose charges an entry changes."""
    roots: set[int] = set()
    for chunk in batches({*body["implicit"], *(block for block, _ in body["costs"])}):
        roots |= set(connection.execute(select(blocks.c.root_id).where(blocks.c.id.in_(chunk))).scalars())
    return roots


def _filter_hash(rows: list[list[float]] | None) -> str | None:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest() if rows else None


def _spend(connection: Connection, block: int, costs: list[int]) -> None:
    here = (curves.c.block_id == block) & (curves.c.place == bindparam("the_place"))
    statement = update(curves).where(here).values(spent=curves.c.spent + bindparam("the_cost"))
    query = select(curves.c.place).where(curves.c.block_id == block).order_by(curves.c.place)
    pairs = zip(connection.execute(query).scalars(), costs, strict=True)
    connection.execute(statement, [{"the_place": place, "the_cost": cost} for place, cost in pairs])


_EFFECTS: dict[str, Callable[[Connection, int, Body], None]] = {
    **dict.fromkeys(("open", "policy", "officer", "reanchor", "move", "enroll"), _none),
    "stream": _stream,
    "block": _block,
    "refresh": _refresh,
    "split": _split,
    "commit": _commit,
    "reserve": _reserve,
    "charge": _charge,
    "release": _release,
    "void": _void,
    "retire": _retire,
    "raise": _raise,
    "expose": _expose,
    "resume": _resume,
}
