"""Scenarios with sharp task boundaries: permuted, split by class, by domain, by sampling rate, and a single task.

A scenario is a pure function from a public data set and a seed to a stream. Every task has a public test set: the test
samples of its labels or its domain, mapped like the train records. `limit` takes that many random records per task.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from tacit.data.benchmarks.sensors import windows
from tacit.data.samples import Array, DataSet, Map, Rows, Samples, present
from tacit.data.scenarios.task import Limit, Units, cut, generator, limited, nominal, of_labels, people, stream, units
from tacit.data.stream import Protected, Stream, TaskId, TaskInfo, whole
from tacit.errors import DataError
from tacit.words import nearest


def permuted(
    data: DataSet,
    tasks: int,
    seed: int = 0,
    *,
    records: int | None = None,
    task_id: TaskId = "hidden",
    limit: Limit = None,
    by_image: bool = False,
) -> Stream:
    """Every task, including the first, permutes the values of all images in its own way (Permuted MNIST).

    The same images recur in every task. By default the unit is a record of one task; the privacy loss of an *image* is
    then the composition over all tasks. `by_image=True` declares this: ids name the images, and each is in all tasks.

    Args:
        data: The data set.
        tasks: The number of tasks.
        seed: Random seed of the permutations.
        records: Use only the first records of the set (55,000 of MNIST: the last 5,000 are for validation).
        task_id: Whether the task is known at test time.
        limit: Random records per task.
        by_image: Whether an image, rather than a record of one task, is the unit.
    """
    count = len(data.train) if records is None else min(whole("records", records), len(data.train))
    ids = np.arange(len(data.train)) if by_image else None

    def task(number: int) -> tuple[TaskInfo, Rows, Map]:
        rows = limited(np.arange(count), limit, seed, number)
        info = TaskInfo(name=f"permutation-{number + 1}", number=number, labels=data.labels, size=nominal(rows))
        return info, rows, permutation(generator(seed, "permutation", number).permutation(int(np.prod(data.shape))))

    made = (
        cut(data, info, rows, _all(data.test), through=through, ids=ids)
        for info, rows, through in map(task, range(whole("tasks", tasks)))
    )
    recur = Units(tasks_per_unit=tasks) if by_image else Units()
    return stream(f"permuted-{data.name}", data.shape, made, task_id=task_id, units=recur)


def split(
    data: DataSet,
    tasks: int,
    seed: int = 0,
    *,
    classes_per_task: int | None = None,
    task_id: TaskId = "given",
    limit: Limit = None,
    unit: Protected = "record",
    records_per_unit: int | None = None,
) -> Stream:
    """Each task has its own classes, in a random order (split CIFAR-100: 20 tasks of 5 classes).

    Args:
        data: The data set.
        tasks: The number of tasks.
        seed: Random seed of the order of classes.
        classes_per_task: None divides all classes evenly.
        task_id: Whether the task is known at test time.
        limit: Random records per task.
        unit: What is protected.
        records_per_unit: The bound on one person's records in a task.

    Raises:
        DataError: There are too few classes.
    """
    each = len(data.labels) // whole("tasks", tasks) if classes_per_task is None else classes_per_task
    if whole("classes_per_task", each, 0) < 1 or each * tasks > len(data.labels):
        raise DataError(
            f"{data.name} has {len(data.labels)} classes, too few for {tasks} tasks of {max(1, each)}; use fewer"
        )
    order = generator(seed, "classes").permutation(len(data.labels))
    ids = people(data, unit)

    def task(number: int) -> tuple[TaskInfo, Rows, Rows | None]:
        labels = tuple(data.labels[index] for index in order[number * each : (number + 1) * each])
        rows = limited(present(of_labels(data.train, labels)), limit, seed, number)
        info = TaskInfo(name=f"classes-{number + 1}", number=number, labels=labels, size=nominal(rows, ids))
        return info, rows, of_labels(data.test, labels)

    made = (cut(data, *task(number), ids=ids) for number in range(tasks))
    name = f"split-{data.name}"
    return stream(name, data.shape, made, task_id=task_id, units=units(unit, tasks, records_per_unit))


def domains(
    data: DataSet,
    by: str | Sequence[str],
    seed: int = 0,
    *,
    order: Sequence[str] | None = None,
    task_id: TaskId = "hidden",
    limit: Limit = None,
    unit: Protected = "record",
    records_per_unit: int | None = None,
) -> Stream:
    """The same classes in several domains: a task for each value of a column (`by="device"`), or for each combination
    of several columns (`by=("device", "sensor")`).

    A person may be in all tasks that differ in a column that is not constant for a person (`DataSet.personal`).

    Args:
        data: The data set.
        by: One column or several.
        seed: Random seed of `limit`.
        order: The names of the tasks in their order, such as `["watch-gyro", "phone-accel"]`; None: all, in the order
            of the data set.
        task_id: Whether the task is known at test time.
        limit: Random records per task.
        unit: What is protected.
        records_per_unit: The bound on one person's records in a task.

    Raises:
        DataError: There is no such column or task.
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    for column in columns:
        if column not in data.groups:
            raise DataError(f"{data.name} cannot be divided by {column!r}; {nearest(column, data.groups)}")
    known = {"-".join(value): value for value in product(*(data.groups[column] for column in columns))}
    values = list(known.values()) if order is None else _ordered(data, known, order)
    ids = people(data, unit)

    def task(number: int) -> tuple[TaskInfo, Rows, Rows | None]:
        here = dict(zip(columns, values[number], strict=True))
        rows = limited(present(_where(data.train, here)), limit, seed, number)
        name = "-".join(values[number])
        info = TaskInfo(name=name, number=number, labels=data.labels, size=nominal(rows, ids))
        return info, rows, _where(data.test, here)

    made = (cut(data, *task(number), ids=ids) for number in range(len(values)))
    name = f"{data.name}-by-{'-'.join(columns)}"
    shared = [index for index, column in enumerate(columns) if column not in data.personal]
    most = len({tuple(value[index] for index in shared) for value in values})
    return stream(name, data.shape, made, task_id=task_id, units=units(unit, most, records_per_unit))


def rates(
    data: DataSet,
    factors: Sequence[int] = (1, 2, 4),
    seed: int = 0,
    *,
    length: int = 100,
    overlap: float = 0.0,
    limit: Limit = None,
    unit: Protected = "record",
    records_per_unit: int | None = None,
) -> Stream:
    """The same sensor at several rates: a task keeps every `factor`-th sample of each recording, then cuts windows.

    Rates other than the first are derived, as the names of the tasks state. All tasks come from the same recordings:
    the unit "record" is a window of one task, and the privacy loss of a person is the composition over all tasks, which
    `unit="person"` declares.

    Args:
        data: A data set of raw sensors.
        factors: One task for each.
        seed: Random seed of `limit`.
        length: Samples per window.
        overlap: The share of a window that the next one repeats.
        limit: Random records per task.
        unit: What is protected.
        records_per_unit: The bound on one person's records in a task.
    """
    sets = [windows(data, length=length, overlap=overlap, every=whole("each factor", factor)) for factor in factors]

    def task(number: int) -> tuple[DataSet, TaskInfo, Rows, Rows | None]:
        here = sets[number]
        rows = limited(np.arange(len(here.train)), limit, seed, number)
        size = nominal(rows, people(here, unit))
        name = here.name.removeprefix(f"{data.name}-")
        return here, TaskInfo(name=name, number=number, labels=data.labels, size=size), rows, _all(here.test)

    made = (cut(*task(number), ids=people(sets[number], unit)) for number in range(len(sets)))
    shape = (length, *data.shape)
    return stream(f"{data.name}-rates", shape, made, units=units(unit, len(sets), records_per_unit))


def single(
    data: DataSet,
    seed: int = 0,
    *,
    limit: Limit = None,
    unit: Protected = "record",
    records_per_unit: int | None = None,
) -> Stream:
    """The whole data set as one task."""
    ids = people(data, unit)
    rows = limited(np.arange(len(data.train)), limit, seed, 0)
    info = TaskInfo(name="all", number=0, labels=data.labels, size=nominal(rows, ids))
    made = [cut(data, info, rows, _all(data.test), ids=ids)]
    return stream(data.name, data.shape, made, units=units(unit, 1, records_per_unit))


def permutation(order: Rows) -> Map:
    """The map that permutes the values of every image in this order."""

    def permute(x: Array) -> Array:
        flat = x.reshape(len(x), len(order))
        return flat.take(order, axis=1).reshape(x.shape)

    return permute


def _all(samples: Samples | None) -> Rows | None:
    return None if samples is None else np.arange(len(samples))


def _ordered(data: DataSet, known: dict[str, tuple[str, ...]], order: Sequence[str]) -> list[tuple[str, ...]]:
    """The tasks of these names, each once."""
    for name in order:
        if name not in known:
            raise DataError(f"{data.name} has no task {name!r}; {nearest(name, known)}")
    if not order or len(set(order)) != len(order):
        raise DataError(f"order must name one or more tasks, each once, got {list(order)}")
    return [known[name] for name in order]


def _where(samples: Samples | None, here: dict[str, str]) -> Rows | None:
    if samples is None:
        return None
    return np.flatnonzero(np.all([samples.groups[column] == value for column, value in here.items()], axis=0))
