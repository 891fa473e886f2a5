"""The life of one task: its records are admitted, learned from, released and settled.

`TaskLoop` is the only place where a task is learned from private records. `tacit.run`, `run_endless`, private tuning
and `Learner.partial_fit` all use it; the first three override what they do besides
(`tacit.experiment.runs.finite_and_endless`, `tacit.experiment.tuning.private`).

Resuming. A crash at any moment loses time only. Work is billed before it computes on records and stays resumable until
the release is saved (`Vault.until_saved`): the same calls then find their unfinished grants by fingerprint, replay the
same random bits and are billed nothing twice. A task whose release was saved before the crash is not learned again;
`learn` and `settle` with `released=True` repeat only what follows the save. `partial_fit` saves nothing by itself: its
grants count as released once it returns.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from torch import nn

from tacit.certificate.certificate import Certificate
from tacit.data.stream import StreamInfo, Task, TaskInfo
from tacit.learners.base.callbacks import Callback, calling_back
from tacit.learners.base.estimator import embeds
from tacit.learners.base.release import Release
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.vault import Block, Declared, GradientPlan, Vault
from tacit.privacy.vault.intake.feature_map import FeatureMap


class TaskLearner(Protocol):
    """What the loop needs of a learner; `Learner` has it."""

    device: str
    callback: Callback
    stream_: StreamInfo
    model_: nn.Module

    @property
    def certificate_(self) -> Certificate: ...
    def representative_plan(self, task: TaskInfo) -> GradientPlan | None: ...
    def seeded_randomness(self, *numbers: int) -> AbstractContextManager[None]: ...
    def learn(self, task: TaskInfo, block: Block, vault: Vault) -> Release: ...
    def on_saved(self, block: Block, vault: Vault) -> None: ...


class TaskLoop:
    """Learns tasks of one stream, one at a time, through one vault.

    Args:
        learner: A started learner. `learner.callback` is called as tasks and steps begin and end.
        vault: Admits the records and bills their ledger.
        stream: The public facts under which records are admitted.
        budget: The budget of one unit over the whole stream.
    """

    part = "all"
    """The part of each task's records that the learner receives."""

    def __init__(self, learner: TaskLearner, vault: Vault, stream: StreamInfo, budget: Budget) -> None:
        self.learner, self.vault, self.facts, self.budget = learner, vault, stream, budget
        self.clock = Clock()

    def learn(self, task: Task, *, released: bool = False) -> None:
        """Learn a task and save its release.

        Args:
            task: The public facts of the task and its private records.
            released: The release was saved before a crash; only the evaluation is repeated.
        """
        with self.vault.corrected(), self.vault.until_saved():
            if not released:
                with calling_back(self.learner.device):
                    self.learner.callback.on_task_start(task.info)
                with self.clock.part("admit"):
                    visible, block = self.admit(task)
                # Random layers outside the vault (of learners that are not private) draw the same when it is repeated.
                with self.clock.part("learn"), self.learner.seeded_randomness(task.info.number):
                    release = self.train(visible, block)
                self.save(release, block)
            with self.clock.part("evaluate"):
                self.evaluate(task.info)
        if not released:
            with calling_back(self.learner.device):
                self.learner.callback.on_task_end(task.info, self.learner.certificate_)

    def settle(self, task: TaskInfo, *, released: bool = False) -> Block:
        """Finish a task whose release is saved: mark its work as released and retire records that are not needed again.

        Repeating it changes nothing.

        Returns:
            The block of all records of the task.
        """
        block = self.vault.find(self.facts.name, task.name)
        if released:  # the crash came before the work was marked
            self.vault.settle(block)
        self.learner.on_saved(self.vault.find(self.facts.name, task.name, self.part), self.vault)
        return block

    def admit(self, task: Task) -> tuple[TaskInfo, Block]:
        """Admit a task's records.

        Returns:
            The task and the block as the learner receives them.
        """
        planned = self.learner.stream_.task(task.info.number)
        assert planned is not None  # the caller asks for planned tasks only
        like = self.learner.representative_plan(planned)
        block = admit(
            self.vault,
            task.records,
            self.facts,
            task.info,
            self.budget,
            like=like,
            through=task.through,
            integers=embeds(self.learner.model_),
        )
        return self.prepare(task.info, block)

    def prepare(self, task: TaskInfo, block: Block) -> tuple[TaskInfo, Block]:
        """Set aside records of an admitted block that are not learned from; returns what the learner receives."""
        return task, block

    def train(self, task: TaskInfo, block: Block) -> Release:
        """Learn the task from its block; returns the release, which is not saved yet."""
        return self.learner.learn(task, block, self.vault)

    def save(self, release: Release, block: Block) -> None:
        """Save the release: from here on the task is learned."""

    def evaluate(self, task: TaskInfo) -> None:
        """Measure accuracy after a task. Charged queries resume like the task itself."""


def admit(
    vault: Vault,
    source: Any,
    info: StreamInfo,
    task: TaskInfo,
    budget: Budget,
    *,
    like: GradientPlan | None = None,
    through: FeatureMap | None = None,
    integers: bool = False,
) -> Block:
    """Admit a task's records under their declaration. Targets become indices among the labels of the whole stream.

    Args:
        vault: The vault that holds the records from here on.
        source: The private records.
        info: The public facts of the stream.
        task: The public facts of the task.
        budget: The budget of one unit over the whole stream.
        like: Where plans are chosen during the task, a plan that shapes the Rényi filter of the block. None: all plans
            are known before, and the block is committed to them.
        through: A frozen feature map that the vault applies to the records.
        integers: Whether features without a type of their own are whole numbers.
    """
    block = vault.admit(
        source,
        Declared(
            stream=info.name,
            task=task.name,
            budget=budget,
            size=task.size,
            labels=task.labels,
            other=info.other,
            shape=info.shape,
            integers=integers,
            tasks_per_unit=info.tasks_per_unit,
            records_per_unit=info.records_per_unit,
            open=like is not None,
            like=like,
            fixed_schedule=like is None,
            public=info.public,
        ),
        through=through,
    )
    return block if task.labels == info.labels else vault.with_labels(block, info.labels)


class Clock:
    """Seconds spent in each part of a task; time in a nested part counts for that part only."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._spent: dict[str, float] = {}
        self._parts: list[str] = ["rest"]

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._count()
        self._parts.append(name)
        try:
            yield
        finally:
            self._count()
            self._parts.pop()

    def take(self) -> dict[str, float]:
        """Seconds by part since the last call."""
        self._count()
        spent, self._spent = self._spent, {}
        return {name: round(seconds, 6) for name, seconds in spent.items()}

    def _count(self) -> None:
        now = time.perf_counter()
        self._spent[self._parts[-1]] = self._spent.get(self._parts[-1], 0.0) + now - self._since
        self._since = now
