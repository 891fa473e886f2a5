"""Shows the owner of a private table roughly how much of it is read as declared.

The result depends on private records and is not charged. It is for the owner's screen: only `tacit data check --look`
may call it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.data.declared.declaration import Declaration
from tacit.data.declared.parsing import plain_name
from tacit.errors import DataError
from tacit.privacy.vault.sources import cell_conversion
from tacit.privacy.vault.sources.csv_file import CsvFile
from tacit.privacy.vault.sources.declared import open_path
from tacit.privacy.vault.sources.table_reader import Table

WARNING = "this looks at private values; keep what it says on your screen"


@dataclass(frozen=True, kw_only=True)
class PreviewLine:
    """One line of the preview. Private."""

    what: str
    """The column, or "lines"."""
    says: str


def preview(path: Path | str) -> tuple[PreviewLine, ...]:
    """Says of a declared private table how many of its lines are records, how many cells of its features are numbers or
    declared categories, and how many labels and tasks are declared ones: all, most, few or none.

    Args:
        path: The declaration.

    Raises:
        DataError: The declaration is wrong, or the file is not a table.
    """
    declared = Declaration.load(path)
    if declared.files is None:
        raise DataError(f"{path}: the key 'files' is missing; say where the data is")
    table = open_path(declared, Path(path).parent / declared.files.train)
    if not isinstance(table, Table):
        raise DataError(f"{declared.files.train} is not a table; --look needs a CSV or Parquet file")
    return tuple(_lines(declared, table))


def _lines(declared: Declaration, table: Table) -> Iterator[PreviewLine]:
    label, task = declared.columns.label, declared.columns.task
    total, right = 0, Counter[str]()
    tasks = [plain_name(entry.name) for entry in declared.tasks]
    for rows in table.batches([*table.features, label, *([] if task is None else [task])]):
        total += len(rows)
        right[label] += int(np.isin(table.labels(rows), declared.labels).sum())
        if task is not None:
            right[task] += sum(name in tasks for name in cell_conversion.names(rows.column(task)).to_pylist())
        for name in table.features:
            categories = declared.categories.get(name)
            if categories is None:
                right[name] += int(np.isfinite(table.numbers(rows, name)).sum())
            else:
                right[name] += int(cell_conversion.one_hot(rows.column(name), categories).sum())
    if isinstance(table.source, CsvFile):
        hint = "the others: files.encoding, files.delimiter, quotes, or newlines in cells"
        yield _line("lines", "are whole records", total, table.source.count_lines(), hint)
    for name in table.features:
        if name in declared.categories:
            yield _line(name, "are declared categories", right[name], total, f"compare categories.{name}")
        elif name in table.lists:
            width = int(np.prod(table.shape))
            hint = "compare shape with the length of the lists"
            yield _line(name, f"are lists of {width} numbers", right[name], total, hint)
        else:
            hint = f"see files.decimal, or list the values of a text column under categories.{name}"
            yield _line(name, "are numbers", right[name], total, hint)
    yield _line(label, "are declared labels", right[label], total, "compare labels", all_word="most")
    if task is not None:
        yield _line(task, "are declared tasks", right[task], total, "compare the names of tasks", all_word="most")


def _line(what: str, says: str, count: int, total: int, hint: str, all_word: str = "all") -> PreviewLine:
    """`all_word`: the word for `count == total`; "most" where the exact answer would say more than is needed."""
    if total == 0:
        return PreviewLine(what=what, says="there are none")
    share = all_word if count == total else "most" if 2 * count >= total else "few" if count else "none"
    return PreviewLine(what=what, says=f"{share} {says}" + (f"; {hint}" if share != all_word else ""))
