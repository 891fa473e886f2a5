"""Tasks and streams: what is public about them, and how their records are reached.

A stream is an indexable, sliceable, lazy sequence of tasks. `info` holds public facts only: they are declared, never
taken from private records. A learner gets `info` and a block; the records go straight into the vault.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, overload

from tacit.errors import DataError

Label = str | int
TaskId = Literal["given", "hidden"]
Protected = Literal["record", "person"]


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """Public facts of one task."""

    name: str
    number: int
    """Place in the stream, from 0."""
    labels: tuple[Label, ...]
    """Public label set; a record with another label is skipped in silence, or gets the stream's `other`."""
    size: int
    """Nominal number of units."""


@dataclass(frozen=True, kw_only=True)
class StreamInfo:
    """Public facts of a stream: the tasks that are planned, how test inputs come, and how units recur."""

    name: str
    shape: tuple[int, ...]
    """Of one record's features."""
    tasks: tuple[TaskInfo, ...]
    task_id: TaskId = "hidden"
    """given: at test the task is known, and logits are masked to its labels. No table mixes the two."""
    unit: Protected = "record"
    """What the records can protect: with "person" they come as (x, y, ids)."""
    tasks_per_unit: int = 1
    records_per_unit: int = 1
    """Per task."""
    public: bool = False
    """A benchmark: the data is public."""
    other: Label | None = None
    """A record with a label outside its task's set gets this one, which is in every set. None: it is skipped."""
    declared: str = ""
    """Names the declaration that the stream was opened by, wherever its files lie; empty where there is none."""
    features: str = ""
    """What records were put through before: the key of a public backbone, or a file of its features. Empty: nothing."""

    @classmethod
    def uniform(
        cls, name: str, *, labels: Iterable[Label], shape: Sequence[int] | int, size: int, tasks: int, **facts: Any
    ) -> "StreamInfo":
        """`tasks` tasks of the same size over the same labels. `shape=768`: rows of so many numbers."""
        space = _each_once(labels)
        given = shape if isinstance(shape, Iterable) else (shape,)
        sides = tuple(whole("each side of shape", side) for side in given)
        number = range(whole("tasks", tasks))
        made = (TaskInfo(name=f"task-{n + 1}", number=n, labels=space, size=whole("size", size)) for n in number)
        return cls(name=name, shape=sides, tasks=tuple(made), **facts)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The union of the tasks' label sets, in the order of first appearance: the outputs of a model."""
        return tuple(dict.fromkeys(label for task in self.tasks for label in task.labels))


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is large enough, as a plain one."""
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, int) or plain < least:
        raise DataError(f"{name} must be a whole number ≥ {least}, got {value!r}")
    return plain


def _each_once(labels: Any) -> tuple[Label, ...]:
    """Public labels as plain numbers or texts."""
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        hint = f"range({labels})" if isinstance(labels, int) else "['sick', 'well']"
        raise DataError(f"labels must be a list of whole numbers or texts, got {labels!r}; such as {hint}")
    plain = tuple(label.item() if hasattr(label, "item") else label for label in labels)
    if not plain or len(set(plain)) != len(plain):
        raise DataError(f"labels must name at least one label, and each once, got {list(plain)[:10]}")
    return plain


Loader = Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One step of a stream. `records()` is private: hand it to `vault.admit` and nothing else."""

    info: TaskInfo
    records: Loader = field(repr=False)
    """→ (x, y), (x, y, ids), a Dataset or an iterable: what the vault admits."""
    test: Loader | None = field(default=None, repr=False)
    """→ (x, y) as arrays: a public test set. None: accuracy is a charged query."""


class Stream(Sequence[Task]):
    """A sequence of tasks with its public facts. A slice is a stream again, its tasks numbered from 0."""

    def __init__(self, info: StreamInfo, tasks: Iterable[Task]) -> None:
        self.info = info
        self._tasks = tuple(tasks)
        if tuple(task.info for task in self._tasks) != info.tasks:
            raise DataError("a stream's tasks and its public facts must agree; build both from the same list")

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, place: int) -> Task: ...
    @overload
    def __getitem__(self, place: slice) -> "Stream": ...
    def __getitem__(self, place: int | slice) -> "Task | Stream":
        if isinstance(place, int):
            return self._tasks[place]
        return self._of(self._tasks[place])

    def in_order(self, order: Sequence[int]) -> "Stream":
        """The same tasks, each once, in another order (by place)."""
        if sorted(order) != list(range(len(self))):
            raise DataError(f"an order of {len(self)} tasks names each place once, got {list(order)}")
        return self._of([self._tasks[place] for place in order])

    def _of(self, tasks: Sequence[Task]) -> "Stream":
        numbered = [replace(task, info=replace(task.info, number=number)) for number, task in enumerate(tasks)]
        return Stream(replace(self.info, tasks=tuple(task.info for task in numbered)), numbered)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)
