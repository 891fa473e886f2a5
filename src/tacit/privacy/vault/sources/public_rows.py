"""Compares the declared tasks and labels with the rows of public data. Of private data nothing is compared."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.declared.declaration import Declaration
from tacit.data.declared.parsing import plain_name
from tacit.data.stream import Label, Stream
from tacit.errors import DataError
from tacit.privacy.vault.sources import cell_conversion
from tacit.privacy.vault.sources.source import DeclaredRows, Occurring, Reader
from tacit.words import listed

_NAMED = 100
"""The most names that are collected of a column."""


class Found:
    """Collects which declared tasks and labels occur in columns, some rows at a time.

    Args:
        declared: The public facts.
    """

    def __init__(self, declared: Declaration) -> None:
        self._declared = declared
        self._tasks = [entry.name for entry in declared.tasks]
        self._labels: dict[str, set[Label]] = {}
        self._named: dict[str, dict[str, None]] = {"task": {}, "label": {}}

    def add(self, label: Any, task: Any | None) -> None:
        """Adds the cells of these rows; without a column of tasks they belong to every task."""
        declared = self._declared
        decimal = "." if declared.files is None else declared.files.decimal
        labels = cell_conversion.labels(label, declared.labels, decimal)
        names = None if task is None else cell_conversion.names(task)
        self._note("label", cell_conversion.names(label))
        if names is not None:
            self._note("task", names)
        for name in self._tasks:
            if names is None:
                here = labels
            else:
                kept = pc.fill_null(pc.equal(names, plain_name(name)), False)
                here = labels[np.asarray(kept.combine_chunks() if isinstance(kept, pa.ChunkedArray) else kept)]
            if len(here):
                occurring = self._labels.setdefault(name, set())
                occurring |= set(np.unique(here).tolist()) & set(declared.labels)

    def occurring(self) -> Occurring:
        """What occurs in the rows that were added."""
        return Occurring(
            labels={task: frozenset(labels) for task, labels in self._labels.items()},
            tasks_named=tuple(self._named["task"]),
            labels_named=tuple(self._named["label"]),
        )

    def _note(self, what: str, names: Any) -> None:
        for name in pc.unique(names).to_pylist():
            if name is not None and len(self._named[what]) < _NAMED:
                self._named[what][name] = None


@dataclass(frozen=True, kw_only=True)
class Unmatched:
    """What a declaration of public data names and no row has.

    Attributes:
        tasks: The tasks of which no row has one of their labels.
        labels: The labels that no row of a declared task has.
        said: One sentence that names them, and what the rows have; empty if all occur.
    """

    tasks: tuple[str, ...] = ()
    labels: tuple[Label, ...] = ()
    said: str = ""


def unmatched(stream: Stream) -> Unmatched:
    """What the declaration of a public stream names and no row has; nothing for other streams.

    Raises:
        DataError: The file cannot be read to its end.
    """
    records = None if stream.info.endless or not stream.info.public else stream[0].records
    if not isinstance(records, DeclaredRows):
        return Unmatched()
    return compared(records.reader, {task.name: task.labels for task in stream.info.tasks})


def compared(reader: Reader, declared: dict[str, tuple[Label, ...]]) -> Unmatched:
    """What of the declared labels of each task no row of public data has.

    Args:
        reader: The rows. They must be public.
        declared: The labels of each declared task.
    """
    found = reader.occurring()
    there = {task: found.labels.get(task, frozenset()) & frozenset(labels) for task, labels in declared.items()}
    every = dict.fromkeys(label for labels in declared.values() for label in labels)
    seen = frozenset().union(*there.values())
    tasks = tuple(task for task, labels in there.items() if not labels)
    labels = tuple(label for label in every if label not in seen)
    return Unmatched(tasks=tasks, labels=labels, said="; ".join(_sentences(tasks, labels, found)))


def _sentences(tasks: tuple[str, ...], labels: tuple[Label, ...], found: Occurring) -> Iterator[str]:
    no_rows = tuple(task for task in tasks if task not in found.labels)
    if no_rows:
        has = f", the rows have {listed(found.tasks_named)}" if found.tasks_named else ""
        yield f"{_plural('task', no_rows)} {listed(no_rows)} {'has' if len(no_rows) == 1 else 'have'} no rows{has}"
    other = tuple(task for task in tasks if task in found.labels)
    if labels or other:
        has = f", the rows have {listed(found.labels_named)}" if found.labels_named else ""
        names = tuple(map(str, labels))
        if names:
            yield f"{_plural('label', names)} {listed(names)} {'has' if len(names) == 1 else 'have'} no rows{has}"
        if other:
            yield f"no row of {_plural('task', other)} {listed(other)} has a declared label{'' if names else has}"


def _plural(noun: str, names: tuple[str, ...]) -> str:
    return noun if len(names) == 1 else f"{noun}s"


def refuse_unmatched(stream: Stream, goal: int | None, *, learned: int = 0) -> str:
    """Refuses a public stream with tasks that no row matches.

    Args:
        stream: The stream.
        goal: How many tasks are to be learned; None: all.
        learned: How many are learned already, whose rows may be gone.

    Returns:
        What the user should know of labels that no row has; empty if all occur, the stream is private, or a task is
        learned already.

    Raises:
        DataError: A task that is to be learned has no row with one of its labels.
    """
    missing = unmatched(stream)
    if {task.name for task in stream.info.tasks[learned:goal]} & set(missing.tasks):
        raise DataError(
            f"the declaration of {stream.info.name!r} does not match its public rows: {missing.said}; correct the "
            "declaration or the file, or learn the tasks that are there with --until"
        )
    return f"in the public rows of {stream.info.name!r}, {missing.said}" if missing.labels and not learned else ""
