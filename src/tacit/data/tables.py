"""Private tables: Parquet and CSV files, pandas and polars data frames, read one task at a time.

Only the names of columns are looked at before a read. Their kinds are declared: a feature is a number unless it is
listed in `categories`, and a cell that is none is a missing number. A row without the person that it needs is left out.
Nothing tells how often, and no refusal depends on a cell. Public tables are checked more strictly.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as arrow

from tacit.data import columns
from tacit.data.csv_file import CsvFile, csv_header
from tacit.data.declaration import Decimal, Declaration, Encoding, Files
from tacit.data.facts import plain_name
from tacit.data.samples import Array, Floats
from tacit.errors import DataError
from tacit.words import nearest

CSV = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")


class Table:
    """The rows of a file or frame as a declaration sees them."""

    def __init__(self, declared: Declaration, source: Any, where: str, *, parse: bool = False, test: bool = False):
        """`parse`: every cell is a text, as in CSV. `test`: a public file, which need not say task or person."""
        self._declared, self.source, self._where = declared, source, where
        self._public = declared.public or test
        self._decimal: Decimal = "." if declared.files is None else declared.files.decimal
        # The kinds of cells in a public table: told by its schema, or still to be looked at.
        self._kinds_told, self._checked = self._public and not parse, not (self._public and parse)
        self._names = tuple(source.schema.names)
        if len(set(self._names)) != len(self._names):
            raise DataError(f"{where} has two columns of the same name; rename one")
        named = declared.columns
        needs_task = len(declared.tasks) > 1 and not test
        if needs_task and named.task is None:
            raise DataError(f"{where}: there are several tasks, so columns.task must name the column that says which")
        self._task = named.task if named.task in self._names or not test else None
        self._person = named.person if declared.unit == "person" and not test else None
        if declared.unit == "person" and named.person is None:
            raise DataError(f"{where}: persons are protected, so columns.person must name the column that says who")
        for name in filter(None, (self._task, self._person, named.label)):
            self._known(name)
        self.features = self._choose()
        if self._public and self.lists:
            self._checked = False  # their lengths are still to be looked at
        width = self._width()
        self.shape = declared.shape or (width,)
        if np.prod(self.shape) != width:
            raise DataError(f"{where}: {width} features do not fill the declared shape {list(self.shape)}")

    def read(self, task: str) -> tuple[Floats, Array, Array | None]:
        """Features, labels and, where persons are protected, ids of a task's rows. Where no column says the task, all
        rows are of it."""
        self.check_kinds()
        found = self._rows(task)
        made = [np.zeros((len(found), 0)), *(self._feature(found.column(name), name) for name in self.features)]
        x = columns.single(np.concatenate(made, axis=1)).reshape(len(found), *self.shape)
        ids = None if self._person is None else np.asarray(columns.names(found.column(self._person)).to_pylist(), str)
        return x, self.labels(found), ids

    @property
    def lists(self) -> tuple[str, ...]:
        """The features that hold a list in each cell, of any length as far as the schema says."""
        kinds = {name: self.source.schema.field(name).type for name in self.features}
        return tuple(
            name for name, kind in kinds.items() if columns.is_list(kind) and not pa.types.is_fixed_size_list(kind)
        )

    @property
    def as_numbers(self) -> tuple[str, ...]:
        """The features of which a cell is read as a number, whatever it holds."""
        plain = [name for name in self.features if name not in self._declared.categories]
        return tuple(name for name in plain if not columns.is_list(self.source.schema.field(name).type))

    def labels(self, part: Any) -> Array:
        """The labels in these rows."""
        return columns.labels(part.column(self._declared.columns.label), self._declared.labels, self._decimal)

    def numbers(self, part: Any, name: str) -> Array:
        """The numbers in a column of these rows, NaN where there is none; of a list their sum, NaN if one is none."""
        if columns.is_list(part.column(name).type):
            found: Array = columns.vectors(part.column(name), self._width(), self._decimal).sum(axis=1)
            return found
        return columns.numbers(part.column(name), self._decimal)

    def check_kinds(self) -> None:
        """Refuse texts where numbers are declared, in a public table only: there cells may decide. Cells of a CSV file
        have no kind, so a column is refused if it has cells and not one of them is a number."""
        if self._checked:
            return
        self._check_lengths(list(self.lists))
        plain = [name for name in self.features if name not in self._declared.categories]
        filled, numeric = dict.fromkeys(plain, False), dict.fromkeys(plain, False)
        for part in self.parts(plain):
            for name in plain:
                filled[name] |= part.column(name).null_count < len(part)
                numeric[name] |= bool(np.isfinite(self.numbers(part, name)).any())
        for name in plain:
            if filled[name] and not numeric[name]:
                raise DataError(self._text(name))
        self._checked = True

    def _check_lengths(self, lists: list[str]) -> None:
        """Refuse lists that are not as long as declared, in a public table."""
        for part in self.parts(lists) if lists else ():
            if not all(columns.all_of(part.column(name), self._width()) for name in lists):
                raise DataError(
                    f"{self._where}: the column {lists[0]!r} has lists that are not of {self._width()} numbers; "
                    "correct shape, or the file"
                )

    def _rows(self, task: str) -> Any:
        wanted = list(filter(None, (*self.features, self._declared.columns.label, self._task, self._person)))
        kept = [self._schema(wanted).empty_table()]
        for part in self.parts(wanted):
            keep = pa.array(np.ones(len(part), dtype=np.bool_))
            if self._task is not None:
                said = pc.equal(columns.names(part.column(self._task)), plain_name(task))
                keep = pc.and_(keep, pc.fill_null(said, False))
            if self._person is not None:
                keep = pc.and_(keep, pc.is_valid(columns.names(part.column(self._person))))
            kept.append(part.filter(keep))
        return pa.concat_tables(kept)

    def parts(self, wanted: list[str]) -> Iterator[Any]:
        """The rows of these columns, some at a time."""
        schema = self._schema(wanted)
        try:
            for batch in self.source.to_batches(columns=schema.names):
                yield pa.Table.from_batches([batch], schema)
        except (pa.ArrowException, OSError):
            # What Arrow says may quote a record.
            raise DataError(f"{self._where} cannot be read to its end; check its format and encoding") from None

    def _schema(self, wanted: list[str]) -> Any:
        return pa.schema([self.source.schema.field(name) for name in dict.fromkeys(wanted)])

    def _feature(self, column: Any, name: str) -> Array:
        declared = self._declared
        if name in declared.categories:
            return columns.one_hot(column, declared.categories[name])
        limit = declared.scaling.get(name) if isinstance(declared.scaling, dict) else declared.scaling
        if columns.is_list(column.type):
            return columns.scale(columns.vectors(column, self._width(), self._decimal), declared, limit)
        return columns.scale(columns.numbers(column, self._decimal), declared, limit)[:, None]

    def _width(self) -> int:
        """How many numbers a record has. Lists do not say how long they should be: the schema or a person does."""
        kinds = {name: self.source.schema.field(name).type for name in self.features}
        lists = [name for name, kind in kinds.items() if columns.is_list(kind)]
        if not lists:
            return sum(len(self._declared.categories.get(name, (1,))) for name in self.features)
        if len(kinds) > 1:
            raise DataError(
                f"{self._where}: the column {lists[0]!r} holds lists, and then it is the only feature; say features: "
                f"[{lists[0]}]"
            )
        if pa.types.is_fixed_size_list(kinds[lists[0]]):
            return int(kinds[lists[0]].list_size)
        if self._declared.shape is None:
            raise DataError(
                f"{self._where}: the column {lists[0]!r} holds lists; say how many numbers each has, such as shape: "
                "[768]"
            )
        return int(np.prod(self._declared.shape))

    def _choose(self) -> tuple[str, ...]:
        declared = self._declared
        apart = {declared.columns.label, declared.columns.task, declared.columns.person}
        others = [name for name in self._names if name not in apart]
        chosen = others if declared.features == "others" else list(declared.features)
        for name in chosen:
            kind = self.source.schema.field(self._known(name)).type
            if name in apart:
                raise DataError(f"{self._where}: the column {name!r} is the label, task or person, and no feature")
            if name in declared.categories or not self._kinds_told or columns.is_number(kind) or columns.is_list(kind):
                continue
            if columns.is_text(kind):
                raise DataError(self._text(name))
            raise DataError(f"{self._where}: the column {name!r} is of type {kind}; features are numbers, leave it out")
        for name in (*declared.categories, *(declared.scaling if isinstance(declared.scaling, dict) else ())):
            if name not in chosen:
                raise DataError(f"{self._where}: {name!r} is scaled and is no feature; {nearest(name, chosen)}")
        if not chosen:
            raise DataError(f"{self._where} has no feature; name its columns in `features`")
        return tuple(chosen)

    def _text(self, name: str) -> str:
        return (
            f"{self._where}: the column {name!r} holds texts; list its public values under categories.{name}, leave it "
            "out of the features, or say files.decimal if its numbers have a comma"
        )

    def _known(self, name: str) -> str:
        if name not in self._names:
            raise DataError(f"{self._where} has no column {name!r}; {nearest(name, self._names)}")
        return name


def is_csv(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in CSV


def open_file(declared: Declaration, path: Path, *, test: bool = False) -> Table:
    """A CSV or Parquet file."""
    if path.suffix.lower() in PARQUET:
        try:
            return Table(declared, arrow.dataset(path, format="parquet"), str(path), test=test)
        except (pa.ArrowException, OSError):
            raise DataError(f"{path} is not a Parquet file; check its format") from None
    form = declared.files or Files(train=str(path))
    return Table(declared, CsvFile(path, form.delimiter, form.encoding), str(path), parse=True, test=test)


def open_frame(declared: Declaration, frame: Any, *, test: bool = False) -> Table:
    """A pandas or polars data frame, or an Arrow table: whatever speaks Arrow's stream protocol."""
    if not hasattr(frame, "__arrow_c_stream__"):
        raise DataError(f"a data frame of pandas ≥ 2.2 or polars was expected, got {type(frame).__name__}")
    try:
        table = _plain(pa.table(frame))
    except (pa.ArrowException, TypeError):
        raise DataError("a column of the data frame mixes kinds; give every column one kind") from None
    return Table(declared, arrow.dataset(table), "the data frame", test=test)


def header(path: Path, delimiter: str = ",", encoding: Encoding = "utf-8") -> tuple[str, ...]:
    """The column names of a table: all that is looked at without a declaration."""
    if path.suffix.lower() not in PARQUET:
        return csv_header(path, delimiter, encoding)
    try:
        return tuple(arrow.dataset(path, format="parquet").schema.names)
    except (OSError, pa.ArrowException):
        raise DataError(f"{path} cannot be read as a table; it should be CSV or Parquet") from None


def _plain(table: Any) -> Any:
    """Arrow cannot filter the kind of texts that polars has, so they become plain ones."""
    views = [field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field for field in table.schema]
    return table.cast(pa.schema(views))
