"""Which learner of a pool learns which task: public, and known before a record is read.

Guarantee: a pure function of public facts and plans. A learner halts between two tasks and never inside one; when it
does depends on no record, no accuracy and no release.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from tacit.errors import PlanError
from tacit.privacy.claims import LEARNER_ORDER, moments_of

Steps = tuple[float, float, int]
"""Of one task: sampling rate, noise multiplier, number of steps."""
Priced = Callable[[int, int], Steps]
"""(task, number of its readers) → what one reader does there. More readers never mean less noise."""


@dataclass(frozen=True, kw_only=True)
class Rota:
    """Learners and tasks, both from 0."""

    spans: tuple[int, ...]
    """How many tasks each learner answers for, in turn; on an endless stream one number, that of all of them."""
    early: bool = False
    """A learner also learns the task before its own, which the older one answers for."""
    endless: bool = False
    most: int | None = None
    """On an endless stream: so many learners, and then no more. None: always one more."""

    @property
    def learners(self) -> int | None:
        """How many there will be. None: there is no last one."""
        return self.most if self.endless else len(self.spans)

    def answers(self, task: int) -> int | None:
        """The learner that answers for a task; None after the last learner's last task."""
        found = task // self.spans[0] if self.endless else bisect_right(self._ends, task)
        return found if self.learners is None or found < self.learners else None

    def readers(self, task: int) -> tuple[int, ...]:
        """The learners that learn a task, the one that answers for it first."""
        own = self.answers(task)
        if own is None:
            return ()
        after = self.answers(task + 1)
        return (own, after) if self.early and after is not None and after != own else (own,)

    def tasks(self, learner: int) -> range:
        """All that a learner learns: its own tasks, and the one before them where it starts early."""
        begin, end = (learner * self.spans[0], (learner + 1) * self.spans[0]) if self.endless else (
            (0, *self._ends)[learner], self._ends[learner]
        )  # fmt: skip
        return range(begin - (self.early and learner > 0), end)

    def own(self, learner: int) -> range:
        """The tasks that a learner answers for."""
        found = self.tasks(learner)
        return found[1:] if self.early and learner else found

    def pattern(self, tasks: int) -> tuple[int, ...]:
        """How many learners read in each of the stream's tasks; on an endless one in each of a turn, over and over."""
        if self.endless:  # the last learner of all has no successor: what is planned for one is then not read
            return (1,) * (self.spans[0] - 1) + (2 if self.early else 1,)
        return tuple(len(self.readers(task)) for task in range(tasks))

    @property
    def _ends(self) -> tuple[int, ...]:
        return tuple(accumulate(self.spans))


def rota(
    tasks: int, per_learner: int, *, early: bool = False, learners: int | None = None, endless: bool = False
) -> Rota:
    """Every learner has so many tasks; on a stream of `tasks` of them the last one has what is left."""
    if endless:
        return Rota(spans=(per_learner,), early=early, endless=True, most=learners)
    spans = [min(per_learner, tasks - begin) for begin in range(0, tasks, per_learner)]
    return Rota(spans=tuple(spans[:learners]), early=early)


def rota_by_budget(
    tasks: int,
    priced: Priced,
    limit: float,
    delta: float,
    *,
    early: bool = False,
    learners: int | None = None,
    endless: bool = False,
) -> Rota:
    """Every learner goes on if and only if what is left of `limit` exceeds the cost of its next task, as Hassanpour et
    al. 2022, Section IV.A, say it: by the moments accountant at `delta` over its own steps.

    A task is priced as if it had one reader: where it turns out to be a learner's last and the next one starts early,
    its noise may only be larger. On an endless stream, of which `tasks` is one period, all learners have the same
    number of tasks: the least that one may have, wherever in the period it begins."""
    if endless:
        begins = range(tasks, 2 * tasks)
        each = [_span(begin, begin - 1 if early else None, None, priced, limit, delta) for begin in begins]
        return rota(tasks, min(each), early=early, learners=learners, endless=True)
    spans: list[int] = []
    begin = 0
    while begin < tasks and (learners is None or len(spans) < learners):
        first = begin - 1 if early and spans else None
        spans.append(_span(begin, first, tasks, priced, limit, delta))
        begin += spans[-1]
    return Rota(spans=tuple(spans), early=early)


def _span(begin: int, first: int | None, end: int | None, priced: Priced, limit: float, delta: float) -> int:
    """How many tasks from `begin` on fit; `first`: a task with two readers that is learnt before them."""
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
                    f"learner_budget = {limit:g} is spent before a learner has learnt one task: task {begin + 1}"
                    f"{before} cost{'s' if first is None else ''} ε = {cost:.4g} by the moments accountant; use a "
                    "larger one, more noise or fewer steps"
                )
            break
        span += 1
    return span


def _add(spent: Counter[tuple[float, float]], steps: Steps) -> None:
    rate, noise, count = steps
    spent[rate, noise] += count
