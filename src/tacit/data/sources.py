"""Where records come from: arrays, torch Datasets and iterables, all as `(fetch, labels, ids)`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.samples import Features
from tacit.errors import VaultError


@dataclass(frozen=True, kw_only=True)
class Source:
    """`fetch(rows)` gives features as one tensor; labels and unit ids are known for every row."""

    fetch: Callable[[Tensor], Tensor]
    labels: NDArray[Any]
    ids: NDArray[Any] | None
    raw: Callable[[Tensor], Tensor] | None = None
    """The records that the features were made from, where they were made."""


class Made(tuple[Any, ...]):
    """Arrays (x, y[, ids]) whose x was made from other records: the vault knows data again by those.

    Otherwise the same people under a second name would pass as new ones, once their features are made otherwise."""

    raw: NDArray[Any]

    def __new__(cls, arrays: Iterable[Any], raw: NDArray[Any]) -> "Made":
        made = super().__new__(cls, arrays)
        made.raw = raw
        return made


def open_source(source: Any, shape: tuple[int, ...] | None) -> Source:
    """Arrays `(x, y[, ids])`, a Dataset of `(x, y[, id])` (features are read when sampled), an iterable of such, or a
    function that returns one of these.

    In place of an array x may be `Features`, which are made when sampled."""
    if callable(source) and not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
        source = source()
    if isinstance(source, tuple) and len(source) in (2, 3):
        found = _arrays(*source)
        if not isinstance(source, Made):
            return found
        raw = tensor(source.raw)
        return replace(found, raw=lambda rows: raw[rows])
    if (
        isinstance(source, np.ndarray | Tensor | Mapping | str)
        or hasattr(source, "columns")
        or hasattr(source, "dataset")
    ):
        raise VaultError(_WANTED + f", got {type(source).__name__}")
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return _dataset(source, shape)
    if isinstance(source, Iterable):
        return _dataset(list(source), shape)
    raise VaultError(_WANTED + f", got {type(source).__name__}")


_WANTED = "records come as a tuple of arrays (x, y) or (x, y, ids), or as a Dataset or iterable of (x, y) or (x, y, id)"


def _arrays(x: Any, y: Any, ids: Any = None) -> Source:
    if x is None or y is None:
        raise VaultError(_WANTED + ", got None for one of them")
    features, labels = x if isinstance(x, Features) else tensor(x), _column(y, "y")
    named = None if ids is None else _names(ids)
    if len(features) != len(labels) or (named is not None and len(named) != len(labels)):
        raise VaultError("x, y and ids must have one entry per record, and their lengths differ")
    if isinstance(features, Features):
        return Source(fetch=lambda rows: torch.from_numpy(features[rows.numpy()]), labels=labels, ids=named)
    return Source(fetch=lambda rows: as_read(features[rows]), labels=labels, ids=named)


def _dataset(data: Any, shape: tuple[int, ...] | None) -> Source:
    if len(data) and not (isinstance(data[0], tuple | list) and len(data[0]) in (2, 3)):
        raise VaultError(_WANTED + f", and this one gives {type(data[0]).__name__} of another length")
    rest = [data[i][1:] for i in range(len(data))]
    labels = _labels([np.asarray(row[0])[()] for row in rest]) if rest else np.zeros(0, dtype=np.int64)
    ids = _names([row[1] for row in rest]) if rest and len(rest[0]) > 1 else None
    if not rest and shape is None:
        raise VaultError("this source holds no record and cannot tell their shape; declare it with Declared(shape=…)")
    empty = tensor(data[0][0])[None][:0] if rest else torch.zeros(0, *(shape or ()))

    def fetch(rows: Tensor) -> Tensor:
        return as_read(torch.stack([tensor(data[row][0]) for row in rows.tolist()]) if len(rows) else empty)

    return Source(fetch=fetch, labels=labels, ids=ids)


def _labels(values: list[Any]) -> NDArray[Any]:
    """Labels as they are: where some are texts and some are not, none decides how the others are read."""
    if len({isinstance(value, str) for value in values}) == 1:
        return _column(values, "y")
    mixed = np.empty(len(values), dtype=object)
    mixed[:] = [value.item() if isinstance(value, np.generic) else value for value in values]
    return mixed


def _column(values: Any, name: str) -> NDArray[Any]:
    """One number or text per record."""
    column = np.asarray(values)
    if column.ndim != 1:
        raise VaultError(
            f"{name} must hold one value per record, got {column.ndim} dimensions; flatten or rank it first"
        )
    if column.dtype.kind == "O":
        column = np.asarray([str(value) for value in column]) if all(isinstance(v, str) for v in column) else column
    if column.dtype.kind not in "iufbU":
        raise VaultError(f"{name} must be numbers or texts, got {column.dtype}; convert it first")
    return column.astype(np.int64) if column.dtype.kind == "b" else column


def _names(ids: Any) -> NDArray[Any]:
    """Whose each record is. The whole number 7 and the text '7' are the same person, however a file was read."""
    names = _column(ids, "ids")
    if names.dtype.kind not in "iuU":
        raise VaultError(f"ids must be whole numbers or texts, got {names.dtype}; a missing id has to be given a name")
    return names.astype(str)


def as_read(rows: Tensor) -> Tensor:
    """Records as a model reads them: pictures of bytes (n, channels, height, width) divided by 255, all else as it is.

    Shape and type decide, which are public; values never do."""
    return rows.float() / 255 if is_picture(rows) else rows


def is_picture(rows: Tensor) -> bool:
    """Whether records are pictures whose values are bytes."""
    return rows.dtype == torch.uint8 and rows.dim() == 4


def tensor(x: Any) -> Tensor:
    """Numbers as a tensor; in single precision where they are in double."""
    value = x if isinstance(x, Tensor) else np.ascontiguousarray(x)
    if not isinstance(value, Tensor):
        if value.dtype.kind not in "iufb":
            raise VaultError(f"features must be numbers, got {value.dtype}; encode texts and missing values first")
        value = torch.from_numpy(value)
    return value.float() if value.dtype == torch.float64 else value
