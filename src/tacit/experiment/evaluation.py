"""Where accuracy comes from: public test sets, charged queries on records kept apart, or nowhere.

Guarantee: a private record is asked about only through `Vault.accuracy`; all queries of a task's test part are
committed together before the first, and cost the budget in all. Nobody's record is both learnt from and asked about.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from dp_accounting.dp_event import DpEvent
from torch import Tensor

from tacit.data.sources import as_read, tensor
from tacit.data.stream import Stream, StreamInfo, TaskInfo
from tacit.errors import ConfigError
from tacit.experiment.config import EvaluationSection
from tacit.learners.asking import answer, share_right
from tacit.learners.learner import Learner
from tacit.privacy.budget import Budget
from tacit.privacy.declared import Block
from tacit.privacy.pin import pin
from tacit.privacy.plan import SumPlan
from tacit.privacy.still import is_random
from tacit.privacy.vault import Vault

Accuracies = list[float | None]
"""One for every task of the stream; None where it is not measured."""

KEPT_BYTES = 2**29
"""Test sets are kept in memory up to this size."""


class Examiner(ABC):
    """What a run asks after each task."""

    source: str | None
    """How the accuracies came about, for people."""
    info: StreamInfo
    """The public facts that the learner plans with."""
    budget: Budget
    """What plans are made with."""
    part = "all"
    """The part of each task's records that the learner gets."""

    noise: float | None = None
    """Standard deviation of an accuracy, where it is a query, over noise and coins; of the task where it is largest."""

    def cut(self, number: int, block: Block) -> Block:
        """What the learner gets of a task's records."""
        return block

    def charges(self) -> list[list[DpEvent]]:
        """What a unit of a task's test part is charged; see `Learner.charges`."""
        return []

    def reopen(self, done: int) -> None:
        """Take up what was kept of the first `done` tasks, in a later process."""
        return

    def now(self, learner: Learner, number: int) -> float | None:
        """Accuracy on one task at this moment, where asking is free."""
        return None

    def untrained(self, learner: Learner) -> Accuracies | None:
        """Accuracy on every task before the first, where asking is free."""
        return None

    @abstractmethod
    def after(self, learner: Learner, number: int) -> Accuracies:
        """Accuracy on the tasks after task `number`."""

    def show(self, learner: Learner, number: int) -> None:
        """Give a learner that wants it the public part of a task which it may look at while it learns."""
        raise ConfigError(
            f"{type(learner).__name__} looks at public records while it learns, and here are none; give a public test "
            "set for every task, or learner.watch_on = 'charged'"
        )

    def check(self, learner: Learner) -> None:
        """Refuse a learner, once it is started, that cannot be asked this way."""
        if self.charges() and learner.like(learner.stream_.tasks[0]) is not None:
            raise ConfigError(
                f"{type(learner).__name__} chooses what it reads as it goes (behind a Rényi filter), so its accuracy "
                "cannot be a charged query on the same records; give a public test set, or evaluation.test = 'none'"
            )


class NoTests(Examiner):
    """No accuracy at all."""

    source = None

    def __init__(self, info: StreamInfo, budget: Budget) -> None:
        self.info, self.budget = info, budget

    def after(self, learner: Learner, number: int) -> Accuracies:
        return [None] * len(self.info.tasks)


class PublicTests(Examiner):
    """The public test sets of the tasks learnt so far, and of the next one, for forward transfer."""

    source = "public test set"

    def __init__(self, stream: Stream, budget: Budget) -> None:
        self.info, self.budget = stream.info, budget
        self._stream = stream
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def now(self, learner: Learner, number: int) -> float | None:
        x, y = self.examples(learner, number)
        if not len(y):
            return None
        with learner.public_dice(learner.learnt, number):  # a run that goes on finds the same
            return self.accuracy(learner, x, y, number)

    def accuracy(self, learner: Learner, x: Tensor, y: Tensor, number: int) -> float:
        """The share of rows of a task that are answered rightly."""
        return share_right(learner, x, y, self.asked(number))

    def show(self, learner: Learner, number: int) -> None:
        """Every second row of the task's test set; it is then measured on the others."""
        load = self._stream.task(number).test
        assert load is not None
        x, y = load()
        learner.show(x[::2], y[::2])

    def asked(self, number: int) -> TaskInfo | None:
        """What a learner is told of the task of its test rows."""
        return self.info.task(number) if self.info.task_id == "given" else None

    def untrained(self, learner: Learner) -> Accuracies:
        return [self.now(learner, number) for number in range(len(self._stream))]

    def after(self, learner: Learner, number: int) -> Accuracies:
        asked = range(min(number + 2, len(self._stream)))
        return [self.now(learner, one) for one in asked] + [None] * (len(self._stream) - len(asked))

    def examples(self, learner: Learner, number: int) -> tuple[Tensor, Tensor]:
        """A task's test rows, and the places of their labels among the learner's outputs."""
        if number in self._kept:
            return self._kept[number]
        load = self._stream.task(number).test
        assert load is not None
        x, y = load()
        if learner.wants_shown:  # the other half: what steers a learner does not measure it
            x, y = x[1::2], y[1::2]
        made = as_read(tensor(x)).float(), learner.positions(np.asarray(y))
        if sum(_bytes(one) for one, _ in self._kept.values()) + _bytes(made[0]) <= KEPT_BYTES:
            self._kept[number] = made
        return made


@dataclass(kw_only=True)
class ChargedQueries(Examiner):
    """A share of each task's units is kept apart and asked about after its own and every later task.

    Task i of T is asked T − i + 1 times. These Gaussian releases are committed before the first and cost the whole
    budget together; a unit of the test part pays for nothing else.
    """

    source = "charged query"
    part = "learn"

    stream: StreamInfo
    vault: Vault
    budget: Budget
    share: float
    info: StreamInfo = field(init=False)
    blocks: dict[int, Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        left = [replace(task, size=max(1, round((1 - self.share) * task.size))) for task in self.stream.tasks]
        self.info = replace(self.stream, tasks=tuple(left))
        self.noise = max(self._spread(number, task.size) for number, task in enumerate(self.stream.tasks))

    def _spread(self, number: int, size: int) -> float:
        """Standard deviation of an accuracy: of the noise, and of how many of the declared units coins put into the
        test part, which the query does not divide by. The second is largest where all are answered rightly."""
        drawn = size * min(self.share, 0.5) * (1 - min(self.share, 0.5))
        return math.hypot(self.plan(number).std, math.sqrt(drawn)) / max(1, round(self.share * size))

    def plan(self, number: int) -> SumPlan:
        """The noise of every query on a task's test part."""
        recurs, tasks = self.stream.tasks_per_unit, len(self.stream.tasks)
        if recurs == 1:
            return SumPlan.for_budget(self.budget, share=1 / (tasks - number))
        # One noise for all tasks: the queries of a later task are then among those of the first, and the ledger, which
        # prices what a unit can meet in several tasks, has few combinations to look at.
        return SumPlan.for_budget(self.budget, share=1 / tasks, tasks_per_unit=recurs)

    def charges(self) -> list[list[DpEvent]]:
        tasks = len(self.stream.tasks)
        return [[self.plan(number).event] * (tasks - number) for number in range(tasks)]

    def cut(self, number: int, block: Block) -> Block:
        learn, test = self.vault.split(block, {"learn": 1 - self.share, "test": self.share})
        self.vault.commit({test: self.charges()[number]})
        self.vault.keep(test)
        self.blocks[number] = test
        return learn

    def reopen(self, done: int) -> None:
        for number, task in enumerate(self.stream.tasks[:done]):
            test = self.vault.reopen(self.vault.find(self.stream.name, task.name, "test"))
            self.blocks[number] = self.vault.with_labels(test, self.stream.labels)

    def check(self, learner: Learner) -> None:
        super().check(learner)
        if is_random(learner.model_):
            raise ConfigError(
                "a network with a noise layer answers otherwise every time, and a charged query has to be the same "
                "when it is taken up after a crash; give a public test set, or evaluation.test = 'none'"
            )

    def after(self, learner: Learner, number: int) -> Accuracies:
        version = pin(tensors=learner.tensors(), settings=learner.settings())
        found: Accuracies = [self._ask(learner, i, version) for i in range(number + 1)]
        return found + [None] * (len(self.stream.tasks) - number - 1)

    def _ask(self, learner: Learner, number: int, version: str) -> float:
        asked = self.stream.tasks[number] if self.stream.task_id == "given" else None
        return self.vault.accuracy(self.blocks[number], Asked(learner, asked, version), self.plan(number))


class Asked:
    """A learner's answers, known by the released values that they come from.

    A query is pinned to what is asked. A learner also holds what it learnt last, which no answer depends on and which
    differs once it is restored from its release; pinned to that, a query could never be taken up after a crash."""

    def __init__(self, learner: Learner, asked: TaskInfo | None, version: str) -> None:
        """`version`: the hash of the learner's released tensors and settings. Plain values are what the pin sees."""
        self.version, self.code, self.asked = version, pin(scores=type(learner).scores), repr(asked)
        self._answer = partial(answer, learner.scores, asked, version)

    def __call__(self, rows: Tensor) -> Tensor:
        return self._answer(rows)


def examiner(section: EvaluationSection, stream: Stream, vault: Vault, budget: Budget) -> Examiner:
    """The way of asking that the configuration names; `auto` is public where every task has a test set."""
    tested = all(task.test is not None for task in stream)
    how = ("public" if tested else "charged") if section.test == "auto" else section.test
    if how == "public" and not tested:
        raise ConfigError(
            "evaluation.test = 'public' needs a public test set for every task and this stream has none; use 'charged' "
            "(a part of the records is asked about and pays for it) or 'none'"
        )
    if how == "charged":
        return ChargedQueries(stream=stream.info, vault=vault, budget=budget, share=section.share)
    return PublicTests(stream, budget) if how == "public" else NoTests(stream.info, budget)


def mean_of_learnt(accuracies: Accuracies, number: int) -> float | None:
    """The mean over the tasks learnt so far, where all of them are known."""
    known = [one for one in accuracies[: number + 1] if one is not None]
    return math.fsum(known) / len(known) if len(known) == number + 1 else None


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()
