"""A unit replaced by one of another part or task: the worst pair of leaves.

Guarantee: under replace-one the unit that leaves and the unit that comes may meet any two leaves of the stream. `worst`
bounds what every such exchange costs; an exchange within one leaf is priced by the leaf's own list or filter. A list
whose events are all in another list can only cost less and is left out. Under the other relations there is nothing to
exchange, and the answer is 0.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import combinations

import numpy as np
from sqlalchemy import Connection

from tacit.privacy.accounting import ORDERS, rdp_curve, rdp_to_epsilon
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.calibrate import nano
from tacit.privacy.events import from_json
from tacit.privacy.ledger import eventlists
from tacit.privacy.ledger.eventlists import Texts
from tacit.privacy.ledger.prices import Prices, extra_delta
from tacit.privacy.ledger.profile import NANO, Array, Face


def worst(
    connection: Connection,
    faces: Iterable[Face],
    budget: Budget,
    prices: Prices,
    *,
    new: Collection[Face] | None = None,
) -> int:
    """The nano-ε of the costliest exchange between two different leaves; with `new`, of those that it takes part in."""
    if budget.adjacency is not Adjacency.REPLACE_ONE:
        return 0
    distinct = set(faces)
    lists = {face: Counter(_texts(connection, face)) for face in distinct if face.limits is None}
    largest = [face for face in lists if not any(lists[face] < other for other in lists.values())]
    opened = sorted((face for face in distinct if face.limits is not None), key=lambda face: str(face.limits))
    kept = sorted(largest, key=lambda face: eventlists.digest(_texts(connection, face))) + opened
    pairs = [pair for pair in combinations(kept, 2) if new is None or pair[0] in new or pair[1] in new]
    return max((_pair(connection, *pair, budget, prices) for pair in pairs), default=0)


def _pair(connection: Connection, one: Face, other: Face, budget: Budget, prices: Prices) -> int:
    if one.limits is None and other.limits is None:
        return prices.exchanged(_texts(connection, one), _texts(connection, other), budget)
    curves = [_one_sided(connection, face) for face in (one, other)]
    additive = math.fsum(extra_delta(_texts(connection, face)) for face in (one, other) if face.limits is None)
    return nano(rdp_to_epsilon(tuple(curves[0] + curves[1]), budget.delta - additive))


def _one_sided(connection: Connection, face: Face) -> Array:
    """At least the Rényi curve of a unit that leaves or enters, and with the other side's at least that of both where
    they share noise: half of what an exchange costs (curves of an exchange are at least twice those of a removal)."""
    if face.limits is not None:
        curve = np.full(len(ORDERS), np.inf)
        for place, limit in face.limits:
            curve[place] = limit * NANO / 2
        return np.minimum.accumulate(curve[::-1])[::-1]  # a limit also bounds every order below it
    curves = [np.zeros(len(ORDERS))]
    for text in _texts(connection, face):
        event = from_json(text)
        exchange = np.array(rdp_curve(event, Adjacency.REPLACE_ONE)) / 2
        # Sampled events have no curve under replace-one; an open block cannot be read by them, so no noise is shared.
        curves.append(np.where(np.isfinite(exchange), exchange, np.array(rdp_curve(event))))
    return np.asarray(np.sum(curves, axis=0))


def _texts(connection: Connection, face: Face) -> Texts:
    return face.events if face.events is not None else eventlists.get(connection, face.name)
