"""Tasks of public data sets: the rows of each task, its public map and its public test set."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tacit.data.samples import Array, DataSet, Features, Map, Rows, Samples
from tacit.data.stream import Label, Protected, Stream, StreamInfo, Task, TaskId, TaskInfo, whole
from tacit.errors import DataError

PERSON_RECORDS = 400
"""Default bound on the records of one person in a task."""
Limit: TypeAlias = int | Sequence[int] | None
"""The number of random records per task: one number for all tasks, or one for each. None: all records."""


def cut(
    data: DataSet,
    info: TaskInfo,
    rows: Rows,
    test: Rows | None,
    *,
    through: Map | None = None,
    ids: Array | None = None,
    names: Array | None = None,
    weight: float = 1.0,
) -> Task:
    """Makes the task of these rows.

    Args:
        data: The data set.
        info: The public facts of the task.
        rows: Train rows.
        test: Test rows; None where there is no test set.
        through: A public map, applied to train and test features.
        ids: The units of all train rows, where they are named.
        names: The label of each position, where it is not that of the data set.
        weight: The weight of the task's accuracy in averages over tasks.
    """

    def labels(samples: Samples, chosen: Rows) -> Array:
        return samples.y[chosen] if names is None else names[samples.y[chosen]]

    def records() -> tuple[Any, ...]:
        x = Features(store=data.train.x, rows=rows, through=through)
        y = labels(data.train, rows)
        return (x, y) if ids is None else (x, y, ids[rows])

    def tests() -> tuple[Any, ...]:
        assert data.test is not None and test is not None
        return np.asarray(Features(store=data.test.x, rows=test, through=through)), labels(data.test, test)

    return Task(info=info, records=records, test=None if test is None else tests, weight=weight)


@dataclass(frozen=True, kw_only=True)
class Units:
    """What is protected, and how often one unit may occur."""

    unit: Protected = "record"
    tasks_per_unit: int = 1
    records_per_unit: int = 1


def stream(
    name: str, shape: Sequence[int], tasks: Iterable[Task], *, task_id: TaskId = "hidden", units: Units | None = None
) -> Stream:
    """The stream of these tasks, which is public."""
    if task_id not in ("given", "hidden"):
        raise DataError(f'task_id must be "given" or "hidden", got {task_id!r}')
    listed, bounds = tuple(tasks), units or Units()
    info = StreamInfo(
        name=name,
        shape=tuple(shape),
        tasks=tuple(task.info for task in listed),
        task_id=task_id,
        unit=bounds.unit,
        tasks_per_unit=bounds.tasks_per_unit,
        records_per_unit=bounds.records_per_unit,
        public=True,
    )
    return Stream(info, listed)


def generator(seed: int, *words: int | str) -> np.random.Generator:
    """A random generator for one purpose, named by `words`: draws for one purpose do not shift those for another."""
    numbers = [word if isinstance(word, int) else int.from_bytes(word.encode(), "big") for word in words]
    return np.random.default_rng([whole("seed", seed, 0), *numbers])


def limited(rows: Rows, limit: Limit, seed: int, number: int) -> Rows:
    """All rows, or `limit` random ones, by the seed and the number of the task."""
    if limit is None:
        return rows
    if isinstance(limit, Sequence):
        if number >= len(limit):
            raise DataError(f"limit has {len(limit)} values and none for task {number + 1}; give one for each task")
        limit = limit[number]
    return generator(seed, "limit", number).permutation(rows)[: whole("limit", limit)]


def of_labels(samples: Samples | None, labels: Sequence[Label]) -> Rows | None:
    """Rows with one of these labels; None without samples."""
    return None if samples is None else np.flatnonzero(np.isin(samples.y, np.asarray(labels, dtype=np.int64)))


def people(data: DataSet, unit: Protected) -> Array | None:
    """The person of each train row, where persons are protected."""
    if unit == "record":
        return None
    if unit != "person":
        raise DataError(f'unit must be "record" or "person", got {unit!r}')
    if data.train.ids is None:
        raise DataError(f"{data.name} does not name the person of each record; use unit='record'")
    return data.train.ids


def units(unit: Protected, tasks: int, records_per_unit: int | None) -> Units:
    """How units recur: a person may be in every task, a record is in one task."""
    if unit == "record":
        return Units()
    bound = PERSON_RECORDS if records_per_unit is None else whole("records_per_unit", records_per_unit)
    return Units(unit=unit, tasks_per_unit=tasks, records_per_unit=bound)


def nominal(rows: Rows, ids: Array | None = None) -> int:
    """The declared size of a task of a public benchmark: its number of units, at least 1."""
    return max(1, len(rows) if ids is None else len(np.unique(ids[rows])))
