"""The summary of a stream: what its certificate says, however long it is.

Guarantee: ε is the ledger's own, over all tasks. A stream of more than `MOST` tasks has its costliest and its last ones
listed; all others are counted with the tasks that promise the same.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, Literal

from sqlalchemy import Connection, Row, func, select

from tacit.privacy.ledger import chain, eventlists, profile, reading, tally
from tacit.privacy.ledger.making import stream_row, terms_of
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.profile import Face, budget_of
from tacit.privacy.ledger.tables import blocks, exposures, roots, uses
from tacit.privacy.ledger.terms import Alike, Mode, Summary, Use
from tacit.privacy.policy import Policy

MOST = 32
"""So many tasks are all listed."""
COSTLIEST, LAST = 4, 8
"""Of a longer stream: so many of each."""
GRANTS = 64
"""And so many of the grants that read them."""


def of_stream(connection: Connection, stream_id: int, ledger_id: str, policy: Policy, prices: Prices) -> Summary:
    """Everything a certificate needs, from one snapshot."""
    stream = stream_row(connection, stream_id)
    value, accountant = reading.epsilon(connection, stream, prices)
    alike = _alike(connection, stream, prices)
    whole = sum(one.tasks for one in alike) <= MOST
    listed = _listed(connection, stream_id, alike, whole=whole)
    which = blocks.c.root_id.in_(listed)
    return Summary(
        ledger=ledger_id,
        stream_id=stream_id,
        identity=stream.identity,
        terms=terms_of(stream),
        epsilon=value,
        accountant=accountant,
        alike=alike,
        listed=listed,
        blocks=reading.of_blocks(connection, stream, prices, which),
        grants=reading.of_grants(connection, which, newest=None if whole else GRANTS),
        uses=_uses(connection, stream_id),
        enforced=_enforced(connection, stream_id),
        label_sets=_label_sets(connection, stream_id),
        raises=reading.raises(connection, stream),
        policy=policy.to_dict(),
        policy_digest=policy.digest,
        exposed=tuple(_reasons(connection, stream_id)),
        reanchored=reading.reanchored(connection),
        moved=reading.moved(connection),
        in_floats=reading.in_floats(connection, stream_id),
        head=chain.head(connection),
    )


def _alike(connection: Connection, stream: Row[Any], prices: Prices) -> tuple[Alike, ...]:
    """All tasks by what they promise, the costliest first."""
    shown = profile.Shown(connection, stream.id, touched=True)
    budget = budget_of(stream)
    found = []
    for row in profile.counted(connection, stream.id):
        faces = json.loads(row.faces)
        losses = {face: reading.face_epsilon(connection, face, budget, prices) for face in shown(faces)}
        worst = max(losses, key=lambda face: (losses[face], face.name or ""), default=Face())
        committed = any(one.startswith(tally.COMMITTED) for one in faces)
        opened = not committed and any(one != tally.EXPOSED for one in faces)
        mode: Mode = "open" if opened else "committed"
        names = sorted(face.name for face in losses if face.name is not None)
        found.append(
            Alike(
                name=row.name,
                tasks=row.roots,
                mode=mode,
                epsilon=math.inf if tally.EXPOSED in faces else losses.get(worst, 0.0),
                events=eventlists.get(connection, worst.name),
                lists=tuple(eventlists.get(connection, name) for name in names),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.epsilon, one.name)))


def _listed(connection: Connection, stream_id: int, alike: tuple[Alike, ...], *, whole: bool) -> dict[int, str]:
    """The tasks that are named one by one, by their roots, and what each shows."""
    mine = select(roots.c.id, roots.c.shows).where(roots.c.stream_id == stream_id).order_by(roots.c.id.desc())
    found = {row.id: row.shows for row in connection.execute(mine if whole else mine.limit(LAST))}
    left = 0 if whole else COSTLIEST
    for one in alike:
        if left == 0:
            break
        same = connection.execute(mine.where(roots.c.shows == one.name).limit(left)).all()
        found |= {row.id: row.shows for row in same}
        left -= len(same)
    return dict(sorted(found.items()))


def _uses(connection: Connection, stream_id: int) -> tuple[Use, ...]:
    found = connection.execute(select(uses).where(uses.c.stream_id == stream_id).order_by(uses.c.kind))
    return tuple(
        Use(kind=row.kind, through=row.through, participations=row.participations, grants=row.grants) for row in found
    )


def _enforced(connection: Connection, stream_id: int) -> bool:
    other = select(roots.c.id).where(roots.c.stream_id == stream_id, roots.c.enforced.is_(False)).limit(1)
    return connection.execute(other).first() is None


def _label_sets(connection: Connection, stream_id: int) -> Literal["none", "the same", "several"]:
    """By the first and the last name of a set in the index: no set is read."""
    first = select(func.min(roots.c.label_set)).where(roots.c.stream_id == stream_id)
    last = select(func.max(roots.c.label_set)).where(roots.c.stream_id == stream_id)
    one, other = connection.execute(first).scalar_one(), connection.execute(last).scalar_one()
    if one != other:
        return "several"
    return "none" if one in (None, tally.named("[]")) else "the same"


def _reasons(connection: Connection, stream_id: int) -> Iterator[str]:
    """Each reason once, from one to the next in the index."""
    query = select(func.min(exposures.c.why)).where(exposures.c.stream_id == stream_id)
    found = connection.execute(query).scalar_one()
    while found is not None:
        yield found
        found = connection.execute(query.where(exposures.c.why > found)).scalar_one()
