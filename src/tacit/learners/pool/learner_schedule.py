"""The assignment of a pool's learners to tasks. It is public and fixed before a record is read.

It is a pure function of public facts and plans. A learner stops between two tasks, never inside one, and when it stops
depends on no record, accuracy or release.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from tacit.certificate.claims import LEARNER_ORDER, moments_of
from tacit.errors import PlanError

Steps = tuple[float, float, int]
"""Sampling rate, noise multiplier and number of steps of one task."""
Priced = Callable[[int, int], Steps]
"""(task, number of its readers) → the steps of one reader. The noise does not decrease with the readers."""


@dataclass(frozen=True, kw_only=True)
class LearnerSchedule:
    """The assignment of learners to tasks, both numbered from 0."""

    spans: tuple[int, ...]
    """Number of tasks that each learner answers for, in order; on an endless stream one number for all learners."""
    early: bool = False
    """Whether a learner also trains on the task before its own, which its predecessor answers for."""
    endless: bool = False
    most: int | None = None
    """Largest number of learners on an endless stream. If None, no limit."""

    @property
    def learners(self) -> int | None:
        """Total number of learners, or None if it is unlimited."""
        return self.most if self.endless else len(self.spans)

    def answers(self, task: int) -> int | None:
        """The learner that answers for a task; None after the last learner's last task."""
        learner = task // self.spans[0] if self.endless else bisect_right(self._ends, task)
        return learner if self.learners is None or learner < self.learners else None

    def readers(self, task: int) -> tuple[int, ...]:
        """The learners that train on a task, starting with the one that answers for it."""
        current = self.answers(task)
        if current is None:
            return ()
        successor = self.answers(task + 1)
        return (current, successor) if self.early and successor is not None and successor != current else (current,)

    def tasks(self, learner: int) -> range:
        """All tasks that a learner trains on: its own, and with `early` the one before them."""
        begin, end = (learner * self.spans[0], (learner + 1) * self.spans[0]) if self.endless else (
            (0, *self._ends)[learner], self._ends[learner]
        )  # fmt: skip
        return range(begin - (self.early and learner > 0), end)

    def own(self, learner: int) -> range:
        """The tasks that a learner answers for."""
        tasks = self.tasks(learner)
        return tasks[1:] if self.early and learner else tasks

    def pattern(self, tasks: int) -> tuple[int, ...]:
        """Number of readers of each of the stream's tasks; on an endless stream, of each task in one period."""
        if self.endless:  # the last learner has no successor, so its last planned second reader is unused
            return (1,) * (self.spans[0] - 1) + (2 if self.early else 1,)
        return tuple(len(self.readers(task)) for task in range(tasks))

    @property
    def _ends(self) -> tuple[int, ...]:
        return tuple(accumulate(self.spans))


def schedule_by_count(
    tasks: int, per_learner: int, *, early: bool = False, learners: int | None = None, endless: bool = False
) -> LearnerSchedule:
    """Every learner has `per_learner` tasks; on a finite stream the last one has the remainder."""
    if endless:
        return LearnerSchedule(spans=(per_learner,), early=early, endless=True, most=learners)
    spans = [min(per_learner, tasks - begin) for begin in range(0, tasks, per_learner)]
    return LearnerSchedule(spans=tuple(spans[:learners]), early=early)


def schedule_by_budget(
    tasks: int,
    priced: Priced,
    limit: float,
    delta: float,
    *,
    early: bool = False,
    learners: int | None = None,
    endless: bool = False,
) -> LearnerSchedule:
    """A learner takes its next task if and only if the rest of `limit` exceeds the cost of that task (Hassanpour et al.
    2022, Section IV.A), by the moments accountant at `delta` over its own steps.

    A task is priced as if it had one reader: where it turns out to be a learner's last and the next one starts early,
    its noise may only be larger. On an endless stream, of which `tasks` is one period, all learners have the same
    number of tasks: the least that one may have, wherever in the period it begins."""
    if endless:
        begins = range(tasks, 2 * tasks)
        each = [_span(begin, begin - 1 if early else None, None, priced, limit, delta) for begin in begins]
        return schedule_by_count(tasks, min(each), early=early, learners=learners, endless=True)
    spans: list[int] = []
    begin = 0
    while begin < tasks and (learners is None or len(spans) < learners):
        first = begin - 1 if early and spans else None
        spans.append(_span(begin, first, tasks, priced, limit, delta))
        begin += spans[-1]
    return LearnerSchedule(spans=tuple(spans), early=early)


def _span(begin: int, first: int | None, end: int | None, priced: Priced, limit: float, delta: float) -> int:
    """Number of tasks from `begin` that fit; `first` is a task with two readers that is learned before them."""
    spent: Counter[tuple[float, float]] = Counter()
    if first is not None:
        _add(spent, priced(first, 2))
    span = 0
    while end is None or begin + span < end:
        _add(spent, priced(begin + span, 1))
        cost = moments_of(spent, delta, LEARNER_ORDER)
        if cost >= limit:
            if span == 0:
                before = "" if first is None else f" and the early start in task {first + 1}"
                raise PlanError(
                    f"learner_budget = {limit:g} is spent before a learner has learned one task: task {begin + 1}"
                    f"{before} cost{'s' if first is None else ''} ε = {cost:.4g} by the moments accountant; use a "
                    "larger one, more noise or fewer steps"
                )
            break
        span += 1
    return span


def _add(spent: Counter[tuple[float, float]], steps: Steps) -> None:
    rate, noise, count = steps
    spent[rate, noise] += count
