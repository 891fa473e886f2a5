"""A dry run of a learner on synthetic records, before real ones are charged.

A second learner with the same settings learns two tasks (or as many as it takes to train twice) of synthetic records of
the declared shape and labels, with the first steps of every plan. This exercises model, loss, optimizer, feature map,
memory and predictions. A failure is raised as one LearnerError; no ledger of private data is used.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, TacitError
from tacit.learners.base.callbacks import Callback, Step
from tacit.learners.base.estimator import embeds
from tacit.learners.base.task_loop import admit
from tacit.privacy.accounting.budget import Unit
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Block, Rehearsal
from tacit.privacy.vault.dry_run import STEPS

ROWS = 24
"""Number of synthetic records in a task."""
TASKS = 2
"""Number of tasks that read records, after which the dry run ends."""
TURNS = 12
"""Largest number of steps in a task; learners that take more are stopped."""


class _Enough(Exception):
    """Raised to end a dry run that has succeeded."""


def rehearse(make: Callable[[], Any], info: StreamInfo) -> None:
    """Raise if a new learner from `make` cannot learn this stream; nothing is read or charged."""
    public = replace(info, public=True)
    try:
        learner = make()
        learner.start(public)
        with Ledger.throwaway() as book:
            _learn(learner, public, Rehearsal(book))
    except TacitError:
        raise
    except Exception as problem:  # no private record is involved, so the message may be shown
        line = f"{type(problem).__name__}: {str(problem).strip().partition(chr(10))[0]}"
        raise LearnerError(
            f"this learner fails on synthetic records of the shape {info.shape}, so nothing was read or charged: {line}"
        ) from None


def rehearse_once(learner: Any) -> None:
    """Raise if a started learner's settings fail on its private stream; the same settings are tried once."""
    stream, now = learner.stream_, repr(learner.settings())
    if not stream.public:
        learner.budget.check_units(stream.units, repr(stream.name))
        if getattr(learner, "rehearsed_", None) != now:
            rehearse(learner.rehearsal, stream)
            learner.rehearsed_ = now


def _learn(learner: Any, info: StreamInfo, vault: Rehearsal) -> None:
    if learner.held_out_access is not None:
        held = replace(info, name=f"{info.name} (held)")
        learner.receive_held_out([_admitted(vault, learner, held, info.tasks[0])], vault)
    used = 0
    for task in info.tasks if not info.endless else map(info.task, range(TASKS)):
        if task is None or learner.stop_reason(task.number) is not None:
            return
        before = vault.exits
        if learner.needs_public_records:
            learner.receive_public_records(*_rows(info, task, learner.model_))
        try:
            learner.callback = _StopAfter(TURNS)
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


class _StopAfter(Callback):
    """Ends a task after a number of steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def on_step(self, step: Step) -> None:
        self._left -= 1
        if self._left < 0:
            raise _Enough


def _admitted(vault: Rehearsal, learner: Any, info: StreamInfo, task: TaskInfo) -> Block:
    """A block of synthetic records, admitted like real ones."""
    x, y = _rows(info, task, learner.model_)
    like, person = learner.representative_plan(task), info.unit == "person"
    budget = replace(learner.budget, unit=Unit(info.unit))
    ids = np.arange(len(y)) // min(2, info.records_per_unit)
    return admit(vault, (x, y, ids) if person else (x, y), info, task, budget, like=like)


def _rows(info: StreamInfo, task: TaskInfo, model: nn.Module) -> tuple[Any, Any]:
    coins = np.random.default_rng(task.number)
    y = [task.labels[n % len(task.labels)] for n in range(ROWS)]
    if embeds(model):  # integer tokens
        return coins.integers(0, 2, (ROWS, *info.shape)), y
    return coins.random((ROWS, *info.shape), dtype=np.float32), y


def _check_finite(learner: Any) -> None:
    if not learner.private:  # some published methods diverge; they charge nothing
        return
    values: list[Tensor] = [*learner.model_.parameters(), *learner.model_.buffers()]
    if not all(bool(torch.isfinite(value).all()) for value in values if value.dtype.is_floating_point):
        raise LearnerError(
            f"{type(learner).__name__} leaves weights that are not finite after {STEPS} steps on synthetic records, so "
            "nothing was read or charged; use a smaller lr, or look at the network's layers"
        )
