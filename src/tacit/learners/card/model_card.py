"""The model card of a release, from its public facts, its certificate and the accuracies that were measured.

It says nothing that `release.json`, the certificate and the run's log do not say: public and charged values only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tacit.certificate import Certificate
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners.card import plain_markdown
from tacit.words import accuracy_percent, counted, probability_factor

CARD = "README.md"
MARK = "library_name: tacit"
"""A line of every card."""
ASSETS = Path(__file__).parent / "assets"
_LISTED = 20
"""Tasks with a row of their own, and labels of a task that are named."""
_NORMAL = 1.959963984540054
"""The quantile of a normal distribution for a two-sided interval of 95 %."""
_OBSERVERS = {
    "all_steps": "every noisy value and every model version",
    "per_task": "the model after each task",
    "final": "the final model",
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Accuracies of a release, from public test sets or charged queries.

    Attributes:
        source: How they were measured.
        tasks: The names of the tasks that were measured.
        accuracy: The accuracy on each of them.
        average: Their weighted mean.
        rows: The number of public test records of each task; empty where the number is not public.
        noise: The standard deviation of an accuracy over noise and sampling, where it is a charged query.
        task_given: Whether the task of a test record was given.
    """

    source: str
    tasks: tuple[str, ...]
    accuracy: tuple[float, ...]
    average: float
    rows: tuple[int, ...] = ()
    noise: float | None = None
    task_given: bool = False

    def interval(self, place: int) -> tuple[float, float] | None:
        """An interval for the accuracy on one task with a confidence of 95 %.

        Args:
            place: The place of the task in `tasks`.

        Returns:
            The limits, by the noise of a charged query, or by Wilson's formula for the rows of a public test set; None
            if neither is known.
        """
        share = self.accuracy[place]
        if self.noise is not None:
            return max(0.0, share - _NORMAL * self.noise), min(1.0, share + _NORMAL * self.noise)
        if not self.rows or not self.rows[place]:
            return None
        rows, z = self.rows[place], _NORMAL
        middle = (share + z * z / (2 * rows)) / (1 + z * z / rows)
        half = z / (1 + z * z / rows) * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
        return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, kw_only=True)
class Described:
    """What a card says of a model besides its certificate: facts of `release.json`.

    Attributes:
        method: The name of the learner.
        reference: Where the method comes from; empty if it is not known.
        info: The public facts of the stream.
        learnt: The tasks that were learned, or the last of them on an endless stream.
        code: Whether loading it needs code that no file of the release holds.
    """

    method: str
    reference: str
    info: StreamInfo
    learnt: tuple[TaskInfo, ...]
    code: bool = False

    @property
    def tasks(self) -> int:
        """The number of tasks that were learned."""
        return self.learnt[-1].number + 1 if self.learnt else 0


def model_card(described: Described, certificate: Certificate, measured: Measured | None = None) -> str:
    """The text of a card.

    Args:
        described: The model.
        certificate: Its certificate.
        measured: The accuracies; None if none were measured.

    Returns:
        Markdown with YAML front matter.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    template = Environment(
        loader=FileSystemLoader(ASSETS), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,  # Markdown: every text of any origin passes a filter below
    )  # fmt: skip
    template.filters |= {"name": plain_markdown.name, "sentence": plain_markdown.sentence}
    certified = certificate.claims.certified
    rendered: str = template.get_template("model_card.md.j2").render(
        front_matter=front_matter(described, certificate, measured),
        described=described, certificate=certificate, certified=certified, unit=certificate.unit, measured=measured,
        factor=_factor(certified.epsilon), observer=_OBSERVERS[certificate.observer.models],
        learned=counted(described.tasks, "task"), shape="×".join(map(str, described.info.shape)),
        over_tasks=_over_tasks(certificate), tasks=_tasks(described.learnt), violated=_violated(certificate),
        left_out=max(0, len(described.learnt) - _LISTED), results=[] if measured is None else _rows(measured),
        average="" if measured is None else accuracy_percent(measured.average), percent=accuracy_percent,
    )  # fmt: skip
    return rendered.encode("utf-8", "replace").decode()


def front_matter(described: Described, certificate: Certificate, measured: Measured | None) -> str:
    """The metadata that the Hub reads.

    Args:
        described: The model.
        certificate: Its certificate.
        measured: The accuracies; None if none were measured.

    Returns:
        YAML. There is no licence in it: nobody has declared one.
    """
    private = certificate.epsilon is not None
    method = plain_markdown.visible(described.method)
    facts: dict[str, Any] = {
        "library_name": "tacit",
        "tags": [*(["differential-privacy"] if private else []), "continual-learning", "tacit", method],
    }
    if (kind := _kind(described.info)) is not None:
        facts["pipeline_tag"] = kind
    if measured is not None and math.isfinite(measured.average):
        stream = plain_markdown.visible(described.info.name)
        named = plain_markdown.visible(f"average accuracy ({measured.source})")
        results = {
            "task": {"type": kind or "other", "name": f"continual learning, {counted(described.tasks, 'task')}"},
            "dataset": {"type": stream, "name": stream},
            "metrics": [{"type": "accuracy", "value": _share(measured.average), "name": named}],
        }
        facts |= {"metrics": ["accuracy"], "model-index": [{"name": f"{method} on {stream}", "results": [results]}]}
    return str(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=2**20))


def _kind(info: StreamInfo) -> str | None:
    """The Hub's name of what the model does; None where the shape of a record does not say it."""
    kinds = {1: "tabular-classification", 3: "image-classification"}
    return None if info.features else kinds.get(len(info.shape))


def _share(accuracy: float) -> float:
    return round(min(1.0, max(0.0, accuracy)), 6)


def _factor(epsilon: float | None) -> str:
    return "" if epsilon is None else probability_factor(epsilon)


def _over_tasks(certificate: Certificate) -> list[tuple[str, float]]:
    """For whom a finite ε over all tasks is known, and the ε."""
    rules = certificate.claims.certified.over_tasks
    known = {one.holds_for: one.epsilon for one in rules if one.epsilon is not None and one.applies}
    known |= {one.holds_for: one.epsilon for one in rules if one.epsilon is not None and one.rule == "accountant"}
    return list(known.items())


def _violated(certificate: Certificate) -> list[str]:
    return [one.says for one in certificate.assumptions if one.state == "violated"]


def _tasks(learnt: Sequence[TaskInfo]) -> list[Mapping[str, Any]]:
    """The last tasks, with their public facts."""
    return [
        {"number": task.number + 1, "name": task.name, "size": f"{task.size:,}", "labels": task.labels[:_LISTED],
         "more": max(0, len(task.labels) - _LISTED)}
        for task in learnt[-_LISTED:]
    ]  # fmt: skip


def _rows(measured: Measured) -> list[tuple[str, str, str]]:
    """Task, accuracy and interval, of the last tasks."""
    rows = []
    for place in range(max(0, len(measured.tasks) - _LISTED), len(measured.tasks)):
        limits = measured.interval(place)
        around = "" if limits is None else " to ".join(map(accuracy_percent, limits))
        rows.append((measured.tasks[place], accuracy_percent(measured.accuracy[place]), around))
    return rows
