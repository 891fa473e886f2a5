"""A learner shows on synthetic records that it can work, before anybody is charged for real ones.

A second learner with the same settings learns two tasks (or as many as it takes to train twice) of made-up rows of the
declared shape and labels, with the first steps of every plan: model, loss, optimizer, feature map, memory and answers
are all used. Whatever fails is said in one sentence; no ledger of private data is asked for anything.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, TacitError
from tacit.learners.core import Step
from tacit.privacy.budget import Unit
from tacit.privacy.declared import Block, Declared
from tacit.privacy.ledger import Ledger
from tacit.privacy.rehearsal import STEPS, Rehearsal

ROWS = 24
"""Synthetic records of a task."""
TASKS = 2
"""So many tasks in which something is read."""
TURNS = 12
"""Steps of a task: learners that ask for more than the first of each grant are stopped after these."""


class _Enough(Exception):
    """A learner has shown that it works."""


def rehearse(make: Callable[[], Any], info: StreamInfo) -> None:
    """Refuse a learner (`make` gives a new one) that cannot learn this stream; nothing is read or charged."""
    public = replace(info, public=True)
    try:
        learner = make()
        learner.start(public)
        with Ledger.throwaway() as book:
            _learn(learner, public, Rehearsal(book))
    except TacitError:
        raise
    except Exception as problem:  # no record is involved, so it may be told
        line = f"{type(problem).__name__}: {str(problem).strip().partition(chr(10))[0]}"
        raise LearnerError(
            f"this learner fails on synthetic records of the shape {info.shape}, so nothing was read or charged: {line}"
        ) from None


def rehearse_once(learner: Any) -> None:
    """Refuse a started learner whose settings do not work on its private stream; the same settings are tried once."""
    stream, now = learner.stream_, repr(learner.settings())
    if not stream.public:
        learner.budget.check_units(stream.units, repr(stream.name))
        if getattr(learner, "rehearsed_", None) != now:
            rehearse(learner.rehearsal, stream)
            learner.rehearsed_ = now


def _learn(learner: Any, info: StreamInfo, vault: Rehearsal) -> None:
    if learner.wants_held is not None:
        held = replace(info, name=f"{info.name} (held)")
        learner.held([_admitted(vault, learner, held, info.tasks[0])], vault)
    used = 0
    for task in info.tasks if not info.endless else map(info.task, range(TASKS)):
        if task is None or learner.over(task.number) is not None:
            return
        before = vault.exits
        if learner.wants_shown:
            learner.show(*_rows(info, task, learner.model_))
        try:
            learner.watch = _watch()
            learner.fit(task, _admitted(vault, learner, info, task), vault)
        except _Enough:
            _check_finite(learner)
            return
        learner.tasks_ = (*learner.tasks_, task)
        _check_finite(learner)
        used += vault.exits > before
        if used >= TASKS:
            break
    learner.scores(torch.as_tensor(_rows(info, info.tasks[0], learner.model_)[0]), None)


def _watch() -> Callable[[Step], None]:
    left = [TURNS]

    def watch(_step: Step) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise _Enough

    return watch


def _admitted(vault: Rehearsal, learner: Any, info: StreamInfo, task: TaskInfo) -> Block:
    """A block of made-up records, as the real ones will be."""
    x, y = _rows(info, task, learner.model_)
    like, person = learner.like(task), info.unit == "person"
    budget = replace(learner.budget, unit=Unit(info.unit))
    ids = np.arange(len(y)) // min(2, info.records_per_unit)
    block = vault.admit(
        (x, y, ids) if person else (x, y),
        Declared(
            stream=info.name, task=task.name, budget=budget, size=task.size, labels=task.labels, shape=info.shape,
            tasks_per_unit=info.tasks_per_unit, records_per_unit=info.records_per_unit,
            open=like is not None, like=like, fixed_schedule=like is None, public=True,
        ),
    )  # fmt: skip
    return block if task.labels == info.labels else vault.with_labels(block, info.labels)


def _rows(info: StreamInfo, task: TaskInfo, model: nn.Module) -> tuple[Any, Any]:
    coins = np.random.default_rng(task.number)
    y = [task.labels[n % len(task.labels)] for n in range(ROWS)]
    if any(isinstance(module, nn.Embedding) for module in model.modules()):  # numbers that are looked up
        return coins.integers(0, 2, (ROWS, *info.shape)), y
    return coins.random((ROWS, *info.shape), dtype=np.float32), y


def _check_finite(learner: Any) -> None:
    if not learner.private:  # some published ones are known to diverge, and nobody pays for them
        return
    held: list[Tensor] = [*learner.model_.parameters(), *learner.model_.buffers()]
    if not all(bool(torch.isfinite(value).all()) for value in held if value.dtype.is_floating_point):
        raise LearnerError(
            f"{type(learner).__name__} leaves weights that are not finite after {STEPS} steps on synthetic records, so "
            "nothing was read or charged; use a smaller lr, or look at the network's layers"
        )
