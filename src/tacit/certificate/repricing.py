"""Repricing a certificate from its own events.

Formal guarantees: `reprice` refuses a certificate that states a smaller ε than its listed tasks and mechanisms cost.
Only the ledger can show that events are missing from the list: see `ledger_check`.
"""

import math
from collections import defaultdict
from typing import Any

from tacit.certificate.certificate import Certificate
from tacit.certificate.composition import composed_times, costliest, whole
from tacit.certificate.sections import TaskBound
from tacit.errors import CertificateError
from tacit.privacy.accounting import epsilon, replace_one
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.events import to_json

Events = list[dict[str, Any]]
_ROUNDING = 1e-6


def reprice(certificate: Certificate) -> None:
    """Check every bound of a certificate against the events, tasks and mechanisms that it lists.

    The events of an open block cost at most its filter, so they are priced like any others. Groups of tasks with
    different events list no events: their bound must not exceed the certified one, and a composition that needs their
    events is refused.

    Args:
        certificate: The certificate.

    Raises:
        CertificateError: A stated ε is smaller than the cost of its events.
    """
    certified = certificate.claims.certified
    for bound in certified.bounds:
        if bound.epsilon is not None:
            cost = epsilon.epsilon(whole(bound.events), bound.delta, certificate.adjacency)
            name = f"task {bound.task}" if isinstance(bound, TaskBound) else f"one of {bound.tasks} tasks"
            at_least(bound.epsilon, cost, f"{name} states ε = {bound.epsilon:.4g}, but its events cost")
    if (certificate.mode == "certified") != (certified.epsilon is not None):
        raise CertificateError(
            f"the certificate has mode {certificate.mode!r} with ε = {certified.epsilon}; do not rely on it"
        )
    if certified.epsilon is None:
        return
    applying = [rule for rule in certified.over_tasks if rule.applies]
    expected = "parallel" if certificate.unit.max_tasks_per_unit == 1 else None
    if len(applying) != 1 or (expected and applying[0].rule != expected):
        raise CertificateError("the certificate does not state which composition rule applies; do not rely on it")
    what = f"the certified ε is {certified.epsilon:.4g}, but"
    for bound in certified.bounds:
        at_least(certified.epsilon, math.inf if bound.epsilon is None else bound.epsilon, f"{what} one task costs")
    n = min(certificate.unit.max_tasks_per_unit, certified.all_tasks)
    if n > 1:
        at_least(certified.epsilon, _in_several(certificate, n), f"{what} a unit in {n} tasks loses")
    _check_other_blocks(certificate, what)
    for events in _by_block(certificate):
        cost = epsilon.epsilon(whole(events), certified.delta, certificate.adjacency)
        at_least(certified.epsilon, cost, f"{what} the mechanisms that read one block cost")
    if certificate.adjacency is Adjacency.REPLACE_ONE:
        lists = [*(list(bound.events) for bound in certified.bounds if bound.events), *_by_block(certificate)]
        lists += map(list, certified.other_blocks.lists if certified.other_blocks else ())
        texts = [[to_json(whole([event])) for event in events] for events in lists]
        cost = replace_one.worst(texts, certified.delta)
        at_least(certified.epsilon, cost, f"{what} a unit replaced by one of another part or task loses")


def _check_other_blocks(certificate: Certificate, what: str) -> None:
    """Other lists and filters cost no more than the certified ε, and filters no less than their tasks state.

    A curve over several tasks may cost more than the certified ε, since PLD may be tighter.
    """
    certified = certificate.claims.certified
    if (others := certified.other_blocks) is None:
        return
    for events in others.lists:
        cost = epsilon.epsilon(whole(events), certified.delta, certificate.adjacency)
        at_least(certified.epsilon or 0.0, cost, f"{what} another block costs")
    known = []
    for limits in others.filters:
        if not limits.valid:
            raise CertificateError("a Rényi curve of the certificate has no valid orders; do not rely on it")
        known.append(
            epsilon.rdp_to_epsilon(limits.limits, certified.delta - limits.additive_delta, limits.orders)
            if limits.orders
            else math.inf
        )
    if certificate.unit.max_tasks_per_unit > 1:
        stated = [certified.epsilon or 0.0] * len(known)  # one curve over all tasks, which PLD may improve on
        wrong = any(cost < bound * (1 - _ROUNDING) for cost, bound in zip(known, stated, strict=True))
    else:
        opened = [bound.epsilon for bound in certified.bounds if bound.mode == "open" and bound.epsilon and known]
        wrong = not all(any(abs(cost - bound) <= _ROUNDING * bound for cost in known) for bound in opened)
        for cost in known:
            at_least(certified.epsilon or 0.0, cost, f"{what} the filter of an open block allows")
    if wrong:
        raise CertificateError(
            "a Rényi curve of the certificate does not give the ε that is stated for its tasks; do not rely on it"
        )


def _in_several(certificate: Certificate, n: int) -> float:
    """A lower bound on the ε of a unit in the n costliest tasks; infinite if the events of one are missing."""
    certified = certificate.claims.certified
    worst = costliest(certified.bounds, n)
    if any(task.mode == "committed" and task.epsilon and not task.events for task, _ in worst):
        return math.inf
    counted = composed_times((event, times) for task, times in worst for event in task.events)
    return epsilon.epsilon(counted, certified.delta, certificate.adjacency)


def _by_block(certificate: Certificate) -> list[Events]:
    """The events of the listed mechanisms on each block."""
    found: dict[Any, Events] = defaultdict(list)
    for mechanism in certificate.mechanisms:
        for read in mechanism.reads:
            found[read["block"]].append(read["event"])
    return [found[block] for block in sorted(found)]


def at_least(stated: float, cost: float, what: str) -> None:
    """Raise CertificateError if a stated ε is below the cost, up to rounding."""
    if not cost <= stated * (1 + 1e-6) + 1e-9:
        raise CertificateError(f"{what} {cost:.4g}; do not rely on it")
