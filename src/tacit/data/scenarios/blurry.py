"""Streams with blurry task boundaries: i-Blurry (Koh et al. 2022), Si-Blurry (Moon et al. 2023), and random tasks.

Every sample of a class in the stream is in exactly one task. The public labels of a task are its disjoint classes and
all blurry classes, since any of these may occur in it; a task with neither has the labels of the whole stream.

Test samples are shared out like train samples: of a class, every task tests the share that it trains on (`shared_out`).
Each test sample of the stream's classes is so in exactly one task, and an average over tasks, weighted by their numbers
of test samples, is the accuracy on all of them: a class counts once, in however many tasks it occurs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.data.label_positions import positions
from tacit.data.samples import DataSet, Rows, Samples
from tacit.data.scenarios.task import Limit, cut, generator, limited, nominal, stream
from tacit.data.stream import Label, Stream, TaskInfo, whole
from tacit.errors import DataError


@dataclass(frozen=True, kw_only=True, eq=False)
class Blur:
    """The rows and classes of each task; a class is its position in the label set."""

    rows: Sequence[Rows]
    disjoint: Sequence[Rows]
    """The classes that occur in one task only."""
    blurry: Sequence[Rows]
    """The blurry classes, by the task that has most of their samples."""


def iblurry(
    data: DataSet, tasks: int, seed: int = 0, *, disjoint: float = 50, blurry: float = 10, limit: Limit = None
) -> Stream:
    """i-Blurry-N-M: N = `disjoint` % of the classes are in one task each. Of every other class, M = `blurry` % of the
    samples are pooled, shuffled and spread evenly over all tasks; the rest stay in the class's own task.

    Args:
        data: The data set.
        tasks: The number of tasks.
        seed: Random seed of the split.
        disjoint: N, in percent of the classes.
        blurry: M, in percent of the samples of a blurry class.
        limit: Random records per task.
    """
    blur = iblurry_rows(
        _positions(data.train, data), len(data.labels), tasks, generator(seed, "iblurry"), disjoint, blurry
    )
    return _stream(f"iblurry-{data.name}", data, blur, seed, limit)


def siblurry(
    data: DataSet, tasks: int, seed: int = 0, *, disjoint: float = 50, blurry: float = 10, limit: Limit = None
) -> Stream:
    """Si-Blurry: N % of the classes, rounded down to a multiple of the tasks, are disjoint; of the others a multiple of
    the tasks is blurry, and the remaining classes are in no task. Random cut points decide how many classes a task has,
    possibly none. M % of all blurry samples are divided at random points and exchanged between tasks, whose sizes stay.

    Args:
        data: The data set.
        tasks: The number of tasks.
        seed: Random seed of the split.
        disjoint: N, in percent of the classes.
        blurry: M, in percent of the blurry samples.
        limit: Random records per task.
    """
    blur = siblurry_rows(
        _positions(data.train, data), len(data.labels), tasks, generator(seed, "siblurry"), disjoint, blurry
    )
    return _stream(f"siblurry-{data.name}", data, blur, seed, limit)


def mixed(data: DataSet, tasks: int, seed: int = 0, *, limit: Limit = None) -> Stream:
    """Every sample is in a random task, so that all classes are in all tasks."""
    rng = generator(seed, "mixed")
    shuffled = rng.permutation(len(data.train))
    no_class = np.zeros(0, dtype=np.int64)
    blur = Blur(
        rows=np.array_split(shuffled, whole("tasks", tasks)),
        disjoint=[no_class] * tasks,
        blurry=[np.arange(len(data.labels)), *[no_class] * (tasks - 1)],
    )
    return _stream(f"mixed-{data.name}", data, blur, seed, limit)


def iblurry_rows(
    y: Rows, classes: int, tasks: int, rng: np.random.Generator, disjoint: float = 50, blurry: float = 10
) -> Blur:
    """i-Blurry on classes 0 … classes − 1."""
    _check(tasks, disjoint, blurry)
    order = rng.permutation(classes)
    sharp = int(classes * disjoint // 100)
    own, main = np.array_split(order[:sharp], tasks), np.array_split(order[sharp:], tasks)
    rows = [[_rows_of(y, mine)] for mine in own]
    pool = []
    for number, mine in enumerate(main):
        for label in mine:
            shuffled = rng.permutation(_rows_of(y, label))
            leave = int(len(shuffled) * blurry // 100)
            pool.append(shuffled[:leave])
            rows[number].append(shuffled[leave:])
    spread = np.array_split(rng.permutation(_joined(pool)), tasks)
    return Blur(
        rows=[_joined([*parts, more]) for parts, more in zip(rows, spread, strict=True)], disjoint=own, blurry=main
    )


def siblurry_rows(
    y: Rows, classes: int, tasks: int, rng: np.random.Generator, disjoint: float = 50, blurry: float = 10
) -> Blur:
    """Si-Blurry on classes 0 … classes − 1."""
    _check(tasks, disjoint, blurry)
    order = rng.permutation(classes)
    sharp = int(classes * disjoint // 100) // tasks * tasks
    soft = (classes - sharp) // tasks * tasks
    own = _randomly_cut(order[:sharp], tasks, rng)
    main = _randomly_cut(order[sharp : sharp + soft], tasks, rng)
    held = [rng.permutation(_rows_of(y, mine)) for mine in main]
    shares = _randomly_cut(np.arange(int(sum(map(len, held)) * blurry // 100)), tasks, rng)
    # A task cannot give more than it has.
    give = [min(len(share), len(mine)) for share, mine in zip(shares, held, strict=True)]
    pool = rng.permutation(_joined([mine[:count] for mine, count in zip(held, give, strict=True)]))
    back = np.split(pool, np.cumsum(give)[:-1])
    rows = [_joined([_rows_of(y, own[number]), held[number][give[number] :], back[number]]) for number in range(tasks)]
    return Blur(rows=rows, disjoint=own, blurry=main)


def _stream(name: str, data: DataSet, blur: Blur, seed: int, limit: Limit) -> Stream:
    soft = np.sort(_joined(blur.blurry))
    whole_stream = np.sort(_joined([*blur.disjoint, soft]))
    tests = _tests(data, blur, generator(seed, "blurry-test"))

    def task(number: int) -> tuple[TaskInfo, Rows, Rows | None]:
        classes = _joined([np.sort(blur.disjoint[number]), soft])
        labels: tuple[Label, ...] = tuple(data.labels[label] for label in (classes if len(classes) else whole_stream))
        rows = limited(blur.rows[number], limit, seed, number)
        info = TaskInfo(name=f"blurry-{number + 1}", number=number, labels=labels, size=nominal(rows))
        return info, rows, tests[number]

    weights = [1.0 if test is None else float(len(test)) for test in tests]
    return stream(name, data.shape, (cut(data, *task(number), weight=weights[number]) for number in range(len(tests))))


def shared_out(y: Rows, rows: Sequence[Rows], test_y: Rows, rng: np.random.Generator) -> list[Rows]:
    """The test rows of each task: of every class, random ones in proportion to the train rows that the tasks have.

    Args:
        y: The class of each train row.
        rows: The train rows of each task.
        test_y: The class of each test row. A test row of a class without a train row in any task is in no task.
        rng: Chooses which of a class's test rows a task gets.
    """
    parts: list[list[Rows]] = [[] for _ in rows]
    for label in np.unique(y[_joined(rows)]):
        counts = np.array([np.count_nonzero(y[mine] == label) for mine in rows])
        shuffled = rng.permutation(_rows_of(test_y, label))
        ends = np.rint(len(shuffled) * np.cumsum(counts) / counts.sum()).astype(np.int64)
        for own, given in zip(parts, np.split(shuffled, ends[:-1]), strict=True):
            own.append(given)
    return [np.sort(_joined(own)) for own in parts]


def _tests(data: DataSet, blur: Blur, rng: np.random.Generator) -> Sequence[Rows | None]:
    """The test rows of each task; None without a test set."""
    if data.test is None:
        return [None] * len(blur.rows)
    return shared_out(_positions(data.train, data), blur.rows, _positions(data.test, data), rng)


def _positions(samples: Samples, data: DataSet) -> Rows:
    """The position of each sample's label in the public label set."""
    return positions(samples.y, data.labels)


def _rows_of(y: Rows, classes: Rows) -> Rows:
    return np.flatnonzero(np.isin(y, classes))


def _randomly_cut(values: Rows, tasks: int, rng: np.random.Generator) -> list[Rows]:
    """Pieces between `tasks` − 1 sorted uniform cut points."""
    if not len(values):
        return [values] * tasks
    return np.split(values, np.sort(rng.integers(0, len(values), tasks - 1)))


def _joined(parts: Sequence[Rows]) -> Rows:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _check(tasks: int, disjoint: float, blurry: float) -> None:
    whole("tasks", tasks)
    for name, value in (("disjoint", disjoint), ("blurry", blurry)):
        if not 0 <= value <= 100:
            raise DataError(f"{name} is a percentage from 0 to 100, got {value!r}")
