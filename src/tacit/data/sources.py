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
        found = _arrays(source[0], source[1], source[2] if len(source) == 3 else None, shape)
        if isinstance(source, Made):
            raw = tensor(source.raw)
            found = replace(found, raw=lambda rows: raw[rows])
        return _whose(found)
    if (
        isinstance(source, np.ndarray | Tensor | Mapping | str)
        or hasattr(source, "columns")
        or hasattr(source, "dataset")
    ):
        raise VaultError(_WANTED + f", got {type(source).__name__}")
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return _whose(_dataset(source, shape))
    if isinstance(source, Iterable):
        return _whose(_dataset(list(source), shape))
    raise VaultError(_WANTED + f", got {type(source).__name__}")


def _whose(source: Source) -> Source:
    """The records of which it is said whose they are; the others are left out in silence."""
    if source.ids is None or bool((source.ids != "").all()):
        return source
    kept = torch.from_numpy(np.flatnonzero(source.ids != ""))
    fetch, raw = source.fetch, source.raw
    return Source(
        fetch=lambda rows: fetch(kept[rows]),
        labels=source.labels[kept.numpy()],
        ids=source.ids[kept.numpy()],
        raw=None if raw is None else lambda rows: raw(kept[rows]),
    )


_WANTED = "records come as a tuple of arrays (x, y) or (x, y, ids), or as a Dataset or iterable of (x, y) or (x, y, id)"


def _arrays(x: Any, y: Any, ids: Any, shape: tuple[int, ...] | None) -> Source:
    if x is None or y is None:
        raise VaultError(_WANTED + ", got None for one of them")
    features, labels = x if isinstance(x, Features) else tensor(x, shape), column(y, "y")
    named = None if ids is None else _names(ids)
    if len(features) != len(labels) or (named is not None and len(named) != len(labels)):
        raise VaultError("x, y and ids must have one entry per record, and their lengths differ")
    if isinstance(features, Features):
        return Source(fetch=lambda rows: torch.from_numpy(features[rows.numpy()]), labels=labels, ids=named)
    return Source(fetch=lambda rows: as_read(features[rows]), labels=labels, ids=named)


def _dataset(data: Any, shape: tuple[int, ...] | None) -> Source:
    """Samples are looked at one by one: an odd one (see `odd_row`) does not decide how the others are read."""
    first = data[0] if len(data) else None
    if first is not None and not _is_sample(first):
        raise VaultError(_WANTED + f", and this one gives {type(first).__name__} of another length")
    if first is None and shape is None:
        raise VaultError("this source holds no record and cannot tell their shape; declare it with Declared(shape=…)")
    rest = [sample[1:] if _is_sample(sample := data[i]) else (None,) for i in range(len(data))]
    labels = column([row[0] for row in rest], "y") if rest else np.zeros(0, dtype=np.int64)
    ids = None
    if first is not None and len(first) > 2:
        ids = _names([(*row, None)[1] for row in rest])
    like = torch.zeros(shape or ()) if first is None else _like(first[0], shape)

    def fetch(rows: Tensor) -> Tensor:
        found = [row_like(data[row], like) for row in rows.tolist()]
        return as_read(torch.stack(found) if found else like[None][:0])

    return Source(fetch=fetch, labels=labels, ids=ids)


def _is_sample(sample: Any) -> bool:
    return isinstance(sample, tuple | list) and len(sample) in (2, 3)


def _like(value: Any, shape: tuple[int, ...] | None) -> Tensor:
    """What a row looks like: of the declared shape, and of the kind of this one where it is a row at all."""
    try:
        found = tensor(value)
    except (VaultError, ValueError, TypeError):
        if shape is None:
            raise
        return torch.zeros(shape)
    return found.new_zeros(found.shape if shape is None else shape)


def row_like(sample: Any, like: Tensor) -> Tensor:
    """The features of a sample; what is not as many numbers as this shape has is an odd row."""
    try:
        found = tensor(sample[0]) if _is_sample(sample) else None
    except (VaultError, ValueError, TypeError):
        found = None
    odd = found is None or found.numel() != like.numel()
    return odd_row(like) if odd or found is None else found.reshape(like.shape).to(like.dtype)


def odd_row(like: Tensor) -> Tensor:
    """In place of features that cannot be read: not finite, so that the exits count the record as nothing; zeros where
    features are whole numbers, which are always finite."""
    return torch.full_like(like, torch.nan if like.dtype.is_floating_point else 0)


def column(values: Any, name: str) -> NDArray[Any]:
    """One number or text per record. Where values are of several kinds none decides how the others are read: what is
    neither a number nor a text becomes the empty text."""
    try:
        found = np.asarray(values)
    except ValueError:  # lists among the values
        found = np.empty(0, dtype=object)
    if found.ndim > 1:
        raise VaultError(
            f"{name} must hold one value per record, got {found.ndim} dimensions; flatten or rank it first"
        )
    if isinstance(values, np.ndarray | Tensor) and found.dtype.kind != "O":
        if found.dtype.kind not in "iufbU":
            raise VaultError(f"{name} must be numbers or texts, got {found.dtype}; convert it first")
        return found.astype(np.int64) if found.dtype.kind == "b" else found
    plain = [_plain(value) for value in values]
    kinds = {isinstance(value, str) for value in plain}
    if len(kinds) == 1:
        together = np.asarray(plain)
        if together.dtype.kind in "iufU":
            return together
    mixed = np.empty(len(plain), dtype=object)
    mixed[:] = plain
    return mixed


def _plain(value: Any) -> int | float | str:
    """A number or text as Python has it."""
    found = value.item() if isinstance(value, np.generic | np.ndarray | Tensor) and _is_single(value) else value
    if isinstance(found, bool):
        return int(found)
    return found if isinstance(found, int | float | str) else ""


def _is_single(value: Any) -> bool:
    return isinstance(value, np.generic) or (value.ndim == 0)


def _names(ids: Any) -> NDArray[Any]:
    """Whose each record is, empty where that is not said. The whole number 7, 7.0 and the text '7' are the same person,
    however a file was read."""
    found = column(ids, "ids")
    if found.dtype.kind in "iu":
        return found.astype(str)
    return np.asarray([_name(value) for value in found.tolist()], dtype=str).reshape(len(found))


def _name(value: int | float | str) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else ""
    return str(value)


def as_read(rows: Tensor) -> Tensor:
    """Records as a model reads them: pictures of bytes (n, channels, height, width) divided by 255, all else as it is.

    Shape and type decide, which are public; values never do."""
    return rows.float() / 255 if is_picture(rows) else rows


def is_picture(rows: Tensor) -> bool:
    """Whether records are pictures whose values are bytes."""
    return rows.dtype == torch.uint8 and rows.dim() == 4


def tensor(x: Any, shape: tuple[int, ...] | None = None) -> Tensor:
    """Numbers as a tensor; in single precision where they are in double.

    `shape`: of one record, where it is declared. Rows of a list that are not numbers of this shape are then odd rows;
    without it they cannot be told from the others."""
    value = x if isinstance(x, Tensor) else _array(x, shape)
    if not isinstance(value, Tensor):
        if value.dtype.kind not in "iufb":
            raise VaultError(f"features must be numbers, got {value.dtype}; encode texts and missing values first")
        value = torch.from_numpy(np.ascontiguousarray(value))
    return value.float() if value.dtype == torch.float64 else value


def _array(x: Any, shape: tuple[int, ...] | None) -> NDArray[Any]:
    """An array as it is; of lists one by one where they do not make an array of numbers of the declared shape."""
    if isinstance(x, np.ndarray) and x.dtype.kind != "O":
        return x
    try:
        found = np.asarray(x)
    except (ValueError, TypeError):  # its message tells how many rows there are
        found = np.empty(0, dtype=object)
    if found.dtype.kind in "iufb" and (shape is None or found.shape[1:] == shape):
        return found
    if shape is None or not hasattr(x, "__len__"):
        if found.dtype.kind == "O":
            raise VaultError("features must be numbers, and all records of one shape; make them so, or declare a shape")
        return found
    like = torch.zeros(shape)
    return np.stack([row_like((row, None), like).numpy() for row in x]) if len(x) else np.zeros((0, *shape), np.float32)
