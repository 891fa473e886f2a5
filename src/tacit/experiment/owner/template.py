"""Writes the template of a declaration beside the data. It shows column names, never a value or a count."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tacit.data.declared.parsing import label_list, plain_name
from tacit.data.input_form import Decimal, Encoding
from tacit.data.stream import Protected
from tacit.errors import DataError
from tacit.privacy.vault.sources.table_reader import CSV, PARQUET, table_columns
from tacit.words import counted, nearest


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What the owner says about private data. Facts that are missing stay open in the template, and a declaration with
    open facts is refused."""

    label: str | None = None
    task: str | None = None
    person: str | None = None
    labels: str | None = None
    """`0..9`, or names separated by commas."""
    tasks: Sequence[str] = ()
    size: int | None = None
    """The nominal size of every task."""
    unit: Protected = "record"
    tasks_per_unit: int | None = 1
    records_per_unit: int | None = 1
    test: str | None = None
    delimiter: str = ","
    decimal: Decimal = "."
    encoding: Encoding = "utf-8"
    public: bool = False


def column_names(file: Path, delimiter: str = ",", encoding: Encoding = "utf-8") -> tuple[str, ...]:
    """The names of the columns of a table, or of the arrays in a .npz file; a folder has none.

    Raises:
        DataError: The file is missing or of no known kind, or its first line may be a record.
    """
    if not file.exists():
        raise DataError(f"there is no {file}; give the file or folder that holds the data")
    if file.is_dir():
        _check_images(file)
        return ()
    if file.suffix.lower() == ".npz":
        import zipfile

        try:
            return tuple(Path(name).stem for name in zipfile.ZipFile(file).namelist())
        except (OSError, zipfile.BadZipFile):
            raise DataError(f"{file} is not a .npz file; write it with numpy.savez") from None
    if file.suffix.lower() not in (*CSV, *PARQUET):
        raise DataError(
            f"{file} is not a CSV, Parquet or .npz file or a folder of images; arrays go into one .npz file, with "
            "numpy.savez(FILE, x=…, y=…), or into Parquet"
        )
    return table_columns(file, delimiter, encoding)


_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def _check_images(folder: Path) -> None:
    """Refuses a folder that has no images in the subfolders of its classes, by their names; no file is read."""
    places = (folder.glob("*/*"), folder.glob("*/*/*"))
    if any(path.suffix.lower() in _IMAGES for place in places for path in place):
        return
    tables = sorted(path for path in folder.iterdir() if path.suffix.lower() in (*CSV, *PARQUET, ".npz"))
    table = f"; to declare a table, give its file: {tables[0]}" if tables else ""
    raise DataError(
        f"{folder} has no images such as .png or .jpg in subfolders; put them into one subfolder per class, or per "
        f"task and then per class{table}"
    )


def is_csv(path: Path) -> bool:
    """Whether a path is a CSV file, by its name."""
    return path.is_file() and path.suffix.lower() in CSV


_USUAL_NAMES = {
    "label": ("label", "labels", "target", "class", "y", "outcome", "diagnosis"),
    "task": ("task", "month", "site", "domain", "device", "period"),
    "person": ("person", "patient", "subject", "user", "customer", "person_id", "patient_id", "subject_id", "user_id"),
}


_IDENTIFIERS = {
    "account", "email", "guid", "iban", "id", "ids", "identifier", "mrn", "name", "passport", "phone", "pid", "ssn",
    "surname", "uid", "uuid", *_USUAL_NAMES["person"],
}  # fmt: skip
_LAST_WORDS = {"id", "ids", "guid", "uuid", "identifier", "ssn", "mrn"}
"""Last words of a column name that make it an identifier, as in visit_id and recordID."""


def identifiers(names: Sequence[str]) -> tuple[str, ...]:
    """The columns whose names look like identifiers of persons or records."""

    def is_one(name: str) -> bool:
        words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]
        return "_".join(words) in _IDENTIFIERS or (bool(words) and words[-1] in _LAST_WORDS)

    return tuple(name for name in names if is_one(name))


def left_out(file: Path, names: Sequence[str], answers: Answers) -> tuple[str, ...]:
    """The columns of a table that are left out of the features, because their names look like identifiers."""
    if file.is_dir() or file.suffix.lower() == ".npz":
        return ()  # its features are one array
    features = _other_columns(names, answers)
    found = identifiers(features)
    return found if len(found) < len(features) else ()


def _other_columns(names: Sequence[str], answers: Answers) -> tuple[str, ...]:
    return tuple(name for name in names if name not in (_label(names, answers), answers.task, answers.person))


def suggest(names: Sequence[str]) -> Answers:
    """Guesses the columns of labels, tasks and persons by their names; the owner confirms them."""
    lower = {name.lower(): name for name in names}
    guess = {kind: next((lower[word] for word in words if word in lower), None) for kind, words in _USUAL_NAMES.items()}
    return Answers(**guess)  # type: ignore[arg-type]


def protecting(answers: Answers, unit: Protected) -> Answers:
    """The answers with this unit. The bounds of a record are 1 by default; those of a person stay open, since a bound
    that is too small drops records without a message."""
    default = 1 if unit == "record" else None
    tasks, records = answers.tasks_per_unit or default, answers.records_per_unit or default
    return replace(answers, unit=unit, tasks_per_unit=tasks, records_per_unit=records)


def still_open(names: Sequence[str], answers: Answers) -> tuple[str, ...]:
    """The keys that must be filled in before the declaration can be used."""
    values = {
        "columns.label": _label(names, answers),
        "labels": answers.labels,
        "tasks": answers.tasks or _one_task(names, answers) or None,
        "size": answers.size,
        "tasks_per_unit": answers.tasks_per_unit,
        "records_per_unit": answers.records_per_unit,
    }
    return tuple(key for key, value in values.items() if value is None)


def beside(file: Path) -> Path:
    """The declaration of a file or folder where no other path is given."""
    if not file.is_dir():
        return file.with_suffix(".yaml")
    return file.with_name(f"{file.name}.yaml")  # the name of a folder has no ending


def write_template(file: Path, answers: Answers, out: Path | None = None) -> Path:
    """Writes the template of a declaration.

    Args:
        file: The data file or folder.
        answers: The facts that are known.
        out: The declaration; None writes it beside the data, as NAME.yaml.

    Returns:
        The path of the declaration.

    Raises:
        DataError: The declaration exists, or the answers contradict each other or the columns.
    """
    file = file if file.name not in ("", "..") else file.resolve()
    names = column_names(file, answers.delimiter, answers.encoding)
    for column in (answers.label, answers.task, answers.person):
        if column is not None and names and column not in names:
            raise DataError(f"{file} has no column {column!r}; {nearest(column, names)}")
    path = out or beside(file)
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise DataError(f"a declaration is a YAML file, got {path}; give it a name that ends in .yaml")
    _refuse_contradictions(file, answers, path)
    text = _text(file, names, answers, path)
    try:
        with path.open("x", encoding="utf-8") as handle:
            handle.write(text)
    except FileExistsError:
        raise DataError(f"{path} exists; edit it, or choose another name with --out") from None
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from None
    return path


def _refuse_contradictions(file: Path, answers: Answers, path: Path) -> None:
    """Refuses answers with which the declaration could never be used."""
    columns = [column for column in (answers.label, answers.task, answers.person) if column is not None]
    if len(set(columns)) != len(columns):
        raise DataError(f"the label, the task and the person are three columns, got {', '.join(columns)}")
    names = [plain_name(name) for name in answers.tasks]
    if len(set(names)) != len(names):
        raise DataError(f"two tasks have the same name: {', '.join(answers.tasks)}; names must be unique")
    if answers.tasks and (answers.tasks_per_unit or 1) > len(names):
        raise DataError(
            f"a {answers.unit} cannot be in {answers.tasks_per_unit} tasks where {counted(len(names), 'task')} "
            f"{'is' if len(names) == 1 else 'are'} declared; say at most {len(names)}, or declare the tasks to come"
        )
    if answers.test is not None and (path.parent / answers.test).resolve() == file.resolve():
        raise DataError(f"{answers.test} is the private file itself; give a public file, or leave --test out")


_TEMPLATE = """\
# The public facts about private data. Nothing is inferred from the data.
# Records of other tasks, or with other labels, are dropped without a message.
# Columns: {columns}

# The permanent name of the data: the ledger keeps its budget under this name.
name: {name}

files:
  # Each line of a CSV file is a record: no newlines in cells, not even in quotes.
  train: {train}
  # A public file with the same columns, never the private one; null: accuracy is a charged query.
  test: {test}
  # The format of a CSV file: its delimiter (one character, or tab), its decimal mark ("." or ","), and its encoding
  # (utf-8, latin-1 or cp1252). What does not fit is dropped or filled without a message, since no message may depend on
  # a record; the owner can look: tacit data check {itself} --look
  delimiter: {delimiter}
  decimal: {decimal}
  encoding: {encoding}

columns:
  label: {label}
  # The task of each record; null: there is one task.
  task: {task}
  # The person of each record; needed if persons are protected.
  person: {person}

# All other columns (others), or a list of names.{left_out}
features: {features}
{shape}# The public least and largest value of each feature (or one pair for all): clipped, then mapped to `range`.
# scaling: {{age: [0, 120]}}
# range: [0, 1]
# Replaces a missing number, or a cell that is not a number.
# fill: 0
# The public values of text columns; every other feature is read as a number.
# categories: {{ward: [north, south]}}

# All possible labels: 0..9, or [sick, well].
labels: {labels}

# In the order in which they are learned. `size`: how many units (records, or persons) you expect; never a count.
tasks:
{tasks}

# What to protect (record or person), in how many tasks one unit may be, and with how many records in each.
unit: {unit}
tasks_per_unit: {tasks_per_unit}
records_per_unit: {records_per_unit}

# true: the data is public, as in a benchmark.
public: {public}
# given: the task is known at test time, and only its labels are predicted.
task_id: hidden
"""


def _text(file: Path, names: Sequence[str], answers: Answers, path: Path) -> str:
    named = answers.tasks or (("all",) if _one_task(names, answers) else ())
    tasks = [f"  - {{name: {_yaml(name)}, size: {_yaml(answers.size)}}}" for name in named]
    near, apart = file.resolve().parent == path.resolve().parent, left_out(file, names, answers)
    features = [name for name in _other_columns(names, answers) if name not in apart]
    values = {key: _yaml(value) for key, value in asdict(answers).items()} | {
        "columns": ", ".join(names) or "none, a folder of images",
        "name": _yaml(file.name if file.is_dir() else file.stem),
        "train": _yaml(file.name if near else str(file.resolve())),
        "itself": shlex.quote(path.name),
        "left_out": f" Left out, as their names look like identifiers: {', '.join(apart)}." if apart else "",
        "features": _yaml(features) if apart else "others",
        "encoding": answers.encoding,
        "label": _yaml(_label(names, answers)),
        "shape": "" if names else "# Channels, height, width: images are resized to it.\nshape: [3, 32, 32]\n",
        "labels": _labels(answers.labels),
        "tasks": "\n".join(tasks) or "  # - {name: january, size: 1000}",
        "unit": answers.unit,
    }
    return _TEMPLATE.format(**values)


_WHOLE = re.compile(r"-?[0-9]{1,18}")


def _label(names: Sequence[str], answers: Answers) -> str | None:
    """The column of labels; a folder has labels, but no such column."""
    return answers.label or ("label" if not names or "label" in names else None)


def _one_task(names: Sequence[str], answers: Answers) -> bool:
    """Whether there is no column of tasks, so that all records belong to one task."""
    return bool(names) and answers.task is None


def _labels(text: str | None) -> str:
    if text is None:
        return "null"
    parts = [part.strip() for part in text.split(",") if part.strip()]
    whole = all(_WHOLE.fullmatch(part) for part in parts)
    try:
        if ".." in text:
            label_list(text)
            return text
        return _yaml(label_list([int(part) for part in parts] if whole else parts))
    except ValueError as error:
        raise DataError(f"labels = {text!r}: {error}") from None


def _yaml(value: Any) -> str:
    """The value in YAML. JSON is a subset of YAML, with the quotes that are needed."""
    return json.dumps(value, ensure_ascii=False)
