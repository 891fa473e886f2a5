"""One task, cut from a public data set: its rows, its public map, its public test set."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tacit.data.samples import Array, DataSet, Features, Map, Rows, Samples
from tacit.data.stream import Label, Protected, Stream, StreamInfo, Task, TaskId, TaskInfo, whole
from tacit.errors import DataError

PERSON_RECORDS = 400
"""Default bound on one person's records in a task."""
Limit: TypeAlias = int | Sequence[int] | None
"""So many random records of each task: one number for all, or a list (tasks of very different size). None: all."""


def cut(
    data: DataSet,
    info: TaskInfo,
    rows: Rows,
    test: Rows | None,
    *,
    through: Map | None = None,
    ids: Array | None = None,
    names: Array | None = None,
) -> Task:
    """The task of these train and test rows. `through` acts on both; `ids` are those of all train rows; `names` are the
    labels by place, where they are not those of the data set."""

    def labels(samples: Samples, chosen: Rows) -> Array:
        return samples.y[chosen] if names is None else names[samples.y[chosen]]

    def records() -> tuple[Any, ...]:
        x = Features(store=data.train.x, rows=rows, through=through)
        y = labels(data.train, rows)
        return (x, y) if ids is None else (x, y, ids[rows])

    def tests() -> tuple[Any, ...]:
        assert data.test is not None and test is not None
        return np.asarray(Features(store=data.test.x, rows=test, through=through)), labels(data.test, test)

    return Task(info=info, records=records, test=None if test is None else tests)


@dataclass(frozen=True, kw_only=True)
class Units:
    """Who is protected, and how often one of them may appear."""

    unit: Protected = "record"
    tasks_per_unit: int = 1
    records_per_unit: int = 1


def stream(
    name: str, shape: Sequence[int], tasks: Iterable[Task], *, task_id: TaskId = "hidden", units: Units | None = None
) -> Stream:
    """The stream of these tasks; public, as every benchmark."""
    if task_id not in ("given", "hidden"):
        raise DataError(f'task_id must be "given" or "hidden", got {task_id!r}')
    made, bounds = tuple(tasks), units or Units()
    info = StreamInfo(
        name=name,
        shape=tuple(shape),
        tasks=tuple(task.info for task in made),
        task_id=task_id,
        unit=bounds.unit,
        tasks_per_unit=bounds.tasks_per_unit,
        records_per_unit=bounds.records_per_unit,
        public=True,
    )
    return Stream(info, made)


def generator(seed: int, *words: int | str) -> np.random.Generator:
    """A generator of its own for every purpose, so that one more draw in one place moves nothing in another."""
    numbers = [word if isinstance(word, int) else int.from_bytes(word.encode(), "big") for word in words]
    return np.random.default_rng([whole("seed", seed, 0), *numbers])


def limited(rows: Rows, limit: Limit, seed: int, number: int) -> Rows:
    """All rows, or the first `limit` of them after a shuffle by the seed and the task's number."""
    if limit is None:
        return rows
    if isinstance(limit, Sequence):
        if number >= len(limit):
            raise DataError(f"limit has {len(limit)} values and task {number + 1} needs its own; give one for each")
        limit = limit[number]
    return generator(seed, "limit", number).permutation(rows)[: whole("limit", limit)]


def of_labels(samples: Samples | None, labels: Sequence[Label]) -> Rows | None:
    """Rows with one of these labels; None where there is no set to look in."""
    return None if samples is None else np.flatnonzero(np.isin(samples.y, np.asarray(labels, dtype=np.int64)))


def people(data: DataSet, unit: Protected) -> Array | None:
    """Whose each train row is, where persons are protected."""
    if unit == "record":
        return None
    if unit != "person":
        raise DataError(f'unit must be "record" or "person", got {unit!r}')
    if data.train.ids is None:
        raise DataError(f"{data.name} does not say whose its records are; use unit='record'")
    return data.train.ids


def units(unit: Protected, tasks: int, records_per_unit: int | None) -> Units:
    """How units recur: a person may be in every task, a record is in one."""
    if unit == "record":
        return Units()
    bound = PERSON_RECORDS if records_per_unit is None else whole("records_per_unit", records_per_unit)
    return Units(unit=unit, tasks_per_unit=tasks, records_per_unit=bound)


def nominal(rows: Rows, ids: Array | None = None) -> int:
    """The declared size of a public benchmark's task: its number of units, at least 1."""
    return max(1, len(rows) if ids is None else len(np.unique(ids[rows])))
