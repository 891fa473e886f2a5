"""Reads a private CSV file so that each line is at most one record and affects no other line.

Only a newline ends a line: a quoted cell cannot contain one. A line is dropped without a message if its quotes do not
enclose whole cells, if it is not in the declared encoding, if it contains NUL or a carriage return, if it has another
number of cells than the header, or if it is longer than `LONGEST_LINE`. Each line is judged by itself, so that adding
or removing a line adds or removes at most one record.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as arrow_csv

from tacit.data.input_form import Encoding
from tacit.errors import DataError

LONGEST_LINE = 2**24
"""In bytes."""
BLOCK = 2**22
"""About how many bytes are parsed at a time."""
UNREADABLE = b"\0"
"""Replaces a line that is not in the declared encoding: no record contains NUL."""
OTHER_DELIMITERS = ";\t|"
"""Usual delimiters other than the comma."""
USUAL_DELIMITERS = f",{OTHER_DELIMITERS}"


class CsvFile:
    """The columns of a CSV file. Every cell is a text: types are declared, never inferred from the records."""

    def __init__(self, path: Path, delimiter: str, encoding: Encoding) -> None:
        self._path, self._delimiter, self._encoding = path, delimiter, encoding
        # Without a schema Arrow would infer types from the records.
        self.schema = pa.schema([(name, pa.string()) for name in csv_header(path, delimiter, encoding)])

    def count_lines(self) -> int:
        """The number of lines that are not empty. Private."""
        with self._path.open("rb") as file:
            file.readline(LONGEST_LINE)
            return sum(bool(line) for lines in _blocks(file, self._encoding) for line in lines)

    def to_batches(self, *, columns: list[str]) -> Iterator[Any]:
        """Yields the records of these columns as Arrow record batches."""
        parse = arrow_csv.ParseOptions(delimiter=self._delimiter, invalid_row_handler=lambda row: "skip")
        convert = arrow_csv.ConvertOptions(
            column_types=self.schema,
            include_columns=columns,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        with self._path.open("rb") as file:
            file.readline(LONGEST_LINE)
            for lines in _blocks(file, self._encoding):
                # Arrow drops a byte order mark at the start of a block. The empty line keeps it from treating the
                # first record of a block differently from the others.
                block = b"\n" + b"\n".join(_whole_records(lines, self._delimiter)) + b"\n"
                # As one block of Arrow, which fails on a line that does not fit into a block.
                read = arrow_csv.ReadOptions(
                    column_names=self.schema.names, block_size=len(block) + 1, use_threads=False
                )
                yield from arrow_csv.read_csv(pa.BufferReader(block), read, parse, convert).to_batches()


def csv_header(path: Path, delimiter: str, encoding: Encoding) -> tuple[str, ...]:
    """The column names in the first line of a CSV file.

    Raises:
        DataError: The line may be a record rather than a header; it is not quoted.
    """
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST_LINE)
        content = _content(line, encoding).removeprefix(b"\xef\xbb\xbf")
        text, is_whole = content.decode(), len(line) < LONGEST_LINE and _whole_records([content], delimiter)
        cells = next(csv.reader([text], delimiter=delimiter), []) if is_whole else []
    except UnicodeDecodeError:
        raise DataError(
            f"the first line of {path} is not {encoding.upper()}; declare its encoding, such as files.encoding: "
            "latin-1 or, on Windows, cp1252 (in `tacit data declare`: --encoding)"
        ) from None
    except (OSError, csv.Error):
        raise DataError(f"{path} cannot be read as a table; it should be CSV or Parquet") from None
    names = tuple(cell.strip() for cell in cells)
    # With another delimiter than the declared one, a whole record looks like one name.
    pieces = [piece.strip() for name in names for piece in re.split(f"[{OTHER_DELIMITERS}]", name)]
    if not names or len(set(names)) != len(names) or any(not piece or _is_number(piece) for piece in pieces):
        raise DataError(f"the first line of {path} does not look like column names; add a header line")
    # A table has at least a label and a feature, so one column means another delimiter.
    other = next((mark for mark in USUAL_DELIMITERS if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        shown = {"\t": "tab"}.get(other, f"'{other}'")
        raise DataError(
            f"the first line of {path} is one name under the delimiter {delimiter!r}; declare files.delimiter: {shown} "
            f"(in `tacit data declare`: --delimiter {shown})"
        )
    return names


def _blocks(file: BinaryIO, encoding: Encoding) -> Iterator[list[bytes]]:
    """Yields the lines of a file in blocks, without line ends and re-encoded as UTF-8."""
    lines: list[bytes] = []
    size = 0
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            continue
        try:
            lines.append(_content(line, encoding))
        except UnicodeDecodeError:
            lines.append(UNREADABLE)
        size += len(line)
        if size >= BLOCK:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _content(line: bytes, encoding: Encoding) -> bytes:
    content = line.removesuffix(b"\n").removesuffix(b"\r")
    return content if encoding == "utf-8" else content.decode(encoding).encode()


def _whole_records(lines: list[bytes], delimiter: str) -> list[bytes]:
    """The lines that are whole records."""
    together = b"\n".join(lines)
    if not any(mark in together for mark in (b'"', b"\0", b"\r")) and _is_utf8(together):
        return lines
    between = re.escape(delimiter.encode())
    cell = rb'(?:"(?:[^"]|"")*+"|[^"' + between + rb"]*+)"
    whole = re.compile(cell + rb"(?:" + between + cell + rb")*+", re.DOTALL)
    return [
        line for line in lines if whole.fullmatch(line) and b"\0" not in line and b"\r" not in line and _is_utf8(line)
    ]


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
