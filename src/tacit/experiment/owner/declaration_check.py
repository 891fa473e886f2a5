"""Checks a declaration and its files. Nothing is reported about private values or counts."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from tacit.data.benchmarks.file_check import CheckResult, check_named
from tacit.data.benchmarks.named import NAMED, entry
from tacit.data.declared.declaration import Declaration
from tacit.errors import DataError
from tacit.experiment.config.config import BudgetSection, EvaluationSection
from tacit.experiment.runs.evaluation import ChargedQueries, query_notice
from tacit.experiment.runs.resolver import make_budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Vault
from tacit.privacy.vault.sources.declared import open_path, refuse_private_test_file
from tacit.privacy.vault.sources.public_rows import compared
from tacit.privacy.vault.sources.source import Reader
from tacit.privacy.vault.sources.table_reader import Table
from tacit.words import counted, listed


def check(source: str | Path, root: Path | str | None = None) -> tuple[CheckResult, ...]:
    """Checks a named data set (files, checksums, shapes, labels), or a declaration: its files and columns, and the
    types of cells where they are public.

    Args:
        source: The name of a public data set, or the path of a declaration.
        root: The folder of public data sets.

    Raises:
        DataError: `source` is neither.
    """
    if str(source) in NAMED:
        return tuple(check_named(str(source), root))
    if Path(source).suffix.lower() in (".yaml", ".yml"):
        return tuple(_check_declaration(Path(source)))
    if Path(source).exists():
        raise DataError(
            f"{source} is not a declaration (.yaml); write one for a file or folder of data with "
            f"`tacit data declare {source}`"
        )
    entry(str(source))  # raises, with the nearest names
    return ()


def _check_declaration(path: Path) -> Iterator[CheckResult]:
    try:
        declared = Declaration.load(path)
        if declared.files is None:
            raise DataError(f"{path}: the key 'files' is missing; say where the data is")
    except DataError as error:
        yield CheckResult(what="declaration", ok=False, says=str(error))
        return
    tasks = counted(len(declared.tasks), "task")
    yield CheckResult(what="declaration", ok=True, says=f"{declared.name}: {tasks} declared")
    for part, file in (("train", declared.files.train), ("test", declared.files.test)):
        if file is None:
            yield CheckResult(what=part, ok=True, says=f"no public test file: {_query_note(declared)}")
            continue
        try:
            if part == "test":
                # First, because messages about a public file may depend on its cells.
                refuse_private_test_file(declared, path.parent)
            reader = open_path(declared, path.parent / file, test=part == "test")
            if isinstance(reader, Table):
                reader.check_kinds()
        except DataError as error:
            yield CheckResult(what=part, ok=False, says=str(error))
            continue
        private_table = reader if isinstance(reader, Table) and part == "train" and not declared.public else None
        says = f"{file} can be read as declared, records of shape {reader.shape}"
        if private_table is not None and private_table.lists:
            says += f"; the lengths of the lists of {private_table.lists[0]!r} are private, and --look shows them"
        yield CheckResult(what=part, ok=True, says=says)
        yield _compared(declared, reader, part)
        if private_table is not None and private_table.as_numbers:
            yield CheckResult(what="features", ok=True, says=_columns_of_numbers(path, private_table.as_numbers))


def _compared(declared: Declaration, reader: Reader, part: str) -> CheckResult:
    """Whether the declared labels and tasks occur in public rows. Of private rows nothing is said."""
    what = "labels" if part == "train" else "test labels"
    if not declared.public and part == "train":
        says = "labels and tasks are not compared with the rows, which are private"
        more = "; --look shows the owner" if isinstance(reader, Table) else ""
        return CheckResult(what=what, ok=True, says=says + more)
    try:
        missing = compared(reader, {task.name: task.labels or declared.labels for task in declared.tasks})
    except DataError as error:
        return CheckResult(what=what, ok=False, says=str(error))
    says = missing.said or "every declared task and label occurs"
    # A run refuses a task without rows; without test rows only its accuracy is missing.
    ok = part == "test" or not missing.tasks
    return CheckResult(what=what, ok=ok, says=says, warns=bool(missing.labels or missing.tasks))


def _query_note(declared: Declaration) -> str:
    """How precisely `tacit run` would measure accuracy with its default budget, from public facts."""
    info, share = declared.info(declared.shape or (1,)), EvaluationSection().share
    budget = make_budget(BudgetSection(), info.unit)
    noise = ChargedQueries(stream=info, vault=Vault(Ledger.throwaway()), budget=budget, share=share).noise
    return f"{query_notice(noise or 0.0)} (at ε = {budget.epsilon:g})"


def _columns_of_numbers(path: Path, names: Sequence[str]) -> str:
    """What the owner of a private table should know about columns of texts, from the public names alone."""
    columns = counted(len(names), "column")
    return (
        f"{columns} read as numbers: {listed(names)}; a text in one is replaced by `fill` and carries no "
        "information, so list a text column's values under `categories`, or name only the others in `features` (which "
        f"cells are texts is private: the owner sees it by tacit data check {shlex.quote(str(path))} --look)"
    )
