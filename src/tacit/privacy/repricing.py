"""Pricing a certificate again, from its own events: no bound may be smaller than what it lists costs.

Guarantee: `reprice` refuses a certificate whose numbers its own tasks and mechanisms do not support, whatever they are
said to be. What was left out of the certificate altogether only a ledger knows: see `witness`.
"""

import math
from collections import defaultdict
from typing import Any

from tacit.errors import CertificateError
from tacit.privacy import accounting, exchange
from tacit.privacy.budget import Adjacency
from tacit.privacy.certificate import Certificate, TaskBound
from tacit.privacy.composition import composed_times, costliest, whole
from tacit.privacy.events import to_json

Events = list[dict[str, Any]]


def reprice(certificate: Certificate) -> None:
    """Raise CertificateError where a bound is smaller than its own events, tasks or mechanisms allow.

    What was spent of an open block is at most its filter, so its events are priced like any others. Tasks of different
    events that are counted together have no events to price: what they state is at most what is certified, and a unit's
    composition that would need them is refused."""
    certified = certificate.claims.certified
    for bound in certified.bounds:
        if bound.epsilon is not None:
            cost = accounting.epsilon(whole(bound.events), bound.delta, certificate.adjacency)
            name = f"task {bound.task}" if isinstance(bound, TaskBound) else f"one of {bound.tasks} tasks"
            at_least(bound.epsilon, cost, f"{name} states ε = {bound.epsilon:.4g}, but its events cost")
    if (certificate.mode == "certified") != (certified.epsilon is not None):
        raise CertificateError(
            f"the certificate says {certificate.mode!r} of ε = {certified.epsilon}; do not rely on it"
        )
    if certified.epsilon is None:
        return
    applying = [rule for rule in certified.over_tasks if rule.applies]
    expected = "parallel" if certificate.unit.max_tasks_per_unit == 1 else None
    if len(applying) != 1 or (expected and applying[0].rule != expected):
        raise CertificateError("the certificate does not say which rule of composition applies; do not rely on it")
    what = f"the certified ε is {certified.epsilon:.4g}, but"
    for bound in certified.bounds:
        at_least(certified.epsilon, math.inf if bound.epsilon is None else bound.epsilon, f"{what} one task costs")
    n = min(certificate.unit.max_tasks_per_unit, certified.all_tasks)
    if n > 1:
        at_least(certified.epsilon, _in_several(certificate, n), f"{what} a unit in {n} tasks loses")
    for events in _by_block(certificate):
        cost = accounting.epsilon(whole(events), certified.delta, certificate.adjacency)
        at_least(certified.epsilon, cost, f"{what} the mechanisms that read one block cost")
    if certificate.adjacency is Adjacency.REPLACE_ONE:
        lists = [*(list(bound.events) for bound in certified.bounds if bound.events), *_by_block(certificate)]
        texts = [[to_json(whole([event])) for event in events] for events in lists]
        cost = exchange.worst(texts, certified.delta)
        at_least(certified.epsilon, cost, f"{what} a unit replaced by one of another part or task loses")


def _in_several(certificate: Certificate, n: int) -> float:
    """At least what a unit in the n costliest tasks loses; infinite with a task whose loss no event explains."""
    certified = certificate.claims.certified
    worst = costliest(certified.bounds, n)
    if any(task.mode == "committed" and task.epsilon and not task.events for task, _ in worst):
        return math.inf
    counted = composed_times((event, times) for task, times in worst for event in task.events)
    return accounting.epsilon(counted, certified.delta, certificate.adjacency)


def _by_block(certificate: Certificate) -> list[Events]:
    """What the listed mechanisms read of each block."""
    found: dict[Any, Events] = defaultdict(list)
    for mechanism in certificate.mechanisms:
        for read in mechanism.reads:
            found[read["block"]].append(read["event"])
    return [found[block] for block in sorted(found)]


def at_least(stated: float, cost: float, what: str) -> None:
    """Refuse a stated ε below the cost, but for what rounding may do."""
    if not cost <= stated * (1 + 1e-6) + 1e-9:
        raise CertificateError(f"{what} {cost:.4g}; do not rely on it")
