"""A column of a private table as numbers, under public rules that act on each record by itself.

No message here quotes a value, and none depends on the records: what cannot be read is missing.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.declaration import Decimal, Declaration
from tacit.data.facts import WHOLE
from tacit.data.samples import Array, Floats
from tacit.data.stream import Label
from tacit.errors import DataError

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def is_text(kind: Any) -> bool:
    """Whether an Arrow type holds texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def is_number(kind: Any) -> bool:
    """Whether an Arrow type holds numbers or truth values."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in kinds)


def is_list(kind: Any) -> bool:
    """Whether an Arrow type holds a list in each cell, such as an embedding."""
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def texts(column: Any) -> Any:
    """The column as Arrow texts without white space around them; floats that are whole numbers become such. Missing
    stays missing, and what is not UTF-8 becomes it."""
    plain = _plain(column)
    try:
        found = _whole_floats(plain) if pa.types.is_floating(plain.type) else plain.cast(pa.string())
        found.validate(full=True)
    except pa.ArrowNotImplementedError:
        raise DataError(
            f"a column of type {column.type} cannot be compared; store it as text or whole numbers"
        ) from None
    except pa.ArrowInvalid:
        found = pa.array([_decoded(value) for value in plain.cast(pa.large_binary()).to_pylist()], pa.string())
    return pc.utf8_trim_whitespace(found)


def names(column: Any) -> Any:
    """Tasks or persons as Arrow texts: ` 7`, `7` and `7.0` are the same, and so are the ways in which Unicode writes
    one letter (as `plain_name` has it); an empty one is missing."""
    found = pc.replace_substring_regex(pc.utf8_normalize(texts(column), "NFC"), WHOLE, r"\1")
    return pc.if_else(pc.equal(found, ""), pa.scalar(None, pa.string()), found)


def numbers(column: Any, decimal: Decimal = ".") -> NDArray[np.float64]:
    """One number per record, NaN where there is none; texts are read as numbers with this decimal mark."""
    column = _plain(column)
    if is_text(column.type):
        written = texts(column)
        pattern = NUMBER.replace(r"\.", re.escape(decimal))
        found = pc.if_else(pc.match_substring_regex(written, pattern), written, pa.scalar(None, pa.string()))
        column = pc.replace_substring(found, decimal, ".")
    elif not is_number(column.type):
        return np.full(len(column), np.nan)
    values: NDArray[np.float64] = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    values[~np.isfinite(values)] = np.nan
    return values


def all_of(column: Any, width: int) -> bool:
    """Whether all lists that there are have this length."""
    return bool(pc.all(pc.equal(pc.list_value_length(column), width), min_count=0).as_py())


def vectors(column: Any, width: int, decimal: Decimal = ".") -> NDArray[np.float64]:
    """A list of `width` numbers per record, NaN in place of a list that is missing or has another length."""
    lists = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    fits = np.asarray(pc.fill_null(pc.equal(pc.list_value_length(lists), width), False))
    found = np.full((len(fits), width), np.nan)
    found[fits] = numbers(pc.list_flatten(lists.filter(pa.array(fits))), decimal).reshape(-1, width)
    return found


def one_hot(column: Any, categories: Sequence[Label]) -> NDArray[np.float64]:
    """One column per public category; a value outside them is all zeros."""
    places = {str(category): place for place, category in enumerate(categories)}
    said = texts(column) if isinstance(categories[0], str) else names(column)
    at = np.asarray([places.get(value, -1) for value in said.to_pylist()], dtype=np.int64)
    found: NDArray[np.float64] = (at[:, None] == np.arange(len(categories))).astype(np.float64)
    return found


def labels(column: Any, space: Sequence[Label], decimal: Decimal = ".") -> Array:
    """Labels of the declared kind. One that cannot be read as such becomes a label outside the public set."""
    if isinstance(space[0], str):
        return np.asarray([value or "" for value in texts(column).to_pylist()], dtype=str).reshape(len(column))
    outside = min(int(label) for label in space) - 1
    found = numbers(column, decimal)
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


def single(values: Array) -> Floats:
    """As float32; what is beyond its range becomes its end, without a word."""
    ends = np.finfo(np.float32)
    with np.errstate(all="ignore"):
        found: Floats = np.clip(values, float(ends.min), float(ends.max)).astype(np.float32)
    return found


def _plain(column: Any) -> Any:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _whole_floats(column: Any) -> Any:
    """Floats as texts, whole numbers without a point or exponent; NaN and infinities are missing."""
    wide = column.cast(pa.float64())
    whole = pc.and_(pc.equal(wide, pc.floor(wide)), pc.less(pc.abs(wide), 2.0**53))
    written = pc.if_else(whole, wide.cast(pa.int64(), safe=False).cast(pa.string()), wide.cast(pa.string()))
    return pc.if_else(pc.is_finite(wide), written, pa.scalar(None, pa.string()))


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
