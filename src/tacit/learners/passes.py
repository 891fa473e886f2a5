"""Which records of a task are read together, in which order: for learners that hold records (they are not private).

Order comes from public coins. `fresh` shuffles again for every pass; `fixed` cuts once into disjoint batches, which
stay the same in every epoch. A task's steps are given, or follow from its epochs.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor

from tacit.data.stream import TaskInfo
from tacit.errors import LearnerError
from tacit.learners.core import Step
from tacit.learners.gradient import Each, at


def check(steps: Each[int] | None, epochs: Each[float] | None) -> None:
    """Refuse two answers to one question."""
    if steps is not None and epochs is not None:
        raise LearnerError(f"give steps or epochs, got steps={steps} and epochs={epochs}; set one of them to None")


def steps_in(task: TaskInfo, batches: int, *, steps: Each[int] | None, epochs: Each[float] | None) -> int:
    """The number of a task's steps; one pass over its batches where nothing is said."""
    if steps is not None:
        return at(steps, task, "steps")
    passes = 1.0 if epochs is None else at(epochs, task, "epochs")
    if not 0 < passes < math.inf:
        raise LearnerError(f"epochs must be a number > 0, got {passes}; 1 is one pass over a task's records")
    return math.ceil(round(passes * batches, 9))


def fresh(n: int, batch: int, coins: torch.Generator) -> Iterator[Tensor]:
    """Whole batches of a shuffled order, for ever; shuffled again where less than a batch is left."""
    order = torch.zeros(0, dtype=torch.long)
    while True:
        if len(order) < min(batch, n):
            order = torch.randperm(n, generator=coins)
        rows, order = order[:batch], order[batch:]
        yield rows


def fixed(n: int, batch: int, coins: torch.Generator) -> tuple[Tensor, ...]:
    """Disjoint batches that hold every record once; the last may be smaller."""
    return tuple(torch.split(torch.randperm(n, generator=coins), batch))


def turns(watch: Callable[[Step], None], task: TaskInfo, batches: Iterable[Tensor], steps: int) -> Iterator[Tensor]:
    """So many batches, each announced to `watch`, and the end too. A task without records has steps and no batches."""
    for step, rows in enumerate(islice(batches, steps)):
        watch(Step(task=task, step=step, of=steps))
        if len(rows):
            yield rows
    watch(Step(task=task, step=steps, of=steps))
