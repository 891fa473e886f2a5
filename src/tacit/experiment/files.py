"""Files that are written whole or line by line, so that a kill at any moment leaves what can be read."""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tacit.errors import ConfigError

Values = Mapping[str, Any]
Plain = dict[str, Any]
"""Values as YAML gives them."""


def write(path: Path, text: str) -> None:
    """The whole file or none of it."""
    draft = path.with_name(path.name + ".new")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file whole: the rows, of which the first is the header."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write(path, text.getvalue())


def write_json(path: Path, values: Values) -> None:
    write(path, json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} was changed or is damaged; restore it from a backup of the folder")
    return content


def add_line(path: Path, line: Values) -> None:
    """Add a line to a log; it is on disk when this returns."""
    with path.open("a+b") as file:
        if file.tell() and not _ends_whole(file):
            file.write(b"\n")  # a torn line stays alone, and is dropped when read
        file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def lines(path: Path) -> list[dict[str, Any]]:
    """What is in a log; lines that a crash tore are dropped."""
    raw_lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [line for one in raw_lines if (line := _parsed(one)) is not None]


def _ends_whole(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read_written(path: Path) -> Plain:
    """The configuration that a run wrote to its folder."""
    try:
        found = read(path)
    except ConfigError:
        found = {}
    if not all(isinstance(found.get(key), kind) for key, kind in (("name", str), ("data", dict), ("learner", dict))):
        raise ConfigError(f"{path} was changed or is damaged; restore it from a backup of the folder")
    return found


def read(path: Path, expected: str = "a configuration is a mapping such as 'name: …'") -> Plain:
    """The content of a YAML file; `expected` tells the user what it should be."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not a text'}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{path} is not valid YAML{line}; check its indentation and quotes") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no keys; {expected}")
    return values
