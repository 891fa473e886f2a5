"""An endless stream: the same public images, whose values change position a little in every task.

Task n depends on the seed and n alone, and takes time and memory that do not depend on n.
"""

import numpy as np

from tacit.data.samples import DataSet, Rows
from tacit.data.scenarios.sharp import permutation
from tacit.data.scenarios.task import cut, generator, limited
from tacit.data.stream import Stream, StreamInfo, Task, TaskInfo, whole
from tacit.errors import DataError


def drifting(
    data: DataSet, seed: int = 0, *, pace: float = 0.1, limit: int | None = None, test_limit: int | None = None
) -> Stream:
    """Task 1 has the images unchanged; from task to task a share `pace` of their values moves to other positions, so
    that after 1/pace tasks all have moved, endlessly. `pace=1` is an endless Permuted MNIST.

    The same public records stand for new people in every task: a unit is a record of one task, and no unit recurs.

    Args:
        data: The data set.
        seed: Random seed of the permutations.
        pace: The share of values that move per task.
        limit: Random images per task; None: all images.
        test_limit: Random test images per task.

    Raises:
        DataError: `pace` is not in (0, 1].
    """
    if not 0 < pace <= 1:
        raise DataError(f"pace must be a share of the values between 0 and 1, got {pace}; 0.1 moves a tenth per task")
    size = len(data.train) if limit is None else min(whole("limit", limit), len(data.train))
    labels, values = data.labels, int(np.prod(data.shape))

    def task(number: int) -> Task:
        info = TaskInfo(name=f"task-{number + 1}", number=number, labels=labels, size=size)
        rows = limited(np.arange(len(data.train)), size if limit else None, seed, number)
        test = None if data.test is None else limited(np.arange(len(data.test)), test_limit, seed, number)
        return cut(data, info, rows, test, through=permutation(order(seed, number, pace, values)))

    first = task(0)
    info = StreamInfo(
        name=f"drifting-{data.name}", shape=tuple(data.shape), tasks=(first.info,), public=True, endless=True
    )
    return Stream(info, [first], later=task)


def order(seed: int, number: int, pace: float, values: int) -> Rows:
    """The permutation of task `number`: part of the way from one random permutation to the next, value by value."""
    turn, progress = divmod(number * pace, 1)
    current, target = (_turning_point(seed, int(turn) + ahead, values) for ahead in (0, 1))
    position = np.argsort(current)
    for here in generator(seed, "way", int(turn)).permutation(values)[: round(progress * values)]:
        there = position[target[here]]
        current[here], current[there] = current[there], current[here]
        position[current[here]], position[current[there]] = here, there
    return current


def _turning_point(seed: int, turn: int, values: int) -> Rows:
    """The random permutation at each turn; the first is the identity."""
    return generator(seed, "turn", turn).permutation(values) if turn else np.arange(values)
