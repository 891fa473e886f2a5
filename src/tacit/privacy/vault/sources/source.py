"""Opens what `Vault.admit` is given: arrays, torch Datasets, iterables, or the declared rows of a file.

Every source becomes a `Source`: a function that fetches features by row, the labels, and the ids of the units. Labels
and ids are read at admission, features when they are sampled. No message quotes a value or depends on the number of
records.

Formal guarantees:
    * What records have in common (shape, type, whether they come with ids) follows from the declaration or from the
      type of an array, never from a record. In a list, a Dataset or an iterable each record is converted by itself.
    * A record that does not fit is dropped in silence.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.declared.parsing import plain_name
from tacit.data.input_form import InputForm
from tacit.data.samples import Array, Features, Floats
from tacit.data.stream import Label
from tacit.data.tensors import invalid_row, is_list, model_input, row, rows, tensor
from tacit.errors import VaultError


@dataclass(frozen=True, kw_only=True)
class Source:
    """An opened source. Private.

    Attributes:
        fetch: Returns the features of the given rows as one tensor.
        labels: The label of every row.
        ids: The id of the unit that each row belongs to; None where the source has no ids.
        lazy: Whether features are read when they are fetched; otherwise the source holds them all.
    """

    fetch: Callable[[Tensor], Tensor]
    labels: NDArray[Any]
    ids: NDArray[Any] | None
    lazy: bool = False


@dataclass(frozen=True, kw_only=True)
class Occurring:
    """Which declared tasks and labels occur in the rows, and which names do. Private, unless the rows are public.

    Attributes:
        labels: The declared labels among the rows of each declared task that has rows.
        tasks_named: Names of tasks in the rows, declared or not.
        labels_named: Names of labels in the rows, declared or not.
    """

    labels: Mapping[str, frozenset[Label]]
    tasks_named: tuple[str, ...] = ()
    labels_named: tuple[str, ...] = ()


class Reader(Protocol):
    """Reads the rows of a declared file or container, one task at a time."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def form(self) -> InputForm: ...
    def read(self, task: str) -> tuple[Floats, Array, Array | None]: ...
    def occurring(self) -> "Occurring": ...


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclaredRows:
    """The private rows of one declared task, for `Vault.admit` to open. It has no method that reads or counts them."""

    task: str
    reader: Reader = field(repr=False)


def open_source(source: Any, shape: tuple[int, ...] | None, *, ids: bool = False, integers: bool = False) -> Source:
    """Opens a source of records. Records that do not fit, or have an empty id, are dropped without a message.

    Args:
        source: Arrays `(x, y)` or `(x, y, ids)`, where x may also be `Features`; a Dataset or an iterable of `(x, y)`
            or `(x, y, id)`; a function that returns one of these; or `DeclaredRows`.
        shape: The declared shape of one record. Arrays tell it themselves.
        ids: Whether the records of a Dataset or iterable are declared to come with ids. Arrays tell it themselves.
        integers: Whether the features in a list, Dataset or iterable are declared to be whole numbers.

    Raises:
        VaultError: The source has none of these forms, or its shape is not declared.
    """
    if isinstance(source, DeclaredRows):
        source = tuple(column for column in source.reader.read(source.task) if column is not None)
    elif callable(source) and not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
        source = source()
    if isinstance(source, tuple) and len(source) in (2, 3):
        return _from_arrays(*source, shape=shape, integers=integers)
    plain = isinstance(source, np.ndarray | Tensor | Mapping | str | tuple)
    if plain or hasattr(source, "columns") or hasattr(source, "dataset"):
        raise VaultError(_EXPECTED + f", got {type(source).__name__}")
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return _from_dataset(source, shape, ids, integers)
    if isinstance(source, Iterable):
        return _from_dataset(list(source), shape, ids, integers)
    raise VaultError(_EXPECTED + f", got {type(source).__name__}")


_EXPECTED = (
    "records come as a tuple of arrays (x, y) or (x, y, ids), or as a Dataset or iterable of (x, y) or (x, y, id)"
)


_NO_SHAPE = (
    "a list, Dataset or iterable does not tell the shape of its records, and no record may decide how others are read; "
    "declare it with Declared(shape=…)"
)


def _fitting(source: Source, fits: NDArray[np.bool_]) -> Source:
    """The source without the records that do not fit, or have an empty id."""
    keep = fits if source.ids is None else fits & (source.ids != "")
    if bool(keep.all()):
        return source
    kept, fetch = torch.from_numpy(np.flatnonzero(keep)), source.fetch
    return Source(
        fetch=lambda rows: fetch(kept[rows]),
        labels=source.labels[keep],
        ids=None if source.ids is None else source.ids[keep],
        lazy=source.lazy,
    )


def _from_arrays(x: Any, y: Any, ids: Any = None, *, shape: tuple[int, ...] | None, integers: bool) -> Source:
    if x is None or y is None:
        raise VaultError(_EXPECTED + ", got None for one of them")
    if is_list(x) and shape is None:
        raise VaultError(_NO_SHAPE)
    fits = None
    if isinstance(x, Features):
        features: Any = x
    elif is_list(x) and shape is not None:
        features, fits = rows(x, shape, integers=integers)
    else:
        features = tensor(x)
    labels, owners = column(y, "y"), None if ids is None else _owner_ids(ids)
    if len(features) != len(labels) or (owners is not None and len(owners) != len(labels)):
        raise VaultError("x, y and ids must have one entry per record, and their lengths differ")

    def fetch(index: Tensor) -> Tensor:
        if isinstance(features, Features):
            return torch.from_numpy(features[index.numpy()])
        return model_input(features[index])

    fits = np.ones(len(labels), dtype=np.bool_) if fits is None else fits
    return _fitting(Source(fetch=fetch, labels=labels, ids=owners, lazy=isinstance(x, Features)), fits)


def _from_dataset(data: Any, shape: tuple[int, ...] | None, has_ids: bool, integers: bool) -> Source:
    if shape is None:
        raise VaultError(_NO_SHAPE)

    def sample(number: int) -> tuple[Tensor | None, Any, Any]:
        """Features (None where they do not fit), label and id."""
        found = data[number]
        if not isinstance(found, tuple | list) or len(found) not in (2, 3):
            return None, None, None
        return row(found[0], shape, integers=integers), found[1], (*found, None)[2]

    fits, labels, ids = [], [], []
    for number in range(len(data)):
        features, label, owner = sample(number)
        fits.append(features is not None)
        labels.append(label)
        ids.append(owner)
    other = invalid_row(shape, integers=integers)

    def fetch(index: Tensor) -> Tensor:
        found = [sample(number)[0] for number in index.tolist()]
        return torch.stack([other if one is None else one for one in found] or [other])[: len(found)]

    owners = _owner_ids(ids) if has_ids else None
    found = Source(fetch=fetch, labels=column(labels, "y"), ids=owners, lazy=True)
    return _fitting(found, np.asarray(fits, dtype=np.bool_))


def column(values: Any, name: str) -> NDArray[Any]:
    """One number or text per record.

    An array of numbers or texts has its own type. A list or an array of objects becomes an array of objects, in which
    each value is converted by itself; one that is neither a number nor a text becomes the empty text.

    Raises:
        VaultError: An array has more than one dimension, or another type.
    """
    if hasattr(values, "dtype"):
        array = np.asarray(values)
        if array.ndim != 1:
            raise VaultError(
                f"{name} must hold one value per record, got {array.ndim} dimensions; pass a one-dimensional array"
            )
        if array.dtype.kind in "iufbU":
            return array.astype(np.int64) if array.dtype.kind == "b" else array
        if array.dtype.kind != "O":
            raise VaultError(f"{name} must be numbers or texts, got {array.dtype}; convert it first")
        values = array
    plain = [_plain_value(value) for value in values]
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
    """Ids as texts in the form in which they are compared, empty where one is missing: however a file was read, and
    whichever way records come in, the number 7 and the texts '7', ' 7' and '7.0' are one id (`plain_name`)."""
    values = column(ids, "ids")
    if values.dtype.kind in "iu":
        return values.astype(str)
    return np.asarray([_owner_id(value) for value in values.tolist()], dtype=str).reshape(len(values))


def _owner_id(value: int | float | str) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else ""
    return plain_name(str(value))
