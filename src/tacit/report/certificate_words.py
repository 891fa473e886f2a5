"""A certificate in plain words: who is protected, from whom, how well, on what assumptions, and what is not counted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.certificate import Certificate
from tacit.report.reading.run_data import RunData

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


def _one(run: RunData, certificate: Certificate) -> CertificateWords:
    unit, certified, kind = certificate.unit, certificate.claims.certified, certificate.unit.kind
    who = (
        f"Each {kind} of the stream {certificate.ledger.stream!r}, in at most {unit.max_tasks_per_unit} "
        f"task{'s' * (unit.max_tasks_per_unit != 1)} with at most {unit.max_records_per_unit_per_task} "
        f"record{'s' * (unit.max_records_per_unit_per_task != 1)} in each. This limit is {unit.overlap_policy}"
        f"{' by tacit' if unit.overlap_policy == 'enforced' else ' by the owner of the data'}."
    )
    neighbours = f"The bound compares the data with and without the {kind} ({certificate.adjacency})."
    facts = [
        ("Who is protected?", f"{who} {neighbours}"),
        ("From whom?", _observer(certificate)),
        ("How well?", _strength(certified.epsilon, certified.delta, certified.reason, kind)),
        ("Over several tasks?", _tasks(certificate)),
        ("What does the paper claim?", _claims(certificate)),
        ("How were settings chosen?", f"Tuning: {certificate.tuning}. Label sets: {certificate.labels.policy}."),
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


def _observer(certificate: Certificate) -> str:
    seen = {"all_steps": "every noisy value and every model version", "per_task": "the model after each task"}
    models = seen.get(certificate.observer.models, "the final model")
    secret = [] if certificate.observer.memory == "none" else [f"the stored records are {certificate.observer.memory}"]
    secret += [] if certificate.observer.batch_membership == "none" else ["which records were in a batch is secret"]
    also = f" It holds as long as {' and '.join(secret)}." if secret else ""
    return f"Anyone who sees {models}, even with full knowledge of all other records.{also}"


def _strength(epsilon: float | None, delta: float, reason: str, kind: str) -> str:
    if epsilon is None:
        return f"Nothing is guaranteed: {reason}. Treat the models as if they contained the data."
    factor = math.exp(min(epsilon, 700.0))
    times = f"{factor:.3g}" if factor < 1e6 else "more than a million"
    return (
        f"ε = {epsilon:.4g}, δ = {delta:g}. Whatever an attacker looks for, one {kind} changes its probability by at "
        f"most a factor of {times}, up to an additional {delta:g}. The bound holds for {reason}."
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
