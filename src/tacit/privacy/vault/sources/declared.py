"""Builds streams of private data under a `Declaration`: files, folders of images, arrays, data frames, Datasets.

Building a stream looks at column names, types and shapes, and reads no record. A declared task without records exists
and is empty; records of undeclared tasks are never read; records with an undeclared label are dropped by the vault.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.declared.declaration import Declaration
from tacit.data.stream import Stream, Task, TaskInfo
from tacit.data.tensors import model_input, tensor
from tacit.errors import DataError
from tacit.privacy.vault.sources.copies import is_copy
from tacit.privacy.vault.sources.declared_arrays import DeclaredArrays, NpzFile
from tacit.privacy.vault.sources.image_folder import ImageFolder
from tacit.privacy.vault.sources.source import DeclaredRows, Reader
from tacit.privacy.vault.sources.table_reader import CSV, PARQUET, open_frame, open_table
from tacit.words import nearest


def open_declared(path: Path | str) -> Stream:
    """Builds the stream of a declaration file.

    Args:
        path: The declaration, a YAML file. The files that it names are relative to it.

    Returns:
        The stream.

    Raises:
        DataError: The declaration is wrong, a file is missing or does not have the declared columns, or the public test
            file is the private one.
    """
    declared = Declaration.load(path)
    if declared.files is None:
        raise DataError(f"{path}: the key 'files' is missing; say where the data is, such as files: {{train: a.csv}}")
    folder = Path(path).parent
    test = declared.files.test
    train = open_path(declared, folder / declared.files.train)
    refuse_private_test_file(declared, folder)
    return _build(declared, train, None if test is None else open_path(declared, folder / test, test=True))


def from_arrays(
    declared: Declaration, x: Any, y: Any, *, task: Any = None, person: Any = None, test: tuple[Any, ...] | None = None
) -> Stream:
    """Builds a stream of NumPy arrays.

    Args:
        declared: The public facts.
        x: Features, one row per record.
        y: Labels.
        task: The task of each record; needed where several tasks are declared.
        person: The person of each record; needed where persons are protected.
        test: A public test set, (x, y) or (x, y, task).

    Returns:
        The stream.

    Raises:
        DataError: An array is missing, has another length, or does not hold numbers.
    """
    if len(declared.tasks) > 1 and task is None:
        raise DataError("several tasks are declared, so the array `task` must say which task each record belongs to")
    if declared.unit == "person" and person is None:
        raise DataError("persons are protected, so the array `person` must say which person each record belongs to")
    tests = None if test is None else DeclaredArrays(declared, *test)
    return _build(declared, DeclaredArrays(declared, x, y, task, person), tests)


def from_frame(declared: Declaration, frame: Any, *, test: Any = None) -> Stream:
    """Builds a stream of a pandas or polars data frame, or an Arrow table, with the declared columns.

    Args:
        declared: The public facts.
        frame: The private rows.
        test: A public frame to test on; it need not have the columns of tasks and persons.

    Returns:
        The stream.

    Raises:
        DataError: It is no data frame, or does not have the declared columns.
    """
    tests = None if test is None else open_frame(declared, test, test=True)
    return _build(declared, open_frame(declared, frame), tests)


def from_datasets(declared: Declaration, tasks: Mapping[str, Any], *, test: Mapping[str, Any] | None = None) -> Stream:
    """Builds a stream of torch Datasets; features are read when they are sampled.

    Args:
        declared: The public facts; the shape of a record must be among them.
        tasks: A Dataset of (x, y) or (x, y, id) by the name of its task. A declared task without one is empty.
        test: Public Datasets of (x, y), by task.

    Returns:
        The stream.

    Raises:
        DataError: The shape is not declared, or a Dataset belongs to no declared task.
    """
    if declared.shape is None:
        raise DataError("torch Datasets do not tell the shape of a record; declare it, such as shape: [1, 28, 28]")
    names = [task.name for task in declared.tasks]
    for name in (*tasks, *(test or {})):
        if name not in names:
            raise DataError(f"there is a Dataset for {name!r}, which is not a declared task; {nearest(name, names)}")
    info = declared.info(declared.shape)

    def make(facts: TaskInfo) -> Task:
        tests = (test or {}).get(facts.name)
        return Task(
            info=facts,
            records=tasks.get(facts.name, []),
            test=None if tests is None else lambda: _stacked(tests, info.shape, facts),
            arrived=lambda: facts.name in tasks,
        )

    return Stream(info, map(make, info.tasks))


def open_path(declared: Declaration, path: Path, *, test: bool = False) -> Reader:
    """The reader of a file or folder, by its kind: CSV, Parquet, .npz, images. `test`: the file is public."""
    if not path.exists():
        raise DataError(f"there is no {path}; the paths in a declaration are relative to it")
    if path.is_dir():
        return ImageFolder(declared, path, test=test)
    if path.suffix.lower() == ".npz":
        return NpzFile(declared, path, test=test)
    if path.suffix.lower() in (*CSV, *PARQUET):
        return open_table(declared, path, test=test)
    raise DataError(
        f"{path} is of no known kind; it may be {', '.join((*CSV, *PARQUET, '.npz'))} or a folder of images"
    )


def refuse_private_test_file(declared: Declaration, folder: Path) -> None:
    """Refuses private data as a public test set.

    Raises:
        DataError: The test file is the private file by any path or link, a copy of it, or one folder contains the
            other.
    """
    if declared.public or declared.files is None or declared.files.test is None:
        return
    train, test = folder / declared.files.train, folder / declared.files.test
    if not (train.exists() and test.exists()):
        return
    if _is_within(train, test) or _is_within(test, train) or is_copy(train, test):
        raise DataError(
            f"files.test = {declared.files.test!r} is the private data of files.train, or a copy of it; give a public "
            "file, or null for a charged accuracy"
        )


def _is_within(inner: Path, outer: Path) -> bool:
    resolved = inner.resolve()
    return any(path.samefile(outer) for path in (resolved, *resolved.parents))


def _build(declared: Declaration, train: Reader, test: Reader | None) -> Stream:
    info = replace(declared.info(train.shape), inputs=train.form)
    if test is not None and test.shape != train.shape:
        raise DataError(f"test records have the shape {test.shape} and train records {train.shape}; they must agree")

    def make(facts: TaskInfo) -> Task:
        has_task = getattr(train, "has_task", None)
        return Task(
            info=facts,
            records=DeclaredRows(task=facts.name, reader=train),
            test=None if test is None else partial(_test_records, test, facts),
            arrived=None if has_task is None else partial(has_task, facts.name),
        )

    return Stream(info, map(make, info.tasks))


def _test_records(test: Reader, facts: TaskInfo) -> tuple[Any, ...]:
    """The test records of a task whose labels are declared."""
    x, y, _ = test.read(facts.name)
    keep = np.isin(y, facts.labels)
    return x[keep], y[keep]


def _stacked(data: Any, shape: tuple[int, ...], facts: TaskInfo) -> tuple[Any, ...]:
    """A public test Dataset as arrays, without records that have another label."""
    rows = [data[number] for number in range(len(data))]
    x = model_input(tensor(np.asarray([np.asarray(row[0]) for row in rows]).reshape(-1, *shape))).float().numpy()
    y = np.asarray([np.asarray(row[1])[()] for row in rows])
    keep = np.isin(y, facts.labels)
    return x[keep], y[keep]
