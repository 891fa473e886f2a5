"""Converts the columns of a private table to numbers, labels and names, by public rules.

Every rule acts on each cell by itself, and no message depends on a cell: a cell that cannot be read is missing.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.benchmarks.formats import Bytes
from tacit.data.declared.parsing import WHOLE
from tacit.data.input_form import Decimal, InputColumn, InputForm
from tacit.data.samples import Array, Floats
from tacit.data.stream import Label
from tacit.errors import DataError

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def is_text(type_: Any) -> bool:
    """Whether an Arrow type holds texts."""
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    return any(test(type_) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def is_number(type_: Any) -> bool:
    """Whether an Arrow type holds numbers or booleans."""
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(type_) for test in tests)


def is_list(type_: Any) -> bool:
    """Whether an Arrow type holds a list in each cell, such as an embedding."""
    return any(test(type_) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def texts(cells: Any) -> Any:
    """The cells as Arrow texts without surrounding white space. A float that is a whole number is written as one; what
    is not UTF-8 is missing."""
    plain = _without_dictionary(cells)
    try:
        found = _float_texts(plain) if pa.types.is_floating(plain.type) else plain.cast(pa.string())
        found.validate(full=True)
    except pa.ArrowNotImplementedError:
        raise DataError(
            f"a column of type {cells.type} cannot be compared; store it as text or whole numbers"
        ) from None
    except pa.ArrowInvalid:
        found = pa.array([_decoded(value) for value in plain.cast(pa.large_binary()).to_pylist()], pa.string())
    return pc.utf8_trim_whitespace(found)


def names(cells: Any) -> Any:
    """Names of tasks or persons as Arrow texts in the form of `plain_name`: ` 7`, `7` and `7.0` are equal, and so are
    the Unicode spellings of one letter. An empty name is missing."""
    found = pc.replace_substring_regex(pc.utf8_normalize(texts(cells), "NFC"), WHOLE, r"\1")
    return pc.if_else(pc.equal(found, ""), pa.scalar(None, pa.string()), found)


def numbers(cells: Any, decimal: Decimal = ".") -> NDArray[np.float64]:
    """One number per cell, NaN where there is none; texts are parsed with this decimal mark."""
    cells = _without_dictionary(cells)
    if is_text(cells.type):
        written = texts(cells)
        pattern = NUMBER.replace(r"\.", re.escape(decimal))
        parsed = pc.if_else(pc.match_substring_regex(written, pattern), written, pa.scalar(None, pa.string()))
        cells = pc.replace_substring(parsed, decimal, ".")
    elif not is_number(cells.type):
        return np.full(len(cells), np.nan)
    values: NDArray[np.float64] = np.array(cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    values[~np.isfinite(values)] = np.nan
    return values


def all_of_length(cells: Any, width: int) -> bool:
    """Whether all lists that are not missing have this length."""
    return bool(pc.all(pc.equal(pc.list_value_length(cells), width), min_count=0).as_py())


def vectors(cells: Any, width: int, decimal: Decimal = ".") -> NDArray[np.float64]:
    """A list of `width` numbers per cell; NaN in place of a list that is missing or has another length."""
    lists = pa.chunked_array([cells]) if isinstance(cells, pa.Array) else cells
    fits = np.asarray(pc.fill_null(pc.equal(pc.list_value_length(lists), width), False))
    values = np.full((len(fits), width), np.nan)
    values[fits] = numbers(pc.list_flatten(lists.filter(pa.array(fits))), decimal).reshape(-1, width)
    return values


def one_hot(cells: Any, categories: Sequence[Label]) -> NDArray[np.float64]:
    """One column per public category; a cell outside them is all zeros."""
    index = {str(category): number for number, category in enumerate(categories)}
    written = texts(cells) if isinstance(categories[0], str) else names(cells)
    positions = np.asarray([index.get(value, -1) for value in written.to_pylist()], dtype=np.int64)
    encoded: NDArray[np.float64] = (positions[:, None] == np.arange(len(categories))).astype(np.float64)
    return encoded


def labels(cells: Any, space: Sequence[Label], decimal: Decimal = ".") -> Array:
    """Labels of the declared type. A cell that cannot be read as one becomes a label outside the public set."""
    if isinstance(space[0], str):
        return np.asarray([value or "" for value in texts(cells).to_pylist()], dtype=str).reshape(len(cells))
    outside = min(int(label) for label in space) - 1
    values = numbers(cells, decimal)
    is_whole = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**53)
    return np.where(is_whole, values, outside).astype(np.int64)


def features(rows: Any, form: InputForm) -> Floats:
    """The records of these rows of a table."""
    parts = [np.zeros((len(rows), 0)), *(_feature(rows.column(one.name), one, form) for one in form.columns)]
    return to_float32(np.concatenate(parts, axis=1)).reshape(len(rows), *form.shape)


def array_features(x: Array, form: InputForm) -> Floats:
    """The records of an array of numbers."""
    scaled = scale(x.astype(np.float64), form, form.limits)
    return to_float32(scaled).reshape(-1, *form.shape)


def image_features(images: Sequence[Bytes], form: InputForm) -> Floats:
    """The records of decoded images."""
    stored = np.asarray(images, dtype=np.uint8).reshape(-1, *form.shape)
    found: Floats = scale(stored.astype(np.float32), form, form.limits).astype(np.float32)
    return found


def _feature(cells: Any, column: InputColumn, form: InputForm) -> Array:
    if column.categories:
        return one_hot(cells, column.categories)
    if is_list(cells.type):
        return scale(vectors(cells, column.width, form.decimal), form, column.limits)
    return scale(numbers(cells, form.decimal), form, column.limits)[:, None]


def scale(values: Array, form: InputForm, limits: tuple[float, float] | None) -> Array:
    """Fills missing values, then clips to the public limits and maps these to the declared range."""
    filled = np.where(np.isfinite(values), values, form.fill)
    if limits is None:
        return filled
    least, largest = limits
    low, high = form.range
    return low + (np.clip(filled, least, largest) - least) / (largest - least) * (high - low)


def to_float32(values: Array) -> Floats:
    """The values in single precision; those beyond its range are clipped to it, without a warning."""
    limits = np.finfo(np.float32)
    with np.errstate(all="ignore"):
        single: Floats = np.clip(values, float(limits.min), float(limits.max)).astype(np.float32)
    return single


def _without_dictionary(cells: Any) -> Any:
    return cells.cast(cells.type.value_type) if pa.types.is_dictionary(cells.type) else cells


def _float_texts(cells: Any) -> Any:
    """Floats as texts, whole numbers without point or exponent; NaN and infinities are missing."""
    wide = cells.cast(pa.float64())
    whole = pc.and_(pc.equal(wide, pc.floor(wide)), pc.less(pc.abs(wide), 2.0**53))
    written = pc.if_else(whole, wide.cast(pa.int64(), safe=False).cast(pa.string()), wide.cast(pa.string()))
    return pc.if_else(pc.is_finite(wide), written, pa.scalar(None, pa.string()))


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
