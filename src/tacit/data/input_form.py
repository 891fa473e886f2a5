"""How the cells of a table, arrays or images become the numbers that a model takes.

The form follows from the declaration and the names and types of columns. It is public, and a release contains it, so
that new records are read as those were that the model learned from.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tacit.errors import DataError

VERSION = 1
Decimal = Literal[".", ","]
Encoding = Literal["utf-8", "latin-1", "cp1252"]
Kind = Literal["table", "arrays", "images"]
Pair = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class InputColumn:
    """A feature column of a table.

    Attributes:
        name: Its name.
        categories: The values of a text column, each of which becomes one number; empty for numbers.
        limits: The least and the largest value, which are mapped to the range of the form; None: not scaled.
        width: How many numbers a cell becomes, for a column of lists.
    """

    name: str
    categories: tuple[str | int, ...] = ()
    limits: Pair | None = None
    width: int = 1


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """How records are read.

    Attributes:
        kind: What they are: the rows of a table, arrays, or images.
        shape: The shape of one record.
        columns: The feature columns of a table, in their order.
        limits: As those of a column, for arrays and images.
        range: What limits are mapped to.
        fill: Replaces a missing number.
        task: The column with the task of a row; None if there is none.
        decimal: The decimal mark of numbers in texts.
        delimiter: The delimiter of a CSV file.
        encoding: The encoding of a CSV file.
        version: The version of these rules.
    """

    kind: Kind
    shape: tuple[int, ...]
    columns: tuple[InputColumn, ...] = ()
    limits: Pair | None = None
    range: Pair = (0.0, 1.0)
    fill: float = 0.0
    task: str | None = None
    decimal: Decimal = "."
    delimiter: str = ","
    encoding: Encoding = "utf-8"
    version: int = VERSION

    def __post_init__(self) -> None:
        pairs = [pair for pair in (self.range, self.limits, *(one.limits for one in self.columns)) if pair is not None]
        names = [one.name for one in self.columns]
        right = (
            self.kind in get_args(Kind)
            and self.decimal in get_args(Decimal)
            and self.encoding in get_args(Encoding)
            and all(type(side) is int and side > 0 for side in self.shape)
            and all(isinstance(name, str) for name in names)
            and all(type(one.width) is int and one.width > 0 for one in self.columns)
            and (self.kind != "table" or sum(_numbers(one) for one in self.columns) == math.prod(self.shape))
            and self.range is not None
            and isinstance(self.delimiter, str)
            and len(self.delimiter) == 1
            and (self.task is None or isinstance(self.task, str))
            and len(set(names)) == len(names)
            and all(isinstance(value, str | int) for one in self.columns for value in one.categories)
            and all(-math.inf < low < high < math.inf for low, high in pairs)
            and math.isfinite(self.fill)
        )
        if not right:
            raise ValueError("the values are not those of a form")

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "InputForm":
        """The form with these values, as JSON has them.

        Args:
            facts: The values by name.

        Returns:
            The form.

        Raises:
            DataError: It was written by a newer version, or is no form.
        """
        if isinstance(facts, Mapping) and isinstance(made := facts.get("version"), int) and made > VERSION:
            raise DataError(
                f"the release reads records by version {made} of the rules, and this tacit knows {VERSION}; upgrade it"
            )
        try:
            columns = tuple(
                InputColumn(**{**one, "categories": tuple(one["categories"]), "limits": _pair(one["limits"])})
                for one in facts["columns"]
            )
            plain = {**facts, "columns": columns, "shape": tuple(facts["shape"]), "limits": _pair(facts["limits"])}
            return cls(**{**plain, "range": _pair(facts["range"])})
        except (KeyError, TypeError, ValueError):
            raise DataError(
                "what the release says on reading records is damaged; restore its files from where they were published"
            ) from None


def _numbers(column: InputColumn) -> int:
    """How many numbers a cell of a column becomes."""
    return len(column.categories) or column.width


def _pair(value: Any) -> Pair | None:
    if value is None:
        return None
    low, high = value
    return float(low), float(high)
