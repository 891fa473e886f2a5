"""The user's own data as a stream: arrays, data frames, files, folders of images, torch Datasets.

Every fact about them comes from a `Declaration`. A declared task without a record is there, and empty; a record of a
task that is not declared is never read; a record with another label is dropped by the vault.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tacit.data import columns
from tacit.data.copies import is_copy
from tacit.data.declaration import Declaration
from tacit.data.facts import plain_name
from tacit.data.folders import ImageFolder
from tacit.data.samples import Array, Floats
from tacit.data.sources import as_read, column, tensor
from tacit.data.stream import Loader, Stream, Task, TaskInfo
from tacit.data.tables import CSV, PARQUET, open_file, open_frame
from tacit.errors import DataError
from tacit.words import nearest


class Reader(Protocol):
    """Records of one task, when they are asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def read(self, task: str) -> tuple[Floats, Array, Array | None]: ...


class Arrays:
    """Arrays in memory: x, y and, as needed, the task and the person of each record."""

    def __init__(self, declared: Declaration, x: Any, y: Any, task: Any = None, person: Any = None) -> None:
        self._declared = declared
        self._x, self._y = tensor(x, declared.shape).numpy() if isinstance(x, list) else np.asarray(x), column(y, "y")
        self._task = None if task is None else np.asarray(task)
        self._person = None if person is None or declared.unit == "record" else np.asarray(person)
        if self._x.dtype.kind not in "iufb":
            raise DataError(f"features must be numbers, got an array of {self._x.dtype}; encode texts first")
        if isinstance(declared.scaling, dict) and declared.scaling:
            raise DataError("arrays have no column names, so scaling is one pair [least, largest] for all features")
        if len({len(column) for column in (self._x, self._y, self._task, self._person) if column is not None}) != 1:
            raise DataError("x, y, task and person must have one entry per record, and their lengths differ")
        self.shape = declared.shape or self._x.shape[1:]

    def read(self, task: str) -> tuple[Floats, Array, Array | None]:
        keep = np.ones(len(self._x), np.bool_) if self._task is None else _names(self._task) == plain_name(task)
        if self._person is not None:
            keep &= _names(self._person) != ""
        limit = None if isinstance(self._declared.scaling, dict) else self._declared.scaling
        x = columns.single(columns.scale(self._x[keep].astype(np.float64), self._declared, limit))
        y = columns.labels(_arrow(self._y[keep]), self._declared.labels)
        ids = None if self._person is None else _names(self._person[keep])
        return x.reshape(-1, *self.shape), y, ids


def from_arrays(
    declared: Declaration,
    x: Any,
    y: Any,
    *,
    task: Any = None,
    person: Any = None,
    test: tuple[Any, ...] | None = None,
) -> Stream:
    """NumPy arrays. `task` and `person` say of each record which and whose; `test`: public (x, y) or (x, y, task)."""
    if len(declared.tasks) > 1 and task is None:
        raise DataError("there are several tasks, so the array `task` must say which each record is of")
    if declared.unit == "person" and person is None:
        raise DataError("persons are protected, so the array `person` must say whose each record is")
    return build(declared, Arrays(declared, x, y, task, person), None if test is None else Arrays(declared, *test))


def from_frame(declared: Declaration, frame: Any, *, test: Any = None) -> Stream:
    """A pandas or polars data frame with the declared columns, and a public one to test on."""
    tested = None if test is None else open_frame(declared, test, test=True)
    return build(declared, open_frame(declared, frame), tested)


def from_datasets(declared: Declaration, tasks: Mapping[str, Any], *, test: Mapping[str, Any] | None = None) -> Stream:
    """A torch Dataset of (x, y) or (x, y, id) for each task; features are read when they are sampled. A declared task
    without a Dataset is empty."""
    if declared.shape is None:
        raise DataError("torch Datasets do not say their shape; declare it, such as shape: [1, 28, 28]")
    names = [task.name for task in declared.tasks]
    for name in (*tasks, *(test or {})):
        if name not in names:
            raise DataError(f"there is a Dataset for {name!r}, which is no declared task; {nearest(name, names)}")
    info = declared.info(declared.shape)

    def task(facts: TaskInfo) -> Task:
        tested = (test or {}).get(facts.name)
        return Task(
            info=facts,
            records=lambda: tasks.get(facts.name, []),
            test=None if tested is None else lambda: _stacked(tested, info.shape, facts),
            arrived=lambda: facts.name in tasks,
        )

    return Stream(info, map(task, info.tasks))


def open_declared(path: Path | str) -> Stream:
    """The stream of a declaration file. A task's rows are read when they are asked for."""
    declared = Declaration.load(path)
    if declared.files is None:
        raise DataError(f"{path}: the key 'files' is missing; say where the data lies, such as files: {{train: a.csv}}")
    folder = Path(path).parent
    test = declared.files.test
    train = open_path(declared, folder / declared.files.train)
    keep_apart(declared, folder)
    return build(declared, train, None if test is None else open_path(declared, folder / test, test=True))


def open_path(declared: Declaration, path: Path, *, test: bool = False) -> Reader:
    """A file or folder by what it is: CSV, Parquet, .npz, images."""
    if not path.exists():
        raise DataError(f"there is no {path}; files are looked for beside the declaration that names them")
    if path.is_dir():
        return ImageFolder(declared, path, test=test)
    if path.suffix.lower() == ".npz":
        return _npz(declared, path, test=test)
    if path.suffix.lower() in (*CSV, *PARQUET):
        return open_file(declared, path, test=test)
    raise DataError(
        f"{path} is of no known kind; it may be {', '.join((*CSV, *PARQUET, '.npz'))} or a folder of images"
    )


def keep_apart(declared: Declaration, folder: Path) -> None:
    """Refuse private data as a public test set: the same file by any path or link, a copy of it, or one folder inside
    the other."""
    if declared.public or declared.files is None or declared.files.test is None:
        return
    train, test = folder / declared.files.train, folder / declared.files.test
    if not (train.exists() and test.exists()):
        return
    if _within(train, test) or _within(test, train) or is_copy(train, test):
        raise DataError(
            f"files.test = {declared.files.test!r} is the private data of files.train, or a copy of it; give a public "
            "file, or null for a charged accuracy"
        )


def _within(inner: Path, outer: Path) -> bool:
    resolved = inner.resolve()
    return any(place.samefile(outer) for place in (resolved, *resolved.parents))


def build(declared: Declaration, train: Reader, test: Reader | None) -> Stream:
    """The stream of these readers."""
    info = declared.info(train.shape)
    if test is not None and test.shape != train.shape:
        raise DataError(f"test records have the shape {test.shape} and train records {train.shape}; they must agree")

    def task(facts: TaskInfo) -> Task:
        def records() -> tuple[Any, ...]:
            x, y, ids = train.read(facts.name)
            return (x, y) if ids is None else (x, y, ids)

        has = getattr(train, "has", None)
        return Task(
            info=facts,
            records=records,
            test=None if test is None else _tester(test, facts),
            arrived=None if has is None else partial(has, facts.name),
        )

    return Stream(info, map(task, info.tasks))


def _names(values: Array) -> Array:
    """Tasks or persons that can be compared; empty where one is missing."""
    found = columns.names(_arrow(values)).to_pylist()
    return np.asarray([value or "" for value in found], dtype=str).reshape(len(values))


def _arrow(values: Array) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError):
        # Several kinds: each value as a text by itself, so that none decides how the others are read.
        known = (str, int, float, np.generic)
        return pa.array([str(value) if isinstance(value, known) else None for value in values.tolist()], pa.string())


def _tester(test: Reader, facts: TaskInfo) -> Loader:
    """The public test records that have one of the task's labels."""

    def read() -> tuple[Any, ...]:
        x, y, _ = test.read(facts.name)
        keep = np.isin(y, facts.labels)
        return x[keep], y[keep]

    return read


def _stacked(data: Any, shape: tuple[int, ...], facts: TaskInfo) -> tuple[Any, ...]:
    rows = [data[number] for number in range(len(data))]
    x = as_read(tensor(np.asarray([np.asarray(row[0]) for row in rows]).reshape(-1, *shape))).float().numpy()
    y = np.asarray([np.asarray(row[1])[()] for row in rows])
    keep = np.isin(y, facts.labels)
    return x[keep], y[keep]


def _npz(declared: Declaration, path: Path, *, test: bool) -> Arrays:
    """Arrays by name: the features are `x`, or the one name in `features`; the others are the declared columns."""
    named = declared.columns
    features = "x" if declared.features == "others" else declared.features[0]
    try:
        with np.load(path) as file:
            held = {name: file[name] for name in file.files}
    except Exception:  # zipfile, zlib and numpy each have errors of their own, which may quote a record
        raise DataError(f"{path} is not a .npz file of plain arrays; write it with numpy.savez") from None
    wanted = {"x": features, "y": named.label}
    if named.task is not None and (not test or named.task in held):
        wanted["task"] = named.task
    if declared.unit == "person" and named.person is not None and not test:
        wanted["person"] = named.person
    for name in wanted.values():
        if name not in held:
            raise DataError(f"{path} has no array {name!r}; {nearest(name, held)}")
    return Arrays(declared, **{part: held[name] for part, name in wanted.items()})
