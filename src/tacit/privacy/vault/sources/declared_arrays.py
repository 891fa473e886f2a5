"""Reads declared private arrays: NumPy arrays in memory, and .npz files."""

import math
import zipfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.data.declared.declaration import Declaration
from tacit.data.declared.parsing import plain_name
from tacit.data.input_form import InputForm
from tacit.data.samples import Array, Floats
from tacit.data.tensors import is_list, tensor
from tacit.errors import DataError
from tacit.privacy.vault.sources import cell_conversion
from tacit.privacy.vault.sources.public_rows import Found
from tacit.privacy.vault.sources.source import Occurring, column
from tacit.words import nearest

LENGTHS = "x, y, task and person must have one entry per record, and their lengths differ"


class DeclaredArrays:
    """Arrays in memory: features, labels and, where declared, the task and the person of each record."""

    def __init__(self, declared: Declaration, x: Any, y: Any, task: Any = None, person: Any = None) -> None:
        self._declared = declared
        if is_list(x) and declared.shape is None:
            raise DataError("a list of records does not tell their shape; declare it, or give an array")
        self._x, self._y = tensor(x, declared.shape).numpy() if is_list(x) else np.asarray(x), column(y, "y")
        self._task = None if task is None else column(task, "task")
        self._person = None if person is None or declared.unit == "record" else column(person, "person")
        _check_features(declared, self._x.dtype)
        if len({len(array) for array in (self._x, self._y, self._task, self._person) if array is not None}) != 1:
            raise DataError(LENGTHS)
        self.shape = declared.shape or self._x.shape[1:]
        self.form = array_form(declared, self.shape)

    def read(self, task: str) -> tuple[Floats, Array, Array | None]:
        """Features, labels and, where persons are protected, ids of a task's records."""
        keep = np.ones(len(self._x), np.bool_) if self._task is None else _names(self._task) == plain_name(task)
        if self._person is not None:
            keep &= _names(self._person) != ""
        x = cell_conversion.array_features(self._x[keep], self.form)
        y = cell_conversion.labels(_to_arrow(self._y[keep]), self._declared.labels)
        ids = None if self._person is None else _names(self._person[keep])
        return x, y, ids

    def occurring(self) -> Occurring:
        """Which declared tasks and labels occur in the records."""
        found = Found(self._declared)
        found.add(_to_arrow(self._y), None if self._task is None else _to_arrow(self._task))
        return found.occurring()


class NpzFile:
    """A .npz file: the features are the array `x`, or the one that `features` names; labels, tasks and persons are the
    arrays with the names of the declared columns. Only the headers of the arrays are read before a task is read."""

    def __init__(self, declared: Declaration, path: Path, *, test: bool = False) -> None:
        """`test`: a public file, which need not hold tasks or persons."""
        self._declared, self._path = declared, path
        headers = _headers(path)
        names = declared.columns
        wanted = {"x": "x" if declared.features == "others" else declared.features[0], "y": names.label}
        if names.task is not None and (not test or names.task in headers):
            wanted["task"] = names.task
        if declared.unit == "person" and names.person is not None and not test:
            wanted["person"] = names.person
        for name in wanted.values():
            if name not in headers:
                raise DataError(f"{path} has no array {name!r}; {nearest(name, headers)}")
        self._wanted = wanted
        shape, dtype = headers[wanted["x"]]
        _check_features(declared, dtype)
        lengths = {headers[name][0][:1] for name in wanted.values()}  # () for a number
        if len(lengths) != 1 or () in lengths:
            raise DataError(LENGTHS)
        self.shape = declared.shape or shape[1:]
        self.form = array_form(declared, self.shape)

    def read(self, task: str) -> tuple[Floats, Array, Array | None]:
        """Features, labels and, where persons are protected, ids of a task's records."""
        return self._arrays.read(task)

    def occurring(self) -> Occurring:
        """Which declared tasks and labels occur in the records."""
        return self._arrays.occurring()

    @cached_property
    def _arrays(self) -> DeclaredArrays:
        try:
            with np.load(self._path) as file:
                arrays = {part: file[name] for part, name in self._wanted.items()}
        except Exception:  # zipfile, zlib and numpy have errors of their own, which may quote a record
            raise _not_npz(self._path) from None
        return DeclaredArrays(self._declared, **arrays)


def array_form(declared: Declaration, shape: tuple[int, ...]) -> InputForm:
    """How arrays are read."""
    limits = None if isinstance(declared.scaling, dict) else declared.scaling
    return InputForm(kind="arrays", shape=tuple(shape), limits=limits, range=declared.range, fill=declared.fill)


def _headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """The shape and type of each array in a .npz file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy"): _header(archive, name) for name in archive.namelist()}
    except Exception:  # as above
        raise _not_npz(path) from None


def _header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("an array of Python objects")
    return shape, dtype


def _not_npz(path: Path) -> DataError:
    return DataError(f"{path} is not a .npz file of plain arrays; write it with numpy.savez")


def _check_features(declared: Declaration, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "iufb":
        raise DataError(f"features must be numbers, got an array of {dtype}; encode texts first")
    if isinstance(declared.scaling, dict) and declared.scaling:
        raise DataError("arrays have no column names, so scaling is one pair [least, largest] for all features")


def _names(values: Array) -> Array:
    """Names of tasks or persons in the form in which they are compared; empty where one is missing."""
    names = cell_conversion.names(_to_arrow(values)).to_pylist()
    return np.asarray([name or "" for name in names], dtype=str).reshape(len(values))


def _to_arrow(values: Array) -> Any:
    """An Arrow array. The values of a list become texts, each by itself: whole numbers without point or exponent."""
    if values.dtype.kind != "O":
        return pa.array(values)
    return pa.array([_as_text(value) for value in values.tolist()], pa.string())


def _as_text(value: int | float | str) -> str | None:
    if isinstance(value, float):
        return None if not math.isfinite(value) else str(int(value)) if value.is_integer() else repr(value)
    return str(value).encode(errors="ignore").decode()
