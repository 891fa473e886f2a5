"""The history of one seed over its tasks, from its log and its certificates.

Only tasks that are settled count: their accuracies and certificates do not change any more, so that what was sent of
them stays true.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from tacit import metrics
from tacit.report.reading.privacy_steps import privacy_step
from tacit.report.reading.run_data import Matrix
from tacit.report.reading.safe_files import PROBLEMS, SafeFolder, mapping, words
from tacit.report.tracking.tracked_run import TrackedRelease


@dataclass(frozen=True, kw_only=True)
class SeedHistory:
    """One seed.

    Attributes:
        series: The metrics after each task.
        releases: The releases of settled tasks.
        facts: What the last certificate states.
        moment: When the first certificate was issued: for private data the day.
        done: Whether all tasks are learned.
    """

    series: dict[str, dict[int, float]]
    releases: tuple[TrackedRelease, ...]
    facts: dict[str, str] = field(default_factory=dict)
    moment: int = 0
    done: bool = False


def seed_history(folder: SafeFolder, seed: int) -> SeedHistory:
    """What is settled of one seed of a run with an end.

    Args:
        folder: The run folder.
        seed: The seed.

    Returns:
        The history; empty if no task is settled.
    """
    place = f"seeds/seed-{seed}"
    notes = folder.log(f"{place}/progress.jsonl")
    settled = {note.get("task") for note in notes if note.get("settled")}
    tasks = next(number for number in range(len(settled) + 1) if number not in settled)
    found = releases(folder, f"{place}/releases", tasks)
    nothing: dict[str, dict[int, float]] = {}
    series = folder.attempt(f"the log of seed {seed} is damaged", partial(_accuracies, notes, tasks), nothing)
    return with_certificates(folder, series, found, done=any(note.get("finished") for note in notes))


def with_certificates(
    folder: SafeFolder, series: dict[str, dict[int, float]], found: Sequence[TrackedRelease], *, done: bool
) -> SeedHistory:
    """Add what the certificates of the releases state.

    Args:
        folder: The run folder.
        series: The metrics so far.
        found: The releases.
        done: Whether all tasks are learned.

    Returns:
        The history.
    """
    contents = {one.task: folder.json(_name(folder, one)) for one in found}
    for task, content in contents.items():
        step = folder.attempt("a certificate is of another version", partial(privacy_step, content), None)
        values = {} if step is None else {
            "epsilon_certified": step.certified, "epsilon_every_task": step.every_task, "epsilon_claimed": step.claimed
        }  # fmt: skip
        for name, value in values.items():
            if value is not None and math.isfinite(value):
                series.setdefault(name, {})[task] = value
    known = [content for _, content in sorted(contents.items()) if content]
    return SeedHistory(
        series={name: values for name, values in series.items() if values},
        releases=tuple(found),
        facts=certificate_facts(known[-1]) if known else {},
        moment=_moment(known[0].get("created")) if known else 0,
        done=done,
    )


def releases(folder: SafeFolder, name: str, tasks: int) -> list[TrackedRelease]:
    """The releases of the first tasks, in their order.

    Args:
        folder: The run folder.
        name: The folder of the releases.
        tasks: How many tasks are settled.

    Returns:
        Those whose certificate can be read.
    """
    found = []
    for path in folder.folders(name):
        number = path.name.partition("-")[0]
        certificate = f"{name}/{path.name}/certificate.json"
        if path.is_symlink() or not number.isdecimal() or not 1 <= int(number) <= tasks:
            continue
        if folder.readable(certificate):
            found.append(TrackedRelease(name=path.name, task=int(number), certificate=folder.path / certificate))
    return sorted(found, key=lambda one: one.task)


def certificate_facts(content: Mapping[str, Any]) -> dict[str, str]:
    """What a certificate states, in a few words; its tags in a registry.

    Args:
        content: The certificate as plain values.

    Returns:
        Texts by name.
    """
    certified = mapping(mapping(content.get("claims")).get("certified"))
    unit = mapping(content.get("unit"))
    epsilon = certified.get("epsilon")
    facts = {
        "epsilon": "none" if epsilon is None else epsilon, "delta": certified.get("delta"), "unit": unit.get("kind"),
        "adjacency": content.get("adjacency"), "certificate": content.get("id"), "method": content.get("method"),
        "signed": "no" if content.get("signature") is None else "yes",
    }  # fmt: skip
    return {name: words(value)[:500] for name, value in facts.items() if words(value)}


def _accuracies(notes: Sequence[Mapping[str, Any]], tasks: int) -> dict[str, dict[int, float]]:
    """Accuracy on each task, their mean, and forgetting, after each settled task."""
    rows = {note["task"]: note["accuracy"] for note in notes if "accuracy" in note}
    weights = next((note["weights"] for note in reversed(notes) if note.get("weights")), None)
    known = next((note["sequential"] for note in reversed(notes) if "sequential" in note), False)
    matrix: Matrix = np.full((tasks, tasks), math.nan)
    for after in range(tasks):
        values = [math.nan if value is None else float(value) for value in rows.get(after, ())][: after + 1]
        matrix[after, : len(values)] = values
    series: dict[str, dict[int, float]] = {"average_accuracy": {}, "forgetting": {}}
    for learned in range(1, tasks + 1):
        part, given = matrix[:learned, :learned], None if weights is None else weights[:learned]
        for name, of in (("average_accuracy", metrics.average_accuracy), ("forgetting", metrics.forgetting)):
            value = _value(of, part, given) if known or name == "average_accuracy" else math.nan
            if math.isfinite(value):
                series[name][learned] = value
        for on in range(learned):
            if math.isfinite(part[-1, on]):
                series.setdefault(f"accuracy/task_{on + 1:02d}", {})[learned] = float(part[-1, on])
    return series


def _value(of: Any, part: Matrix, weights: Sequence[float] | None) -> float:
    try:
        return float(of(part, weights))
    except PROBLEMS:
        return math.nan


def _name(folder: SafeFolder, release: TrackedRelease) -> str:
    return release.certificate.relative_to(folder.path).as_posix()


def _moment(created: Any) -> int:
    """A date or a date with time as milliseconds since 1970; 0 if it is none."""
    try:
        moment = datetime.fromisoformat(str(created))
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
