"""The declaration of private data: all public facts about it, in a short YAML file that its owner writes.

Nothing in it is read from the data, and nothing that is missing is inferred from the data. The values of a declaration
are public, so that error messages may quote them.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from tacit.data.declared import parsing
from tacit.data.input_form import Decimal, Encoding
from tacit.data.stream import Label, Protected, StreamInfo, TaskId, TaskInfo
from tacit.errors import DataError
from tacit.words import nearest

Count = Annotated[int, Field(ge=1, strict=True)]
Text = Annotated[str, Field(min_length=1)]
Labels = Annotated[tuple[Label, ...], BeforeValidator(parsing.label_list)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Files(_Part):
    """The data files: CSV, Parquet, .npz, or a folder of images; paths are relative to the declaration.

    Each line of a CSV file is a record, so that cells contain no newlines, not even in quotes."""

    train: Text
    test: Text | None = None
    """A public file, not the private one. None: accuracy is a charged query."""
    delimiter: Annotated[str, BeforeValidator(parsing.one_delimiter)] = ","
    """The delimiter of a CSV file."""
    decimal: Decimal = "."
    """The decimal mark of numbers that are stored as texts; thousands separators are not read."""
    encoding: Encoding = "utf-8"
    """The encoding of a CSV file; a line in another encoding is dropped without a message."""


class Columns(_Part):
    """The names of the columns of labels, tasks and persons."""

    label: Text = "label"
    task: Text | None = None
    person: Text | None = None


class TaskEntry(_Part):
    """The public facts of one task."""

    name: Annotated[str, BeforeValidator(parsing.task_name)]
    """As in the column of tasks."""
    size: Count
    """The nominal number of units (records or persons): expected, not counted."""
    labels: Labels | None = None
    """None: the labels of the stream."""


class Declaration(_Part):
    """The public facts of private data.

    `Declaration.of(facts)` and `Declaration.load(path)` raise a `DataError` with one sentence where the plain
    constructor raises pydantic's own error."""

    name: Text
    """The permanent name of the stream: the ledger keeps its budget under this name."""
    files: Files | None = None
    columns: Columns = Columns()
    features: Annotated[Literal["others"] | tuple[str, ...], BeforeValidator(parsing.feature_list)] = "others"
    """The feature columns, in order; "others": every column that is not the label, the task or the person."""
    categories: dict[str, Labels] = {}
    """The public values of text columns, which are one-hot encoded."""
    scaling: Annotated[dict[str, tuple[float, float]] | tuple[float, float], BeforeValidator(parsing.limits)] = {}
    """The public least and largest value, of all features or by name; values outside are clipped."""
    range: Annotated[tuple[float, float], BeforeValidator(parsing.pair)] = (0.0, 1.0)
    """The range that the least and the largest value are mapped to."""
    fill: float = 0.0
    """Replaces a missing number and a cell that is not a number."""
    shape: Annotated[tuple[Count, ...], BeforeValidator(parsing.feature_shape)] | None = None
    """The shape of one record; needed for images and torch Datasets. None: the number of features."""
    labels: Labels
    tasks: Annotated[tuple[TaskEntry, ...], Field(min_length=1)]
    unit: Protected = "record"
    tasks_per_unit: Count = 1
    records_per_unit: Count = 1
    public: bool = False
    task_id: TaskId = "hidden"

    @model_validator(mode="after")
    def _consistent(self) -> "Declaration":
        names = [parsing.plain_name(task.name) for task in self.tasks]
        if len(set(names)) != len(names):
            raise ValueError("tasks: two tasks have the same name; names must be unique")
        if self.unit == "person" and self.columns.person is None and self.files is not None:
            raise ValueError("unit: persons are protected, so columns.person must name the column that says who")
        if self.range not in ((0.0, 1.0), (-1.0, 1.0)):
            raise ValueError(f"range: must be [0, 1] or [-1, 1], got {list(self.range)}")
        for task in self.tasks:
            outside = set(task.labels or ()) - set(self.labels)
            if outside:
                raise ValueError(f"tasks: {task.name} has labels that the stream has not, {sorted(outside, key=str)}")
        if self.tasks_per_unit > len(self.tasks):
            raise ValueError(
                f"tasks_per_unit: a {self.unit} cannot be in {self.tasks_per_unit} tasks where {len(self.tasks)} are "
                f"declared; say at most {len(self.tasks)}, or declare the tasks to come"
            )
        return self

    @classmethod
    def load(cls, path: Path | str) -> "Declaration":
        """Reads a declaration file.

        Args:
            path: The file.

        Raises:
            DataError: The file cannot be read, or a fact is missing or wrong.
        """
        try:
            facts = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"cannot read the declaration {path}: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            mark = getattr(error, "problem_mark", None)
            place = f" at line {mark.line + 1}" if mark is not None else ""
            raise DataError(f"{path} is not valid YAML{place}; write a new one with `tacit data declare`") from None
        if not isinstance(facts, dict):
            raise DataError(f"{path} is not a declaration; write one with `tacit data declare`")
        return cls.of(facts, where=str(path))

    @classmethod
    def of(cls, facts: Mapping[str, Any], where: str = "the declaration") -> "Declaration":
        """The declaration of these facts.

        Args:
            facts: Keys and values as in a declaration file.
            where: Names the declaration in messages.

        Raises:
            DataError: A fact is missing or wrong.
        """
        try:
            return cls.model_validate(dict(facts))
        except ValidationError as error:
            raise DataError(f"{where}: {_sentence(error, facts)}") from None

    @property
    def digest(self) -> str:
        """A hash of all facts but the paths of the files."""
        facts = self.model_dump(mode="json", exclude={"files": {"train", "test"}})
        return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()

    def info(self, shape: tuple[int, ...]) -> StreamInfo:
        """The public facts of the stream; `shape` is that of one record, where none is declared.

        Args:
            shape: The shape of one record.
        """
        tasks = tuple(
            TaskInfo(name=task.name, number=number, labels=task.labels or self.labels, size=task.size)
            for number, task in enumerate(self.tasks)
        )
        return StreamInfo(
            name=self.name,
            shape=self.shape or shape,
            tasks=tasks,
            task_id=self.task_id,
            unit=self.unit,
            tasks_per_unit=self.tasks_per_unit,
            records_per_unit=self.records_per_unit,
            public=self.public,
            declared=self.digest,
        )


_KEYS: dict[str, type[BaseModel]] = {"": Declaration, "files": Files, "columns": Columns, "tasks": TaskEntry}
_NAMES = {name for model in _KEYS.values() for name in model.model_fields}


def _sentence(error: ValidationError, facts: Mapping[str, Any]) -> str:
    """The first error: its key, its value, and the way out. An unknown key comes before a missing one, because the
    unknown key is often a misspelling of it."""
    wrong = error.errors()
    first = next((found for found in wrong if found["type"] == "extra_forbidden"), wrong[0])
    unknown = first["type"] == "extra_forbidden"
    # Between the keys pydantic also lists the types that it tried.
    place = [part for part in first["loc"] if unknown or isinstance(part, int) or part in _NAMES]
    key, value = ".".join(map(str, place)), _at(facts, place)
    if unknown:
        parent, name = str(place[0]) if len(place) > 1 else "", str(place[-1])
        meant = nearest(name, _KEYS[parent].model_fields, _elsewhere(name))
        return f"{key} is not a key of a declaration (value {value!r}); {meant}"
    if first["type"] == "missing":
        return f"the key {key!r} is missing; fill it in, nothing is inferred from the data"
    if key and value is None:
        return f"the key {key!r} is not filled in; fill it in, nothing is inferred from the data"
    words = str(first["msg"]).removeprefix("Value error, ")
    if not words[:2].isupper():
        words = words[:1].lower() + words[1:]
    return f"{key} = {value!r}: {words}" if key else words


def _elsewhere(name: str) -> list[str]:
    """The keys of this name in other parts of a declaration."""
    return [f"{part}.{name}".lstrip(".") for part in ("", "files", "columns") if name in _KEYS[part].model_fields]


def _at(facts: Any, place: Sequence[Any]) -> Any:
    for part in place:
        try:
            facts = facts[part]
        except (KeyError, IndexError, TypeError):
            return None
    return facts
