"""Where records come from: arrays, torch Datasets and iterables, all as `(fetch, labels, ids)`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import VaultError


@dataclass(frozen=True, kw_only=True)
class Source:
    """`fetch(rows)` gives features as one tensor; labels and unit ids are known for every row."""

    fetch: Callable[[Tensor], Tensor]
    labels: NDArray[Any]
    ids: NDArray[Any] | None


def open_source(source: Any, shape: tuple[int, ...] | None) -> Source:
    """Arrays `(x, y[, ids])`, a Dataset of `(x, y[, id])` (features are read when sampled), or an iterable of such."""
    if isinstance(source, tuple) and len(source) in (2, 3) and all(hasattr(part, "__len__") for part in source):
        return _arrays(*source)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return _dataset(source, shape)
    if isinstance(source, Iterable):
        return _dataset(list(source), shape)
    raise VaultError(
        f"records come from arrays (x, y[, ids]), a Dataset or an iterable of (x, y[, id]), got {type(source).__name__}"
    )


def _arrays(x: Any, y: Any, ids: Any = None) -> Source:
    features = _tensor(x)
    labels = np.asarray(y)
    if len(features) != len(labels) or (ids is not None and len(ids) != len(labels)):
        raise VaultError("x, y and ids must have one entry per record, and their lengths differ")
    return Source(fetch=lambda rows: features[rows], labels=labels, ids=None if ids is None else np.asarray(ids))


def _dataset(data: Any, shape: tuple[int, ...] | None) -> Source:
    rest = [data[i][1:] for i in range(len(data))]
    labels = np.asarray([np.asarray(row[0])[()] for row in rest]) if rest else np.zeros(0, dtype=np.int64)
    ids = np.asarray([row[1] for row in rest]) if rest and len(rest[0]) > 1 else None
    if not rest and shape is None:
        raise VaultError("this source holds no record and cannot tell their shape; declare it with Declared(shape=…)")
    empty = _tensor(data[0][0])[None][:0] if rest else torch.zeros(0, *(shape or ()))

    def fetch(rows: Tensor) -> Tensor:
        return torch.stack([_tensor(data[row][0]) for row in rows.tolist()]) if len(rows) else empty

    return Source(fetch=fetch, labels=labels, ids=ids)


def _tensor(x: Any) -> Tensor:
    value = x if isinstance(x, Tensor) else torch.from_numpy(np.ascontiguousarray(x))
    return value.float() if value.dtype == torch.float64 else value
