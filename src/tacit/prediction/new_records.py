"""Reads new records for a model as its training records were read, and refuses those that are something else.

The records belong to whoever asks for predictions, and every one of them gets one. So, unlike the vault, this reader
drops nothing: it names the columns, lines and values that do not fit.
"""

import codecs
import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.benchmarks.formats import decode
from tacit.data.input_form import InputColumn, InputForm
from tacit.data.samples import Floats
from tacit.data.tensors import tensor
from tacit.errors import DataError
from tacit.privacy.vault.sources import cell_conversion
from tacit.words import counted, listed, nearest

CSV, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
LONGEST_HEADER = 2**24
MOST_OUTSIDE = 0.5
"""The share of the numbers of a column outside its declared limits from which on it is refused."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Records for a model.

    Attributes:
        x: The features, one record each.
        kept: Columns to write beside the predictions: those that were asked for, or the names of image files.
        tasks: The task of each record, if the file tells it; None otherwise.
        notes: What was unusual and is no error, a sentence each.
    """

    x: Floats
    kept: tuple[tuple[str, Any], ...] = ()
    tasks: tuple[str | None, ...] | None = None
    notes: tuple[str, ...] = ()


def read_rows(form: InputForm, source: Any, keep: tuple[str, ...] = (), *, any_range: bool = False) -> Rows:
    """The records of a file, a folder of images, a data frame or an array.

    Args:
        form: How the model reads records.
        source: A path, a data frame of pandas or polars, an Arrow table, or an array.
        keep: Columns of the table to return as they are.
        any_range: Accept a column of which most numbers are outside the declared limits.

    Returns:
        The records, in their order.

    Raises:
        DataError: The records are not of the form; the message names the columns.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise DataError(f"there is no file or folder {path}; give a CSV, Parquet, .npz or .npy file, or images")
        source = _opened(form, path)
        where = str(path)
    else:
        where = "the data"
    if isinstance(source, _Images):
        _expect(form, "images", where)
        return Rows(x=cell_conversion.image_features(source.pictures, form), kept=(("file", pa.array(source.names)),))
    if hasattr(source, "__arrow_c_stream__"):
        _expect(form, "table", where)
        return _table(form, _plain(source), where, keep, any_range)
    if keep:
        raise DataError(f"{where} has no columns, so {keep[0]!r} cannot be kept; leave it out")
    return _array(form, source, where)


@dataclass(frozen=True)
class _Images:
    pictures: list[Any]
    names: list[str]


def _opened(form: InputForm, path: Path) -> Any:
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in IMAGES:
        return _images(form, path)
    try:
        if suffix in PARQUET:
            import pyarrow.parquet as parquet

            return parquet.read_table(path)
        if suffix in (".npz", ".npy"):
            return _stored_array(path)
    except (pa.ArrowException, OSError, ValueError, KeyError):
        raise DataError(f"{path} cannot be read as {suffix[1:]}; check its format") from None
    if suffix in CSV:
        return _csv(form, path)
    kinds = ", ".join((*CSV, *PARQUET, ".npz", ".npy"))
    raise DataError(f"{path} is of no known kind; it may be {kinds}, or a folder of images")


def _csv(form: InputForm, path: Path) -> Any:
    """A CSV file with texts in all cells; a line that does not fit is an error, since each is to get a prediction."""
    import pyarrow.csv as arrow_csv

    bad: list[int] = []

    def reject(row: Any) -> str:
        bad.append(row.number or 0)
        return "error"

    header = _header(form, path)
    read = arrow_csv.ReadOptions(encoding=form.encoding, use_threads=False)  # so that lines are numbered
    parse = arrow_csv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True, invalid_row_handler=reject)
    convert = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    try:
        return arrow_csv.read_csv(path, read, parse, convert)
    except pa.ArrowInvalid:
        place = f"record {bad[0] - 1}" if bad and bad[0] > 1 else "a line"
        raise DataError(
            f"{path}: {place} has another number of cells than the header, or is not in {form.encoding}; correct it"
        ) from None
    except (pa.ArrowException, OSError, UnicodeError):
        raise DataError(f"{path} cannot be read as a CSV file; check its format and encoding") from None


def _header(form: InputForm, path: Path) -> list[str]:
    """The column names in the first line of a CSV file."""
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST_HEADER).removeprefix(codecs.BOM_UTF8).decode(form.encoding)
        names = next(csv.reader([line], delimiter=form.delimiter), [])
    except (OSError, UnicodeError, csv.Error):
        raise DataError(f"{path} cannot be read as a CSV file; check its format and encoding") from None
    if not any(name.strip() for name in names):
        raise DataError(f"{path} is empty; the first line has the names of the columns")
    return names


def _stored_array(path: Path) -> NDArray[Any]:
    found = np.load(path)
    if isinstance(found, np.ndarray):
        return found
    with found:
        names = list(found.files)
        if "x" not in names and len(names) != 1:
            raise DataError(f"{path} has no array 'x' but {listed(names)}; name the features x")
        array: NDArray[Any] = found["x" if "x" in names else names[0]]
    return array


def _images(form: InputForm, path: Path) -> _Images:
    """All images under a folder, or one; a file that is no image is an error, as its name is the user's own."""
    _expect(form, "images", str(path))
    files = sorted(one for one in path.rglob("*") if one.suffix.lower() in IMAGES) if path.is_dir() else [path]
    if not files:
        raise DataError(f"there is no image in {path}; it may be {', '.join(IMAGES)}")
    pictures = []
    for file in files:
        try:
            pictures.append(decode(file.read_bytes(), form.shape))
        except DataError:
            raise
        except Exception:  # pillow raises errors of many types
            raise DataError(f"{file} cannot be read as an image; remove or correct it") from None
    return _Images(pictures, [str(file.relative_to(path)) if path.is_dir() else file.name for file in files])


def _expect(form: InputForm, kind: str, where: str) -> None:
    if form.kind != kind:
        names = {"table": "a table", "arrays": "an array of numbers", "images": "an image or a folder of images"}
        trained = {"table": "the rows of a table", "arrays": "arrays of numbers", "images": "images"}
        raise DataError(f"{where} is {names[kind]}, and the model was trained on {trained[form.kind]}; give it those")


def _array(form: InputForm, source: Any, where: str) -> Rows:
    """Records as an array, for models of arrays; those of images and tables read such records as prepared features."""
    if isinstance(source, bytes | dict | set) or source is None:
        raise DataError(f"an array, a data frame or a path was expected, got {type(source).__name__}")
    array = tensor(source).numpy() if not isinstance(source, np.ndarray) else source
    if array.dtype.kind not in "iufb":
        raise DataError(f"{where}: features must be numbers, got an array of {array.dtype}")
    if array.shape[1:] != form.shape and not (array.ndim == 2 and array.shape[1] == int(np.prod(form.shape))):
        raise DataError(
            f"{where}: records have the shape {tuple(array.shape[1:])}, and the model reads {form.shape}; reshape them"
        )
    if form.kind == "table":
        raise DataError(f"{where} has no column names, and the model reads the columns {_names(form)}; give a table")
    missing = int(array.size - np.isfinite(array).sum())
    notes = (f"{where}: {counted(missing, 'value')} not finite, read as missing",) if missing else ()
    return Rows(x=cell_conversion.array_features(array, form), notes=notes)


def _plain(source: Any) -> Any:
    try:
        table = source if isinstance(source, pa.Table) else pa.table(source)
        fields = [one.with_type(pa.string()) if pa.types.is_string_view(one.type) else one for one in table.schema]
        return table.cast(pa.schema(fields))
    except (pa.ArrowException, TypeError):
        raise DataError("a column of the data frame mixes types; give every column one type") from None


def _table(form: InputForm, table: Any, where: str, keep: tuple[str, ...], any_range: bool) -> Rows:
    there = list(table.schema.names)
    if len(set(there)) != len(there):
        twice = next(name for name in there if there.count(name) > 1)
        raise DataError(f"{where} has two columns {twice!r}; rename one")
    missing = [one.name for one in form.columns if one.name not in there]
    if missing:
        known = f"; {nearest(missing[0], there)}" if len(missing) == 1 else f"; it has {listed(there)}"
        raise DataError(f"{where} has no column {listed([repr(name) for name in missing])} that the model reads{known}")
    for name in keep:
        if name not in there:
            raise DataError(f"{where} has no column {name!r} to keep; {nearest(name, there)}")
    notes = [note for one in form.columns if (note := _checked(table.column(one.name), one, form, where, any_range))]
    tasks = None
    if form.task is not None and form.task in there:
        tasks = tuple(cell_conversion.names(table.column(form.task)).to_pylist())
    kept = tuple((name, table.column(name).combine_chunks()) for name in keep)
    return Rows(x=cell_conversion.features(table, form), kept=kept, tasks=tasks, notes=tuple(notes))


def _checked(cells: Any, column: InputColumn, form: InputForm, where: str, any_range: bool) -> str:
    """A sentence on cells that cannot be read; refuses a column of which none can, or which has another unit."""
    what = f"{where}: the column {column.name!r}"
    filled = len(cells) - cells.null_count
    if column.categories:
        unknown = _unknown(cells, column)
        if filled and sum(unknown.values()) == filled:
            raise DataError(
                f"{what} has none of the declared values {listed([str(one) for one in column.categories])}, but "
                f"{listed(list(unknown))}; bring it to these"
            )
        if unknown:
            rows = counted(sum(unknown.values()), "row")
            return f"{what} has {listed(list(unknown))} in {rows}, which the model has never seen"
        return ""
    if cell_conversion.is_list(cells.type):
        if not cell_conversion.all_of_length(cells, column.width):
            raise DataError(f"{what} has lists that are not of {column.width} numbers; correct the file")
        return ""
    numbers = cell_conversion.numbers(cells, form.decimal)
    known = np.isfinite(numbers)
    if cell_conversion.is_text(cells.type):
        filled = int(pc.sum(pc.not_equal(pc.fill_null(cell_conversion.texts(cells), ""), ""), min_count=0).as_py())
    if filled and not known.any():
        raise DataError(f"{what} holds no number, and the model reads numbers; correct it")
    said = []
    if filled > known.sum():
        said.append(f"{counted(int(filled - known.sum()), 'cell')} without a number, read as missing")
    if column.limits is not None and known.any():
        low, high = column.limits
        outside = float(np.mean((numbers[known] < low) | (numbers[known] > high)))
        if outside > MOST_OUTSIDE and not any_range:
            raise DataError(
                f"{what} has {outside:.0%} of its values outside the declared limits {low:g} to {high:g}; check its "
                "unit, or accept it with --any-range"
            )
        if outside:
            said.append(f"{outside:.1%} of the values are outside {low:g} to {high:g} and are read as these limits")
    return f"{what}: {'; '.join(said)}" if said else ""


def _unknown(cells: Any, column: InputColumn) -> dict[str, int]:
    """The values of a text column that were not declared, with how often they occur."""
    texts = cell_conversion.texts(cells) if isinstance(column.categories[0], str) else cell_conversion.names(cells)
    declared = {str(one) for one in column.categories}
    counts = pc.value_counts(texts).to_pylist()
    return {one["values"]: one["counts"] for one in counts if one["values"] not in (None, "", *declared)}


def _names(form: InputForm) -> str:
    return listed([one.name for one in form.columns])
