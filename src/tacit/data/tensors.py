"""Conversion of arrays and lists to tensors, in the form that models read.

Every conversion acts on each row by itself. Only the type and the shape of the input decide how it is converted; both
are public, and values are never inspected for this.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import VaultError


def tensor(x: Any, shape: tuple[int, ...] | None = None) -> Tensor:
    """Converts numbers to a tensor; double precision becomes single precision.

    Args:
        x: A tensor, an array or a list of rows.
        shape: The declared shape of one row. Rows of a list that do not have it are replaced by `invalid_row`; without
            a declared shape they are refused, since they cannot be told from the others.

    Raises:
        VaultError: The values are not numbers, or the rows have different shapes.
    """
    value = x if isinstance(x, Tensor) else _array(x, shape)
    if not isinstance(value, Tensor):
        if value.dtype.kind not in "iufb":
            raise VaultError(f"features must be numbers, got {value.dtype}; encode texts and missing values first")
        value = torch.from_numpy(np.ascontiguousarray(value))
    return value.float() if value.dtype == torch.float64 else value


def model_input(rows: Tensor) -> Tensor:
    """Scales images that are stored as bytes (n, channels, height, width) to [0, 1]; other rows are unchanged."""
    return rows.float() / 255 if is_byte_image(rows) else rows


def is_byte_image(rows: Tensor) -> bool:
    """Whether the rows are images stored as bytes."""
    return rows.dtype == torch.uint8 and rows.dim() == 4


def row_like(features: Any, template: Tensor) -> Tensor:
    """Converts the features of one record to the shape and type of `template`.

    What cannot be converted becomes `invalid_row(template)`, so that a malformed record affects no other record."""
    try:
        value = tensor(features)
    except (VaultError, ValueError, TypeError):
        return invalid_row(template)
    return (
        value.reshape(template.shape).to(template.dtype) if value.numel() == template.numel() else invalid_row(template)
    )


def invalid_row(template: Tensor) -> Tensor:
    """The replacement for features that cannot be read: NaN, which every exit of the vault counts as no contribution;
    zeros for integer features, which have no NaN."""
    return torch.full_like(template, torch.nan if template.dtype.is_floating_point else 0)


def _array(x: Any, shape: tuple[int, ...] | None) -> NDArray[Any]:
    """The array of `x`; a list that does not form an array of the declared shape is converted row by row."""
    if isinstance(x, np.ndarray) and x.dtype.kind != "O":
        return x
    try:
        array = np.asarray(x)
    except (ValueError, TypeError):  # the message of numpy contains the number of rows
        array = np.empty(0, dtype=object)
    if array.dtype.kind in "iufb" and (shape is None or array.shape[1:] == shape):
        return array
    if shape is None or not hasattr(x, "__len__"):
        if array.dtype.kind == "O":
            raise VaultError("features must be numbers, and all records of one shape; convert them, or declare a shape")
        return array
    template = torch.zeros(shape)
    return np.stack([row_like(row, template).numpy() for row in x]) if len(x) else np.zeros((0, *shape), np.float32)
