"""A certificate against its ledger: the log is run again up to the certificate's head, and everything priced anew.

Guarantee: `check` returns only if the head that the certificate names is in the ledger's chain, and the ledger, as it
was then, supports what the certificate says: the same units, budget, policy, tasks, events and mechanisms, and no ε
below what these events cost. So a certificate with a true head and a smaller ε fails, as does one that leaves events
or tasks out.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tacit.errors import CertificateError
from tacit.privacy.assumptions import label_policy
from tacit.privacy.certificate import Certificate, Certified, TaskBound
from tacit.privacy.composition import certified as composed
from tacit.privacy.issue import broken
from tacit.privacy.ledger import Head, Ledger, Summary
from tacit.privacy.policy import Policy
from tacit.privacy.repricing import at_least


def check(certificate: Certificate, ledger: Ledger) -> None:
    """Raise CertificateError, naming the first difference, unless the ledger supports the certificate."""
    said = certificate.ledger
    head = Head(seq=said.head_seq, hash=said.head_hash)
    if said.id != ledger.id or not ledger.contains(head):
        raise CertificateError(
            f"the head that the certificate names (entry {head.seq}) is not in this ledger: it was rolled back, or is "
            "another ledger"
        )
    summary = ledger.summary_at(head, certificate.data_fingerprint)
    for name, stated, recorded in _facts(certificate, summary):
        if stated != recorded:
            raise CertificateError(
                f"the certificate says {name} {_short(stated)}, its ledger {_short(recorded)} at entry {head.seq}; do "
                "not rely on it"
            )
    want = composed(summary, broken(summary, ledger.keys.test))
    _check_bounds(certificate.claims.certified, want)
    _check_tasks(certificate.claims.certified, want, summary)
    _check_mechanisms(certificate, summary)


def _facts(certificate: Certificate, summary: Summary) -> Iterator[tuple[str, Any, Any]]:
    """(what, as the certificate says it, as the ledger has it)."""
    said, unit, certified = certificate.ledger, certificate.unit, certificate.claims.certified
    terms, budget = summary.terms, summary.terms.budget
    yield "stream", said.stream, terms.name
    yield "unit", unit.kind, budget.unit
    yield "adjacency", certificate.adjacency, budget.adjacency
    yield "tasks per unit", unit.max_tasks_per_unit, terms.tasks_per_unit
    yield "records per unit", unit.max_records_per_unit_per_task, terms.records_per_unit
    yield "overlap", unit.overlap_policy, "enforced" if summary.enforced else "declared"
    yield "fixed plans", certificate.task_schedule.plans_fixed_in_advance, terms.fixed_schedule
    yield "δ", certified.delta, budget.delta
    yield "budget", (said.budget_epsilon, said.budget_delta), (budget.epsilon, budget.delta)
    yield "label sets", certificate.labels.policy, label_policy(summary)
    yield "policy", _policy(said.policy), _policy(summary.policy)
    yield "raises", len(said.raised), len(summary.raises)
    yield "accepted roll-backs", said.roll_backs_accepted, summary.reanchored
    yield "arithmetic", certificate.arithmetic or "floats", "floats" if summary.in_floats else "exact"
    yield "number of tasks", certified.all_tasks, summary.tasks


def _policy(said: Mapping[str, Any]) -> Policy:
    return Policy.parse(dict(said), where="the policy of a certificate")


def _check_tasks(stated: Certified, want: Certified, summary: Summary) -> None:
    """Each listed task by its name; where all are listed on both sides, there is no other."""
    recorded = {bound.task: bound for bound in want.tasks}
    whole = len(recorded) == summary.tasks
    for bound in stated.tasks:
        known = recorded.get(bound.task)
        if known is None and whole:
            raise CertificateError(f"the certificate lists task {bound.task}, which its ledger has not")
        if known is not None:
            _check_task(bound, known)


def _check_task(bound: TaskBound, known: TaskBound) -> None:
    if (bound.mode, bound.events) != (known.mode, known.events):
        what = "events" if bound.mode == known.mode else f"mode ({bound.mode})"
        raise CertificateError(
            f"task {bound.task} has other {what} in the certificate than in its ledger; do not rely on it"
        )
    if bound.epsilon is not None:
        at_least(bound.epsilon, _loss(known.epsilon), f"task {bound.task} states ε = {bound.epsilon:.4g}, but costs")


def _check_mechanisms(certificate: Certificate, summary: Summary) -> None:
    recorded = {
        grant.id: (grant.kind, dict(grant.plan), [(block, json.loads(event)) for block, event in grant.reads])
        for grant in summary.grants
        if grant.state != "VOID"
    }
    stated = {
        one.grant: (one.kind, one.plan, [(read["block"], read["event"]) for read in one.reads])
        for one in certificate.mechanisms
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
    recorded = {delta: _loss(epsilon) for epsilon, delta in want.curve}
    for epsilon, delta in stated.curve:
        if epsilon is not None and delta in recorded:
            at_least(epsilon, recorded[delta], f"the certificate states ε = {epsilon:.4g} at δ = {delta:g}, but it is")


def _loss(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
