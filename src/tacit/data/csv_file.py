"""A private CSV file, read so that one line is at most one record and touches no other.

A line ends at a newline, and at nothing else: a quoted cell cannot hold one. A line is left out in silence when its
quotes do not stand in pairs around whole cells, when it is not in the declared encoding, holds NUL or a carriage
return, has another number of cells than the header, or is longer than `LONGEST`. All of this is decided on
each line by itself, so that adding or removing a line adds or removes at most one record.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as arrow_csv

from tacit.data.declaration import Encoding
from tacit.errors import DataError

LONGEST = 2**24
"""Bytes of a line."""
BLOCK = 2**22
"""Bytes that are parsed at a time, about."""
UNREADABLE = b"\0"
"""In place of a line that is not in the declared encoding: NUL is in no record."""
OTHERS = ";\t|"
"""What often stands between cells, other than a comma."""
USUAL = f",{OTHERS}"


class CsvFile:
    """The columns of a CSV file, every cell a text: kinds are declared, never guessed from the records."""

    def __init__(self, path: Path, delimiter: str, encoding: Encoding) -> None:
        self._path, self._delimiter, self._encoding = path, delimiter, encoding
        # Without a schema Arrow would guess kinds from the records.
        self.schema = pa.schema([(name, pa.string()) for name in csv_header(path, delimiter, encoding)])

    def lines(self) -> int:
        """How many lines could be records. Private."""
        with self._path.open("rb") as file:
            file.readline(LONGEST)
            return sum(bool(line) for lines in _blocks(file, self._encoding) for line in lines)

    def to_batches(self, *, columns: list[str]) -> Iterator[Any]:
        """The records of these columns, in parts."""
        parse = arrow_csv.ParseOptions(delimiter=self._delimiter, invalid_row_handler=lambda row: "skip")
        convert = arrow_csv.ConvertOptions(
            column_types=self.schema,
            include_columns=columns,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        with self._path.open("rb") as file:
            file.readline(LONGEST)
            for lines in _blocks(file, self._encoding):
                # Arrow drops a byte order mark at the start of what it reads; an empty line there keeps it from
                # treating the first record of a block otherwise than the rest.
                block = b"\n" + b"\n".join(_sound(lines, self._delimiter)) + b"\n"
                # In one piece: Arrow fails on a line that does not fit into one of its own blocks.
                read = arrow_csv.ReadOptions(
                    column_names=self.schema.names, block_size=len(block) + 1, use_threads=False
                )
                yield from arrow_csv.read_csv(pa.BufferReader(block), read, parse, convert).to_batches()


def csv_header(path: Path, delimiter: str, encoding: Encoding) -> tuple[str, ...]:
    """The column names in the first line. A line that may be a record is refused, and not quoted."""
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST)
        content = _content(line, encoding).removeprefix(b"\xef\xbb\xbf")
        text, sound = content.decode(), len(line) < LONGEST and _sound([content], delimiter)
        cells = next(csv.reader([text], delimiter=delimiter), []) if sound else []
    except UnicodeDecodeError:
        raise DataError(
            f"the first line of {path} is not {encoding.upper()}; say how it is written, such as files.encoding: "
            "latin-1 or, by Windows, cp1252 (in `tacit data declare`: --encoding)"
        ) from None
    except (OSError, csv.Error):
        raise DataError(f"{path} cannot be read as a table; it should be CSV or Parquet") from None
    names = tuple(cell.strip() for cell in cells)
    # Under another delimiter than the declared one a whole record looks like one name.
    pieces = [piece.strip() for name in names for piece in re.split(f"[{OTHERS}]", name)]
    if not names or len(set(names)) != len(names) or any(not piece or _is_number(piece) for piece in pieces):
        raise DataError(f"the first line of {path} does not look like column names; add a header line")
    # One column cannot be a label and a feature.
    mark = next((mark for mark in USUAL if len(names) == 1 and mark in names[0]), None)
    if mark is not None:
        said = {"\t": "tab"}.get(mark, f"'{mark}'")
        raise DataError(
            f"the first line of {path} is one name under the delimiter {delimiter!r}; say files.delimiter: {said} (in "
            f"`tacit data declare`: --delimiter {said})"
        )
    return names


def _blocks(file: BinaryIO, encoding: Encoding) -> Iterator[list[bytes]]:
    """The lines of a file without their ends, in UTF-8 if they are in its encoding, some at a time."""
    lines: list[bytes] = []
    size = 0
    while line := file.readline(LONGEST):
        if len(line) == LONGEST and not line.endswith(b"\n"):
            while (rest := file.readline(LONGEST)) and not rest.endswith(b"\n"):
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


def _sound(lines: list[bytes], delimiter: str) -> list[bytes]:
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
