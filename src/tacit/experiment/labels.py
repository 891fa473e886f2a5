"""Which labels each task has: declared, learned at a charge from units kept apart, or (benchmarks) read off the data.

Guarantee: what a learner hears of a task's labels is public, charged, or certified as not private. A learned set is a
release: the units that answer for it (`labels_share`, by one coin each) are learnt from never, so they and the others
each have the whole budget (see `privacy.labelspace` for what splitting ε would give).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from dp_accounting.dp_event import DpEvent

from tacit.data.cut import generator
from tacit.data.stream import Label, Loader, Stream, StreamInfo, TaskInfo
from tacit.errors import ConfigError
from tacit.experiment.config import DataSection
from tacit.privacy.budget import Budget
from tacit.privacy.declared import Block
from tacit.privacy.labelspace import FromData, Learned
from tacit.privacy.plan import LabelPlan
from tacit.privacy.vault import Vault

OTHER = "other"


def declare(stream: Stream, data: DataSection, seed: int) -> Stream:
    """The stream under the label sets of the configuration: its own, or the union of them in every task (also for sets
    that are found later: they are then the candidates); less those that are left out; with a label for the rest.

    Public: a function of declared sets and the seed. In the test sets of a stream with a label for the rest, the right
    answer to a record whose label no task has is that label; without one, such a record is always answered wrongly.
    Records that are kept apart for charged questions are treated as those that are learnt from.
    """
    own = data.label_space == "task"
    if own and not data.prior_missing and data.outside == "drop":
        return stream
    if data.label_space == "data" and (data.prior_missing or data.outside == "remap"):
        raise ConfigError(
            "data.label_space = 'data' takes all labels that occur, so none is outside; leave out data.prior_missing "
            "and data.outside"
        )
    union = stream.info.labels
    other = _other(union) if data.outside == "remap" else None
    sets = [
        _left(task.info.labels, data.prior_missing, seed, number) if own else _left(union, data.prior_missing, seed, 0)
        for number, task in enumerate(stream)
    ]
    known = tuple(dict.fromkeys(label for labels in sets for label in labels))
    tasks = [
        replace(
            task,
            info=replace(task.info, labels=_with(labels, other)),
            test=task.test if task.test is None or other is None else _renamed(task.test, known, other),
        )
        for task, labels in zip(stream, sets, strict=True)
    ]
    return Stream(replace(stream.info, tasks=tuple(task.info for task in tasks), other=other), tasks)


@dataclass(kw_only=True)
class DeclaredSets:
    """The declared sets as they are."""

    info: StreamInfo
    """The public facts that the learner plans with."""
    part: str | None = None
    """The part of the records that the learner gets, where they are cut."""

    def charges(self) -> list[list[DpEvent]]:
        """What a unit that answers for the labels of a task is charged; see `Learner.charges`."""
        return []

    def cut(self, number: int, block: Block) -> tuple[TaskInfo, Block]:
        """A task as the learner sees it, and what it gets of its records."""
        return self.info.tasks[number], block

    def _among(self, vault: Vault, number: int, block: Block, labels: tuple[Label, ...]) -> tuple[TaskInfo, Block]:
        """The task with these labels only; targets stay places among the labels of the stream."""
        kept = vault.with_labels(block, labels, other=self.info.other)
        return replace(self.info.tasks[number], labels=labels), vault.with_labels(kept, self.info.labels)


@dataclass(kw_only=True)
class LearnedSets(DeclaredSets):
    """Some units answer which of the stream's labels a task has; the others are learnt from."""

    vault: Vault
    budget: Budget
    """What plans are made with."""
    share: float
    part: str | None = "rest"
    query: Learned = field(init=False)

    def __post_init__(self) -> None:
        sizes = [replace(task, size=max(1, round((1 - self.share) * task.size))) for task in self.info.tasks]
        self.query = Learned(
            candidates=self.info.labels,
            share=1.0,
            labels_per_unit=min(self.info.records_per_unit, len(self.info.labels)),
            other=self.info.other,
        )
        self.info = replace(self.info, tasks=tuple(sizes))

    def plan(self) -> LabelPlan:
        return self.query.plan(self.budget, tasks_per_unit=self.info.tasks_per_unit)

    def charges(self) -> list[list[DpEvent]]:
        return [[self.plan().event]]

    def cut(self, number: int, block: Block) -> tuple[TaskInfo, Block]:
        asked, rest = self.vault.split(block, {"labels": self.share, "rest": 1 - self.share})
        found = set(self.query.ask(self.vault, asked, self.plan()))
        self.vault.drop(asked)
        # In the declared order: that of a release must not matter.
        return self._among(self.vault, number, rest, tuple(one for one in self.info.labels if one in found))


@dataclass(kw_only=True)
class SetsFromData(DeclaredSets):
    """The labels that occur in a task: NOT PRIVATE. An empty task has all, since it is released too."""

    vault: Vault

    def __post_init__(self) -> None:
        FromData().check(self.vault, public=self.info.public)

    def cut(self, number: int, block: Block) -> tuple[TaskInfo, Block]:
        found = set(FromData().labels(self.vault, block)) or set(self.info.labels)
        return self._among(self.vault, number, block, tuple(one for one in self.info.labels if one in found))


def label_sets(data: DataSection, info: StreamInfo, vault: Vault, budget: Budget) -> DeclaredSets:
    """Where the label sets of a stream come from, as the configuration says."""
    if data.label_space == "learned":
        return LearnedSets(info=info, vault=vault, budget=budget, share=data.labels_share)
    if data.label_space == "data":
        return SetsFromData(info=info, vault=vault)
    return DeclaredSets(info=info)


def _left(labels: Sequence[Label], missing: float, seed: int, number: int) -> tuple[Label, ...]:
    """The labels without a random share of them; at least one stays."""
    count = min(round(missing * len(labels)), len(labels) - 1)
    gone = set(generator(seed, "prior", number).permutation(len(labels))[:count].tolist())
    return tuple(label for place, label in enumerate(labels) if place not in gone)


def _other(labels: Sequence[Label]) -> Label:
    """The name of all labels outside: a text, or the number after the largest."""
    numbers = [label for label in labels if isinstance(label, int)]
    return max(numbers) + 1 if numbers else OTHER


def _with(labels: tuple[Label, ...], other: Label | None) -> tuple[Label, ...]:
    return labels if other is None or other in labels else (*labels, other)


def _renamed(test: Loader, known: Sequence[Label], other: Label) -> Callable[[], Any]:
    """A test set whose labels outside the known ones are `other`."""

    def read() -> tuple[Any, ...]:
        x, y, *rest = test()
        space = set(known)
        return x, np.asarray([label if label in space else other for label in np.asarray(y).tolist()]), *rest

    return read
