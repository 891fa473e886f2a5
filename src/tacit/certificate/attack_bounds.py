"""What an attacker can achieve at most against the units of a certificate, computed again from what it lists.

Formal guarantees:

* Every number is an upper bound, computed from the event lists and Rényi filters of all blocks that a unit may be in,
  composed like the certified ε, under the certificate's neighbouring relation and in both directions. The worst block
  counts.
* Where a certificate does not list them all (as those of earlier versions, if blocks were split or open, and those of
  very many different blocks), the certified (ε, δ) alone bounds the rest; `methods` says so.
* Nothing is stored, so nothing can be stated too low: who changes a number must change the events that a signature
  and the ledger protect.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, combinations_with_replacement
from typing import Any

from dp_accounting.dp_event import DpEvent

from tacit.certificate.composition import whole
from tacit.certificate.sections import Contents, RenyiLimits
from tacit.errors import TacitError
from tacit.privacy.accounting import events, tradeoff
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.calibrate import MOST_CHOICES
from tacit.privacy.accounting.tradeoff import Profile

Events = list[dict[str, Any]]
GROUPS = (1, 2, 3, 5)
"""The numbers of units that bounds are computed for."""
FALSE_POSITIVES = (0.01, 0.001)
_RULES = ("parallel", "accountant", "adaptive filter")
_WHOLE = "all"  # the part of a block that was not split
_MOST_EXACT = 6
"""How many event lists get a privacy loss distribution; the rest, which cost less, get Rényi curves."""
_MOST_LISTS = 64


@dataclass(frozen=True, kw_only=True)
class GroupBounds:
    """Bounds for some units that an attacker looks for together.

    Attributes:
        units: How many.
        epsilon: ε at the certified δ; None if no finite one was found.
        advantage: The largest true positives minus false positives.
        true_positives: At each of `FALSE_POSITIVES`.
    """

    units: int
    epsilon: float | None
    advantage: float
    true_positives: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class AttackBounds:
    """Upper bounds on every attack.

    Attributes:
        delta: The certified δ.
        mu: Everything is µ-GDP with this µ; None if no finite µ is known.
        mu_with_delta: True positives are at most those of µ-GDP plus δ, with this µ; None if no finite µ is known.
        groups: The bounds for each of `GROUPS`; the first is for one unit.
        methods: What they were computed from.
    """

    delta: float
    mu: float | None
    mu_with_delta: float | None
    groups: tuple[GroupBounds, ...]
    methods: tuple[str, ...]

    @property
    def one(self) -> GroupBounds:
        """The bounds for one unit."""
        return self.groups[0]


def attack_bounds(certificate: Contents) -> AttackBounds | None:
    """The bounds of a certificate, by what it lists.

    Args:
        certificate: The certificate.

    Returns:
        The bounds; None if no finite ε is certified, so that nothing is guaranteed. Of events or curves that are none,
        as in a damaged certificate, nothing is computed: the certified (ε, δ) alone bounds attackers then.
    """
    certified = certificate.claims.certified
    if certified.epsilon is None or not (0 <= certified.epsilon < math.inf and 0 <= certified.delta <= 1):
        return None
    certain = certified.model_dump_json(include={"epsilon", "delta", "tasks", "alike", "other_blocks"})
    rule = next((one.rule for one in certified.over_tasks if one.applies), "")
    return _computed(
        certain, certificate.adjacency, min(certificate.unit.max_tasks_per_unit, certified.all_tasks), rule
    )


@lru_cache(maxsize=64)
def _computed(certain: str, adjacency: Adjacency, tasks: int, rule: str) -> AttackBounds:
    stated = json.loads(certain)
    epsilon, delta = stated["epsilon"], stated["delta"]
    try:
        found = _profiles(stated, adjacency, tasks, rule)
    except (TacitError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        found = [tradeoff.of_pair(epsilon, delta)]
    profiles = [tradeoff.within(one, epsilon, delta) for one in found]
    mu, mu_with_delta = tradeoff.gaussian_dp(profiles, 0.0), tradeoff.gaussian_dp(profiles, delta)
    return AttackBounds(
        delta=delta,
        mu=mu if math.isfinite(mu) else None,
        mu_with_delta=mu_with_delta if math.isfinite(mu_with_delta) else None,
        groups=tuple(_group(profiles, units, epsilon, delta) for units in GROUPS),
        methods=tuple(sorted({one.method for one in profiles})),
    )


def _group(profiles: Sequence[Profile], units: int, epsilon: float, delta: float) -> GroupBounds:
    together = epsilon if units == 1 else tradeoff.group_epsilon(profiles, delta, units)
    return GroupBounds(
        units=units,
        epsilon=together if math.isfinite(together) else None,
        advantage=tradeoff.advantage(profiles, units=units),
        true_positives=tuple(tradeoff.true_positives(profiles, rate, units=units) for rate in FALSE_POSITIVES),
    )


def _profiles(stated: dict[str, Any], adjacency: Adjacency, tasks: int, rule: str) -> list[Profile]:
    """The profiles of all that a unit may be in, of which the worst applies."""
    bounds, others = [*stated["tasks"], *stated.get("alike", [])], stated.get("other_blocks")
    only_pair = tradeoff.of_pair(stated["epsilon"], stated["delta"])
    opened = any(bound["mode"] == "open" for bound in bounds)
    curves = [tradeoff.of_curve(one["limits"], one["orders"], one["additive_delta"]) for one in _filters(others)]
    if rule not in _RULES or (rule == "parallel" and tasks > 1) or (opened and not curves):
        return [only_pair]
    if rule == "adaptive filter" or (rule == "accountant" and opened):
        return curves[:1] or [only_pair]
    if others is None and not (all(map(_alone, stated["tasks"])) and not stated.get("alike")):
        return [only_pair]
    lists = _maximal([*(bound["events"] for bound in bounds if bound["mode"] == "committed"), *_lists(others)])
    nameless = [bound for bound in bounds if bound["mode"] == "committed" and bound["epsilon"] and not bound["events"]]
    if any("task" in bound for bound in nameless) or (nameless and not _lists(others)) or len(lists) > _MOST_LISTS:
        return [only_pair]
    if rule == "accountant":
        return _several(lists, adjacency, tasks) or curves[:1] or [only_pair]
    found = _each([whole(listed) for listed in lists], adjacency)
    if adjacency is Adjacency.REPLACE_ONE:  # a unit may be replaced by one of another block
        pairs_of = list(combinations(lists, 2))
        if (curves and (lists or len(curves) > 1)) or len(pairs_of) > MOST_CHOICES:
            return [only_pair]
        found += [tradeoff.of_exchange(whole(first), whole(second)) for first, second in pairs_of]
    return [*found, *curves] or [tradeoff.of_event(events.compose([]), adjacency)]


def _several(lists: list[Events], adjacency: Adjacency, tasks: int) -> list[Profile]:
    """The profiles of a unit in several tasks with these lists, each as often as may be; empty if they are too many."""
    if not lists or math.comb(len(lists) + tasks - 1, tasks) > MOST_CHOICES:
        return []
    chosen = [list(chain(*choice)) for choice in combinations_with_replacement(lists, tasks)]
    found = _each([whole(listed) for listed in chosen], adjacency, exact=len(chosen))
    if adjacency is Adjacency.REPLACE_ONE:
        found += [tradeoff.of_exchange(whole(first), whole(second)) for first, second in combinations(chosen, 2)]
    return found


def _maximal(lists: Iterable[Events]) -> list[Events]:
    """The lists that are not contained in another one: whoever sees less learns no more."""
    counted = {
        tuple(sorted(texts)): Counter(texts) for texts in ([json.dumps(one) for one in listed] for listed in lists)
    }
    kept = sorted(name for name, own in counted.items() if name and not any(own < more for more in counted.values()))
    return [[json.loads(text) for text in name] for name in kept]


def _alone(task: Mapping[str, Any]) -> bool:
    """Whether the block of a task was committed and not split, so that its events are all there is."""
    return bool(task["mode"] == "committed" and task["part"] == _WHOLE)


def _filters(others: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    found = [] if others is None else list(others["filters"])
    if not all(RenyiLimits(**one).valid for one in found):
        raise ValueError("the orders or limits are not those of a Rényi curve")
    return found


def _lists(others: Mapping[str, Any] | None) -> list[Events]:
    return [] if others is None else list(others["lists"])


def _each(wholes: Sequence[DpEvent], adjacency: Adjacency, exact: int = _MOST_EXACT) -> list[Profile]:
    """One profile for each event; the costliest by Rényi curves get a privacy loss distribution besides."""
    if len(wholes) <= exact or adjacency is Adjacency.REPLACE_ONE:
        return [tradeoff.of_event(event, adjacency) for event in wholes]
    rough = {number: tradeoff.of_event(event, adjacency, exact=False) for number, event in enumerate(wholes)}
    costliest = sorted(rough, key=lambda number: -tradeoff.true_positives([rough[number]], FALSE_POSITIVES[0]))[:exact]
    return [tradeoff.of_event(wholes[number], adjacency) if number in costliest else rough[number] for number in rough]
