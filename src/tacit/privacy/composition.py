"""From the ledger's statement to the certified number: per task, and over tasks by every rule of composition.

Guarantee: the certified ε is the ledger's own, by the one rule that holds for the stream as it was declared; the other
rules are computed beside it and marked as not applying.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from dp_accounting import dp_event

from tacit.privacy import accounting, events
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.certificate import Certified, OverTasks, TaskBound
from tacit.privacy.ledger import BlockStatement, Statement


def certified(statement: Statement, broken: str | None) -> Certified:
    budget = statement.terms.budget
    tasks = [_task(root, budget) for root in _roots(statement)]
    rules = _over_tasks(statement, tasks)
    applying = next(rule for rule in rules if rule.applies)
    epsilon = None if broken else finite(statement.epsilon)
    reason = broken or ("" if epsilon is not None else "the charges have no finite epsilon") or applying.holds_for
    return Certified(
        epsilon=epsilon,
        delta=budget.delta,
        reason=reason,
        curve=() if epsilon is None else _curve(statement, tasks, epsilon),
        accountant=f"{statement.accountant}; dp-accounting {metadata.version('dp-accounting')}",
        tasks=tuple(tasks),
        over_tasks=tuple(rules),
    )


def _roots(statement: Statement) -> list[list[BlockStatement]]:
    """The leaves of every task: a unit is in one of them."""
    roots: dict[int, list[BlockStatement]] = {}
    for block in statement.blocks:
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


def _over_tasks(statement: Statement, tasks: list[TaskBound]) -> list[OverTasks]:
    """Every rule for a unit in n tasks; exactly one applies."""
    terms, budget = statement.terms, statement.terms.budget
    k = terms.tasks_per_unit
    n = len(tasks) if k == 1 else min(k, len(tasks))
    losses = sorted(map(_loss, tasks), reverse=True)[:n]
    applies = "parallel" if k == 1 else "accountant" if terms.fixed_schedule else "adaptive filter"

    def rule(name: Any, epsilon: float, delta: float, holds_for: str) -> OverTasks:
        return OverTasks(
            rule=name, epsilon=finite(epsilon), delta=delta, tasks=n, applies=name == applies, holds_for=holds_for
        )

    apart = not _correlated(statement, n)  # else the tasks of one unit share noise: no rule for independent ones holds

    def _all(method: accounting.Method) -> float:
        return together(tasks, n, budget.delta, budget.adjacency, method) if apart else math.inf

    by_accountant = statement.epsilon if applies == "accountant" else _all(accounting.Method.BEST)
    by_filter = statement.epsilon if applies == "adaptive filter" else _all(accounting.Method.RDP)
    basic = sum(losses) if apart else math.inf
    return [
        rule("parallel", max(losses, default=0.0), budget.delta, "a unit that is in one task only"),
        rule("basic", basic, min(1.0, n * budget.delta), f"a unit in {n} tasks, plans chosen in any way"),
        rule("accountant", by_accountant, budget.delta, f"a unit in {n} tasks whose plans were fixed in advance"),
        rule(
            "adaptive filter",
            by_filter,
            budget.delta,
            f"a unit in {n} tasks, plans chosen as one goes, under a Rényi filter",
        ),
    ]


def _correlated(statement: Statement, n: int) -> bool:
    """Whether noise was shared between tasks, priced for units of fewer than n of them."""
    used = [grant.plan for grant in statement.grants if grant.state != "VOID"]
    return any(plan.get("horizon", 1) > 1 and plan.get("participations", 1) < n for plan in used)


def together(tasks: list[TaskBound], n: int, delta: float, adjacency: Adjacency, method: accounting.Method) -> float:
    """ε of the n costliest tasks together; a task without an event list (open, or nothing certified) has none."""
    worst = sorted(tasks, key=_loss, reverse=True)[:n]
    if any(task.mode == "open" or task.epsilon is None for task in worst):
        return math.inf
    return accounting.epsilon(whole(event for task in worst for event in task.events), delta, adjacency, method)


def whole(listed: Iterable[dict[str, Any]]) -> dp_event.DpEvent:
    """Events of a certificate, composed; equal ones are counted, not repeated: a stream may have thousands of tasks."""
    counts = Counter(json.dumps(event) for event in listed)
    return events.compose(events.repeat(events.from_json(text), times) for text, times in counts.items())


def _loss(task: TaskBound) -> float:
    return math.inf if task.epsilon is None else task.epsilon


def _curve(statement: Statement, tasks: list[TaskBound], epsilon: float) -> tuple[tuple[float | None, float], ...]:
    """(ε, δ) at other δ, for streams whose units are in one committed task; otherwise the certified pair alone."""
    budget = statement.terms.budget
    if statement.terms.tasks_per_unit > 1 or any(task.mode == "open" for task in tasks):
        return ((epsilon, budget.delta),)
    lists = {json.dumps(task.events, sort_keys=True): task.events for task in tasks}

    def at(delta: float) -> tuple[float | None, float]:
        losses = [accounting.epsilon(whole(each), delta, budget.adjacency) for each in lists.values()]
        return finite(max(losses, default=0.0)), delta

    larger = [at(budget.delta * 1e2)] if budget.delta * 1e2 < 1 else []
    return (at(budget.delta * 1e-2), (epsilon, budget.delta), *larger)


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
