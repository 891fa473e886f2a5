"""What changed between two certificates, such as those of two months: numbers side by side, and what came or went.

Certificates of different ledgers or streams are compared as well, and the first sentence says that they are different.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tacit.certificate import Certificate
from tacit.certificate.attack_bounds import FALSE_POSITIVES, attack_bounds
from tacit.certificate.certificate_text import model_hash
from tacit.certificate.declared_fields import TITLES, declared_rows

NONE = "none"


@dataclass(frozen=True, kw_only=True)
class NumberChange:
    """A number before and after; None where there is none, such as ε where nothing is certified."""

    name: str
    before: float | None
    after: float | None

    @property
    def changed(self) -> bool:
        """Whether the two differ by more than rounding."""
        if self.before is None or self.after is None:
            return self.before is not self.after
        return abs(self.after - self.before) > 1e-6 * max(abs(self.before), abs(self.after))


@dataclass(frozen=True, kw_only=True)
class FactChange:
    """A fact in words, before and after."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class ListChange:
    """What was added to a list, and what is no longer in it."""

    name: str
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CertificateChanges:
    """What changed from one certificate to another.

    Attributes:
        warnings: What must be known before the numbers are read, such as that the ledgers are different.
        summary: The most important change, in a sentence.
        numbers: All numbers, changed or not.
        facts: The facts that changed.
        lists: The lists that changed.
    """

    warnings: tuple[str, ...]
    summary: str
    numbers: tuple[NumberChange, ...]
    facts: tuple[FactChange, ...]
    lists: tuple[ListChange, ...]


def changes(before: Certificate, after: Certificate) -> CertificateChanges:
    """Compare two certificates.

    Args:
        before: The earlier one.
        after: The later one.

    Returns:
        What changed.
    """
    first, second = _numbers(before), _numbers(after)
    numbers = tuple(NumberChange(name=name, before=first[name], after=second[name]) for name in first)
    old, new = _facts(before), _facts(after)
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name, NONE) != new.get(name, NONE)]
    return CertificateChanges(
        warnings=tuple(_warnings(before, after)),
        summary=_summary(before, after),
        numbers=numbers,
        facts=tuple(FactChange(name=name, before=old.get(name, NONE), after=new.get(name, NONE)) for name in names),
        lists=tuple(change for change in _lists(before, after) if change.added or change.removed),
    )


def _warnings(before: Certificate, after: Certificate) -> Iterable[str]:
    one, other = before.ledger, after.ledger
    if one.id != other.id:
        yield (
            f"These certificates are of different ledgers ({_short(one.id)} and {_short(other.id)}): neither continues "
            "the other, and whoever is in the data of both loses more than either number says."
        )
    elif (one.stream, before.data_fingerprint) != (other.stream, after.data_fingerprint):
        yield (
            f"These certificates are of different streams of one ledger ({_short(one.stream)!r} and "
            f"{_short(other.stream)!r}): whoever is in the data of both loses more than either number says."
        )
    elif other.head_seq < one.head_seq:
        yield f"The second certificate is the older one (entry {other.head_seq} of the ledger, not {one.head_seq})."
    elif other.head_seq == one.head_seq and other.head_hash != one.head_hash:
        yield "Both name the same entry of the ledger with different hashes: one is of a copy that went its own way."
    if (before.unit.kind, before.adjacency) != (after.unit.kind, after.adjacency):
        yield "They protect different units or neighbours, so their numbers cannot be compared with each other."
    if before.claims.certified.delta != after.claims.certified.delta:
        yield "Their δ differ, so the two ε cannot be compared directly; compare the bounds on attackers."
    if before.id == after.id and before.canonical() == after.canonical():
        yield "These are the same certificate."


def _summary(before: Certificate, after: Certificate) -> str:
    old, new = before.epsilon, after.epsilon
    tasks = after.claims.certified.all_tasks - before.claims.certified.all_tasks
    more = (
        f"{tasks} more task{'s' * (tasks != 1)}"
        if tasks > 0
        else f"{-tasks} fewer tasks"
        if tasks
        else "the same tasks"
    )
    if old is None and new is None:
        return f"Nothing was guaranteed and nothing is; {more}."
    if old is None:
        return f"Nothing was guaranteed; now ε = {new:.4g} is certified; {more}."
    if new is None:
        return f"ε = {old:.4g} was certified; now nothing is guaranteed: {after.claims.certified.reason}."
    if f"{old:.4g}" == f"{new:.4g}":
        return f"ε is the same, {new:.4g}, with {more}."
    return f"ε {'rose' if new > old else 'fell'} from {old:.4g} to {new:.4g}, with {more}."


def _numbers(one: Certificate) -> dict[str, float | None]:
    certified, bounds = one.claims.certified, attack_bounds(one)
    first = None if bounds is None else bounds.one
    rates = {
        f"true positives at {rate * 100:g} % false positives, at most": None
        if first is None
        else first.true_positives[i]
        for i, rate in enumerate(FALSE_POSITIVES)
    }
    groups = {} if bounds is None else {group.units: group.epsilon for group in bounds.groups}
    total = one.same_units
    return {
        "ε": certified.epsilon,
        "δ": certified.delta,
        "µ of GDP": None if bounds is None else bounds.mu,
        "µ of GDP up to δ": None if bounds is None else bounds.mu_with_delta,
        "attacker's advantage, at most": None if first is None else first.advantage,
        **rates,
        **{f"ε of {units} together": groups.get(units) for units in (2, 3, 5)},
        "ε over all streams": None if total is None else total.epsilon,
        "budget ε": one.ledger.budget_epsilon,
        "tasks": certified.all_tasks,
        "tasks per unit": one.unit.max_tasks_per_unit,
        "records per unit and task": one.unit.max_records_per_unit_per_task,
        "mechanisms charged": len(one.mechanisms) + sum(one.other_mechanisms.values()),
        "events of the costliest task": max((len(bound.events) for bound in certified.bounds), default=0),
        "entry of the ledger": one.ledger.head_seq,
    }


def _facts(one: Certificate) -> dict[str, str]:
    certified, signature = one.claims.certified, one.signature
    return {
        "issued": one.created,
        "method": one.method,
        "ledger": one.ledger.id,
        "stream": one.ledger.stream,
        "protected unit": f"one {one.unit.kind}, {one.adjacency}, {one.unit.overlap_policy}",
        "the bound holds for": certified.reason,
        "accountant": certified.accountant,
        "arithmetic": one.arithmetic or "floating point",
        "attacker sees": f"models {one.observer.models}, gradients {one.observer.noisy_gradients}, memory "
        f"{one.observer.memory}, batches {one.observer.batch_membership}",
        "label sets": one.labels.policy,
        "tuning": one.tuning,
        "tacit": f"{one.library.version} ({one.library.git_commit or 'no commit'})",
        "policy": one.ledger.policy_digest,
        "signed by": NONE if signature is None else signature.public_key,
        "model": model_hash(one) or NONE,
        **{f"declared: {title}": text for title, text in declared_rows(one) if title in TITLES.values()},
    }


def _lists(before: Certificate, after: Certificate) -> Iterable[ListChange]:
    def assumed(one: Certificate) -> list[str]:
        return [f"{assumption.state}: {assumption.says}" for assumption in one.assumptions]

    def audited(one: Certificate) -> list[str]:
        return [f"{audit.design}: ε ≥ {audit.epsilon_lower_bound:.3g} ({audit.date})" for audit in one.audit]

    def claimed(one: Certificate) -> list[str]:
        return [f"{claim.paper}: {claim.formula}" for claim in one.claims.paper]

    pairs = {
        "assumptions": (assumed(before), assumed(after)),
        "not counted": (before.not_accounted, after.not_accounted),
        "audits": (audited(before), audited(after)),
        "claims of papers": (claimed(before), claimed(after)),
        "also in the release": (before.beside, after.beside),
        "budget raised": (before.ledger.raised, after.ledger.raised),
        "roll-backs accepted": (before.ledger.roll_backs_accepted, after.ledger.roll_backs_accepted),
    }
    for name, (old, new) in pairs.items():
        added, removed = tuple(one for one in new if one not in old), tuple(one for one in old if one not in new)
        yield ListChange(name=name, added=added, removed=removed)


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"
