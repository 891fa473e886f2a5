"""How right a learner is: on public rows, or in the form in which the vault asks about private ones."""

from typing import Any

from torch import Tensor

from tacit.data.stream import TaskInfo
from tacit.learners.core import Core

ROWS = 4096
"""So many rows go through a model at a time."""


def share_right(learner: Core, x: Tensor, y: Tensor, asked: TaskInfo | None) -> float:
    """The share of public rows that are answered rightly; `y` are places of labels among the learner's outputs."""
    slices = [slice(first, first + ROWS) for first in range(0, len(y), ROWS)]
    return sum(int((learner.scores(x[rows], asked).argmax(1).cpu() == y[rows]).sum()) for rows in slices) / len(y)


def answer(scores: Any, asked: TaskInfo | None, _version: str, rows: Tensor) -> Tensor:
    """Places of labels. The version names the model in the pin of the query: another model is another query."""
    found: Tensor = scores(rows, asked).argmax(1).cpu()
    return found
