"""From the ledger's summary to the certified number: per task, and over tasks by every rule of composition.

Guarantee: the certified ε is the ledger's own, by the one rule that holds for the stream as it was declared; the other
rules are computed beside it and marked as not applying.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from itertools import accumulate
from typing import Any

from dp_accounting import dp_event

from tacit.privacy import accounting, events, exchange
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.certificate import Certified, OverTasks, TaskBound, TasksAlike
from tacit.privacy.ledger import Alike, BlockStatement, Summary

Bound = TaskBound | TasksAlike
KINDS = 16
"""So many kinds of tasks that are not listed are told apart, and more where a unit may be in more tasks."""
EXACT_UP_TO = 100
"""Of so many tasks the bound by a rule that does not apply is tight; of more it is the Rényi one."""


def certified(summary: Summary, broken: str | None) -> Certified:
    """What is certified, task by task and over all of them."""
    budget = summary.terms.budget
    rules = _over_tasks(summary)
    applying = next(rule for rule in rules if rule.applies)
    epsilon = None if broken else finite(summary.epsilon)
    reason = broken or ("" if epsilon is not None else "the charges have no finite epsilon") or applying.holds_for
    return Certified(
        epsilon=epsilon,
        delta=budget.delta,
        reason=reason,
        curve=() if epsilon is None else _curve(summary, epsilon),
        accountant=f"{summary.accountant}; dp-accounting {metadata.version('dp-accounting')}",
        tasks=tuple(_task(leaves, budget) for leaves in _roots(summary)),
        over_tasks=tuple(rules),
        alike=_not_listed(summary),
    )


def _roots(summary: Summary) -> list[list[BlockStatement]]:
    """The leaves of every listed task: a unit is in one of them."""
    roots: dict[int, list[BlockStatement]] = {}
    for block in summary.blocks:
        if block.row.state != "split":
            roots.setdefault(block.row.root_id, []).append(block)
    return list(roots.values())


def _task(leaves: list[BlockStatement], budget: Budget) -> TaskBound:
    worst = max(leaves, key=lambda leaf: math.inf if leaf.row.exposed else leaf.epsilon)
    return TaskBound(
        task=worst.row.task,
        part=worst.row.part,
        mode=worst.row.mode,
        epsilon=None if worst.row.exposed else finite(worst.epsilon),
        delta=budget.delta,
        events=tuple(json.loads(text) for text in worst.events),
    )


def _not_listed(summary: Summary) -> tuple[TasksAlike, ...]:
    """All other tasks, those with the same events together; past the costliest kinds, all in one.

    Those told apart are at least as many tasks as a unit is in, so that no check of a composition lacks events."""
    listed, delta = Counter(summary.listed.values()), summary.terms.budget.delta
    rest = [(one, one.tasks - listed[one.name]) for one in summary.alike if one.tasks > listed[one.name]]
    before = accumulate((times for _, times in rest), initial=0)  # tasks of the kinds before each
    apart = max(KINDS, sum(tasks < summary.terms.tasks_per_unit for _, tasks in zip(rest, before, strict=False)))
    found = [_together(one, times, delta) for one, times in rest[:apart]]
    if rest[apart:]:
        first, _ = rest[apart]  # the costliest of them
        opened = any(one.mode == "open" for one, _ in rest[apart:])
        merged = replace(first, events=(), mode="open" if opened else "committed")
        found.append(_together(merged, sum(times for _, times in rest[apart:]), delta))
    return tuple(found)


def _together(alike: Alike, times: int, delta: float) -> TasksAlike:
    events = tuple(json.loads(text) for text in alike.events)
    return TasksAlike(tasks=times, mode=alike.mode, epsilon=finite(alike.epsilon), delta=delta, events=events)


def _over_tasks(summary: Summary) -> list[OverTasks]:
    """Every rule for a unit in n tasks; exactly one applies."""
    terms, budget = summary.terms, summary.terms.budget
    k = terms.tasks_per_unit
    n = summary.tasks if k == 1 else min(k, summary.tasks)
    tasks = [_together(one, one.tasks, budget.delta) for one in summary.alike]
    applies = "parallel" if k == 1 else "accountant" if terms.fixed_schedule else "adaptive filter"

    def rule(name: Any, epsilon: float, delta: float, holds_for: str) -> OverTasks:
        return OverTasks(
            rule=name, epsilon=finite(epsilon), delta=delta, tasks=n, applies=name == applies, holds_for=holds_for
        )

    # Tasks of one unit that share noise have no rule for independent ones. Under replace-one, parts and tasks that
    # promise different things are met by the one unit and not by the other: only the ledger's own bound covers that.
    mixed = budget.adjacency is Adjacency.REPLACE_ONE and len({text for one in summary.alike for text in one.lists}) > 1
    apart = not (mixed or _correlated(summary, n))

    def _all(method: accounting.Method) -> float:
        return together(tasks, n, budget.delta, budget.adjacency, method) if apart else math.inf

    # A number that applies to nobody is not worth a loss distribution of thousands of tasks at every release.
    best = accounting.Method.BEST if n <= EXACT_UP_TO else accounting.Method.RDP
    by_accountant = summary.epsilon if applies == "accountant" else _all(best)
    by_filter = summary.epsilon if applies == "adaptive filter" else _all(accounting.Method.RDP)
    basic = sum(times * _loss(one) for one, times in costliest(tasks, n)) if apart else math.inf
    in_one_task = math.inf if mixed else max(map(_loss, tasks), default=0.0)
    parallel = summary.epsilon if applies == "parallel" else in_one_task
    return [
        rule("parallel", parallel, budget.delta, "a unit that is in one task only"),
        rule("basic", basic, min(1.0, n * budget.delta), f"a unit in {n} tasks, plans chosen in any way"),
        rule("accountant", by_accountant, budget.delta, f"a unit in {n} tasks whose plans were fixed in advance"),
        rule(
            "adaptive filter",
            by_filter,
            budget.delta,
            f"a unit in {n} tasks, plans chosen as one goes, under a Rényi filter",
        ),
    ]


def _correlated(summary: Summary, n: int) -> bool:
    """Whether noise was shared between tasks, priced for units of fewer than n of them."""
    return any(0 < use.participations < n for use in summary.uses)


def costliest(tasks: Iterable[Bound], n: int) -> list[tuple[Bound, int]]:
    """The n tasks that cost most, those alike with their number."""
    found: list[tuple[Bound, int]] = []
    for one in sorted(tasks, key=_loss, reverse=True):
        times = min(n, one.tasks if isinstance(one, TasksAlike) else 1)
        if times > 0:
            found.append((one, times))
        n -= times
    return found


def together(tasks: Iterable[Bound], n: int, delta: float, adjacency: Adjacency, method: accounting.Method) -> float:
    """ε of the n costliest tasks together; there is none with a task whose events are not known (open, nothing
    certified, or a loss that no event of it explains): nothing is composed as free."""
    worst = costliest(tasks, n)
    if any(task.mode == "open" or (_loss(task) > 0 and not task.events) or task.epsilon is None for task, _ in worst):
        return math.inf
    counted = [(event, times) for task, times in worst for event in task.events]
    return accounting.epsilon(composed_times(counted), delta, adjacency, method)


def whole(listed: Iterable[dict[str, Any]]) -> dp_event.DpEvent:
    """Events of a certificate, composed."""
    return composed_times((event, 1) for event in listed)


def composed_times(listed: Iterable[tuple[dict[str, Any], int]]) -> dp_event.DpEvent:
    """Events of a certificate, each so many times, composed. Equal ones are counted, not repeated: a stream may have
    thousands of tasks."""
    counts: Counter[str] = Counter()
    for event, times in listed:
        counts[json.dumps(event)] += times
    return events.compose(events.repeat(events.from_json(text), times) for text, times in counts.items())


def _loss(task: Bound) -> float:
    return math.inf if task.epsilon is None else task.epsilon


def _curve(summary: Summary, epsilon: float) -> tuple[tuple[float | None, float], ...]:
    """(ε, δ) at other δ, for streams whose units are in one committed task; otherwise the certified pair alone."""
    budget = summary.terms.budget
    if summary.terms.tasks_per_unit > 1 or any(one.mode == "open" for one in summary.alike):
        return ((epsilon, budget.delta),)
    lists = sorted({events for one in summary.alike for events in one.lists})  # another δ may have another worst part

    def at(delta: float) -> tuple[float | None, float]:
        composed = (whole(json.loads(text) for text in each) for each in lists)
        losses = [accounting.epsilon(one, delta, budget.adjacency) for one in composed]
        if budget.adjacency is Adjacency.REPLACE_ONE:
            losses.append(exchange.worst(lists, delta))
        return finite(max(losses, default=0.0)), delta

    larger = [at(budget.delta * 1e2)] if budget.delta * 1e2 < 1 else []
    return (at(budget.delta * 1e-2), (epsilon, budget.delta), *larger)


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
