"""Public data sets: labelled samples whose features are read when they are needed.

A `DataSet` is a public benchmark, and its samples may be counted. Private data is never held by one: it becomes a
`Stream` by a declaration.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.data.stream import Label

Array = NDArray[Any]
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
T = TypeVar("T")
Map = Callable[[Array], Array]
"""Maps each row of stored features by itself, with public constants."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Samples of a public data set. Features are read when they are first needed, then kept in memory."""

    read: Callable[[], Array] = field(repr=False)
    """Reads the features, uint8 or float32, one row per sample."""
    y: Rows
    """Labels."""
    ids: Array | None = None
    """The person that each sample belongs to."""
    groups: Mapping[str, Array] = field(default_factory=dict)
    """Columns by which a scenario may divide the set into tasks: device, sensor, recording, …"""

    @classmethod
    def of(cls, x: Array, y: Any, ids: Any = None, groups: Mapping[str, Any] | None = None) -> "Samples":
        """Samples that are in memory."""
        columns = {name: np.asarray(column) for name, column in (groups or {}).items()}
        named = None if ids is None else np.asarray(ids)
        return cls(read=lambda: x, y=np.asarray(y, dtype=np.int64), ids=named, groups=columns)

    @cached_property
    def x(self) -> Array:
        return self.read()

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    """A public benchmark. `labels`, `classes`, `shape` and `groups` are constants in the code."""

    name: str
    about: str
    labels: tuple[Label, ...]
    shape: tuple[int, ...]
    """Shape of one sample's features."""
    read_train: Callable[[], Samples] = field(repr=False)
    read_test: Callable[[], Samples] | None = field(default=None, repr=False)
    classes: tuple[str, ...] = ()
    """The names of the labels, where they are known."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values of each column by which the set can be divided into domains."""
    personal: frozenset[str] = frozenset()
    """The columns that have the same value in all records of a person."""
    rate: float | None = None
    """Samples per second, for raw sensors."""
    features: str = ""
    """What computed the features; see `StreamInfo.features`."""

    @classmethod
    def of_parts(
        cls,
        name: str,
        about: str,
        classes: tuple[str, ...],
        shape: tuple[int, ...],
        read: Callable[[bool], Samples],
        rate: float | None = None,
    ) -> "DataSet":
        """A set with labels 0, 1, … for its classes; `read(True)` gives the test samples, `read(False)` the others."""
        return cls(
            name=name,
            about=about,
            labels=tuple(range(len(classes))),
            classes=classes,
            shape=shape,
            rate=rate,
            read_train=lambda: read(False),
            read_test=lambda: read(True),
        )

    @cached_property
    def train(self) -> Samples:
        return self.read_train()

    @cached_property
    def test(self) -> Samples | None:
        return None if self.read_test is None else self.read_test()


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """Some rows of a stored array as float32 features, computed when they are read.

    It can be used like an array: `len`, `shape`, `x[rows]` and `np.asarray(x)` work. Many tasks can share one stored
    copy of the images, each with its own rows and its own public map.
    """

    store: Array = field(repr=False)
    rows: Rows = field(repr=False)
    through: Map | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self[:0].shape[1:])

    def __getitem__(self, index: Any) -> Floats:
        taken = self.store[self.rows[index]]
        return scaled(taken if self.through is None else self.through(taken))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self[:] if dtype is None else self[:].astype(dtype)


def present(value: T | None) -> T:
    """The value, which the caller knows to be there."""
    assert value is not None
    return value


def scaled(x: Array) -> Floats:
    """The values as float32; bytes are divided by 255. No statistic of the data is used."""
    if x.dtype == np.uint8:
        return np.multiply(x, np.float32(1 / 255), dtype=np.float32)
    return x.astype(np.float32, copy=False)
