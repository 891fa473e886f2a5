"""A stream without end: the same public images, whose values change place a little in every task.

Task n is made of the seed and n alone, in time and memory that do not depend on n.
"""

import numpy as np

from tacit.data.cut import cut, generator, limited
from tacit.data.samples import DataSet, Rows
from tacit.data.scenarios import permutation
from tacit.data.stream import Stream, StreamInfo, Task, TaskInfo, whole
from tacit.errors import DataError


def drifting(
    data: DataSet, seed: int = 0, *, pace: float = 0.1, limit: int | None = None, test_limit: int | None = None
) -> Stream:
    """Task 1 shows the images as they are; from task to task a share `pace` of their values moves to other places, so
    that after 1/pace tasks all are elsewhere, for ever. `pace=1` is Permuted MNIST without end.

    Each task has all images of the set, or `limit` random ones. The same public records stand in for new people in
    every task: a unit is a record of one task, and no unit comes back. `test_limit`: so many of the test images.
    """
    if not 0 < pace <= 1:
        raise DataError(f"pace must be a share of the values between 0 and 1, got {pace}; 0.1 moves a tenth a task")
    size = len(data.train) if limit is None else min(whole("limit", limit), len(data.train))
    labels, places = data.labels, int(np.prod(data.shape))

    def task(number: int) -> Task:
        info = TaskInfo(name=f"task-{number + 1}", number=number, labels=labels, size=size)
        rows = limited(np.arange(len(data.train)), size if limit else None, seed, number)
        asked = None if data.test is None else limited(np.arange(len(data.test)), test_limit, seed, number)
        return cut(data, info, rows, asked, through=permutation(order(seed, number, pace, places)))

    first = task(0)
    info = StreamInfo(
        name=f"drifting-{data.name}", shape=tuple(data.shape), tasks=(first.info,), public=True, endless=True
    )
    return Stream(info, [first], later=task)


def order(seed: int, number: int, pace: float, places: int) -> Rows:
    """Where the values of task `number` come from: on the way from one random order to the next, place by place."""
    turn, way = divmod(number * pace, 1)
    now, aim = (_order(seed, int(turn) + ahead, places) for ahead in (0, 1))
    where = np.argsort(now)
    for place in generator(seed, "way", int(turn)).permutation(places)[: round(way * places)]:
        here, there = place, where[aim[place]]
        now[here], now[there] = now[there], now[here]
        where[now[here]], where[now[there]] = here, there
    return now


def _order(seed: int, turn: int, places: int) -> Rows:
    """The order at each turn of the way; before the first, as the images are."""
    return generator(seed, "turn", turn).permutation(places) if turn else np.arange(places)
