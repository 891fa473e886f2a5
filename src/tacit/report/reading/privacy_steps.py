"""What the certificates of a run state, release by release."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tacit.certificate import Certificate
from tacit.report.reading.run_data import PrivacyStep, TaskLoss
from tacit.report.reading.safe_files import SafeFolder, mapping, number, words

MOST = 100
"""Certificates that are read of one seed; of a longer stream, evenly spaced ones."""


def read_privacy(
    folder: SafeFolder, releases: Sequence[Sequence[str]], told: Mapping[str, Any], budget: float | None
) -> dict[str, Any]:
    """The fields of a run that concern privacy.

    Args:
        folder: The run folder.
        releases: The certificates of each seed, in the order of the tasks.
        told: The content of `metrics.json`; empty if it is missing.
        budget: The ε of the configuration.

    Returns:
        Values for `RunData`.
    """
    lasts = [one for names in releases if names and (one := folder.certificate(names[-1])) is not None]
    worst = max(lasts, key=_severity, default=None)
    steps: list[PrivacyStep] = []
    for name in spaced(releases[0] if releases else ()):
        content = folder.json(name)
        if content:
            step = folder.attempt(
                f"{name} is of another version and was left out", partial(privacy_step, content), None
            )
            steps += [] if step is None else [step]
    if not lasts:
        folder.say("no certificate could be read, so nothing is said about the guarantee")
    fixed = budget if budget is not None or worst is None else worst.ledger.budget_epsilon
    return {
        "certified": _certified(worst, told),
        "certified_reason": words(told.get("epsilon_certified_reason"))
        or ("" if worst is None else worst.claims.certified.reason),
        "budget": None if worst is not None and worst.epsilon is None else fixed,
        "privacy": tuple(steps),
        "blocks": () if worst is None else blocks(worst),
        "certificate": worst,
    }


def spaced(names: Sequence[str]) -> Sequence[str]:
    """At most `MOST` of them, evenly spaced, with the first and the last."""
    if len(names) <= MOST:
        return names
    return [names[round(place * (len(names) - 1) / (MOST - 1))] for place in range(MOST)]


def blocks(certificate: Certificate) -> tuple[TaskLoss, ...]:
    """What each listed task has been charged so far."""
    return tuple(TaskLoss(task=one.task, spent=one.epsilon) for one in certificate.claims.certified.tasks)


def _severity(certificate: Certificate) -> float:
    return float("inf") if certificate.epsilon is None else certificate.epsilon


def privacy_step(content: Mapping[str, Any]) -> PrivacyStep:
    """One point of the curves; read as plain JSON, because there may be thousands.

    Args:
        content: A certificate as plain values.

    Returns:
        What it states. An error is raised if it is none.
    """
    claims = content["claims"]
    certified = claims["certified"]
    tasks = len(certified["tasks"]) + sum(group["tasks"] for group in certified.get("alike", ()))
    rules = [rule for rule in certified["over_tasks"] if rule["rule"] == "accountant" and rule["tasks"] == tasks]
    claimed = [value for claim in claims.get("paper", ()) if (value := number(claim.get("epsilon"))) is not None]
    return PrivacyStep(
        tasks=int(tasks),
        certified=number(certified["epsilon"]),
        every_task=number(rules[0]["epsilon"]) if rules else None,
        claimed=max(claimed, default=None),
    )


def _certified(worst: Certificate | None, told: Mapping[str, Any]) -> dict[str, Any] | None:
    """As in `metrics.json`; from the certificates where it is missing."""
    if told:
        found = mapping(told.get("epsilon_certified"))
        per, every, delta = (number(found.get(name)) for name in ("per_record", "all_tasks", "delta"))
        known = None if per is None or delta is None else {"per_record": per, "all_tasks": every, "delta": delta}
        return None if known is None else {**known, "unit": words(found.get("unit")) or "record"}
    if worst is None or worst.epsilon is None:
        return None
    bound = worst.claims.certified
    every = next((rule.epsilon for rule in bound.over_tasks if rule.rule == "accountant"), None)
    return {"per_record": bound.epsilon, "all_tasks": every, "delta": bound.delta, "unit": str(worst.unit.kind)}
