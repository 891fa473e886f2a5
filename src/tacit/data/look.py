"""What the owner of a private table sees of it when he asks: roughly, how much of it is read as declared.

This depends on private records and is charged to nobody. It is for the owner's screen, and nothing else may call it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.data import columns
from tacit.data.csv_file import CsvFile
from tacit.data.declaration import Declaration
from tacit.data.facts import plain_name
from tacit.data.own import open_path
from tacit.data.tables import Table
from tacit.errors import DataError

WARNING = "this looks at private values; keep what it says on your screen"


@dataclass(frozen=True, kw_only=True)
class Sight:
    """Private."""

    what: str
    says: str


def look(path: Path | str) -> tuple[Sight, ...]:
    """How many lines of the declared private file are records, how many cells of its features are numbers or declared
    categories, and whether its labels and tasks are declared ones; in words, not in counts."""
    declared = Declaration.load(path)
    if declared.files is None:
        raise DataError(f"{path}: the key 'files' is missing; say where the data lies")
    table = open_path(declared, Path(path).parent / declared.files.train)
    if not isinstance(table, Table):
        raise DataError(f"{declared.files.train} is no table; only the cells of CSV and Parquet files are looked at")
    return tuple(_sights(declared, table))


def _sights(declared: Declaration, table: Table) -> Iterator[Sight]:
    label, task = declared.columns.label, declared.columns.task
    rows, right = 0, Counter[str]()
    tasks = [plain_name(entry.name) for entry in declared.tasks]
    for part in table.parts([*table.features, label, *([] if task is None else [task])]):
        rows += len(part)
        right[label] += int(np.isin(table.labels(part), declared.labels).sum())
        if task is not None:
            right[task] += sum(name in tasks for name in columns.names(part.column(task)).to_pylist())
        for name in table.features:
            values = declared.categories.get(name)
            fits = (
                np.isfinite(table.numbers(part, name)) if values is None else columns.one_hot(part.column(name), values)
            )
            right[name] += int(fits.sum())
    if isinstance(table.source, CsvFile):
        hint = "the others: files.encoding, files.delimiter, quotes, or newlines in cells"
        yield _sight("lines", "are whole records", rows, table.source.lines(), hint)
    for name in table.features:
        if name in declared.categories:
            yield _sight(name, "are declared categories", right[name], rows, f"compare categories.{name}")
        else:
            several = f"are lists of {int(np.prod(table.shape))} numbers", "compare shape with the length of the lists"
            single = "are numbers", f"see files.decimal, or list the values of a text column under categories.{name}"
            says, hint = several if name in table.lists else single
            yield _sight(name, says, right[name], rows, hint)
    yield _sight(label, "are declared labels", right[label], rows, "compare labels", whole="most")
    if task is not None:
        yield _sight(task, "are declared tasks", right[task], rows, "compare the names of tasks", whole="most")


def _sight(what: str, says: str, count: int, total: int, hint: str, whole: str = "all") -> Sight:
    """`whole`: the word for all of them."""
    if total == 0:
        return Sight(what=what, says="there are none")
    share = whole if count == total else "most" if 2 * count >= total else "few" if count else "none"
    return Sight(what=what, says=f"{share} {says}" + (f"; {hint}" if share != whole else ""))
