"""Opens what `Vault.admit` is given: arrays, torch Datasets, iterables, or the declared rows of a file.

Every source becomes a `Source`: a function that fetches features by row, the labels, and the ids of the units. Labels
and ids are read at admission, features when they are sampled. Each record is parsed by itself: a malformed record
changes how no other record is read, and no message quotes a value or depends on the number of records.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.samples import Array, Features, Floats
from tacit.data.tensors import model_input, row_like, tensor
from tacit.errors import VaultError


@dataclass(frozen=True, kw_only=True)
class Source:
    """An opened source. Private.

    Attributes:
        fetch: Returns the features of the given rows as one tensor.
        labels: The label of every row.
        ids: The id of the unit that each row belongs to; None where the source has no ids.
    """

    fetch: Callable[[Tensor], Tensor]
    labels: NDArray[Any]
    ids: NDArray[Any] | None


class Reader(Protocol):
    """Reads the rows of a declared file or container, one task at a time."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def read(self, task: str) -> tuple[Floats, Array, Array | None]: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclaredRows:
    """The private rows of one declared task, for `Vault.admit` to open. It has no method that reads or counts them."""

    task: str
    reader: Reader = field(repr=False)


def open_source(source: Any, shape: tuple[int, ...] | None) -> Source:
    """Opens a source of records. Records with an empty id are dropped without a message.

    Args:
        source: Arrays `(x, y)` or `(x, y, ids)`, where x may also be `Features`; a Dataset or an iterable of `(x, y)`
            or `(x, y, id)`; a function that returns one of these; or `DeclaredRows`.
        shape: The declared shape of one record, where there is one.

    Raises:
        VaultError: The source has none of these forms.
    """
    if isinstance(source, DeclaredRows):
        source = tuple(column for column in source.reader.read(source.task) if column is not None)
    elif callable(source) and not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
        source = source()
    if isinstance(source, tuple) and len(source) in (2, 3):
        return _with_ids_only(_from_arrays(*source, shape=shape))
    plain = isinstance(source, np.ndarray | Tensor | Mapping | str)
    if plain or hasattr(source, "columns") or hasattr(source, "dataset"):
        raise VaultError(_EXPECTED + f", got {type(source).__name__}")
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return _with_ids_only(_from_dataset(source, shape))
    if isinstance(source, Iterable):
        return _with_ids_only(_from_dataset(list(source), shape))
    raise VaultError(_EXPECTED + f", got {type(source).__name__}")


_EXPECTED = (
    "records come as a tuple of arrays (x, y) or (x, y, ids), or as a Dataset or iterable of (x, y) or (x, y, id)"
)


def _with_ids_only(source: Source) -> Source:
    """The source without the records that have an empty id."""
    if source.ids is None or bool((source.ids != "").all()):
        return source
    kept, fetch = torch.from_numpy(np.flatnonzero(source.ids != "")), source.fetch
    return replace(
        source, fetch=lambda rows: fetch(kept[rows]), labels=source.labels[kept.numpy()], ids=source.ids[kept.numpy()]
    )


def _from_arrays(x: Any, y: Any, ids: Any = None, *, shape: tuple[int, ...] | None) -> Source:
    if x is None or y is None:
        raise VaultError(_EXPECTED + ", got None for one of them")
    features, labels = x if isinstance(x, Features) else tensor(x, shape), column(y, "y")
    owners = None if ids is None else _owner_ids(ids)
    if len(features) != len(labels) or (owners is not None and len(owners) != len(labels)):
        raise VaultError("x, y and ids must have one entry per record, and their lengths differ")
    if isinstance(features, Features):
        return Source(fetch=lambda rows: torch.from_numpy(features[rows.numpy()]), labels=labels, ids=owners)
    return Source(fetch=lambda rows: model_input(features[rows]), labels=labels, ids=owners)


def _from_dataset(data: Any, shape: tuple[int, ...] | None) -> Source:
    first = data[0] if len(data) else None
    if first is not None and not _is_sample(first):
        raise VaultError(_EXPECTED + f", and this one gives {type(first).__name__} of another length")
    if first is None and shape is None:
        raise VaultError("this source holds no record and cannot tell their shape; declare it with Declared(shape=…)")
    rest = [sample[1:] if _is_sample(sample := data[i]) else (None,) for i in range(len(data))]
    labels = column([row[0] for row in rest], "y") if rest else np.zeros(0, dtype=np.int64)
    has_ids = first is not None and len(first) > 2
    ids = _owner_ids([(*row, None)[1] for row in rest]) if has_ids else None
    template = torch.zeros(shape or ()) if first is None else _template(first[0], shape)

    def fetch(rows: Tensor) -> Tensor:
        samples = [data[row] for row in rows.tolist()]
        features = [row_like(sample[0] if _is_sample(sample) else None, template) for sample in samples]
        return model_input(torch.stack(features) if features else template[None][:0])

    return Source(fetch=fetch, labels=labels, ids=ids)


def _is_sample(sample: Any) -> bool:
    return isinstance(sample, tuple | list) and len(sample) in (2, 3)


def _template(features: Any, shape: tuple[int, ...] | None) -> Tensor:
    """Zeros of the declared shape, or of that of these features, and of the type of these where they can be read."""
    try:
        value = tensor(features)
    except (VaultError, ValueError, TypeError):
        if shape is None:
            raise
        return torch.zeros(shape)
    return value.new_zeros(value.shape if shape is None else shape)


def column(values: Any, name: str) -> NDArray[Any]:
    """One number or text per record.

    In a list of several types each value is converted by itself; a value that is neither a number nor a text becomes
    the empty text.

    Raises:
        VaultError: There is more than one dimension, or an array of another type.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # lists among the values
        array = np.empty(0, dtype=object)
    if array.ndim > 1:
        raise VaultError(
            f"{name} must hold one value per record, got {array.ndim} dimensions; flatten or rank it first"
        )
    if isinstance(values, np.ndarray | Tensor) and array.dtype.kind != "O":
        if array.dtype.kind not in "iufbU":
            raise VaultError(f"{name} must be numbers or texts, got {array.dtype}; convert it first")
        return array.astype(np.int64) if array.dtype.kind == "b" else array
    plain = [_plain_value(value) for value in values]
    if len({isinstance(value, str) for value in plain}) == 1:
        uniform = np.asarray(plain)
        if uniform.dtype.kind in "iufU":
            return uniform
    mixed = np.empty(len(plain), dtype=object)
    mixed[:] = plain
    return mixed


def _plain_value(value: Any) -> int | float | str:
    """The value as a Python number or text; the empty text where it is neither."""
    is_scalar = isinstance(value, np.generic) or (isinstance(value, np.ndarray | Tensor) and value.ndim == 0)
    plain = value.item() if is_scalar else value
    if isinstance(plain, bool):
        return int(plain)
    return plain if isinstance(plain, int | float | str) else ""


def _owner_ids(ids: Any) -> NDArray[Any]:
    """Ids as texts, empty where one is missing. The numbers 7 and 7.0 and the text '7' are the same id, so that it does
    not matter how a file was read."""
    values = column(ids, "ids")
    if values.dtype.kind in "iu":
        return values.astype(str)
    return np.asarray([_owner_id(value) for value in values.tolist()], dtype=str).reshape(len(values))


def _owner_id(value: int | float | str) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else ""
    return str(value)
