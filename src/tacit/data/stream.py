"""Tasks and streams: their public facts, and the sources of their records.

A stream is a lazy sequence of tasks that can be indexed and sliced. `info` holds public facts only: they are declared,
never computed from private records. A learner gets `info` and a block; the records go to the vault.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, overload

from tacit.data.input_form import InputForm
from tacit.errors import DataError

Label = str | int
TaskId = Literal["given", "hidden"]
Protected = Literal["record", "person"]


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """Public facts of one task."""

    name: str
    number: int
    """Position in the stream, from 0."""
    labels: tuple[Label, ...]
    """The public label set. A record with another label is dropped without a message, or gets the stream's `other`."""
    size: int
    """The nominal number of units: declared, never counted."""


@dataclass(frozen=True, kw_only=True)
class StreamInfo:
    """Public facts of a stream: the planned tasks, whether the task is known at test time, and how units recur."""

    name: str
    shape: tuple[int, ...]
    """Shape of one record's features."""
    tasks: tuple[TaskInfo, ...]
    task_id: TaskId = "hidden"
    """"given": the task is known at test time, and logits are masked to its labels. "hidden": it is not."""
    unit: Protected = "record"
    """What is protected. With "person", records come with ids: (x, y, ids)."""
    tasks_per_unit: int = 1
    """In how many tasks one unit may be."""
    records_per_unit: int = 1
    """How many records one unit may have in a task."""
    public: bool = False
    """Whether the data is public, as in a benchmark."""
    other: Label | None = None
    """The label that records outside their task's label set get; it is in every set. None drops these records."""
    declared: str = ""
    """The digest of the declaration that the stream was opened with; empty where there is none."""
    features: str = ""
    """What computed the features: the key of a public backbone, or a file of its features; empty for raw records."""
    endless: bool = False
    """Whether the stream has no end: `tasks` is then one period, and task n has the facts of tasks[n % period]."""
    inputs: InputForm | None = field(default=None, compare=False, repr=False)
    """How new records are read for predictions; None where records come as arrays of the right shape."""

    @classmethod
    def uniform(
        cls,
        name: str,
        *,
        labels: Iterable[Label] | None = None,
        shape: Sequence[int] | int,
        size: int,
        tasks: int,
        **facts: Any,
    ) -> "StreamInfo":
        """The facts of a stream whose tasks all have the same labels and nominal size.

        Args:
            name: The name of the stream in the ledger.
            labels: The public label set of every task. None: given as `classes` to the first `partial_fit`.
            shape: The shape of one record; a number for rows of that length.
            size: The nominal number of units in each task.
            tasks: The number of tasks.
            facts: Any other fields of `StreamInfo`, by keyword.

        Returns:
            The facts, with tasks named task-1, task-2, …

        Raises:
            DataError: A value is not a positive whole number, or a label occurs twice.
        """
        space = () if labels is None else _unique_labels(labels)
        given = shape if isinstance(shape, Iterable) else (shape,)
        sides = tuple(whole("each side of shape", side) for side in given)
        number = range(whole("tasks", tasks))
        planned = (TaskInfo(name=f"task-{n + 1}", number=n, labels=space, size=whole("size", size)) for n in number)
        return cls(name=name, shape=sides, tasks=tuple(planned), **facts)

    def __post_init__(self) -> None:
        for name in ("tasks_per_unit", "records_per_unit"):
            if not isinstance(getattr(self, name), int):
                raise DataError(f"{name} must be a whole number, got {getattr(self, name)!r}")
        if self.endless and (not self.tasks or any(self.task(task.number) != task for task in self.tasks)):
            raise DataError("the tasks of an endless stream are numbered from 0 and named task-1, task-2, …")

    def __repr__(self) -> str:
        """The facts in one line; `tasks` has those of each task."""
        tasks = f"{len(self.tasks)} task{'' if len(self.tasks) == 1 else 's'}{' a period' if self.endless else ''}"
        labels = f"{len(self.labels)} label{'' if len(self.labels) == 1 else 's'}"
        return f"StreamInfo({self.name!r}, {tasks}, {labels}, shape={self.shape}, unit={self.unit!r})"

    def task(self, number: int) -> TaskInfo | None:
        """The facts of task `number`, from 0; None past the end.

        Args:
            number: Its position.

        Returns:
            The facts, or None.
        """
        if number < 0 or (number >= len(self.tasks) and not self.endless):
            return None
        planned = self.tasks[number % len(self.tasks)]
        return replace(planned, number=number, name=f"task-{number + 1}") if self.endless else planned

    @property
    def units(self) -> float:
        """The declared number of units: at least that of the largest task, and at least the sum over all tasks divided
        by `tasks_per_unit`. In an endless stream, that of the largest task."""
        sizes = [task.size for task in self.tasks]
        return max(sizes) if self.endless else max(*sizes, sum(sizes) / self.tasks_per_unit, 0)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The union of the tasks' label sets, in order of first appearance: the outputs of a model."""
        return tuple(dict.fromkeys(label for task in self.tasks for label in task.labels))


def whole(name: str, value: Any, least: int = 1) -> int:
    """The value as a Python int.

    Raises:
        DataError: It is not a whole number, or is less than `least`.
    """
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, int) or plain < least:
        raise DataError(f"{name} must be a whole number ≥ {least}, got {value!r}")
    return plain


def _unique_labels(labels: Any) -> tuple[Label, ...]:
    """Public labels as Python numbers or texts, each once."""
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
    """One step of a stream."""

    info: TaskInfo
    records: Any = field(repr=False)
    """What `Vault.admit` takes: a function that loads a benchmark's (x, y) or (x, y, ids), a Dataset, or a description
    of private rows that only the vault opens."""
    test: Loader | None = field(default=None, repr=False)
    """Loads a public test set (x, y) as arrays. None: accuracy is a charged query."""
    arrived: Callable[[], bool] | None = field(default=None, repr=False)
    """Whether the file or folder of this task alone exists. None: it has none, and only the owner knows."""
    through: Any = field(default=None, repr=False)
    """A frozen feature map that `Vault.admit` applies to the records."""
    weight: float = 1.0
    """The weight of the accuracy on this task in averages over tasks. Tasks whose test sets are parts of one test set
    are weighted by their number of test rows; 0 leaves a task out."""


class Stream(Sequence[Task]):
    """A sequence of tasks with its public facts. A slice is again a stream, with its tasks numbered from 0.

    Args:
        info: The public facts.
        tasks: The tasks; of an endless stream, one period.
        later: For an endless stream, makes the task of any later number; nothing of it is kept.

    Attributes:
        info: The public facts.
        held: The first tasks, where they were held back for learners that start with them.

    Raises:
        DataError: The tasks and the public facts do not agree.
    """

    def __init__(self, info: StreamInfo, tasks: Iterable[Task], *, later: Callable[[int], Task] | None = None) -> None:
        self.info = info
        self._tasks, self._later = tuple(tasks), later
        self.held: Stream | None = None
        if tuple(task.info for task in self._tasks) != info.tasks or info.endless != (later is not None):
            raise DataError("a stream's tasks and its public facts must agree; build both from the same list")

    def task(self, number: int) -> Task:
        """Task `number`, from 0.

        Args:
            number: Its position.

        Returns:
            The task.

        Raises:
            DataError: There is no such task, or it was made with other public facts than planned.
        """
        planned = self.info.task(number)
        if planned is None:
            raise DataError(f"{self.info.name!r} has tasks 0 to {len(self) - 1}, and none of number {number}")
        if number < len(self) or self._later is None:
            return self._tasks[number]
        task = self._later(number)
        if task.info != planned:
            raise DataError(f"task {number} of {self.info.name!r} was made with other public facts than those planned")
        return task

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> "Stream": ...
    def __getitem__(self, index: int | slice) -> "Task | Stream":
        if isinstance(index, int):
            return self._tasks[index]
        return self._renumbered(self._tasks[index])

    def in_order(self, order: Sequence[int]) -> "Stream":
        """The same tasks in another order, given by their positions.

        Args:
            order: The positions of the tasks, each once.

        Returns:
            A new stream.

        Raises:
            DataError: A position is missing or named twice.
        """
        if sorted(order) != list(range(len(self))):
            raise DataError(f"an order of {len(self)} tasks must name each position once, got {list(order)}")
        return self._renumbered([self._tasks[index] for index in order])

    def of_features(self, features: str) -> "Stream":
        """The same stream, with `info.features` set.

        Args:
            features: The name of the features, as `StreamInfo.features` has it.

        Returns:
            A new stream.
        """
        return Stream(replace(self.info, features=features), self._tasks, later=self._later)

    def _renumbered(self, tasks: Sequence[Task]) -> "Stream":
        if self.info.endless:
            raise DataError(f"{self.info.name!r} is endless: it is learned from its first task on, in its own order")
        numbered = [replace(task, info=replace(task.info, number=number)) for number, task in enumerate(tasks)]
        return Stream(replace(self.info, tasks=tuple(task.info for task in numbered)), numbered)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)
