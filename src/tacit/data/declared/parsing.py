"""Parses the values of a declaration: ranges such as `0..9`, lists, pairs and names."""

import datetime
import re
import sys
import unicodedata
from typing import Any

from tacit.errors import DataError

MOST_LABELS = 100_000
"""Of a range: a misprint such as 0..999999999 would fill the memory."""


def label_list(value: Any) -> Any:
    """Parses `0..9`, or a list of whole numbers or of texts."""
    if value is None:
        return value
    if isinstance(value, str):
        ends = re.fullmatch(r"\s*(-?\d+)\s*\.\.\s*(-?\d+)\s*", value)
        if ends is None or int(ends[1]) > int(ends[2]):
            raise ValueError("labels are a list such as [sick, well], or a range such as 0..9")
        if int(ends[2]) - int(ends[1]) >= MOST_LABELS:
            raise ValueError(f"a range of labels has at most {MOST_LABELS:,}")
        return tuple(range(int(ends[1]), int(ends[2]) + 1))
    if isinstance(value, range):
        return tuple(value)
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("labels are a list such as [sick, well], or a range such as 0..9")
    if any(isinstance(label, bool) for label in value):
        raise ValueError("YAML reads yes, no, on, off, true and false as truth values; put such labels in quotes")
    kinds = {type(label) for label in value}
    if len(kinds) != 1 or not kinds <= {int, str}:
        raise ValueError("labels are all whole numbers or all texts; put texts in quotes")
    # Cells are stripped as well before they are compared.
    value = [label.strip() if isinstance(label, str) else label for label in value]
    if len(set(value)) != len(value):
        raise ValueError("a label is named twice; give each once")
    return tuple(value)


def task_name(value: Any) -> Any:
    """The name of a task as a text; it may be written as a whole number or a date."""
    if isinstance(value, bool):
        raise ValueError("YAML reads yes, no, on, off, true and false as truth values; put such names in quotes")
    if isinstance(value, int | datetime.date):
        return str(value)
    if not isinstance(value, str) or not value:
        raise ValueError("the name of a task is a text, as in the column of tasks")
    return value


def task_range(text: str) -> tuple[str, ...]:
    """All names of a range such as `1..12` or `2026-01..2026-12`; any other text is one name."""
    if ".." not in text:
        return (text,)
    first, _, last = (part.strip() for part in text.partition(".."))
    if re.fullmatch(r"[0-9]{1,6}", first) and re.fullmatch(r"[0-9]{1,6}", last):
        names = tuple(str(number) for number in range(int(first), int(last) + 1))
    elif (start := _month(first)) is not None and (end := _month(last)) is not None:
        names = tuple(f"{month // 12:04d}-{month % 12 + 1:02d}" for month in range(start, end + 1))
    else:
        raise DataError(f"tasks = {text!r} is not a range; write 1..12, 2026-01..2026-12, or names separated by commas")
    if not 1 <= len(names) <= MOST_TASKS:
        raise DataError(f"tasks = {text!r} are {len(names):,} tasks; declare from 1 to {MOST_TASKS:,}")
    return names


MOST_TASKS = 10_000


def _month(text: str) -> int | None:
    """The number of a month such as 2026-03, counted from the year 0."""
    match = re.fullmatch(r"([0-9]{4})-(0[1-9]|1[0-2])", text)
    return None if match is None else 12 * int(match[1]) + int(match[2]) - 1


WHOLE = r"^([+-]?[0-9]+)[.]0*$"
"""A whole number in the notation of a float."""


def plain_name(name: str) -> str:
    """The name of a task or person in the form in which names are compared: ` 7`, `7` and `7.0` are equal, and so are
    the Unicode spellings of one letter."""
    return re.sub(WHOLE, r"\1", unicodedata.normalize("NFC", name.strip()))


def one_delimiter(value: Any) -> Any:
    """The delimiter of a CSV file; a tab may be written as `tab`."""
    value = "\t" if value in ("tab", "\\t") else value
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in '"\r\n\0':
        raise ValueError(
            "a delimiter is one ASCII character that is neither a quote nor a line end, such as a semicolon, or tab"
        )
    return value


def limits(value: Any) -> Any:
    """One pair for all features, or a pair for each feature by name."""
    if isinstance(value, dict):
        return {name: pair(limit) for name, limit in value.items()}
    return pair(value)


def pair(value: Any) -> Any:
    """A pair [least, largest]."""
    numbers = isinstance(value, list | tuple) and all(
        isinstance(number, int | float) and not isinstance(number, bool) for number in value
    )
    largest = sys.float_info.max
    if not numbers or len(value) != 2 or not -largest <= value[0] < value[1] <= largest:
        raise ValueError("limits are a pair [least, largest] of numbers")
    return (float(value[0]), float(value[1]))


def feature_list(value: Any) -> Any:
    """`others`, or a list of column names."""
    named = isinstance(value, list | tuple) and value and all(isinstance(name, str) and name for name in value)
    if value != "others" and not named:
        raise ValueError('features are a list of column names, or the word "others"')
    return tuple(value) if named else value


def feature_shape(value: Any) -> Any:
    """The shape of a record, such as [3, 32, 32]."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("a shape is a list of whole numbers, such as [3, 32, 32]")
    return tuple(value)
