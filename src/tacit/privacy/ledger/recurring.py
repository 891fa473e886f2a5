"""Units that recur: the price of the worst k lists that one unit can meet.

Guarantee: a unit meets one leaf of each of at most k roots, so it meets some k of the lists that roots show. With few
different lists every such choice is priced as a whole, by the predicate of calibration; a list whose events are all
in another list can only cost less and is left out. Under replace-one every two choices are also priced as an exchange
of a unit that meets the one for a unit that meets the other. Valid for plans that were fixed in advance.
"""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import chain, combinations, combinations_with_replacement

from sqlalchemy import Connection

from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.calibrate import MOST_CHOICES
from tacit.privacy.ledger import eventlists
from tacit.privacy.ledger.eventlists import Texts
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.profile import Face


def worst(
    connection: Connection,
    groups: Mapping[frozenset[Face], int],
    k: int,
    budget: Budget,
    prices: Prices,
    *,
    ahead: bool,
) -> int | None:
    """The nano-ε of the worst choice; None where there are open blocks or too many choices.

    With `ahead`, roots that are still to come are counted in where all show one list: k tasks of one plan.
    """
    if any(face.limits is not None for group in groups for face in group):
        return None
    shown = {face: Counter(_texts(connection, face)) for group in groups for face in group}
    largest = [face for face, events in shown.items() if not any(events < other for other in shown.values())]
    roots = sum(groups.values())
    if len(largest) == 1:
        return prices.nano(connection, _texts(connection, largest[0]), budget, k if ahead else min(k, roots))
    size = min(k, roots)
    if math.comb(len(largest) + size - 1, size) > MOST_CHOICES:
        return None
    places = {face: sum(n for group, n in groups.items() if _reach(group, face, shown)) for face in largest}
    choices = (Counter(choice) for choice in combinations_with_replacement(largest, size))
    possible = [one for one in choices if all(times <= places[face] for face, times in one.items())]
    lists = [tuple(sorted(chain(*(_texts(connection, face) for face in one.elements())))) for one in possible]
    alone = max(prices.nano(connection, events, budget, 1) for events in lists)
    if budget.adjacency is not Adjacency.REPLACE_ONE:
        return alone
    # The unit that leaves meets one choice, the one that comes another.
    return max(alone, *(prices.exchanged(one, other, budget) for one, other in combinations(lists, 2)), 0)


def largest(connection: Connection, groups: Mapping[frozenset[Face], int], k: int) -> tuple[str, ...] | None:
    """The events of a unit in k of these roots, where one list holds all others; None where there is none such."""
    if any(face.limits is not None for group in groups for face in group):
        return None
    shown = {face: Counter(_texts(connection, face)) for group in groups for face in group}
    found = [face for face, events in shown.items() if not any(events < other for other in shown.values())]
    if not found:
        return ()
    return tuple(_texts(connection, found[0])) * min(k, sum(groups.values())) if len(found) == 1 else None


def _reach(group: frozenset[Face], face: Face, shown: Mapping[Face, Counter[str]]) -> bool:
    """Whether a root of this group shows the list, or one that the list stands for."""
    return any(shown[one] <= shown[face] for one in group)


def _texts(connection: Connection, face: Face) -> Texts:
    return face.events if face.events is not None else eventlists.get(connection, face.name)
