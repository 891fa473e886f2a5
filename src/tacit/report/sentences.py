"""The headline of a report in plain words: what was learned, under which ε, and what was forgotten."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tacit.experiment.sweeps.table import share
from tacit.metrics import Summary
from tacit.report.paired_tests import best, comparable, paired_tests
from tacit.report.reading.run_data import Collection, RunData
from tacit.words import counted

NAME = 60
SIGNIFICANT = 0.05
_PLAIN = {"L", "EN", "ES", "ET", "CS", "NSM", "B", "S", "WS", "ON", "BN", ""}
_ISOLATES = "\u2066\u2067\u2068\u2069"


@dataclass(frozen=True, kw_only=True)
class KeyNumber:
    """A number that the page shows large, with what it means."""

    value: str
    title: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The first lines of a report.

    Attributes:
        title: The finding, in one sentence.
        lines: What it cost in privacy, what was forgotten, and how sure the comparison is.
        numbers: The numbers of the winning run.
    """

    title: str
    lines: tuple[str, ...]
    numbers: tuple[KeyNumber, ...]


def headline(found: Collection) -> Headline:
    """The headline of a report.

    Args:
        found: The runs.

    Returns:
        Sentences and numbers.
    """
    runs = found.runs
    top = best(runs, private=True) or best(runs)
    if top is None or top.average_accuracy is None:
        return _unmeasured(runs)
    score, tasks = top.average_accuracy, counted(_learned(top), "task")
    name = clipped(top.label)
    same = comparable(runs)
    if len(runs) == 1:
        title = f"{name} learned {tasks} with {percent(score.mean)} average accuracy"
    elif not same:
        finished = sum(run.status == "done" for run in runs)
        which = "runs on different data" if finished == len(runs) else f"runs, {finished} of them finished"
        title = f"{len(runs)} {which}; the highest average accuracy is {percent(score.mean)}, of {name}"
    else:
        kind = "private method" if top.private else "method"
        title = f"{name} is the most accurate {kind}: {percent(score.mean)} over {tasks}"
    lines = [_privacy(top)]
    lines += [_memory(top, [run for run in runs if run is not top] if same else [])]
    lines += [line for line in (_reference(top, runs) if same else "", _evidence(top, runs) if same else "") if line]
    return Headline(title=title, lines=tuple(line for line in lines if line), numbers=_numbers(top))


def percent(value: float) -> str:
    """A share as a percentage with a thin space before the sign.

    Args:
        value: The share.

    Returns:
        Such as `90.8 %`.
    """
    return f"{value * 100:.1f}\u202f%"


def clipped(name: str) -> str:
    """A name that fits into a sentence.

    Args:
        name: Any name.

    Returns:
        The name, or its beginning.
    """
    return isolated(name if len(name) <= NAME else f"{name[: NAME - 1]}…")


def isolated(text: str) -> str:
    """A text that cannot change the direction of what is written after it.

    Args:
        text: Any text.

    Returns:
        The text, between Unicode isolates if it has letters or marks that are not written from left to right.
    """
    if all(unicodedata.bidirectional(letter) in _PLAIN for letter in text):
        return text
    return f"\u2068{''.join(letter for letter in text if letter not in _ISOLATES)}\u2069"


def bound(run: RunData) -> str:
    """The certified ε in a few words.

    Args:
        run: The run.

    Returns:
        Such as `ε = 2 for a record`, or `none`.
    """
    if run.certified is None:
        return "none"
    return f"ε = {run.certified['per_record']:.3g} for a {run.certified['unit']} (δ = {run.certified['delta']:g})"


def spread(value: Summary | None) -> str:
    """A figure with its spread over seeds.

    Args:
        value: The figure.

    Returns:
        Such as `90.8% ± 0.5%`, or `not measured`.
    """
    return "not measured" if value is None else share(value.mean, value.std).replace("%", "\u202f%")


def _learned(run: RunData) -> int:
    return run.points[-1] if run.points else len(run.tasks)


def _unmeasured(runs: Sequence[RunData]) -> Headline:
    private = [run for run in runs if run.private]
    learned = max((_learned(run) for run in runs), default=0)
    title = f"{counted(len(runs), 'run')}, {counted(learned, 'task')} learned" if runs else "No run has begun"
    lines = [_privacy(run) for run in private[:1]] + ["Accuracy was not measured."] * bool(runs)
    return Headline(title=title, lines=tuple(lines), numbers=())


def _privacy(run: RunData) -> str:
    if run.certified is None:
        reason = f": {run.certified_reason}" if run.certified_reason else ""
        return f"Privacy: No finite ε is certified for {clipped(run.label)}{reason}."
    certified = run.certified
    more = certified.get("all_tasks")
    unit, count = certified["unit"], len(run.tasks)
    every = f"; for a {unit} that is in all {count} tasks, ε = {more:.3g}" if more is not None and count > 1 else ""
    which = f" ({run.certified_reason})" if run.certified_reason else ""
    known = f"ε = {certified['per_record']:.3g} is certified for each {unit}, δ = {certified['delta']:g}"
    return f"Privacy: {known}{which}{every}."


def _memory(top: RunData, others: Sequence[RunData]) -> str:
    if top.forgetting is None:
        return ""
    lost = top.forgetting.mean * 100
    own = "It forgot nothing" if abs(lost) < 0.05 else f"It forgot {lost:.1f} points of what it had learned"
    if lost <= -0.05:
        own = f"Accuracy on earlier tasks rose by {-lost:.1f} points"
    ranked = sorted((run for run in others if run.forgetting is not None), key=_forgotten)
    shown = [f"{clipped(run.label)} {_forgotten(run) * 100:.1f}" for run in ranked[:3]]
    more = f" and {len(ranked) - 3} more runs from {_forgotten(ranked[3]) * 100:.1f} on" if len(ranked) > 3 else ""
    peers = f" (points forgotten by others: {', '.join(shown)}{more})" if shown else ""
    return f"Memory: {own}{peers}."


def _forgotten(run: RunData) -> float:
    return run.forgetting.mean if run.forgetting is not None else 0.0


def _reference(top: RunData, runs: Sequence[RunData]) -> str:
    """How the best run without privacy compares."""
    other = best([run for run in runs if not run.private])
    if not top.private or other is None or other.average_accuracy is None:
        return ""
    reached = f"{clipped(other.label)} reaches {percent(other.average_accuracy.mean)}"
    return f"Without privacy: {reached}; nothing is certified for it."


def _evidence(top: RunData, runs: Sequence[RunData]) -> str:
    """How sure it is that the winner is better than the next best run of its kind."""
    peers = [run for run in runs if run is not top and run.private == top.private]
    second = best(peers)
    if second is None or top.average_accuracy is None or second.average_accuracy is None:
        return ""
    gap = (top.average_accuracy.mean - second.average_accuracy.mean) * 100
    ahead = f"Next best: {clipped(second.label)}, {gap:.1f} points behind"
    pair = paired_tests([_alone(top), _alone(second)]).get(second.key)
    if pair is None or pair.seeds != pair.seeds:
        return f"{ahead}. One seed cannot tell a difference from chance."
    sure = "more than chance would explain" if pair.seeds < SIGNIFICANT else "which may be chance"
    return f"{ahead}, {sure} (paired t-test over {len(top.per_seed)} seeds: p = {pair.seeds:.2g})."


def _alone(run: RunData) -> RunData:
    return replace(run, baseline="")


def _numbers(run: RunData) -> tuple[KeyNumber, ...]:
    assert run.average_accuracy is not None
    seeds = counted(max(1, len(run.seeds)), "seed")
    std = run.average_accuracy.std
    spread_note = f"± {std * 100:.1f} over {seeds}" if std == std else seeds
    found = [KeyNumber(value=percent(run.average_accuracy.mean), title="average accuracy", note=spread_note)]
    if run.forgetting is not None:
        found.append(
            KeyNumber(value=f"{run.forgetting.mean * 100:.1f}", title="points forgotten", note="0 is perfect memory")
        )
    if run.certified is None:
        found.append(KeyNumber(value="none", title="certified ε", note="not private"))
    else:
        value, unit = f"{run.certified['per_record']:.3g}", run.certified["unit"]
        found.append(KeyNumber(value=value, title="certified ε", note=f"for a {unit}, δ = {run.certified['delta']:g}"))
    return tuple(found)
