"""The text of a certificate: one page for people."""

import hashlib
from textwrap import wrap

from tacit.certificate.attack_text import attack_words
from tacit.certificate.declared_fields import declared_rows
from tacit.certificate.sections import Certified, Contents, OverTasks

_WIDTH = 100
_SHORT = 300
"""The characters of a declared text that are shown."""
_TASKS = 12
"""The number of tasks with a line of their own."""
EXACT_ARITHMETIC = "exact sums and exact noise, rounded correctly to a public grid"
REAL_ARITHMETIC = "holds in real arithmetic only, not in floating point: released in part before sums were exact"


def text(certificate: Contents) -> str:
    """The certificate as plain text, 100 columns wide."""
    certified, unit, ledger = certificate.claims.certified, certificate.unit, certificate.ledger
    lines = [
        "PRIVACY CERTIFICATE".ljust(_WIDTH - 34) + certificate.id,
        "=" * _WIDTH,
        *_row("method", certificate.method),
        *_row("data", f"stream {ledger.stream!r}, {certified.all_tasks:,} task(s), ledger {ledger.id}"),
        *_row(
            "protects",
            f"one {unit.kind} ({certificate.adjacency}), in at most {unit.max_tasks_per_unit} task(s) with at most "
            f"{unit.max_records_per_unit_per_task} record(s) each ({unit.overlap_policy})",
        ),
        *_row("against", _observer(certificate)),
        "",
        *_row("CERTIFIED", _bound(certified.epsilon, certified.delta)),
        *_row("", certified.reason),
        *_row("by", certified.accountant),
        *_row("arithmetic", EXACT_ARITHMETIC if certificate.arithmetic == "exact" else REAL_ARITHMETIC),
        *_attacks(certificate),
        *_same_units(certificate),
        *(line for words in certificate.beside for line in _row("also uses", words)),
        "",
        "  task by task",
        *(
            f"    {task.task:<24} {_bound(task.epsilon, task.delta):<34} {task.mode}"
            for task in certified.tasks[:_TASKS]
        ),
        *_others(certified),
        "  over tasks",
        *(
            f"  {'→' if rule.applies else ' '} {rule.rule:<24} {_over(rule, certified):<34} {rule.holds_for}"
            for rule in certified.over_tasks
        ),
    ]
    if certificate.claims.paper:
        lines += ["", "  claimed by papers (by their own formula and neighbouring relation; not certified)"]
        lines += [
            f"    {claim.paper:<24} {_bound(claim.epsilon, claim.delta):<34} {claim.adjacency}: {claim.formula}"
            for claim in certificate.claims.paper
        ]
    lines += ["", "  assumptions"]
    lines += [f"    {assumption.state:<9} {assumption.says}" for assumption in certificate.assumptions]
    audits = [f"{a.design}: ε ≥ {a.epsilon_lower_bound:.3g} ({a.verdict})" for a in certificate.audit]
    policy = f"{certificate.labels.policy}; the number of records outside them is not released"
    lines += ["", *_row("label sets", policy), *_row("tuning", certificate.tuning)]
    lines += [*_row("not covered", "; ".join(certificate.not_accounted)), *_row("audits", "; ".join(audits) or "none")]
    for raised in ledger.raised:
        lines += _row("raised", raised)
    for accepted in ledger.roll_backs_accepted:
        lines += _row("roll-back", f"accepted: {accepted}")
    lines += _row("ledger head", f"{ledger.head_seq} {ledger.head_hash}")
    if certificate.release is not None:
        lines += _row("model", f"{len(certificate.release.tensors):,} tensors, SHA-256 {model_hash(certificate)}")
    for name, value in declared_rows(certificate):
        lines += _row("declared", f"{name}: {value if len(value) <= _SHORT else f'{value[:_SHORT]}…'}")
    signature = certificate.signature
    lines += _row("signed", "no" if signature is None else f"Ed25519, key {signature.public_key}")
    return "\n".join(lines)


def model_hash(certificate: Contents) -> str | None:
    """One SHA-256 over the names and hashes of all tensors.

    Args:
        certificate: The certificate.

    Returns:
        The hash in hexadecimal; None if the certificate names no model.
    """
    if certificate.release is None:
        return None
    tensors = sorted(certificate.release.tensors.items())
    return hashlib.sha256("".join(f"{name} {value}\n" for name, value in tensors).encode()).hexdigest()


def _attacks(certificate: Contents) -> list[str]:
    """What an attacker can achieve at most."""
    words = attack_words(certificate)
    if words is None:
        return []
    lines = _row("as µ-GDP", words.gaussian)
    lines += _row("attacks", f"advantage at most {words.groups[0][2]}; true positives {words.true_positives}")
    groups = [f"{row[0]}: ε = {row[1]}, advantage {row[2]}, {row[3]} at 1 %" for row in words.groups[1:]]
    lines += _row("groups", f"of {certificate.unit.kind}s, at the same δ, at most: {'; '.join(groups)}")
    return [*lines, *_row("", f"upper bounds, by {words.computed}")]


def _same_units(certificate: Contents) -> list[str]:
    """The other streams that may contain the same units, and the total over all."""
    total, cap = certificate.same_units, certificate.ledger.policy.get("unit_cap")
    capped = _row("unit cap", "none: nothing limits the total over all streams of the ledger") if total else []
    if cap is not None:
        limit = f"ε = {cap['epsilon']:g}, δ = {cap['delta']:g}"
        capped = _row("unit cap", f"{limit} over all streams, also if chosen adaptively")
    if total is None:
        return capped
    kind = certificate.unit.kind
    added = [other for other in total.streams if other.added]
    lines: list[str] = []
    if added:
        names = ", ".join(f"{other.stream!r} ({_bound(other.epsilon, other.delta)})" for other in added)
        apart = "".join(f"; no {kind} is in two of {', '.join(group)} (declared)" for group in total.disjoint)
        lines += _row(
            "together",
            f"{_bound(total.epsilon, total.delta)} ({total.adjacency}) for one {kind} over this stream and {names}, "
            f"which may contain the same {kind}s, if streams and plans were fixed in advance; by "
            f"{total.accountant}{apart}",
        )
    for other in total.streams:
        if not other.added:
            bound = _bound(other.epsilon, other.delta)
            lines += _row("other", f"stream {other.stream!r} protects one {other.unit} ({bound}): not added")
    return [*lines, *capped]


def _others(certified: Certified) -> list[str]:
    """One line for all tasks without a line of their own."""
    losses = [task.epsilon for task in certified.bounds[min(_TASKS, len(certified.tasks)) :]]
    if not losses:
        return []
    known = [loss for loss in losses if loss is not None]
    most = max(known) if len(known) == len(losses) else None
    bound = "some without a finite epsilon" if most is None else f"each at most ε = {most:.4g}"
    return [f"    … and {certified.all_tasks - len(certified.tasks[:_TASKS]):,} other tasks, {bound}"]


def _observer(certificate: Contents) -> str:
    observer = certificate.observer
    kinds = {*(mechanism.kind for mechanism in certificate.mechanisms), *certificate.other_mechanisms}
    noisy = "gradient" if observer.batch_membership != "none" or "meter" in kinds else "sum"
    seen = f"every noisy {noisy} and every model" if observer.models == "all_steps" else f"models ({observer.models})"
    none = observer.memory == "none"
    memory = "no memory (records are read in their own task only)" if none else f"memory {observer.memory}"
    batches = "no batches" if observer.batch_membership == "none" else "batches secret"
    return f"an observer who sees {seen} and knows all other records; {memory}, {batches}"


def _over(rule: OverTasks, certified: Certified) -> str:
    """The bound of a rule; a rule that was not computed is not reported as uncertified."""
    known = all(task.epsilon is not None for task in certified.bounds)
    if rule.epsilon is None and known and any(task.mode == "open" for task in certified.bounds):
        return "not computed for open tasks"
    if rule.epsilon is None and known and not rule.applies:
        return "not computed for this stream"
    return _bound(rule.epsilon, rule.delta)


def _bound(epsilon: float | None, delta: float) -> str:
    return "no finite epsilon is certified" if epsilon is None else f"ε = {epsilon:.4g}, δ = {delta:.3g}"


def _row(name: str, value: str) -> list[str]:
    lines = wrap(" ".join(value.split()), _WIDTH - 14, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"{name if index == 0 else '':<13} {line}".rstrip() for index, line in enumerate(lines)]
