"""Checking a certificate against its ledger, as the ledger was when the certificate was issued.

Formal guarantees. `check` returns only if:

* the ledger's chain contains the head that the certificate names;
* the log up to that head gives the same units, budget, policy, tasks, events and mechanisms;
* no stated ε is smaller than what these events cost;
* the certificate has every event list and filter that its bounds on attackers are computed from.

A certificate with a true head and a smaller ε fails, and so does one that omits events or tasks.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tacit.certificate.assumptions import label_policy
from tacit.certificate.certificate import Certificate
from tacit.certificate.composition import certified as composed
from tacit.certificate.issuance import void_reason
from tacit.certificate.repricing import at_least
from tacit.certificate.sections import Certified, OtherBlocks, TaskBound
from tacit.errors import CertificateError
from tacit.privacy.ledger import Head, Ledger, StreamSummary
from tacit.privacy.ledger.limits.policy import Policy

_LAST_DIGITS = 1 - 1e-9


def check(certificate: Certificate, ledger: Ledger) -> None:
    """Check a certificate against its ledger.

    Raises:
        CertificateError: They differ; the message names the first difference.
    """
    section = certificate.ledger
    head = Head(seq=section.head_seq, hash=section.head_hash)
    if section.id != ledger.id or not ledger.contains(head):
        raise CertificateError(
            f"the head that the certificate names (entry {head.seq}) is not in this ledger: it was rolled back, or is "
            "another ledger"
        )
    summary = ledger.summary_at(head, certificate.data_fingerprint)
    for name, stated, recorded in _facts(certificate, summary):
        if stated != recorded:
            raise CertificateError(
                f"the certificate states {name} {_short(stated)}, its ledger {_short(recorded)} at entry {head.seq}; "
                "do not rely on it"
            )
    want = composed(summary, void_reason(summary, ledger.keys.test))
    _check_bounds(certificate.claims.certified, want)
    _check_tasks(certificate.claims.certified, want, summary)
    _check_mechanisms(certificate, summary)


def _facts(certificate: Certificate, summary: StreamSummary) -> Iterator[tuple[str, Any, Any]]:
    """(fact, value in the certificate, value in the ledger)."""
    section, unit, certified = certificate.ledger, certificate.unit, certificate.claims.certified
    terms, budget = summary.terms, summary.terms.budget
    yield "stream", section.stream, terms.name
    yield "unit", unit.kind, budget.unit
    yield "adjacency", certificate.adjacency, budget.adjacency
    yield "tasks per unit", unit.max_tasks_per_unit, terms.tasks_per_unit
    yield "records per unit", unit.max_records_per_unit_per_task, terms.records_per_unit
    yield "overlap", unit.overlap_policy, "enforced" if summary.enforced else "declared"
    yield "fixed plans", certificate.task_schedule.plans_fixed_in_advance, terms.fixed_schedule
    yield "δ", certified.delta, budget.delta
    yield "budget", (section.budget_epsilon, section.budget_delta), (budget.epsilon, budget.delta)
    yield "label sets", certificate.labels.policy, label_policy(summary)
    yield "policy", _policy(section.policy), _policy(summary.policy)
    yield "raises", len(section.raised), len(summary.raises)
    yield "accepted roll-backs", section.roll_backs_accepted, summary.reanchored
    yield "arithmetic", certificate.arithmetic or "floats", "floats" if summary.in_floats else "exact"
    yield "number of tasks", certified.all_tasks, summary.tasks


def _policy(values: Mapping[str, Any]) -> Policy:
    return Policy.parse(dict(values), where="the policy of a certificate")


def _check_tasks(stated: Certified, want: Certified, summary: StreamSummary) -> None:
    """Compare the listed tasks by name; if the ledger lists all tasks, an unknown one is refused."""
    recorded = {bound.task: bound for bound in want.tasks}
    whole = len(recorded) == summary.tasks
    for bound in stated.tasks:
        if bound.task in recorded:
            _check_task(bound, recorded[bound.task])
        elif whole:
            raise CertificateError(
                f"the certificate lists task {bound.task}, which is not in its ledger; do not rely on it"
            )


def _check_task(bound: TaskBound, known: TaskBound) -> None:
    if (bound.mode, bound.events) != (known.mode, known.events):
        what = "events" if bound.mode == known.mode else f"mode ({bound.mode})"
        raise CertificateError(
            f"task {bound.task} has other {what} in the certificate than in its ledger; do not rely on it"
        )
    if bound.epsilon is not None:
        at_least(bound.epsilon, _loss(known.epsilon), f"task {bound.task} states ε = {bound.epsilon:.4g}, but costs")


def _check_mechanisms(certificate: Certificate, summary: StreamSummary) -> None:
    recorded = {
        grant.id: (grant.kind, dict(grant.plan), [(block, json.loads(event)) for block, event in grant.reads])
        for grant in summary.grants
        if grant.state != "VOID"
    }
    stated = {
        mechanism.grant: (mechanism.kind, mechanism.plan, [(read["block"], read["event"]) for read in mechanism.reads])
        for mechanism in certificate.mechanisms
    }
    whole = len(summary.listed) == summary.tasks
    for grant in sorted(stated.keys() | recorded.keys()):
        both = grant in stated and grant in recorded
        if (both and stated[grant] != recorded[grant]) or (whole and not both):
            raise CertificateError(
                f"mechanism {grant[:12]} is not the same in the certificate and in its ledger; do not rely on it"
            )


def _check_bounds(stated: Certified, want: Certified) -> None:
    if stated.epsilon is None:
        return
    if want.epsilon is None:
        raise CertificateError(
            f"the certificate states ε = {stated.epsilon:.4g}, but its ledger certifies none: {want.reason}; do not "
            "rely on it"
        )
    at_least(stated.epsilon, want.epsilon, f"the certified ε is {stated.epsilon:.4g}, but by its ledger a unit loses")
    applying = {rule.rule for rule in want.over_tasks if rule.applies}
    for rule in stated.over_tasks:
        if rule.applies and (rule.rule not in applying or _loss(rule.epsilon) < stated.epsilon):
            raise CertificateError(f"the rule {rule.rule!r} does not give the certified ε; do not rely on it")
    _check_other_blocks(stated, want)
    recorded = {delta: _loss(epsilon) for epsilon, delta in want.curve}
    for epsilon, delta in stated.curve:
        if epsilon is not None and delta in recorded:
            at_least(epsilon, recorded[delta], f"the certificate states ε = {epsilon:.4g} at δ = {delta:g}, but it is")


def _check_other_blocks(stated: Certified, want: Certified) -> None:
    """Compare all event lists and filters, which the bounds on attackers are computed from.

    A task that is not in a long ledger's list, or is in a group, is not compared by itself, but its events are here.
    """
    others = stated.other_blocks
    if others is None and (stated.alike or any(task.part != "all" for task in stated.tasks)):
        return  # then the certified pair alone bounds attackers
    if others is not None and not (want.other_blocks and _same_others(others, want.other_blocks)):
        raise CertificateError(
            "the event lists and filters of other blocks are not the same in the certificate and in its ledger; do not "
            "rely on it"
        )
    if not _event_lists(want) <= _event_lists(stated):
        raise CertificateError(
            "the certificate leaves out events that its ledger has of some task or other blocks; do not rely on it"
        )


def _same_others(stated: OtherBlocks, want: OtherBlocks) -> bool:
    """Whether the lists are equal, and no limit is smaller by more than the last digits of another machine."""
    pairs = list(zip(stated.filters, want.filters, strict=False))
    return (
        stated.lists == want.lists
        and len(stated.filters) == len(want.filters)
        and all(one.valid and one.orders == other.orders for one, other in pairs)
        and all(one.additive_delta >= other.additive_delta * _LAST_DIGITS for one, other in pairs)
        and all(
            mine >= limit * _LAST_DIGITS
            for one, other in pairs
            for mine, limit in zip(one.limits, other.limits, strict=True)
        )
    )


def _event_lists(certified: Certified) -> set[str]:
    """Every event list that a certificate shows, as text."""
    shown = [bound.events for bound in certified.bounds if bound.mode == "committed" and bound.events]
    others = certified.other_blocks.lists if certified.other_blocks else ()
    return {json.dumps(events, sort_keys=True) for events in (*shown, *others)}


def _loss(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
