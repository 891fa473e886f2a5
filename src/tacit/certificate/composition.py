"""States the certified bound of a stream; its ε is computed by `epsilon` in `privacy/ledger/statement.py`.

It is stated per task, and over tasks by every composition rule.

Formal guarantees: the certified ε is the ledger's own, by the one rule that is valid for the stream as it was declared.
The other rules are computed for comparison and marked as not applying.
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

from tacit.certificate.sections import Certified, OtherBlocks, OverTasks, RenyiLimits, TaskBound, TaskGroupBound
from tacit.privacy.accounting import epsilon as accounting
from tacit.privacy.accounting import events, replace_one
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.filters import UNITS
from tacit.privacy.ledger import BlockStatement, StreamSummary, TaskGroup

Bound = TaskBound | TaskGroupBound
MAX_GROUPS = 16
"""The number of groups of unlisted tasks that are stated separately; more if a unit may be in more tasks."""
MAX_OTHERS = 64
"""The number of event lists and filters that are stated besides those of the tasks."""
EXACT_UP_TO = 100
"""Up to this many tasks, rules that do not apply are computed by PLD too; beyond, by RDP alone."""


def certified(summary: StreamSummary, void_reason: str | None) -> Certified:
    """The certified bound, per task and over all tasks; with `void_reason`, no finite ε."""
    budget = summary.terms.budget
    rules = _over_tasks(summary)
    applying = next(rule for rule in rules if rule.applies)
    epsilon = None if void_reason else finite(summary.epsilon)
    tasks, alike = tuple(_task(leaves, budget) for leaves in _roots(summary)), _not_listed(summary)
    reason = void_reason or ("" if epsilon is not None else "the charges have no finite epsilon") or applying.holds_for
    return Certified(
        epsilon=epsilon,
        delta=budget.delta,
        reason=reason,
        curve=() if epsilon is None else _curve(summary, epsilon),
        accountant=f"{summary.accountant}; dp-accounting {metadata.version('dp-accounting')}",
        tasks=tasks,
        over_tasks=tuple(rules),
        alike=alike,
        other_blocks=None if epsilon is None else _other_blocks(summary, (*tasks, *alike)),
    )


def _other_blocks(summary: StreamSummary, shown: Iterable[Bound]) -> OtherBlocks | None:
    """The event lists that no task shows, and the filters; None if some events are not known, or there are too many."""
    if any(group.mode == "committed" and group.epsilon > 0 and not group.lists for group in summary.groups):
        return None
    known = {json.dumps(bound.events, sort_keys=True) for bound in shown if bound.mode == "committed"}
    every = sorted({events for group in summary.groups for events in group.lists})
    lists = [tuple(json.loads(text) for text in events) for events in every]
    lists = [events for events in lists if events and json.dumps(events, sort_keys=True) not in known]
    filters: list[RenyiLimits] = []
    if summary.several is not None:
        curve, additive = summary.several
        filters.append(_limits(zip(accounting.ORDERS, curve, strict=True), additive))
    else:
        for limits in sorted({limits for group in summary.groups for limits in group.filters}):
            filters.append(_limits(((accounting.ORDERS[place], limit / UNITS) for place, limit in limits), 0.0))
    return OtherBlocks(lists=tuple(lists), filters=tuple(filters)) if len(lists) + len(filters) <= MAX_OTHERS else None


def _limits(points: Iterable[tuple[float, float]], additive: float) -> RenyiLimits:
    found = [(order, limit) for order, limit in points if math.isfinite(limit)]
    return RenyiLimits(
        orders=tuple(order for order, _ in found), limits=tuple(limit for _, limit in found), additive_delta=additive
    )


def _roots(summary: StreamSummary) -> list[list[BlockStatement]]:
    """The leaf blocks of every listed task; a unit is in one leaf of each."""
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


def _not_listed(summary: StreamSummary) -> tuple[TaskGroupBound, ...]:
    """The unlisted tasks, grouped by their events; beyond the costliest groups, all in one.

    The separate groups have at least as many tasks as a unit may be in, so that every composition can be checked.
    """
    listed, delta = Counter(summary.listed.values()), summary.terms.budget.delta
    rest = [(group, group.tasks - listed[group.name]) for group in summary.groups if group.tasks > listed[group.name]]
    before = accumulate((times for _, times in rest), initial=0)  # tasks of the costlier groups
    apart = max(MAX_GROUPS, sum(tasks < summary.terms.tasks_per_unit for _, tasks in zip(rest, before, strict=False)))
    bounds = [_group_bound(group, times, delta) for group, times in rest[:apart]]
    if rest[apart:]:
        first, _ = rest[apart]  # the costliest of them
        opened = any(group.mode == "open" for group, _ in rest[apart:])
        merged = replace(first, events=(), mode="open" if opened else "committed")
        bounds.append(_group_bound(merged, sum(times for _, times in rest[apart:]), delta))
    return tuple(bounds)


def _group_bound(group: TaskGroup, times: int, delta: float) -> TaskGroupBound:
    events = tuple(json.loads(text) for text in group.events)
    return TaskGroupBound(tasks=times, mode=group.mode, epsilon=finite(group.epsilon), delta=delta, events=events)


def _over_tasks(summary: StreamSummary) -> list[OverTasks]:
    """Every composition rule for a unit in n tasks; exactly one applies."""
    terms, budget = summary.terms, summary.terms.budget
    k = terms.tasks_per_unit
    n = summary.tasks if k == 1 else min(k, summary.tasks)
    tasks = [_group_bound(group, group.tasks, budget.delta) for group in summary.groups]
    applies = "parallel" if k == 1 else "accountant" if terms.fixed_schedule else "adaptive filter"

    def rule(name: Any, epsilon: float, delta: float, holds_for: str) -> OverTasks:
        return OverTasks(
            rule=name, epsilon=finite(epsilon), delta=delta, tasks=n, applies=name == applies, holds_for=holds_for
        )

    # The rules for independent tasks do not hold for tasks with correlated noise, nor under replace-one for parts and
    # tasks with different lists, where the removed unit and the added one pay for different events.
    lists = {events for group in summary.groups for events in group.lists}
    mixed = budget.adjacency is Adjacency.REPLACE_ONE and len(lists) > 1
    correlated = any(0 < count.participations < n for count in summary.counts)
    independent = not (mixed or correlated)

    def composed(method: accounting.Method) -> float:
        return together(tasks, n, budget.delta, budget.adjacency, method) if independent else math.inf

    # A bound that does not apply is not worth a loss distribution over thousands of tasks at every release.
    best = accounting.Method.BEST if n <= EXACT_UP_TO else accounting.Method.RDP
    by_accountant = summary.epsilon if applies == "accountant" else composed(best)
    by_filter = summary.epsilon if applies == "adaptive filter" else composed(accounting.Method.RDP)
    basic = sum(times * _loss(task) for task, times in costliest(tasks, n)) if independent else math.inf
    in_one_task = math.inf if mixed else max(map(_loss, tasks), default=0.0)
    parallel = summary.epsilon if applies == "parallel" else in_one_task
    unit = f"a unit in {n} tasks"
    return [
        rule("parallel", parallel, budget.delta, "a unit that is in one task only"),
        rule("basic", basic, min(1.0, n * budget.delta), f"{unit}, plans chosen in any way"),
        rule("accountant", by_accountant, budget.delta, f"{unit} whose plans were fixed in advance"),
        rule("adaptive filter", by_filter, budget.delta, f"{unit}, plans chosen adaptively, under a Rényi filter"),
    ]


def costliest(tasks: Iterable[Bound], n: int) -> list[tuple[Bound, int]]:
    """The n costliest tasks, each bound with the number of its tasks among them."""
    chosen: list[tuple[Bound, int]] = []
    for task in sorted(tasks, key=_loss, reverse=True):
        times = min(n, task.tasks if isinstance(task, TaskGroupBound) else 1)
        if times > 0:
            chosen.append((task, times))
        n -= times
    return chosen


def together(tasks: Iterable[Bound], n: int, delta: float, adjacency: Adjacency, method: accounting.Method) -> float:
    """The ε of the n costliest tasks together; infinite if the events of one of them are not known."""
    worst = costliest(tasks, n)
    if any(task.mode == "open" or (_loss(task) > 0 and not task.events) or task.epsilon is None for task, _ in worst):
        return math.inf
    counted = [(event, times) for task, times in worst for event in task.events]
    return accounting.epsilon(composed_times(counted), delta, adjacency, method)


def whole(listed: Iterable[dict[str, Any]]) -> dp_event.DpEvent:
    """The composition of a certificate's events."""
    return composed_times((event, 1) for event in listed)


def composed_times(listed: Iterable[tuple[dict[str, Any], int]]) -> dp_event.DpEvent:
    """The composition of (event, times). Equal events are counted, not repeated: a stream may have thousands."""
    counts: Counter[str] = Counter()
    for event, times in listed:
        counts[json.dumps(event)] += times
    return events.compose(events.repeat(events.from_json(text), times) for text, times in counts.items())


def _loss(task: Bound) -> float:
    return math.inf if task.epsilon is None else task.epsilon


def _curve(summary: StreamSummary, epsilon: float) -> tuple[tuple[float | None, float], ...]:
    """(ε, δ) at other δ, for streams whose units are in one committed task; otherwise only the certified pair."""
    budget = summary.terms.budget
    if summary.terms.tasks_per_unit > 1 or any(group.mode == "open" for group in summary.groups):
        return ((epsilon, budget.delta),)
    lists = sorted({events for group in summary.groups for events in group.lists})  # the worst part depends on δ

    def at(delta: float) -> tuple[float | None, float]:
        composed = (whole(json.loads(text) for text in each) for each in lists)
        losses = [accounting.epsilon(event, delta, budget.adjacency) for event in composed]
        if budget.adjacency is Adjacency.REPLACE_ONE:
            losses.append(replace_one.worst(lists, delta))
        return finite(max(losses, default=0.0)), delta

    larger = [at(budget.delta * 1e2)] if budget.delta * 1e2 < 1 else []
    return (at(budget.delta * 1e-2), (epsilon, budget.delta), *larger)


def finite(value: float) -> float | None:
    """The value, or None if it is infinite."""
    return value if math.isfinite(value) else None
