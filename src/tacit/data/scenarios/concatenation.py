"""Several public data sets as the tasks of one stream."""

import math
from collections.abc import Sequence
from itertools import islice, permutations
from typing import Literal

import numpy as np

from tacit.data.samples import Array, DataSet, Map, present
from tacit.data.scenarios.task import Limit, cut, generator, limited, nominal, of_labels, stream
from tacit.data.stream import Label, Stream, Task, TaskId, TaskInfo, whole
from tacit.errors import DataError


def concatenate(
    sets: Sequence[DataSet],
    shape: Sequence[int] | None = None,
    seed: int = 0,
    *,
    labels: Literal["prefixed", "shared"] = "prefixed",
    parts: Sequence[int] | None = None,
    order: Literal["given", "seed"] = "given",
    task_id: TaskId = "hidden",
    limit: Limit = None,
) -> Stream:
    """One or several tasks per data set (5-datasets: SVHN, MNIST, CIFAR-10, notMNIST, Fashion-MNIST).

    Args:
        sets: The data sets.
        shape: The shape of all images, by default the largest of each side: smaller images are padded with zeros, and a
            grey channel is repeated.
        seed: Random seed of the classes of parts; with `order="seed"` also the number of the permutation.
        labels: "prefixed" makes `mnist/3` and `cifar10/3` two classes; "shared" makes equal labels one class.
        parts: Into how many tasks each set is divided, by random classes (`[1, 10]` of CIFAR-10 and CIFAR-100: 11 tasks
            of 10 classes). None: one task per set.
        order: "given", or "seed": seed k takes the k-th permutation of the sets (24 of four sets, 120 of five).
        task_id: Whether the task is known at test time.
        limit: Random records per task.

    Raises:
        DataError: The sets cannot be brought to one shape, or a set has too few classes.
    """
    if not sets or len({data.name for data in sets}) != len(sets):
        raise DataError("concatenate needs one or more data sets, each once")
    if labels not in ("prefixed", "shared"):
        raise DataError(f'labels must be "prefixed" or "shared", got {labels!r}')
    target = tuple(shape) if shape is not None else _largest(sets)
    ordered = sets if order == "given" else _permutation(sets, seed)

    counts = dict(zip((data.name for data in sets), _counts(sets, parts), strict=True))
    parts_in_order = [(data, part) for data in ordered for part in range(counts[data.name])]

    def task(number: int, data: DataSet, part: int) -> Task:
        count = counts[data.name]
        classes = _divided(data, count, seed)[part] if count > 1 else list(range(len(data.labels)))
        known = tuple(data.labels[label] for label in classes)
        rows = limited(present(of_labels(data.train, known)), limit, seed, number)
        names = np.asarray([f"{data.name}/{label}" for label in data.labels]) if labels == "prefixed" else None
        space: tuple[Label, ...] = known if names is None else tuple(names[classes].tolist())
        name = data.name if count == 1 else f"{data.name}-{part + 1}"
        info = TaskInfo(name=name, number=number, labels=space, size=nominal(rows))
        return cut(data, info, rows, of_labels(data.test, known), through=shape_adapter(data, target), names=names)

    name = "-".join(data.name for data in sets)
    return stream(name, target, (task(number, *part) for number, part in enumerate(parts_in_order)), task_id=task_id)


def _counts(sets: Sequence[DataSet], parts: Sequence[int] | None) -> list[int]:
    """Into how many tasks each set is divided."""
    if parts is None:
        return [1] * len(sets)
    if len(parts) != len(sets):
        raise DataError(f"parts has {len(parts)} values for {len(sets)} data sets; give one for each")
    for data, count in zip(sets, parts, strict=True):
        if whole("each of parts", count) > len(data.labels):
            raise DataError(f"{data.name} has {len(data.labels)} classes, too few for {count} parts; use fewer")
    return list(parts)


def _divided(data: DataSet, count: int, seed: int) -> list[list[int]]:
    """The classes of each part, as positions in the label set; the first parts may have one class more."""
    order = generator(seed, "classes").permutation(len(data.labels))
    return [part.tolist() for part in np.array_split(order, count)]


def _permutation(sets: Sequence[DataSet], seed: int) -> tuple[DataSet, ...]:
    """The k-th permutation, in the order of itertools; the first is the given order."""
    orders = math.factorial(len(sets))
    if not 0 <= seed < orders:
        raise DataError(
            f"{len(sets)} data sets have {orders} orders, and seed {seed} is none of them; use 0 to {orders - 1}"
        )
    return next(islice(permutations(sets), seed, None))


def shape_adapter(data: DataSet, shape: tuple[int, ...]) -> Map | None:
    """The public map from a set's features to `shape`; None if the set has this shape already."""
    if data.shape == shape:
        return None
    if len(data.shape) != 3 or len(shape) != 3 or any(a > b for a, b in zip(data.shape, shape, strict=True)):
        raise DataError(
            f"{data.name} has records of shape {data.shape}, which cannot be padded to {shape}; give a shape "
            "(channels, height, width) that is at least as large"
        )
    if data.shape[0] not in (1, shape[0]):
        raise DataError(
            f"{data.name} has {data.shape[0]} channels and shape has {shape[0]}; only a single channel can be repeated"
        )
    padding = [(0, 0), (0, 0)]
    for have, want in zip(data.shape[1:], shape[1:], strict=True):
        padding.append(((want - have) // 2, want - have - (want - have) // 2))

    def pad(x: Array) -> Array:
        padded = np.pad(x, padding)
        return padded if data.shape[0] == shape[0] else np.repeat(padded, shape[0], axis=1)

    return pad


def _largest(sets: Sequence[DataSet]) -> tuple[int, ...]:
    shapes = {data.shape for data in sets}
    if len({len(shape) for shape in shapes}) > 1:
        raise DataError(f"images and other records cannot be in one stream, got shapes {sorted(shapes)}")
    return tuple(max(sides) for sides in zip(*shapes, strict=True))
