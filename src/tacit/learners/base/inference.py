"""Answers of a learner: the evaluation mode, accuracy on public rows, and predictions for queries on private ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tacit.data.stream import TaskInfo

ROWS = 4096
"""Number of rows that go through a model at a time."""
_DIFFERENTIABLE: ContextVar[bool] = ContextVar("scores have gradients", default=False)


class Scorer(Protocol):
    """Anything with the scores of a learner."""

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor: ...


@contextmanager
def answering(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode, without gradients unless `differentiable`; the mode is restored on exit,
    because grants are pinned to it."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.set_grad_enabled(_DIFFERENTIABLE.get()):
            yield
    finally:
        for module, training in before:
            module.training = training


@contextmanager
def differentiable() -> Iterator[None]:
    """Gives the `scores` of every learner gradients with respect to records that require them."""
    before = _DIFFERENTIABLE.set(True)
    try:
        with torch.enable_grad():
            yield
    finally:
        _DIFFERENTIABLE.reset(before)


def share_right(learner: Scorer, x: Tensor, y: Tensor, asked: TaskInfo | None) -> float:
    """Accuracy on public rows; `y` are indices of labels among the learner's outputs."""
    slices = [slice(first, first + ROWS) for first in range(0, len(y), ROWS)]
    return sum(int((learner.scores(x[rows], asked).argmax(1).cpu() == y[rows]).sum()) for rows in slices) / len(y)


def answer(scores: Any, asked: TaskInfo | None, _version: str, rows: Tensor) -> Tensor:
    """Indices of the predicted labels. The version names the model in the fingerprint: another model is another
    query."""
    found: Tensor = scores(rows, asked).argmax(1).cpu()
    return found
