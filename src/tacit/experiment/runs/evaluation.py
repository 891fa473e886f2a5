"""How accuracy is measured: on public test sets, by charged queries on records that are set aside, or not at all.

Private records are queried only through `Vault.accuracy`. All queries of a task's test part are committed together
before the first, and cost the budget in all. No record is both learned from and queried.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from dp_accounting.dp_event import DpEvent
from torch import Tensor

from tacit.data.stream import Stream, StreamInfo, TaskInfo
from tacit.data.tensors import model_input, tensor
from tacit.errors import ConfigError
from tacit.learners.base.inference import answer, share_right
from tacit.learners.base.learner import Learner
from tacit.learners.card.model_card import Measured
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.vault import Block, SumPlan, Vault
from tacit.privacy.vault.intake.fingerprint import fingerprint
from tacit.privacy.vault.intake.isolation import is_random

Accuracies = list[float | None]
"""The accuracy on every task of the stream; None where it is not measured."""

KEPT_BYTES = 2**29
"""Test sets are kept in memory up to this size."""


class Evaluation(ABC):
    """How a run measures accuracy after each task.

    Attributes:
        source: How the accuracies were measured, for reports; None if they are not.
        info: The public facts that the learner plans with.
        budget: The budget that plans are made with.
        part: The part of each task's records that the learner receives.
        noise: The standard deviation of a queried accuracy over noise and sampling, for the task with the largest.
    """

    source: str | None
    info: StreamInfo
    budget: Budget
    part = "all"
    noise: float | None = None

    def cut(self, number: int, block: Block) -> Block:
        """Set test records aside; returns the block that the learner receives."""
        return block

    def charges(self) -> list[list[DpEvent]]:
        """The events that a unit of a task's test part is charged for; see `Learner.charges`."""
        return []

    def reopen(self, done: int) -> None:
        """Reopen the test parts of the first `done` tasks in a later process."""
        return

    def now(self, learner: Learner, number: int) -> float | None:
        """The accuracy on one task at this moment; None if it would be charged."""
        return None

    def untrained(self, learner: Learner) -> Accuracies | None:
        """The accuracy on every task before the first; None if it would be charged."""
        return None

    def rows(self, learner: Learner, number: int) -> int:
        """The number of public test records of a task; 0 where it is not public."""
        return 0

    @abstractmethod
    def after(self, learner: Learner, number: int) -> Accuracies:
        """The accuracies after task `number`."""

    def give_public_records(self, learner: Learner, number: int) -> None:
        """Give the learner public records of a task that it evaluates itself on while it learns."""
        raise ConfigError(
            f"{type(learner).__name__} looks at public records while it learns, and there are none; give a public "
            "test set for every task, or set learner.watch_on = 'charged'"
        )

    def check(self, learner: Learner) -> None:
        """Refuse a started learner whose accuracy cannot be measured in this way."""
        if self.charges() and learner.representative_plan(learner.stream_.tasks[0]) is not None:
            raise ConfigError(
                f"{type(learner).__name__} chooses its plans adaptively (behind a Rényi filter), so its accuracy "
                "cannot be a charged query on the same records; give a public test set, or evaluation.test = 'none'"
            )


class NoTests(Evaluation):
    """Accuracy is not measured."""

    source = None

    def __init__(self, info: StreamInfo, budget: Budget) -> None:
        self.info, self.budget = info, budget

    def after(self, learner: Learner, number: int) -> Accuracies:
        return [None] * len(self.info.tasks)


class PublicTests(Evaluation):
    """Accuracy on public test sets: of the tasks so far, and of the next one for forward transfer."""

    source = "public test set"

    def __init__(self, stream: Stream, budget: Budget) -> None:
        self.info, self.budget = stream.info, budget
        self._stream = stream
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def now(self, learner: Learner, number: int) -> float | None:
        x, y = self.examples(learner, number)
        if not len(y):
            return None
        with learner.seeded_randomness(learner.tasks_learned, number):  # a resumed run measures the same
            return self.accuracy(learner, x, y, number)

    def accuracy(self, learner: Learner, x: Tensor, y: Tensor, number: int) -> float:
        """The share of these rows of a task that are classified correctly."""
        return share_right(learner, x, y, self.asked(number))

    def give_public_records(self, learner: Learner, number: int) -> None:
        """Gives every second row of the task's test set; accuracy is then measured on the others."""
        load = self._stream.task(number).test
        assert load is not None
        x, y = load()
        learner.receive_public_records(x[::2], y[::2])

    def rows(self, learner: Learner, number: int) -> int:
        return len(self.examples(learner, number)[1])

    def asked(self, number: int) -> TaskInfo | None:
        """The task, where it is given at test time."""
        return self.info.task(number) if self.info.task_id == "given" else None

    def untrained(self, learner: Learner) -> Accuracies:
        return [self.now(learner, number) for number in range(len(self._stream))]

    def after(self, learner: Learner, number: int) -> Accuracies:
        asked = range(min(number + 2, len(self._stream)))
        return [self.now(learner, one) for one in asked] + [None] * (len(self._stream) - len(asked))

    def examples(self, learner: Learner, number: int) -> tuple[Tensor, Tensor]:
        """The test rows of a task, and the indices of their labels among the learner's outputs."""
        if number in self._kept:
            return self._kept[number]
        load = self._stream.task(number).test
        assert load is not None
        x, y = load()
        if learner.needs_public_records:  # the other half: rows that steer a learner do not evaluate it
            x, y = x[1::2], y[1::2]
        made = model_input(tensor(x)).float(), learner.positions(np.asarray(y))
        if sum(_bytes(one) for one, _ in self._kept.values()) + _bytes(made[0]) <= KEPT_BYTES:
            self._kept[number] = made
        return made


@dataclass(kw_only=True)
class ChargedQueries(Evaluation):
    """Accuracy by noisy queries on a share of each task's units, which is set aside and never trained on.

    Task i of T is queried after itself and every later task, T − i + 1 times. These Gaussian releases are committed
    before the first and use up the budget; a unit of the test part is charged for nothing else.
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
        """The standard deviation of an accuracy, from the noise and from the random size of the test part, by which
        the query does not divide. The second is largest where all predictions are correct."""
        drawn = size * min(self.share, 0.5) * (1 - min(self.share, 0.5))
        return math.hypot(self.plan(number).std, math.sqrt(drawn)) / max(1, round(self.share * size))

    def plan(self, number: int) -> SumPlan:
        """The plan of every query on a task's test part."""
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
                "a network with a noise layer makes random predictions, so a charged query could not be repeated "
                "identically after a crash; give a public test set, or set evaluation.test = 'none'"
            )

    def after(self, learner: Learner, number: int) -> Accuracies:
        version = fingerprint(tensors=learner.tensors(), settings=learner.settings())
        found: Accuracies = [self._ask(learner, i, version) for i in range(number + 1)]
        return found + [None] * (len(self.stream.tasks) - number - 1)

    def _ask(self, learner: Learner, number: int, version: str) -> float:
        asked = self.stream.tasks[number] if self.stream.task_id == "given" else None
        return self.vault.accuracy(self.blocks[number], Predictions(learner, asked, version), self.plan(number))


class Predictions:
    """The predictions of a learner, identified by the released values that they depend on.

    The fingerprint of a query covers this object's plain attributes. Covering the learner itself would include state
    that no prediction depends on and that changes when the learner is restored from a release, so that the query could
    not be resumed after a crash.

    Args:
        learner: The learner.
        asked: The task, where it is given at test time.
        version: The hash of the learner's released tensors and settings.
    """

    __qualname__ = "Asked"  # the name under which ledgers record the fingerprint

    def __init__(self, learner: Learner, asked: TaskInfo | None, version: str) -> None:
        self.version, self.code, self.asked = version, fingerprint(scores=type(learner).scores), repr(asked)
        self._answer = partial(answer, learner.scores, asked, version)

    def __call__(self, rows: Tensor) -> Tensor:
        return self._answer(rows)


def query_notice(noise: float) -> str:
    """What a user should know of charged queries before they are charged; `noise` is `ChargedQueries.noise`."""
    return (
        f"accuracy per task will be a charged query with a standard deviation of up to {noise:.1%}; a public test file "
        "or a larger evaluation.share makes it more precise"
    )


def mean_of_learned(accuracies: Accuracies, number: int, weights: Sequence[float]) -> float | None:
    """The weighted mean over the tasks learned so far; None if one of them is not measured."""
    learned = [(value, weight) for value, weight in zip(accuracies[: number + 1], weights, strict=False) if weight > 0]
    if not learned or any(value is None for value, _ in learned):
        return None
    return math.fsum((value or 0.0) * weight for value, weight in learned) / math.fsum(weight for _, weight in learned)


def measured(
    tests: Evaluation, learner: Learner, accuracies: Accuracies, weights: Sequence[float] = ()
) -> Measured | None:
    """What the card of a release says of its accuracy.

    Args:
        tests: Has measured the accuracies.
        learner: The learner after the task.
        accuracies: On the last tasks so far, up to the one that was learned last.
        weights: The weights of the tasks of a stream with an end; empty: they are alike.
    """
    number = learner.tasks_learned - 1
    average = mean_of_learned(accuracies, len(accuracies) - 1, weights or [1.0] * len(accuracies))
    if tests.source is None or average is None:
        return None
    first = number + 1 - len(accuracies)
    known = [(first + place, value) for place, value in enumerate(accuracies) if value is not None]
    tasks = [tests.info.task(one) for one, _ in known]
    return Measured(
        source=tests.source,
        tasks=tuple(task.name for task in tasks if task is not None),
        accuracy=tuple(value for _, value in known),
        average=average,
        rows=tuple(tests.rows(learner, one) for one, _ in known),
        noise=tests.noise,
        task_given=tests.info.task_id == "given",
    )


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()
