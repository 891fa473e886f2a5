"""The certificate for people: one page of plain text."""

import hashlib
from collections.abc import Mapping

from tacit.privacy.certificate import Certificate, Certified, OverTasks

_WIDTH = 100
_TASKS = 12
"""So many have a line of their own."""


EXACT_ARITHMETIC = "exact sums and exact noise, rounded correctly to a public grid"
REAL_ARITHMETIC = "real arithmetic only; broken in floating point: made, at least in part, before sums were exact"


def text(certificate: Certificate) -> str:
    certified = certificate.claims.certified
    unit = certificate.unit
    lines = [
        "PRIVACY CERTIFICATE".ljust(_WIDTH - 34) + certificate.id,
        "=" * _WIDTH,
        *_row("method", certificate.method),
        *_row(
            "data",
            f"stream {certificate.ledger.stream!r}, {certified.all_tasks:,} task(s), ledger {certificate.ledger.id}",
        ),
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
        *_same_units(certificate),
        *(line for one in certificate.beside for line in _row("beside", one)),
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
        lines += ["", "  claimed by papers (their formula, their neighbours; not certified)"]
        lines += [
            f"    {claim.paper:<24} {_bound(claim.epsilon, claim.delta):<34} {claim.adjacency}: {claim.formula}"
            for claim in certificate.claims.paper
        ]
    lines += ["", "  assumptions"]
    lines += [f"    {one.state:<9} {one.says}" for one in certificate.assumptions]
    lines += ["", *_row("label sets", f"{certificate.labels.policy}; how many records were outside is never said")]
    lines += [*_row("tuning", certificate.tuning), *_row("not counted", "; ".join(certificate.not_accounted))]
    lines += _row(
        "audits",
        "; ".join(f"{a.design}: ε ≥ {a.epsilon_lower_bound:.3g} ({a.verdict})" for a in certificate.audit) or "none",
    )
    for raised in certificate.ledger.raised:
        lines += _row("raised", raised)
    for accepted in certificate.ledger.roll_backs_accepted:
        lines += _row("roll-back", f"accepted: {accepted}")
    lines += _row("ledger head", f"{certificate.ledger.head_seq} {certificate.ledger.head_hash}")
    if certificate.release is not None:
        tensors = certificate.release.tensors
        lines += _row("model", f"{len(tensors):,} tensors, SHA-256 {_hash_of_all(tensors)}")
    lines += _row(
        "signed", "no" if certificate.signature is None else f"Ed25519, key {certificate.signature.public_key}"
    )
    return "\n".join(lines)


def _same_units(certificate: Certificate) -> list[str]:
    """The other streams that may hold the same units, and what all cost together."""
    found, cap = certificate.same_units, certificate.ledger.policy.get("unit_cap")
    if cap is not None:
        capped = _row("unit cap", f"ε = {cap['epsilon']:g}, δ = {cap['delta']:g} over all streams, however chosen")
    else:
        capped = _row("unit cap", "none: nothing limits what all streams of the ledger cost together") if found else []
    if found is None:
        return capped
    kind = certificate.unit.kind
    added = [one for one in found.streams if one.added]
    lines: list[str] = []
    if added:
        names = ", ".join(f"{one.stream!r} ({_bound(one.epsilon, one.delta)})" for one in added)
        apart = "".join(f"; nobody is in two of {', '.join(names)}, as the policy declares" for names in found.disjoint)
        lines += _row(
            "together",
            f"{_bound(found.epsilon, found.delta)} ({found.adjacency}) for one {kind} over this stream and {names}, "
            f"which may hold the same {kind}s, where streams and plans were fixed in advance; by "
            f"{found.accountant}{apart}",
        )
    for one in found.streams:
        if not one.added:
            says = f"stream {one.stream!r} protects one {one.unit} ({_bound(one.epsilon, one.delta)}): not added"
            lines += _row("beside", says)
    return [*lines, *capped]


def _hash_of_all(tensors: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{name} {tensors[name]}\n" for name in sorted(tensors)).encode()).hexdigest()


def _others(certified: Certified) -> list[str]:
    """The tasks that have no line of their own."""
    losses = [task.epsilon for task in certified.bounds[min(_TASKS, len(certified.tasks)) :]]
    if not losses:
        return []
    known = [loss for loss in losses if loss is not None]
    most = max(known) if len(known) == len(losses) else None
    bound = "some without a finite epsilon" if most is None else f"each at most ε = {most:.4g}"
    return [f"    … and {certified.all_tasks - len(certified.tasks[:_TASKS]):,} other tasks, {bound}"]


def _observer(certificate: Certificate) -> str:
    observer = certificate.observer
    kinds = {*(one.kind for one in certificate.mechanisms), *certificate.other_mechanisms}
    noisy = "gradient" if observer.batch_membership != "none" or "meter" in kinds else "sum"
    seen = f"every noisy {noisy} and every model" if observer.models == "all_steps" else f"models ({observer.models})"
    memory = (
        "no memory, records are read in their own task only"
        if observer.memory == "none"
        else f"memory {observer.memory}"
    )
    batches = "no batches" if observer.batch_membership == "none" else "batches secret"
    return f"someone who sees {seen}, and knows all other records; {memory}, {batches}"


def _over(rule: OverTasks, certified: Certified) -> str:
    """A rule that has no number since it needs the events of all tasks is not one that refuses to certify."""
    known = all(task.epsilon is not None for task in certified.bounds)
    if rule.epsilon is None and known and any(task.mode == "open" for task in certified.bounds):
        return "not computed for open tasks"
    if rule.epsilon is None and known and not rule.applies:
        return "not computed for this stream"
    return _bound(rule.epsilon, rule.delta)


def _bound(epsilon: float | None, delta: float) -> str:
    return "no finite epsilon is certified" if epsilon is None else f"ε = {epsilon:.4g}, δ = {delta:.3g}"


def _row(name: str, value: str) -> list[str]:
    words, lines, line = value.split(), [], ""
    for word in words:
        if line and len(line) + len(word) + 1 > _WIDTH - 14:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    lines.append(line)
    return [f"{name if place == 0 else '':<13} {part}".rstrip() for place, part in enumerate(lines)]
