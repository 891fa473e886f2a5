"""How the values of a declaration may be written: `0..9`, lists, pairs."""

import datetime
import re
import sys
import unicodedata
from typing import Any

from tacit.errors import DataError

MOST_LABELS = 100_000
"""In a range: a slip such as 0..999999999 would fill the memory."""


def label_list(value: Any) -> Any:
    """`0..9`, or a list of whole numbers or of texts."""
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
    # As the cells that they are compared with.
    value = [label.strip() if isinstance(label, str) else label for label in value]
    if len(set(value)) != len(value):
        raise ValueError("a label is named twice; give each once")
    return tuple(value)


def task_name(value: Any) -> Any:
    """A text, a whole number or a date; texts are compared."""
    if isinstance(value, bool):
        raise ValueError("YAML reads yes, no, on, off, true and false as truth values; put such names in quotes")
    if isinstance(value, int | datetime.date):
        return str(value)
    if not isinstance(value, str) or not value:
        raise ValueError("a task's name is a text, as the task column has it")
    return value


def task_range(said: str) -> tuple[str, ...]:
    """`1..12` and `2026-01..2026-12` as all the names from the first to the last; any other text is one name."""
    if ".." not in said:
        return (said,)
    first, _, last = (part.strip() for part in said.partition(".."))
    if re.fullmatch(r"[0-9]{1,6}", first) and re.fullmatch(r"[0-9]{1,6}", last):
        names = tuple(str(number) for number in range(int(first), int(last) + 1))
    elif (one := _month(first)) is not None and (other := _month(last)) is not None:
        names = tuple(f"{month // 12:04d}-{month % 12 + 1:02d}" for month in range(one, other + 1))
    else:
        raise DataError(f"tasks = {said!r} is no range; write 1..12, 2026-01..2026-12, or names with commas between")
    if not 1 <= len(names) <= MOST_TASKS:
        raise DataError(f"tasks = {said!r} are {len(names):,} tasks; declare from 1 to {MOST_TASKS:,}")
    return names


MOST_TASKS = 10_000


def _month(said: str) -> int | None:
    """A month such as 2026-03, counted from the year 0."""
    found = re.fullmatch(r"([0-9]{4})-(0[1-9]|1[0-2])", said)
    return None if found is None else 12 * int(found[1]) + int(found[2]) - 1


WHOLE = r"^([+-]?[0-9]+)[.]0*$"
"""A whole number as a float is written."""


def plain_name(name: str) -> str:
    """The name of a task or person as it is compared: ` 7`, `7` and `7.0` are the same, and so are the ways in which
    Unicode writes one letter."""
    return re.sub(WHOLE, r"\1", unicodedata.normalize("NFC", name.strip()))


def one_delimiter(value: Any) -> Any:
    """What stands between the cells of a CSV file; a tab may also be written as `tab`."""
    value = "\t" if value in ("tab", "\\t") else value
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in '"\r\n\0':
        raise ValueError(
            "a delimiter is one ASCII character that is no quote and no line end, such as a semicolon, or tab"
        )
    return value


def limits(value: Any) -> Any:
    """One pair for all features, or a pair for each by name."""
    if isinstance(value, dict):
        return {name: pair(limit) for name, limit in value.items()}
    return pair(value)


def pair(value: Any) -> Any:
    """[least, largest]."""
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
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("a shape is a list of whole numbers, such as [3, 32, 32]")
    return tuple(value)
