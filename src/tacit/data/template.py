"""A declaration to fill in, written beside the data. It shows the names of columns, never a value or a count."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.data.declaration import Decimal, Encoding
from tacit.data.facts import label_list, plain_name
from tacit.data.stream import Protected
from tacit.data.tables import CSV, PARQUET, header
from tacit.errors import DataError
from tacit.words import counted, nearest


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a person says about private data. What is not said stays open, and the declaration is refused until then."""

    label: str | None = None
    task: str | None = None
    person: str | None = None
    labels: str | None = None
    """`0..9`, or names with commas between."""
    tasks: Sequence[str] = ()
    size: int | None = None
    """Of every task."""
    unit: Protected = "record"
    tasks_per_unit: int | None = 1
    records_per_unit: int | None = 1
    test: str | None = None
    delimiter: str = ","
    decimal: Decimal = "."
    encoding: Encoding = "utf-8"
    public: bool = False


def column_names(file: Path, delimiter: str = ",", encoding: Encoding = "utf-8") -> tuple[str, ...]:
    """The names of a table's columns, or of a .npz file's arrays; a folder has none."""
    if not file.exists():
        raise DataError(f"there is no {file}; give the file or folder that holds the data")
    if file.is_dir():
        return ()
    if file.suffix.lower() == ".npz":
        import zipfile

        try:
            return tuple(Path(name).stem for name in zipfile.ZipFile(file).namelist())
        except (OSError, zipfile.BadZipFile):
            raise DataError(f"{file} is not a .npz file; write it with numpy.savez") from None
    if file.suffix.lower() not in (*CSV, *PARQUET):
        raise DataError(
            f"{file} is no CSV, Parquet or .npz file and no folder of images; arrays go into one .npz file, with "
            "numpy.savez(FILE, x=…, y=…), or into Parquet"
        )
    return header(file, delimiter, encoding)


_USUAL = {
    "label": ("label", "labels", "target", "class", "y", "outcome", "diagnosis"),
    "task": ("task", "month", "site", "domain", "device", "period"),
    "person": ("person", "patient", "subject", "user", "customer", "person_id", "patient_id", "subject_id", "user_id"),
}


def suggest(names: Sequence[str]) -> Answers:
    """What the columns' names alone suggest; to be confirmed."""
    lower = {name.lower(): name for name in names}
    found = {kind: next((lower[word] for word in words if word in lower), None) for kind, words in _USUAL.items()}
    return Answers(label=found["label"], task=found["task"], person=found["person"])


def protecting(answers: Answers, unit: Protected) -> Answers:
    """The same for this unit. How often one may recur is 1 for a record unless it is said; for a person it stays open,
    since a bound that is too small leaves records out in silence."""
    unsaid = 1 if unit == "record" else None
    tasks, records = answers.tasks_per_unit or unsaid, answers.records_per_unit or unsaid
    return replace(answers, unit=unit, tasks_per_unit=tasks, records_per_unit=records)


def still_open(names: Sequence[str], answers: Answers) -> tuple[str, ...]:
    """The keys that have to be filled in before the declaration can be used."""
    said = {
        "columns.label": _label(names, answers),
        "labels": answers.labels,
        "tasks": answers.tasks or _one_task(names, answers) or None,
        "size": answers.size,
        "tasks_per_unit": answers.tasks_per_unit,
        "records_per_unit": answers.records_per_unit,
    }
    return tuple(key for key, value in said.items() if value is None)


def write_template(file: Path, answers: Answers, out: Path | None = None) -> Path:
    """Write the declaration of `file` beside it, or to `out`; never over another."""
    names = column_names(file, answers.delimiter, answers.encoding)
    for column in (answers.label, answers.task, answers.person):
        if column is not None and names and column not in names:
            raise DataError(f"{file} has no column {column!r}; {nearest(column, names)}")
    place = out or file.with_suffix(".yaml")
    if place.suffix.lower() not in (".yaml", ".yml"):
        raise DataError(f"a declaration is a YAML file, got {place}; give it a name that ends in .yaml")
    _refuse_contradictions(file, answers, place)
    text = _text(file, names, answers, place)
    try:
        with place.open("x", encoding="utf-8") as handle:
            handle.write(text)
    except FileExistsError:
        raise DataError(f"{place} exists; edit it, or choose another name with --out") from None
    except OSError as error:
        raise DataError(f"cannot write {place}: {error.strerror}") from None
    return place


def _refuse_contradictions(file: Path, answers: Answers, place: Path) -> None:
    """What a declaration could never be used with is said before it is written."""
    columns = [column for column in (answers.label, answers.task, answers.person) if column is not None]
    if len(set(columns)) != len(columns):
        raise DataError(f"the label, the task and the person are three columns, got {', '.join(columns)}")
    names = [plain_name(name) for name in answers.tasks]
    if len(set(names)) != len(names):
        raise DataError(f"two tasks have the same name: {', '.join(answers.tasks)}; give each its own")
    if answers.tasks and (answers.tasks_per_unit or 1) > len(names):
        raise DataError(
            f"a {answers.unit} cannot be in {answers.tasks_per_unit} tasks where {counted(len(names), 'task')} "
            f"{'is' if len(names) == 1 else 'are'} declared; say at most {len(names)}, or declare the tasks to come"
        )
    if answers.test is not None and (place.parent / answers.test).resolve() == file.resolve():
        raise DataError(f"{answers.test} is the private file itself; give a public file, or leave --test out")


_TEMPLATE = """\
# The public facts about private data. Nothing is inferred from the data: what is known is what stands here.
# A record of another task or with another label is skipped in silence.
# Columns: {columns}

# Of the data, for ever: its budget is found by this name in the ledger.
name: {name}

files:
  # A line of a CSV file is a record: no newlines in cells, also not in quotes.
  train: {train}
  # A public file with the same columns, never the private one; null: accuracy is a charged query.
  test: {test}
  # How a CSV file is written: what stands between its cells (one character, or tab), what before the decimals of a
  # number ("." or ","), and utf-8, latin-1 or cp1252. What does not fit is left out or filled in silence, since
  # nothing said may depend on a record; the owner can look: tacit data check {itself} --look
  delimiter: {delimiter}
  decimal: {decimal}
  encoding: {encoding}

columns:
  label: {label}
  # null: there is one task.
  task: {task}
  # Whose a record is; needed when persons are protected.
  person: {person}

# Every other column, or a list of names.
features: others
{shape}# Public least and largest value of a feature (or one pair for all): clipped, then mapped to `range`.
# scaling: {{age: [0, 120]}}
# range: [0, 1]
# In place of a missing number, or of a cell that is no number.
# fill: 0
# The public values of a column of texts; every other feature is read as a number.
# categories: {{ward: [north, south]}}

# All labels there can be: 0..9, or [sick, well].
labels: {labels}

# In the order in which they are learnt. `size`: how many units (records, or persons) you expect; never a count.
tasks:
{tasks}

# Whom to protect (record or person), in how many tasks one may be, with how many records in each.
unit: {unit}
tasks_per_unit: {tasks_per_unit}
records_per_unit: {records_per_unit}

# true: a benchmark, with nothing to protect.
public: {public}
# given: at test the task is known, and only its labels are answers.
task_id: hidden
"""


def _text(file: Path, names: Sequence[str], answers: Answers, place: Path) -> str:
    named = answers.tasks or (("all",) if _one_task(names, answers) else ())
    tasks = [f"  - {{name: {_yaml(name)}, size: {_yaml(answers.size)}}}" for name in named]
    return _TEMPLATE.format(
        columns=", ".join(names) or "none, a folder of images",
        name=_yaml(file.stem),
        train=_yaml(_relative(file, place)),
        test=_yaml(answers.test),
        itself=shlex.quote(place.name),
        delimiter=_yaml(answers.delimiter),
        decimal=_yaml(answers.decimal),
        encoding=answers.encoding,
        label=_yaml(_label(names, answers)),
        task=_yaml(answers.task),
        person=_yaml(answers.person),
        shape="" if names else "# Channels, height, width: images are brought to it.\nshape: [3, 32, 32]\n",
        labels=_labels(answers.labels),
        tasks="\n".join(tasks) or "  # - {name: january, size: 1000}",
        unit=answers.unit,
        tasks_per_unit=_yaml(answers.tasks_per_unit),
        records_per_unit=_yaml(answers.records_per_unit),
        public=_yaml(answers.public),
    )


_WHOLE = re.compile(r"-?[0-9]{1,18}")


def _label(names: Sequence[str], answers: Answers) -> str | None:
    """A folder has labels, and no column of them."""
    return answers.label or ("label" if not names or "label" in names else None)


def _one_task(names: Sequence[str], answers: Answers) -> bool:
    """No column says the task, so all records are of one."""
    return bool(names) and answers.task is None


def _labels(said: str | None) -> str:
    if said is None:
        return "null"
    if ".." in said:
        try:
            label_list(said)
        except ValueError as error:
            raise DataError(f"labels = {said!r}: {error}") from None
        return said
    parts = [part.strip() for part in said.split(",") if part.strip()]
    whole = all(_WHOLE.fullmatch(part) for part in parts)
    try:
        labels = label_list([int(part) for part in parts] if whole else parts)
    except ValueError as error:
        raise DataError(f"labels = {said!r}: {error}") from None
    return json.dumps(labels, ensure_ascii=False)


def _relative(file: Path, place: Path) -> str:
    """As the declaration will find it: by name if it lies beside."""
    near = file.resolve().parent == place.resolve().parent
    return file.name if near else str(file.resolve())


def _yaml(value: Any) -> str:
    """JSON is YAML, and quotes what needs it."""
    return json.dumps(value, ensure_ascii=False)
