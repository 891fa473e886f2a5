"""Several public data sets as the tasks of one stream."""

import math
from collections.abc import Sequence
from itertools import islice, permutations
from typing import Literal

import numpy as np

from tacit.data.cut import Limit, cut, generator, limited, nominal, of_labels, stream
from tacit.data.samples import Array, DataSet, Map
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
    """One task for each data set (5-datasets: SVHN, MNIST, CIFAR-10, notMNIST, Fashion-MNIST), or several.

    Images are brought to one `shape` (by default the largest of each side): zeros around, a grey channel repeated.
    `labels`: "prefixed" makes `mnist/3` and `cifar10/3` two classes; "shared" makes equal numbers one class.
    `parts`: into how many tasks each set is cut, by its classes, dealt in a random order by the seed (`[1, 10]` of
    CIFAR-10 and CIFAR-100: 11 tasks of 10 classes). None: one of each.
    `order`: "given", or "seed": seed k takes the k-th permutation, so that as many seeds as there are permutations run
    through all task orders (24 of four sets, 120 of five).
    """
    if not sets or len({data.name for data in sets}) != len(sets):
        raise DataError("concatenate needs one or more data sets, each once")
    if labels not in ("prefixed", "shared"):
        raise DataError(f'labels must be "prefixed" or "shared", got {labels!r}')
    target = tuple(shape) if shape is not None else _largest(sets)
    ordered = sets if order == "given" else _permutation(sets, seed)

    counts = dict(zip((data.name for data in sets), _counts(sets, parts), strict=True))
    cuts = [(data, part) for data in ordered for part in range(counts[data.name])]

    def task(number: int, data: DataSet, part: int) -> Task:
        count = counts[data.name]
        places = _dealt(data, count, seed)[part] if count > 1 else list(range(len(data.labels)))
        known = tuple(data.labels[place] for place in places)
        rows, test = of_labels(data.train, known), of_labels(data.test, known)
        assert rows is not None
        rows = limited(rows, limit, seed, number)
        names = np.asarray([f"{data.name}/{label}" for label in data.labels]) if labels == "prefixed" else None
        space: tuple[Label, ...] = known if names is None else tuple(names[places].tolist())
        name = data.name if count == 1 else f"{data.name}-{part + 1}"
        info = TaskInfo(name=name, number=number, labels=space, size=nominal(rows))
        return cut(data, info, rows, test, through=fit(data, target), names=names)

    name = "-".join(data.name for data in sets)
    return stream(name, target, (task(number, *one) for number, one in enumerate(cuts)), task_id=task_id)


def _counts(sets: Sequence[DataSet], parts: Sequence[int] | None) -> list[int]:
    """Into how many tasks each set is cut."""
    if parts is None:
        return [1] * len(sets)
    if len(parts) != len(sets):
        raise DataError(f"parts has {len(parts)} values for {len(sets)} data sets; give one for each")
    for data, count in zip(sets, parts, strict=True):
        if whole("each of parts", count) > len(data.labels):
            raise DataError(f"{data.name} has {len(data.labels)} classes, too few for {count} parts; ask for fewer")
    return list(parts)


def _dealt(data: DataSet, count: int, seed: int) -> list[list[int]]:
    """The places of each part's classes among those of the set: as many in each, or one more in the first ones."""
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


def fit(data: DataSet, shape: tuple[int, ...]) -> Map | None:
    """The public map that brings a set's features to `shape`; None where they have it."""
    if data.shape == shape:
        return None
    if len(data.shape) != 3 or len(shape) != 3 or any(a > b for a, b in zip(data.shape, shape, strict=True)):
        raise DataError(
            f"{data.name} has records of shape {data.shape}, which zeros around cannot bring to {shape}; give a shape "
            "(channels, height, width) that is at least as large"
        )
    if data.shape[0] not in (1, shape[0]):
        raise DataError(
            f"{data.name} has {data.shape[0]} channels and {shape[0]} are asked for; only one can be repeated"
        )
    around = [(0, 0), (0, 0)]
    for have, want in zip(data.shape[1:], shape[1:], strict=True):
        around.append(((want - have) // 2, want - have - (want - have) // 2))

    def pad(x: Array) -> Array:
        padded = np.pad(x, around)
        return padded if data.shape[0] == shape[0] else np.repeat(padded, shape[0], axis=1)

    return pad


def _largest(sets: Sequence[DataSet]) -> tuple[int, ...]:
    shapes = {data.shape for data in sets}
    if len({len(shape) for shape in shapes}) > 1:
        raise DataError(f"images and other records do not go into one stream, got shapes {sorted(shapes)}")
    return tuple(max(sides) for sides in zip(*shapes, strict=True))
