"""Conversion of arrays and lists to tensors, in the form that models read.

Every conversion acts on each row by itself. The type and the shape of an array are public and decide how it is
converted. The records of a list have no type in common: each is converted alone, to a declared shape and type.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import VaultError


def tensor(x: Any, shape: tuple[int, ...] | None = None, *, integers: bool = False) -> Tensor:
    """Converts numbers to a tensor; double precision becomes single precision.

    Args:
        x: A tensor, an array or a list of rows.
        shape: The declared shape of one row. A list is then converted by `rows`; otherwise its rows must be alike.
        integers: See `rows`.

    Raises:
        VaultError: The values are not numbers, or the rows have different shapes.
    """
    if shape is not None and is_list(x):
        return rows(x, shape, integers=integers)[0]
    value = x if isinstance(x, Tensor) else _array(x)
    if not isinstance(value, Tensor):
        if value.dtype.kind not in "iufb":
            raise VaultError(f"features must be numbers, got {value.dtype}; encode texts and missing values first")
        value = torch.from_numpy(np.ascontiguousarray(value))
    return value.float() if value.dtype == torch.float64 else value


def is_list(x: Any) -> bool:
    """Whether the rows have no type in common: a list, or an array of objects."""
    return not isinstance(x, Tensor) and (not hasattr(x, "__array__") or getattr(x, "dtype", None) == np.dtype(object))


def rows(x: Any, shape: tuple[int, ...], *, integers: bool = False) -> tuple[Tensor, NDArray[np.bool_]]:
    """Converts each record of a list by itself; see `row`.

    Returns:
        The rows, and which of them are valid; the others are `invalid_row`.
    """
    found = [row(features, shape, integers=integers) for features in x]
    other = invalid_row(shape, integers=integers)
    valid = np.asarray([one is not None for one in found], dtype=np.bool_)
    return torch.stack([other if one is None else one for one in found] or [other])[: len(found)], valid


def row(features: Any, shape: tuple[int, ...], *, integers: bool = False) -> Tensor | None:
    """The features of one record as float32, or as int64 where `integers` are declared; None where they do not fit.

    The bytes of an image (three dimensions) are divided by 255, as in `model_input`.
    """
    try:
        value = tensor(features).detach().cpu()
    except Exception:  # whatever the record is, it changes no other
        return None
    if value.numel() != math.prod(shape) or value.is_complex():
        return None
    value = value.reshape(shape)
    if integers:
        whole = value.long()
        return whole if bool((whole == value).all()) else None
    return value.float() / 255 if value.dtype == torch.uint8 and len(shape) == 3 else value.float()


def model_input(rows: Tensor) -> Tensor:
    """Scales images that are stored as bytes (n, channels, height, width) to [0, 1]; other rows are unchanged."""
    return rows.float() / 255 if is_byte_image(rows) else rows


def is_byte_image(rows: Tensor) -> bool:
    """Whether the rows are images stored as bytes."""
    return rows.dtype == torch.uint8 and rows.dim() == 4


def invalid_row(shape: tuple[int, ...], *, integers: bool = False) -> Tensor:
    """The replacement for features that cannot be read: NaN, which every exit of the vault counts as no contribution;
    zeros for integers, which have no NaN."""
    return torch.zeros(shape, dtype=torch.int64) if integers else torch.full(shape, torch.nan)


def _array(x: Any) -> NDArray[Any]:
    if isinstance(x, np.ndarray):
        return x
    try:
        array = np.asarray(x)
    except (ValueError, TypeError):  # the message of numpy contains the number of rows
        array = np.empty(0, dtype=object)
    if array.dtype.kind == "O":
        raise VaultError("features must be numbers, and all records of one shape; convert them, or declare a shape")
    return array
