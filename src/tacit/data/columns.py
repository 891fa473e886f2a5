"""A column of a private table as numbers, under public rules that act on each record by itself.

No message here quotes a value, and none depends on how many records there are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.declaration import Declaration
from tacit.data.samples import Array
from tacit.data.stream import Label
from tacit.errors import DataError

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def is_text(kind: Any) -> bool:
    """Whether an Arrow type holds texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def is_number(kind: Any) -> bool:
    """Whether an Arrow type holds numbers or truth values."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in kinds)


def texts(column: Any) -> Any:
    """The column as Arrow texts: the whole number 7, the text 7 and 7.0 are the same; missing stays missing."""
    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    try:
        return plain.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"a column of type {column.type} cannot be compared; store it as text or whole numbers"
        ) from None


def numbers(column: Any, *, parse: bool) -> NDArray[np.float64]:
    """One number per record, NaN where there is none. `parse`: texts are read as numbers: CSV has nothing else."""
    if is_text(column.type) and parse:
        trimmed = pc.utf8_trim_whitespace(texts(column))
        column = pc.if_else(pc.match_substring_regex(trimmed, NUMBER), trimmed, pa.scalar(None, pa.string()))
    found: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy().copy()
    found[~np.isfinite(found)] = np.nan
    return found


def one_hot(column: Any, categories: Sequence[Label]) -> NDArray[np.float64]:
    """One column per public category; a value outside them is all zeros."""
    places = {str(category): place for place, category in enumerate(categories)}
    at = np.asarray([places.get(value, -1) for value in texts(column).to_pylist()], dtype=np.int64)
    found: NDArray[np.float64] = (at[:, None] == np.arange(len(categories))).astype(np.float64)
    return found


def labels(column: Any, space: Sequence[Label]) -> Array:
    """Labels of the declared kind. One that cannot be read as such becomes a label outside the public set."""
    if isinstance(space[0], str):
        return np.asarray([value or "" for value in texts(column).to_pylist()], dtype=str).reshape(len(column))
    outside = min(int(label) for label in space) - 1
    found = numbers(column, parse=True)
    kept = np.where(np.isfinite(found) & (found == np.floor(found)) & (np.abs(found) < 2**53), found, outside)
    return kept.astype(np.int64)


def scale(values: Array, declared: Declaration, limit: tuple[float, float] | None) -> Array:
    """Fill what is missing, then clip to the public limits and map them to the declared range."""
    filled = np.where(np.isfinite(values), values, declared.fill)
    if limit is None:
        return filled
    least, largest = limit
    low, high = declared.range
    return low + (np.clip(filled, least, largest) - least) / (largest - least) * (high - low)
