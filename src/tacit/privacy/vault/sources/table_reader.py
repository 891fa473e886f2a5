"""Reads private tables one task at a time: Parquet and CSV files, pandas and polars data frames.

Before a task is read, only column names and the types of the schema are looked at. The types of cells are declared: a
feature is a number unless it is listed in `categories`, and any other cell is a missing number. A row without the
person that it needs is dropped. Nothing is counted, and no error depends on a cell. Public tables are checked more
strictly.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as arrow

from tacit.data.declared.declaration import Declaration, Files
from tacit.data.declared.parsing import plain_name
from tacit.data.input_form import Decimal, Encoding, InputColumn, InputForm
from tacit.data.samples import Array, Floats
from tacit.errors import DataError
from tacit.privacy.vault.sources import cell_conversion
from tacit.privacy.vault.sources.csv_file import CsvFile, csv_header
from tacit.privacy.vault.sources.public_rows import Found
from tacit.privacy.vault.sources.source import Occurring
from tacit.words import nearest

CSV = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")


class Table:
    """The rows of a file or data frame under a declaration.

    Args:
        declared: The public facts.
        source: An Arrow dataset or a `CsvFile`.
        where: Names the table in messages.
        untyped: Whether every cell is a text, as in a CSV file.
        test: Whether it is a public test table, which need not have the columns of tasks and persons.

    Attributes:
        source: The Arrow dataset or `CsvFile`.
        features: The names of the feature columns.
        shape: The shape of one record.
        form: How rows are read.

    Raises:
        DataError: The columns are not as declared.
    """

    def __init__(self, declared: Declaration, source: Any, where: str, *, untyped: bool = False, test: bool = False):
        self._declared, self.source, self._where = declared, source, where
        self._decimal: Decimal = "." if declared.files is None else declared.files.decimal
        public = declared.public or test
        self._trust_schema = public and not untyped
        self._kinds_checked = not (public and untyped)
        self._columns = tuple(source.schema.names)
        if len(set(self._columns)) != len(self._columns):
            raise DataError(f"{where} has two columns of the same name; rename one")
        names = declared.columns
        if len(declared.tasks) > 1 and not test and names.task is None:
            raise DataError(f"{where}: several tasks are declared, so columns.task must name the column of tasks")
        self._task = names.task if names.task in self._columns or not test else None
        self._person = names.person if declared.unit == "person" and not test else None
        if declared.unit == "person" and names.person is None:
            raise DataError(f"{where}: persons are protected, so columns.person must name the column of persons")
        for name in filter(None, (self._task, self._person, names.label)):
            self._check_column(name)
        self.features = self._choose_features()
        if public and self.lists:
            self._kinds_checked = False  # the lengths of lists are not in the schema
        width = self._width()
        self.shape = declared.shape or (width,)
        if np.prod(self.shape) != width:
            raise DataError(f"{where}: {width} features do not fill the declared shape {list(self.shape)}")
        self.form = self._form(width)

    def read(self, task: str) -> tuple[Floats, Array, Array | None]:
        """Features, labels and, where persons are protected, ids of a task's rows. Without a column of tasks, all rows
        belong to every task."""
        self.check_kinds()
        rows = self._rows(task)
        x = cell_conversion.features(rows, self.form)
        ids = (
            None
            if self._person is None
            else np.asarray(cell_conversion.names(rows.column(self._person)).to_pylist(), str)
        )
        return x, self.labels(rows), ids

    def occurring(self) -> Occurring:
        """Which declared tasks and labels occur in the rows. Of features nothing is read."""
        found, label = Found(self._declared), self._declared.columns.label
        for rows in self.batches(list(filter(None, (label, self._task)))):
            found.add(rows.column(label), None if self._task is None else rows.column(self._task))
        return found.occurring()

    @property
    def lists(self) -> tuple[str, ...]:
        """The features that hold lists whose length is not in the schema."""
        lists = [name for name in self.features if cell_conversion.is_list(self._type(name))]
        return tuple(name for name in lists if not pa.types.is_fixed_size_list(self._type(name)))

    @property
    def as_numbers(self) -> tuple[str, ...]:
        """The features whose cells are read as single numbers."""
        plain = [name for name in self.features if name not in self._declared.categories]
        return tuple(name for name in plain if not cell_conversion.is_list(self._type(name)))

    def labels(self, rows: Any) -> Array:
        """The labels of these rows."""
        return cell_conversion.labels(rows.column(self._declared.columns.label), self._declared.labels, self._decimal)

    def numbers(self, rows: Any, name: str) -> Array:
        """The numbers in a column, NaN where a cell is no number. Of a list: the sum, NaN if an entry is no number."""
        if cell_conversion.is_list(rows.column(name).type):
            sums: Array = cell_conversion.vectors(rows.column(name), self._width(), self._decimal).sum(axis=1)
            return sums
        return cell_conversion.numbers(rows.column(name), self._decimal)

    def check_kinds(self) -> None:
        """Refuses texts where numbers are declared, in public tables only: there the cells may decide.

        The cells of a CSV file have no type; a column is refused if it has cells and none of them is a number.

        Raises:
            DataError: A column holds texts, or lists of another length than declared.
        """
        if self._kinds_checked:
            return
        self._check_lengths(list(self.lists))
        plain = [name for name in self.features if name not in self._declared.categories]
        filled, numeric = dict.fromkeys(plain, False), dict.fromkeys(plain, False)
        for rows in self.batches(plain):
            for name in plain:
                filled[name] |= rows.column(name).null_count < len(rows)
                numeric[name] |= bool(np.isfinite(self.numbers(rows, name)).any())
        for name in plain:
            if filled[name] and not numeric[name]:
                raise DataError(self._holds_texts(name))
        self._kinds_checked = True

    def batches(self, names: list[str]) -> Iterator[Any]:
        """The rows of these columns as Arrow tables, some rows at a time."""
        schema = self._schema(names)
        try:
            for batch in self.source.to_batches(columns=schema.names):
                yield pa.Table.from_batches([batch], schema)
        except (pa.ArrowException, OSError):
            # The messages of Arrow may quote a record.
            raise DataError(f"{self._where} cannot be read to its end; check its format and encoding") from None

    def _check_lengths(self, lists: list[str]) -> None:
        for rows in self.batches(lists) if lists else ():
            if not all(cell_conversion.all_of_length(rows.column(name), self._width()) for name in lists):
                raise DataError(
                    f"{self._where}: the column {lists[0]!r} has lists that are not of {self._width()} numbers; "
                    "correct shape, or the file"
                )

    def _rows(self, task: str) -> Any:
        names = list(filter(None, (*self.features, self._declared.columns.label, self._task, self._person)))
        kept = [self._schema(names).empty_table()]
        for rows in self.batches(names):
            keep = pa.array(np.ones(len(rows), dtype=np.bool_))
            if self._task is not None:
                in_task = pc.equal(cell_conversion.names(rows.column(self._task)), plain_name(task))
                keep = pc.and_(keep, pc.fill_null(in_task, False))
            if self._person is not None:
                keep = pc.and_(keep, pc.is_valid(cell_conversion.names(rows.column(self._person))))
            kept.append(rows.filter(keep))
        return pa.concat_tables(kept)

    def _schema(self, names: list[str]) -> Any:
        return pa.schema([self.source.schema.field(name) for name in dict.fromkeys(names)])

    def _form(self, width: int) -> InputForm:
        """How the rows are read; it contains all of the declaration that decides the features."""
        declared, files = self._declared, self._declared.files
        limits = (
            declared.scaling if isinstance(declared.scaling, dict) else dict.fromkeys(self.features, declared.scaling)
        )
        columns = (
            InputColumn(
                name=name,
                categories=declared.categories.get(name, ()),
                limits=None if name in declared.categories else limits.get(name),
                width=width if cell_conversion.is_list(self._type(name)) else 1,
            )
            for name in self.features
        )
        return InputForm(
            kind="table", shape=self.shape, columns=tuple(columns), range=declared.range, fill=declared.fill,
            task=declared.columns.task, decimal=self._decimal, delimiter="," if files is None else files.delimiter,
            encoding="utf-8" if files is None else files.encoding,
        )  # fmt: skip

    def _type(self, name: str) -> Any:
        return self.source.schema.field(name).type

    def _width(self) -> int:
        """How many numbers a record has. The length of lists is in the schema, or is declared by `shape`."""
        lists = [name for name in self.features if cell_conversion.is_list(self._type(name))]
        if not lists:
            return sum(len(self._declared.categories.get(name, (1,))) for name in self.features)
        if len(set(self.features)) > 1:
            raise DataError(
                f"{self._where}: the column {lists[0]!r} holds lists, and must then be the only feature; write "
                f"features: [{lists[0]}]"
            )
        if pa.types.is_fixed_size_list(self._type(lists[0])):
            return int(self._type(lists[0]).list_size)
        if self._declared.shape is None:
            raise DataError(
                f"{self._where}: the column {lists[0]!r} holds lists; declare how many numbers each has, such as "
                "shape: [768]"
            )
        return int(np.prod(self._declared.shape))

    def _choose_features(self) -> tuple[str, ...]:
        declared = self._declared
        reserved = {declared.columns.label, declared.columns.task, declared.columns.person}
        others = [name for name in self._columns if name not in reserved]
        chosen = others if declared.features == "others" else list(declared.features)
        for name in chosen:
            type_ = self._type(self._check_column(name))
            if name in reserved:
                raise DataError(f"{self._where}: the column {name!r} is the label, task or person, and no feature")
            if name in declared.categories or not self._trust_schema:
                continue
            if cell_conversion.is_text(type_):
                raise DataError(self._holds_texts(name))
            if not (cell_conversion.is_number(type_) or cell_conversion.is_list(type_)):
                raise DataError(
                    f"{self._where}: the column {name!r} is of type {type_}, and features are numbers; leave it out"
                )
        for name in (*declared.categories, *(declared.scaling if isinstance(declared.scaling, dict) else ())):
            if name not in chosen:
                raise DataError(f"{self._where}: {name!r} is scaled but is not a feature; {nearest(name, chosen)}")
        if not chosen:
            raise DataError(f"{self._where} has no feature; name its columns in `features`")
        return tuple(chosen)

    def _holds_texts(self, name: str) -> str:
        return (
            f"{self._where}: the column {name!r} holds texts; list its public values under categories.{name}, leave it "
            "out of the features, or set files.decimal if its numbers have a comma"
        )

    def _check_column(self, name: str) -> str:
        if name not in self._columns:
            raise DataError(f"{self._where} has no column {name!r}; {nearest(name, self._columns)}")
        return name


def open_table(declared: Declaration, path: Path, *, test: bool = False) -> Table:
    """The table of a CSV or Parquet file."""
    if path.suffix.lower() in PARQUET:
        try:
            return Table(declared, arrow.dataset(path, format="parquet"), str(path), test=test)
        except (pa.ArrowException, OSError):
            raise DataError(f"{path} is not a Parquet file; check its format") from None
    files = declared.files or Files(train=str(path))
    return Table(declared, CsvFile(path, files.delimiter, files.encoding), str(path), untyped=True, test=test)


def open_frame(declared: Declaration, frame: Any, *, test: bool = False) -> Table:
    """The table of a pandas or polars data frame, an Arrow table, or anything else with Arrow's stream protocol."""
    if not hasattr(frame, "__arrow_c_stream__"):
        raise DataError(f"a data frame of pandas ≥ 2.2 or polars was expected, got {type(frame).__name__}")
    try:
        table = pa.table(frame)
        # Arrow cannot filter polars' type of texts.
        fields = [
            field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field for field in table.schema
        ]
        table = table.cast(pa.schema(fields))
    except (pa.ArrowException, TypeError):
        raise DataError("a column of the data frame mixes types; give every column one type") from None
    return Table(declared, arrow.dataset(table), "the data frame", test=test)


def table_columns(path: Path, delimiter: str = ",", encoding: Encoding = "utf-8") -> tuple[str, ...]:
    """The column names of a CSV or Parquet file."""
    if path.suffix.lower() not in PARQUET:
        return csv_header(path, delimiter, encoding)
    try:
        return tuple(arrow.dataset(path, format="parquet").schema.names)
    except (OSError, pa.ArrowException):
        raise DataError(f"{path} cannot be read as a table; it should be CSV or Parquet") from None
