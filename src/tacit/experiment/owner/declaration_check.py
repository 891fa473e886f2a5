"""Checks a declaration and its files. Nothing is reported about private values or counts."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from tacit.data.benchmarks.file_check import CheckResult, check_named
from tacit.data.benchmarks.named import NAMED, entry
from tacit.data.declared.declaration import Declaration
from tacit.errors import DataError
from tacit.privacy.vault.sources.declared import open_path, refuse_private_test_file
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
            f"{source} is no declaration (.yaml); `tacit data declare {source}` writes one for a file or folder of data"
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
            yield CheckResult(what=part, ok=True, says="no public test file: accuracy is a charged query")
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
        if private_table is not None and private_table.as_numbers:
            yield CheckResult(what="features", ok=True, says=_columns_of_numbers(path, private_table.as_numbers))


def _columns_of_numbers(path: Path, names: Sequence[str]) -> str:
    """What the owner of a private table should know about columns of texts, from the public names alone."""
    columns = counted(len(names), "column")
    return (
        f"{columns} read as numbers: {listed(names)}; a text in one is replaced by `fill` and teaches nothing, so list "
        "a text column's values under `categories`, or name only the others in `features` (which cells are texts is "
        f"private: the owner sees it by tacit data check {shlex.quote(str(path))} --look)"
    )
