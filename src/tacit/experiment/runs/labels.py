"""The label set of each task: declared, learned by a charged query, or (benchmarks only) read off the data.

What a learner knows of a task's labels is public, charged, or certified as not private. A learned set is a release: the
units that answer the query (a share of `labels_share`, sampled independently) are never trained on, so that they and
the others each have the whole budget.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from dp_accounting.dp_event import DpEvent

from tacit.data.scenarios.task import generator
from tacit.data.stream import Label, Loader, Stream, StreamInfo, TaskInfo
from tacit.errors import ConfigError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.vault import Block, FromData, LabelPlan, Learned, Vault

OTHER = "other"


def declare_labels(stream: Stream, *, label_space: str, missing: float, outside: str, seed: int) -> Stream:
    """The stream with other public label sets. A public function of the declared sets and the seed.

    In the test sets of a stream with a label for all others, the right answer to a record whose label no task has is
    that label; without one, such a record is always answered wrongly. Records that are set aside for charged queries
    are treated as those that are learned from.

    Args:
        stream: The stream as it is declared.
        label_space: "task": each task keeps its own set. Otherwise every task has the union; for sets that are found
            later, these are the candidates.
        missing: The share of labels that is left out of each set at random.
        outside: "remap": records with a label outside the set get a label for all others.
        seed: Decides which labels are left out.
    """
    own = label_space == "task"
    if own and not missing and outside == "drop":
        return stream
    if label_space == "data" and (missing or outside == "remap"):
        raise ConfigError(
            "data.label_space = 'data' takes all labels that occur, so none is outside; leave out data.prior_missing "
            "and data.outside"
        )
    union = stream.info.labels
    other = _other(union) if outside == "remap" else None
    sets = [
        _left(task.info.labels, missing, seed, number) if own else _left(union, missing, seed, 0)
        for number, task in enumerate(stream)
    ]
    known = tuple(dict.fromkeys(label for labels in sets for label in labels))
    tasks = [
        replace(
            task,
            info=replace(task.info, labels=labels if other is None else tuple(dict.fromkeys([*labels, other]))),
            test=task.test if task.test is None or other is None else _renamed(task.test, known, other),
        )
        for task, labels in zip(stream, sets, strict=True)
    ]
    return Stream(replace(stream.info, tasks=tuple(task.info for task in tasks), other=other), tasks)


@dataclass(kw_only=True)
class DeclaredSets:
    """The declared label sets.

    Attributes:
        info: The public facts that the learner plans with.
        part: The part of the records that the learner receives, where they are split.
    """

    info: StreamInfo
    part: str | None = None

    def charges(self) -> list[list[DpEvent]]:
        """The events that a unit is charged for when it answers the label query; see `Learner.charges`."""
        return []

    def cut(self, number: int, block: Block) -> tuple[TaskInfo, Block]:
        """Find the label set of a task; returns the task and the block as the learner receives them."""
        return self.info.tasks[number], block

    def _among(self, vault: Vault, number: int, block: Block, labels: tuple[Label, ...]) -> tuple[TaskInfo, Block]:
        """The task with these labels only; targets stay indices among the labels of the stream."""
        kept = vault.with_labels(block, labels, other=self.info.other)
        return replace(self.info.tasks[number], labels=labels), vault.with_labels(kept, self.info.labels)


@dataclass(kw_only=True)
class LearnedSets(DeclaredSets):
    """A charged query on a share of the units finds the labels of a task; the other units are used for training."""

    vault: Vault
    budget: Budget
    """The budget that plans are made with."""
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
        # In the declared order, independent of the order of the release.
        return self._among(self.vault, number, rest, tuple(label for label in self.info.labels if label in found))


@dataclass(kw_only=True)
class SetsFromData(DeclaredSets):
    """The labels that occur in a task: NOT PRIVATE. An empty task has all labels, since it is released too."""

    vault: Vault

    def __post_init__(self) -> None:
        FromData().check(self.vault, public=self.info.public)

    def cut(self, number: int, block: Block) -> tuple[TaskInfo, Block]:
        found = set(FromData().labels(self.vault, block)) or set(self.info.labels)
        return self._among(self.vault, number, block, tuple(label for label in self.info.labels if label in found))


def _left(labels: Sequence[Label], missing: float, seed: int, number: int) -> tuple[Label, ...]:
    """The labels without a random share of them; at least one is kept."""
    count = min(round(missing * len(labels)), len(labels) - 1)
    gone = set(generator(seed, "prior", number).permutation(len(labels))[:count].tolist())
    return tuple(label for index, label in enumerate(labels) if index not in gone)


def _other(labels: Sequence[Label]) -> Label:
    """The label for all labels outside the set: a text, or the number after the largest."""
    numbers = [label for label in labels if isinstance(label, int)]
    return max(numbers) + 1 if numbers else OTHER


def _renamed(test: Loader, known: Sequence[Label], other: Label) -> Callable[[], Any]:
    """A test set in which labels outside the known ones are `other`."""

    def read() -> tuple[Any, ...]:
        x, y, *rest = test()
        space = set(known)
        return x, np.asarray([label if label in space else other for label in np.asarray(y).tolist()]), *rest

    return read
