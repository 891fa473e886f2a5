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
    endless: bool = False
    """The tasks go on for ever: `tasks` is one period of them, and task n has the facts of tasks[n % period]."""

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

    def __post_init__(self) -> None:
        for name in ("tasks_per_unit", "records_per_unit"):
            if not isinstance(getattr(self, name), int):
                raise DataError(f"{name} must be a whole number, got {getattr(self, name)!r}")
        if self.endless and (not self.tasks or any(self.task(task.number) != task for task in self.tasks)):
            raise DataError("the tasks of an endless stream are numbered from 0 and named task-1, task-2, …")

    def task(self, number: int) -> TaskInfo | None:
        """What is planned as task `number`, from 0; None past the end."""
        if number < 0 or (number >= len(self.tasks) and not self.endless):
            return None
        planned = self.tasks[number % len(self.tasks)]
        return replace(planned, number=number, name=f"task-{number + 1}") if self.endless else planned

    @property
    def units(self) -> float:
        """How many units are declared: at least those of the largest task, and of all tasks together where a unit is in
        as many of them as it may be. Of a stream without end, those of its largest task."""
        sizes = [task.size for task in self.tasks]
        return max(sizes) if self.endless else max(*sizes, sum(sizes) / self.tasks_per_unit, 0)

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
    arrived: Callable[[], bool] | None = field(default=None, repr=False)
    """Whether the file or folder that holds this task alone is there. None: it has none, only the owner can tell."""
    """→ (x, y) as arrays: a public test set. None: accuracy is a charged query."""


class Stream(Sequence[Task]):
    """A sequence of tasks with its public facts. A slice is a stream again, its tasks numbered from 0.

    An endless stream holds one period of tasks; `later` makes any task that comes after, when `task` asks for it, and
    nothing of it is kept."""

    def __init__(self, info: StreamInfo, tasks: Iterable[Task], *, later: Callable[[int], Task] | None = None) -> None:
        self.info = info
        self._tasks, self._later = tuple(tasks), later
        self.held: Stream | None = None
        """First tasks that were held back from it, for learners that begin on them."""
        if tuple(task.info for task in self._tasks) != info.tasks or info.endless != (later is not None):
            raise DataError("a stream's tasks and its public facts must agree; build both from the same list")

    def task(self, number: int) -> Task:
        """Task `number`, from 0."""
        planned = self.info.task(number)
        if planned is None:
            raise DataError(f"{self.info.name!r} has tasks 0 to {len(self) - 1}, and none of number {number}")
        if number < len(self) or self._later is None:
            return self._tasks[number]
        made = self._later(number)
        if made.info != planned:
            raise DataError(f"task {number} of {self.info.name!r} was made with other public facts than those planned")
        return made

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

    def of_features(self, features: str) -> "Stream":
        """The same stream, whose records are said to be features of this map."""
        return Stream(replace(self.info, features=features), self._tasks, later=self._later)

    def _of(self, tasks: Sequence[Task]) -> "Stream":
        if self.info.endless:
            raise DataError(f"{self.info.name!r} is endless: it is learnt from its first task on, in its own order")
        numbered = [replace(task, info=replace(task.info, number=number)) for number, task in enumerate(tasks)]
        return Stream(replace(self.info, tasks=tuple(task.info for task in numbered)), numbered)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)
