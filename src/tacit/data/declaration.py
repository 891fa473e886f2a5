"""The declaration of private data: every public fact, said by a person in a short YAML file.

Nothing in it is read from the data, and nothing that it leaves out is inferred from them. A wrong file is refused in
one sentence that names the key, the value and the nearest valid ones; its values are public, so they may be quoted.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from tacit.data.facts import (
    feature_list,
    feature_shape,
    label_list,
    limits,
    one_delimiter,
    pair,
    plain_name,
    task_name,
)
from tacit.data.stream import Label, Protected, StreamInfo, TaskId, TaskInfo
from tacit.errors import DataError
from tacit.words import nearest

Count = Annotated[int, Field(ge=1, strict=True)]
Text = Annotated[str, Field(min_length=1)]
Decimal = Literal[".", ","]
Encoding = Literal["utf-8", "latin-1", "cp1252"]
Labels = Annotated[tuple[Label, ...], BeforeValidator(label_list)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Files(_Part):
    """Where the data lies: CSV, Parquet, .npz, or a folder of images; relative to the declaration.

    A line of a CSV file is a record: no newlines in cells, also not in quotes."""

    train: Text
    test: Text | None = None
    """A public file, and not the private one; or none: accuracy is then a charged query."""
    delimiter: Annotated[str, BeforeValidator(one_delimiter)] = ","
    """Of a CSV file."""
    decimal: Decimal = "."
    """What stands before the decimals of a number that is written as a text; a number has no other mark in it."""
    encoding: Encoding = "utf-8"
    """Of a CSV file; a line that is written otherwise is left out in silence."""


class Columns(_Part):
    label: Text = "label"
    task: Text | None = None
    person: Text | None = None


class TaskEntry(_Part):
    name: Annotated[str, BeforeValidator(task_name)]
    """As the task column has it."""
    size: Count
    """Nominal number of units (records or persons), expected and not counted."""
    labels: Labels | None = None
    """None: those of the stream."""


class Declaration(_Part):
    """The public facts of private data.

    `Declaration.of(facts)` and `Declaration.load(path)` are the ways in: they say in one sentence what is wrong, where
    the plain constructor raises pydantic's own error."""

    name: Text
    """Of the stream, for ever: its budget is found by it in the ledger."""
    files: Files | None = None
    columns: Columns = Columns()
    features: Annotated[Literal["others"] | tuple[str, ...], BeforeValidator(feature_list)] = "others"
    """Columns that are features, in order; "others": every column that is not the label, the task or the person."""
    categories: dict[str, Labels] = {}
    """The public values of text columns; each becomes one number per value, 1 where it is the value."""
    scaling: Annotated[dict[str, tuple[float, float]] | tuple[float, float], BeforeValidator(limits)] = {}
    """Public least and largest value, of all features or of each by name; values outside are clipped."""
    range: Annotated[tuple[float, float], BeforeValidator(pair)] = (0.0, 1.0)
    """What the least and the largest value become."""
    fill: float = 0.0
    """In place of a missing number, or of a cell that is none: features that are no category are numbers."""
    shape: Annotated[tuple[Count, ...], BeforeValidator(feature_shape)] | None = None
    """Of one record; needed for images and torch Datasets, otherwise the features in a row."""
    labels: Labels
    tasks: Annotated[tuple[TaskEntry, ...], Field(min_length=1)]
    unit: Protected = "record"
    tasks_per_unit: Count = 1
    records_per_unit: Count = 1
    public: bool = False
    task_id: TaskId = "hidden"

    @model_validator(mode="after")
    def _consistent(self) -> "Declaration":
        names = [plain_name(task.name) for task in self.tasks]
        if len(set(names)) != len(names):
            raise ValueError("tasks: two tasks have the same name; give each its own")
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
        """Read a declaration file."""
        try:
            facts = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"cannot read the declaration {path}: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            mark = getattr(error, "problem_mark", None)
            place = f" at line {mark.line + 1}" if mark is not None else ""
            raise DataError(f"{path} is not valid YAML{place}; write it anew with `tacit data declare`") from None
        if not isinstance(facts, dict):
            raise DataError(f"{path} is not a declaration; write one with `tacit data declare`")
        return cls.of(facts, where=str(path))

    @classmethod
    def of(cls, facts: Mapping[str, Any], where: str = "the declaration") -> "Declaration":
        """The declaration of these facts, or one sentence that says what is wrong."""
        try:
            return cls.model_validate(dict(facts))
        except ValidationError as error:
            raise DataError(f"{where}: {_sentence(error, facts)}") from None

    @property
    def digest(self) -> str:
        """The same for the same facts, wherever the files lie: columns, limits and how cells are read are in it."""
        facts = self.model_dump(mode="json", exclude={"files": {"train", "test"}})
        return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()

    def info(self, shape: tuple[int, ...]) -> StreamInfo:
        """The public facts of the stream; `shape` is that of one record, unless it is declared."""
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
    """The first thing that is wrong: its key, its value, and what would be right. A key that is none comes before one
    that is missing: they are often the same."""
    wrong = error.errors()
    first = next((found for found in wrong if found["type"] == "extra_forbidden"), wrong[0])
    unknown = first["type"] == "extra_forbidden"
    # Between the keys pydantic also names the kinds that it tried.
    place = [part for part in first["loc"] if unknown or isinstance(part, int) or part in _NAMES]
    key, value = ".".join(map(str, place)), _at(facts, place)
    if unknown:
        parent, name = str(place[0]) if len(place) > 1 else "", str(place[-1])
        meant = nearest(name, _KEYS[parent].model_fields, _elsewhere(name))
        return f"{key} is not a key of a declaration (value {value!r}); {meant}"
    if first["type"] == "missing":
        return f"the key {key!r} is missing; say it, nothing is taken from the data"
    if key and value is None:
        return f"the key {key!r} is not filled in; say it, nothing is taken from the data"
    words = str(first["msg"]).removeprefix("Value error, ")
    if not words[:2].isupper():
        words = words[:1].lower() + words[1:]
    return f"{key} = {value!r}: {words}" if key else words


def _elsewhere(name: str) -> list[str]:
    """Where a key of this name would be right."""
    return [f"{part}.{name}".lstrip(".") for part in ("", "files", "columns") if name in _KEYS[part].model_fields]


def _at(facts: Any, place: Sequence[Any]) -> Any:
    for part in place:
        try:
            facts = facts[part]
        except (KeyError, IndexError, TypeError):
            return None
    return facts
