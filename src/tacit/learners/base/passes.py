"""Batch order for learners that read raw records (they are not private).

The order comes from a public generator. `fresh` reshuffles for every pass; `fixed` partitions once into disjoint
batches that stay the same in every epoch. The number of steps is given, or follows from the number of epochs.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor

from tacit.data.stream import TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base.callbacks import Step
from tacit.learners.base.gradient import Each, at


def check(steps: Each[int] | None, epochs: Each[float] | None) -> None:
    """Raise a LearnerError if both `steps` and `epochs` are given."""
    if steps is not None and epochs is not None:
        raise LearnerError(f"give steps or epochs, got steps={steps} and epochs={epochs}; set one of them to None")


def steps_in(task: TaskInfo, batches: int, *, steps: Each[int] | None, epochs: Each[float] | None) -> int:
    """The number of a task's steps; one pass over its batches if neither is given."""
    if steps is not None:
        return at(steps, task, "steps")
    passes = 1.0 if epochs is None else at(epochs, task, "epochs")
    if not 0 < passes < math.inf:
        raise LearnerError(f"epochs must be a number > 0, got {passes}; 1 is one pass over a task's records")
    return math.ceil(round(passes * batches, 9))


def fresh(n: int, batch: int, coins: torch.Generator) -> Iterator[Tensor]:
    """Endless full batches of shuffled indices; reshuffled when less than a batch is left."""
    order = torch.zeros(0, dtype=torch.long)
    while True:
        if len(order) < min(batch, n):
            order = torch.randperm(n, generator=coins)
        rows, order = order[:batch], order[batch:]
        yield rows


def fixed(n: int, batch: int, coins: torch.Generator) -> tuple[Tensor, ...]:
    """Disjoint batches of indices that contain every record once; the last may be smaller."""
    return tuple(torch.split(torch.randperm(n, generator=coins), batch))


def training_steps(
    report: Callable[[Step], None], task: TaskInfo, batches: Iterable[Tensor], steps: int
) -> Iterator[Tensor]:
    """The first `steps` batches, each reported before it is yielded, and the end. An empty task has no batches."""
    for step, rows in enumerate(islice(batches, steps)):
        report(Step(task=task, step=step, of=steps))
        if len(rows):
            yield rows
    report(Step(task=task, step=steps, of=steps))
