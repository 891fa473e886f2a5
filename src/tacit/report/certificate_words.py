"""A certificate in plain words: who is protected, from whom, how well, on what assumptions, and what is not counted."""

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.certificate import Certificate
from tacit.certificate.attack_text import attack_words
from tacit.certificate.declared_fields import declared_rows
from tacit.report.reading.run_data import RunData
from tacit.words import probability_factor, upper_bound

_NEIGHBOURS = {
    "add-or-remove": "The bound compares the data with and without the {kind}",
    "zero-out": "The bound compares the data with those in which the {kind} is replaced by an empty one",
    "replace-one": "The bound compares the data with those in which the {kind} is replaced by any other",
}
_VERDICTS = {"refuted": "refutes", "consistent": "agrees with"}


@dataclass(frozen=True, kw_only=True)
class CertificateWords:
    """A certificate as a page shows it.

    Attributes:
        runs: The names of the runs that it describes.
        facts: Questions and answers.
        assumptions: Their state (checked, declared or violated) and what they say.
        not_counted: Sources of leakage that the bound does not cover.
        audits: Results of attacks that measure the privacy loss from below.
        identity: The ids and dates, for a comparison with the file.
    """

    runs: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    assumptions: tuple[tuple[str, str], ...]
    not_counted: tuple[str, ...]
    audits: tuple[str, ...]
    identity: tuple[tuple[str, str], ...]


def in_words(runs: Sequence[RunData]) -> tuple[CertificateWords, ...]:
    """The certificates of the runs.

    Args:
        runs: The runs; those without a readable certificate are left out.

    Returns:
        One entry for each run.
    """
    return tuple(_one(run, run.certificate) for run in runs if run.certificate is not None)


def audits(certificate: Certificate) -> tuple[str, ...]:
    """The audits of a certificate, a sentence each.

    Args:
        certificate: The certificate.

    Returns:
        The sentences; none if it was not audited.
    """
    return tuple(
        f"{one.design} ({one.runs:,} runs, {one.observer}): the true ε is at least {one.epsilon_lower_bound:.3g} with "
        f"confidence {one.confidence:.0%}, which {_VERDICTS[one.verdict]} the certificate"
        for one in certificate.audit
    )


def protected(certificate: Certificate) -> str:
    """Who is protected, in a sentence or two.

    Args:
        certificate: The certificate.

    Returns:
        Sentences.
    """
    unit, kind = certificate.unit, certificate.unit.kind
    if certificate.claims.certified.epsilon is None:
        return f"Nobody: no finite ε is certified for any {kind} of the stream {certificate.ledger.stream!r}."
    who = (
        f"Each {kind} of the stream {certificate.ledger.stream!r}, in at most {unit.max_tasks_per_unit} "
        f"task{'s' * (unit.max_tasks_per_unit != 1)} with at most {unit.max_records_per_unit_per_task} "
        f"record{'s' * (unit.max_records_per_unit_per_task != 1)} in each. This limit is {unit.overlap_policy}"
        f"{' by tacit' if unit.overlap_policy == 'enforced' else ' by the owner of the data'}."
    )
    return f"{who} {_NEIGHBOURS[certificate.adjacency].format(kind=kind)} ({certificate.adjacency})."


def _one(run: RunData, certificate: Certificate) -> CertificateWords:
    certified, kind = certificate.claims.certified, certificate.unit.kind
    facts = [
        ("Who is protected?", protected(certificate)),
        ("From whom?", "" if certified.epsilon is None else observer(certificate)),
        ("How well?", strength(certified.epsilon, certified.delta, certified.reason, kind)),
        *_attacks(certificate),
        ("Over several tasks?", _tasks(certificate)),
        ("What does the paper claim?", _claims(certificate)),
        ("How were settings chosen?", f"Tuning: {certificate.tuning}. Label sets: {certificate.labels.policy}."),
        *((f"{title[:1].upper()}{title[1:]} (declared)", text) for title, text in declared_rows(certificate)),
    ]
    return CertificateWords(
        runs=(run.label,),
        facts=tuple((question, answer) for question, answer in facts if answer),
        assumptions=tuple((one.state, one.says) for one in certificate.assumptions),
        not_counted=certificate.not_accounted,
        audits=audits(certificate),
        identity=(
            ("certificate", certificate.id),
            ("issued", certificate.created[:10]),
            ("by", f"{certificate.library.name} {certificate.library.version}"),
            ("ledger", certificate.ledger.id),
            ("signed", "no" if certificate.signature is None else "yes, Ed25519"),
        ),
    )


def _attacks(certificate: Certificate) -> list[tuple[str, str]]:
    words = attack_words(certificate)
    if words is None:
        return []
    groups = "; ".join(
        f"{units} {certificate.unit.kind}s: ε = {epsilon} at the same δ, advantage {most}, true positives {some} at 1 %"
        for units, epsilon, most, some, _ in words.groups[1:]
    )
    return [
        ("What can an attacker do?", f"Advantage {words.advantage}."),
        ("When few are accused?", f"True positives: {words.true_positives}."),
        ("As µ-GDP?", f"{words.gaussian[:1].upper()}{words.gaussian[1:]}."),
        ("Families and groups?", f"At most, for {groups}."),
        ("How is that computed?", f"Upper bounds, rounded up, by {words.computed}."),
    ]


def observer(certificate: Certificate) -> str:
    """Whom the guarantee holds against, in a sentence or two.

    Args:
        certificate: The certificate.

    Returns:
        Sentences.
    """
    seen = {"all_steps": "every noisy value and every model version", "per_task": "the model after each task"}
    models = seen.get(certificate.observer.models, "the final model")
    secret = [] if certificate.observer.memory == "none" else [f"the stored records are {certificate.observer.memory}"]
    secret += [] if certificate.observer.batch_membership == "none" else ["nobody learns which were in a batch"]
    also = f" It holds as long as {' and '.join(secret)}." if secret else ""
    return f"Anyone who sees {models}, even with full knowledge of all other records.{also}"


def strength(epsilon: float | None, delta: float, reason: str, kind: str) -> str:
    """How strong the guarantee is, in plain words.

    Args:
        epsilon: The certified ε.
        delta: The certified δ.
        reason: Why it holds, or why there is none.
        kind: The protected unit.

    Returns:
        Sentences.
    """
    if epsilon is None:
        return f"Nothing is guaranteed: {reason}. Treat the models as if they contained the data."
    return (
        f"ε = {upper_bound(epsilon)}, δ = {delta:g}. Whatever an attacker looks for, one {kind} changes its "
        f"probability by at most a factor of {probability_factor(epsilon)}, up to an additional {delta:g}. "
        f"The bound holds for {reason}."
    )


def _tasks(certificate: Certificate) -> str:
    known = [
        f"ε = {rule.epsilon:.3g} for {rule.holds_for}"
        for rule in certificate.claims.certified.over_tasks
        if rule.epsilon is not None and rule.rule in ("parallel", "accountant")
    ]
    return "; ".join(dict.fromkeys(known)) + "." if known else ""


def _claims(certificate: Certificate) -> str:
    claims = [
        f"{one.paper} claims {'no finite ε' if one.epsilon is None else f'ε = {one.epsilon:.3g}'} by its own formula "
        f"({one.formula})"
        for one in certificate.claims.paper
    ]
    return f"{'; '.join(claims)}. This is not certified." if claims else ""
