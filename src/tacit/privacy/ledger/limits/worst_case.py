"""The costliest set of leaves that one unit, or a pair of exchanged units, can be in.

Formal guarantees:

* `several_tasks` bounds a unit in k roots: it prices every choice of k event lists as a whole. A list whose events are
  contained in another list costs no more and is left out. Valid for plans that were fixed in advance.
* `exchange` bounds replace-one across leaves: the removed and the added unit may be in any two leaves of the stream, so
  both pay, each for its own side. An exchange within one leaf is priced by that leaf's own list or filter. Under the
  other adjacencies nothing is exchanged, and the bound is 0.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain, combinations, combinations_with_replacement

import numpy as np
from sqlalchemy import Connection

from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.calibrate import MOST_CHOICES, nano
from tacit.privacy.accounting.epsilon import ORDERS, rdp_curve, rdp_to_epsilon
from tacit.privacy.accounting.events import from_json
from tacit.privacy.ledger.limits.leaf_bounds import Array, Group, LeafBound
from tacit.privacy.ledger.limits.prices import Prices
from tacit.privacy.ledger.log import event_lists


def several_tasks(
    connection: Connection, groups: Mapping[Group, int], k: int, budget: Budget, prices: Prices, *, ahead: bool
) -> int | None:
    """The nano-ε of a unit in the costliest k roots; None with open blocks or too many choices.

    With `ahead`, tasks that are still to come count where all present tasks have one list: k tasks of one plan.
    """
    if _any_open(groups):
        return None
    events = _events(connection, chain(*groups))
    maximal = _maximal(events)
    roots = sum(groups.values())
    if len(maximal) == 1:
        return prices.nano(connection, maximal[0].texts(connection), budget, k if ahead else min(k, roots))
    size = min(k, roots)
    if math.comb(len(maximal) + size - 1, size) > MOST_CHOICES:
        return None
    available = {
        bound: sum(count for group, count in groups.items() if any(events[leaf] <= events[bound] for leaf in group))
        for bound in maximal
    }
    choices = (Counter(choice) for choice in combinations_with_replacement(maximal, size))
    possible = [choice for choice in choices if all(times <= available[bound] for bound, times in choice.items())]
    lists = [tuple(sorted(chain(*(bound.texts(connection) for bound in choice.elements())))) for choice in possible]
    alone = max(prices.nano(connection, texts, budget, 1) for texts in lists)
    if budget.adjacency is not Adjacency.REPLACE_ONE:
        return alone
    # The removed unit is in one choice of leaves, the added unit in another.
    return max(alone, *(prices.exchanged(first, second, budget) for first, second in combinations(lists, 2)), 0)


def covering_list(connection: Connection, groups: Mapping[Group, int], k: int) -> tuple[str, ...] | None:
    """The events of a unit in k of these roots, if one list contains all others; otherwise None."""
    if _any_open(groups):
        return None
    maximal = _maximal(_events(connection, chain(*groups)))
    if not maximal:
        return ()
    return tuple(maximal[0].texts(connection)) * min(k, sum(groups.values())) if len(maximal) == 1 else None


def exchange(
    connection: Connection,
    bounds: Iterable[LeafBound],
    budget: Budget,
    prices: Prices,
    *,
    new: Collection[LeafBound] | None = None,
) -> int:
    """The nano-ε of the costliest exchange between two different leaves; with `new`, only pairs with one of these."""
    if budget.adjacency is not Adjacency.REPLACE_ONE:
        return 0
    distinct = set(bounds)
    committed = _maximal(_events(connection, (bound for bound in distinct if bound.limits is None)))
    opened = sorted((bound for bound in distinct if bound.limits is not None), key=lambda bound: str(bound.limits))
    kept = sorted(committed, key=lambda bound: event_lists.digest(bound.texts(connection))) + opened
    pairs = [pair for pair in combinations(kept, 2) if new is None or pair[0] in new or pair[1] in new]
    return max((_pair(connection, *pair, budget, prices) for pair in pairs), default=0)


def _pair(connection: Connection, first: LeafBound, second: LeafBound, budget: Budget, prices: Prices) -> int:
    if first.limits is None and second.limits is None:
        return prices.exchanged(first.texts(connection), second.texts(connection), budget)
    curve = _one_sided(connection, first) + _one_sided(connection, second)
    additive = math.fsum(bound.extra_delta(connection) for bound in (first, second))
    return nano(rdp_to_epsilon(tuple(curve), budget.delta - additive))


def _one_sided(connection: Connection, bound: LeafBound) -> Array:
    """One side of an exchange: half of the leaf's curve under replace-one.

    It bounds the curve of a unit that is added or removed, and two such halves bound an exchange of units that share a
    noise draw, because a curve under replace-one is at least twice the curve of a removal.
    """
    if bound.limits is not None:
        return bound.limit_curve() / 2
    curves = [np.zeros(len(ORDERS))]
    for text in bound.texts(connection):
        event = from_json(text)
        exchanged = np.array(rdp_curve(event, Adjacency.REPLACE_ONE)) / 2
        # Sampled events have no curve under replace-one. They cannot read an open block, so no noise is shared.
        curves.append(np.where(np.isfinite(exchanged), exchanged, np.array(rdp_curve(event))))
    return np.asarray(np.sum(curves, axis=0))


def _any_open(groups: Iterable[Group]) -> bool:
    return any(bound.limits is not None for group in groups for bound in group)


def _events(connection: Connection, bounds: Iterable[LeafBound]) -> dict[LeafBound, Counter[str]]:
    return {bound: Counter(bound.texts(connection)) for bound in bounds}


def _maximal(events: Mapping[LeafBound, Counter[str]]) -> list[LeafBound]:
    """The lists that are not contained in another one."""
    return [bound for bound, own in events.items() if not any(own < other for other in events.values())]
