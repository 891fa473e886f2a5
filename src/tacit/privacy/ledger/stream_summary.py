"""The summary of a stream that its certificate is made from, of bounded size however long the stream is.

ε is the ledger's own, over all tasks. Of a stream with more than `MAX_LISTED` tasks the costliest and the latest are
listed, and all tasks are counted in groups with the same charges.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, Literal

from sqlalchemy import Connection, Row, func, select

from tacit.privacy.accounting.epsilon import ORDERS
from tacit.privacy.accounting.filters import UNITS, RenyiFilter
from tacit.privacy.ledger import statement
from tacit.privacy.ledger.limits import leaf_bounds
from tacit.privacy.ledger.limits.leaf_bounds import LeafBound
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.limits.prices import Prices
from tacit.privacy.ledger.log import counters, event_lists
from tacit.privacy.ledger.storage.lookup import budget_of, stream_row
from tacit.privacy.ledger.storage.tables import blocks, exposures, roots, uses
from tacit.privacy.ledger.storage.values import GrantCount, Mode, StreamSummary, TaskGroup

MAX_LISTED = 32
"""A stream with at most this many tasks lists all of them."""
COSTLIEST, LATEST = 4, 8
"""How many tasks of each kind a longer stream lists."""
MAX_GRANTS = 64
"""How many grants on listed tasks a longer stream lists."""


def of_stream(connection: Connection, stream_id: int, ledger_id: str, policy: Policy, prices: Prices) -> StreamSummary:
    """The summary of a stream, from one snapshot."""
    stream = stream_row(connection, stream_id)
    groups = _groups(connection, stream, prices)
    whole = sum(group.tasks for group in groups) <= MAX_LISTED
    listed = _listed(connection, stream_id, groups, whole=whole)
    which = blocks.c.root_id.in_(listed)
    declared = select(roots.c.id).where(roots.c.stream_id == stream_id, roots.c.enforced.is_(False))
    return StreamSummary(
        **statement.facts(connection, stream, ledger_id, policy, prices),
        groups=groups,
        listed=listed,
        blocks=statement.of_blocks(connection, stream, prices, which),
        grants=statement.of_grants(connection, which, newest=None if whole else MAX_GRANTS),
        counts=_counts(connection, stream_id),
        enforced=connection.execute(declared.limit(1)).first() is None,
        label_sets=_label_sets(connection, stream_id),
        exposed=tuple(_reasons(connection, stream_id)),
        moved=statement.reasons(connection, "move"),
        in_floats=statement.in_floats(connection, stream_id),
        several=_several(connection, stream, prices),
    )


def _several(connection: Connection, stream: Row[Any], prices: Prices) -> tuple[tuple[float, ...], float] | None:
    """The Rényi curve and the additive δ of a unit in as many tasks as it may be in."""
    budget = budget_of(stream)
    if stream.tasks_per_unit == 1 or leaf_bounds.exposed(connection, stream.id):
        return None
    if not stream.fixed_schedule:  # then every unit has one filter over all its tasks
        limits = _equal_shares(connection, stream)
        if limits is None:
            whole = RenyiFilter.for_budget(budget)
            limits = dict(zip(whole.orders, whole.limits, strict=True))
        return tuple(limits.get(order, math.inf) for order in ORDERS), 0.0
    curve, extra = leaf_bounds.largest_of_stream(connection, stream, budget.adjacency, prices, touched=True)
    return tuple(map(float, curve)), extra


def _equal_shares(connection: Connection, stream: Row[Any]) -> dict[float, float] | None:
    """The sum of the shares that a unit has in open blocks with one filter; None unless all blocks are such.

    The gate checks these by their own limits, which have the shape of what the filter was made for, not of a Gaussian.
    """
    groups = leaf_bounds.root_groups(connection, stream.id, {}, touched=True)
    bounds = {bound for group in groups for bound in group}
    if len(bounds) != 1 or (limits := next(iter(bounds)).limits) is None:
        return None
    # Shares were rounded down; rounded up, their sum does not cost less than the certified ε.
    return {ORDERS[place]: stream.tasks_per_unit * (limit + 1) / UNITS for place, limit in limits}


def _groups(connection: Connection, stream: Row[Any], prices: Prices) -> tuple[TaskGroup, ...]:
    """All tasks, grouped by their charges, the costliest group first."""
    read = leaf_bounds.BoundReader(connection, stream.id, touched=True)
    budget = budget_of(stream)
    groups = []
    for row in leaf_bounds.profile_rows(connection, stream.id):
        texts = json.loads(row.faces)
        losses = {bound: statement.leaf_epsilon(connection, bound, budget, prices) for bound in read(texts)}
        worst = max(losses, key=lambda bound: (losses[bound], bound.name or ""), default=LeafBound())
        committed = any(text.startswith(counters.COMMITTED) for text in texts)
        opened = not committed and any(text != counters.EXPOSED for text in texts)
        mode: Mode = "open" if opened else "committed"
        names = sorted(bound.name for bound in losses if bound.name is not None)
        groups.append(
            TaskGroup(
                name=row.name,
                tasks=row.roots,
                mode=mode,
                epsilon=math.inf if counters.EXPOSED in texts else losses.get(worst, 0.0),
                events=event_lists.get(connection, worst.name),
                lists=tuple(event_lists.get(connection, name) for name in names),
                filters=tuple(sorted(bound.limits for bound in losses if bound.limits is not None)),
            )
        )
    return tuple(sorted(groups, key=lambda group: (-group.epsilon, group.name)))


def _listed(connection: Connection, stream_id: int, groups: tuple[TaskGroup, ...], *, whole: bool) -> dict[int, str]:
    """The root blocks of the listed tasks, with the name of each one's group."""
    mine = select(roots.c.id, roots.c.shows).where(roots.c.stream_id == stream_id).order_by(roots.c.id.desc())
    listed = {row.id: row.shows for row in connection.execute(mine if whole else mine.limit(LATEST))}
    missing = 0 if whole else COSTLIEST
    for group in groups:
        if missing == 0:
            break
        same = connection.execute(mine.where(roots.c.shows == group.name).limit(missing)).all()
        listed |= {row.id: row.shows for row in same}
        missing -= len(same)
    return dict(sorted(listed.items()))


def _counts(connection: Connection, stream_id: int) -> tuple[GrantCount, ...]:
    rows = connection.execute(select(uses).where(uses.c.stream_id == stream_id).order_by(uses.c.kind))
    return tuple(
        GrantCount(kind=row.kind, through=row.through, participations=row.participations, grants=row.grants)
        for row in rows
    )


def _label_sets(connection: Connection, stream_id: int) -> Literal["none", "the same", "several"]:
    """Whether the tasks have one label set, by the smallest and the largest hash in the index."""
    first = select(func.min(roots.c.label_set)).where(roots.c.stream_id == stream_id)
    last = select(func.max(roots.c.label_set)).where(roots.c.stream_id == stream_id)
    smallest, largest = connection.execute(first).scalar_one(), connection.execute(last).scalar_one()
    if smallest != largest:
        return "several"
    return "none" if smallest in (None, counters.text_hash("[]")) else "the same"


def _reasons(connection: Connection, stream_id: int) -> Iterator[str]:
    """The distinct reasons for exposures, read from the index one by one."""
    query = select(func.min(exposures.c.why)).where(exposures.c.stream_id == stream_id)
    reason = connection.execute(query).scalar_one()
    while reason is not None:
        yield reason
        reason = connection.execute(query.where(exposures.c.why > reason)).scalar_one()
