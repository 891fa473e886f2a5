"""Public data sets: labelled samples whose features are read when they are needed.

Everything here is public: a `DataSet` is a benchmark, and what it holds may be counted. Private data never becomes one;
it comes as a `Stream` from `tacit.data.own` or from a declaration.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.stream import Label

Array = NDArray[Any]
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Map = Callable[[Array], Array]
"""Acts on each row of stored features by itself, with public constants."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Samples of a public data set. Labels are there at once; features are read when first asked for, then kept."""

    read: Callable[[], Array] = field(repr=False)
    """→ features, uint8 or float32, one row per sample."""
    y: Rows
    ids: Array | None = None
    """Whose each sample is."""
    groups: Mapping[str, Array] = field(default_factory=dict)
    """Columns by which a scenario may cut: device, sensor, recording, …"""

    @classmethod
    def of(cls, x: Array, y: Any, ids: Any = None, groups: Mapping[str, Any] | None = None) -> "Samples":
        """Samples that are in memory already."""
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
    """A public benchmark. `labels`, `classes`, `shape` and `groups` are constants of the code, never read from data."""

    name: str
    about: str
    labels: tuple[Label, ...]
    shape: tuple[int, ...]
    """Of one sample's features."""
    read_train: Callable[[], Samples] = field(repr=False)
    read_test: Callable[[], Samples] | None = field(default=None, repr=False)
    classes: tuple[str, ...] = ()
    """What the labels mean, where it is known."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values of each column by which the set can be cut into domains."""
    personal: frozenset[str] = frozenset()
    """Those columns that have one value in all records of a person."""
    rate: float | None = None
    """Samples a second, for raw sensors."""
    features: str = ""
    """What the samples were put through before, see `StreamInfo.features`."""

    @cached_property
    def train(self) -> Samples:
        return self.read_train()

    @cached_property
    def test(self) -> Samples | None:
        return None if self.read_test is None else self.read_test()


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """Some rows of a stored array as float32 features, made when they are read.

    It stands where an array could: `len`, `shape`, `x[rows]` and `np.asarray(x)` work. Many tasks can so share one
    stored copy of the images, each with its own rows and its own public map.
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


def scaled(x: Array) -> Floats:
    """What a model reads: stored bytes divided by 255; other numbers as they are. No statistic of the data."""
    if x.dtype == np.uint8:
        return np.multiply(x, np.float32(1 / 255), dtype=np.float32)
    return x.astype(np.float32, copy=False)
