"""`tacit data`: what public data there is, how it is got and checked, and how private data is declared."""

import json
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from rich.table import Table
from rich.text import Text

from tacit.commands._shared import Json, out, sentences

if TYPE_CHECKING:
    from tacit.data.declaration import Decimal
    from tacit.data.stream import Protected
    from tacit.data.template import Answers

data = typer.Typer(no_args_is_help=True, help="Data sets: list, fetch, check; declare your own.")

Root = Annotated[
    Path | None,
    typer.Option("--root", help="The folder of data sets; otherwise TACIT_DATA, otherwise tacit's cache folder."),
]


def _names(incomplete: str) -> list[str]:
    """For tab completion."""
    from tacit.data.named import NAMED

    return [name for name in NAMED if name.startswith(incomplete)]


@data.command("list")
def data_list(root: Root = None, as_json: Json = False) -> None:
    """The public data sets by name, and where each was found."""
    from tacit.data.check import listing
    from tacit.data.named import data_folder

    with sentences():
        found = listing(root)
        if as_json:
            out.print_json(json.dumps([asdict(row) for row in found]))
            return
        table = Table("name", "what", "where", box=None)
        for row in found:
            where = Text(row.found) if row.found else Text(f"missing: {row.way_out}", style="yellow")
            table.add_row(row.name, row.about, where)
        out.print(table)
        out.print(f"looked in {data_folder(root)}")


@data.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(autocompletion=_names)],
    root: Root = None,
    source: Annotated[str | None, typer.Option(help="Another hub id, or a local folder with the same columns.")] = None,
) -> None:
    # A backslash keeps the bracket from being read as markup.
    r"""Get a public data set from the Hugging Face hub (needs `pip install -e '.\[hub]'`)."""
    from tacit.data.hub import fetch

    with sentences():
        out.print(f"{name} is in {fetch(name, root, source)}")


@data.command("check")
def data_check(
    source: Annotated[str, typer.Argument(help="A name, or a declaration (.yaml).", autocompletion=_names)],
    root: Root = None,
    as_json: Json = False,
    look: Annotated[
        bool, typer.Option("--look", help="For the owner: also how private cells are read. Keep it on your screen.")
    ] = False,
) -> None:
    """Check a named data set, or a declaration and its files.

    Nothing is said of private values or counts, unless their owner asks for --look; the exit code is then 0."""
    from tacit.data.check import check
    from tacit.data.named import NAMED
    from tacit.errors import DataError

    with sentences():
        if look and (as_json or source in NAMED):
            raise DataError("--look is for the owner of a private file, on a screen; leave it out here")
        found = check(source, root)
    if as_json:
        out.print_json(json.dumps([asdict(row) for row in found]))
    else:
        for row in found:
            out.print(
                Text.assemble(("ok " if row.ok else "no ", "green" if row.ok else "red"), f"{row.what}: {row.says}")
            )
    right = all(row.ok for row in found)
    if look:
        if right:
            _look(source)
        return
    if not right:
        raise typer.Exit(1)
    if source not in NAMED and not as_json:
        ledger = Path(source).with_suffix(".ledger")
        out.print(f"next: tacit run {shlex.quote(source)} --ledger {shlex.quote(str(ledger))}")


def _look(source: str) -> None:
    """Show the owner how private cells are read. Whatever they hold, the exit code is the same."""
    from tacit.data.look import WARNING, look
    from tacit.errors import DataError

    out.print(Text(WARNING, style="yellow"))
    try:
        for sight in look(source):
            out.print(f"{sight.what}: {sight.says}")
    except DataError as error:
        out.print(str(error))


def _delimiter(said: str) -> str:
    from tacit.data.facts import one_delimiter

    try:
        return cast(str, one_delimiter(said))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@data.command("declare")
def data_declare(
    file: Annotated[Path, typer.Argument(help="CSV, Parquet, .npz, or a folder of images.")],
    output: Annotated[Path | None, typer.Option("--out", help="The declaration; otherwise beside FILE.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; what is not said is left to fill in.")] = False,
    label: Annotated[str | None, typer.Option(help="The column of labels.")] = None,
    task: Annotated[str | None, typer.Option(help="The column with the task of each record.")] = None,
    person: Annotated[
        str | None, typer.Option(help="The column with the person of each record; persons are then protected.")
    ] = None,
    unit: Annotated[
        Literal["record", "person"] | None,
        typer.Option(help="What to protect; otherwise persons if there is a column of persons."),
    ] = None,
    labels: Annotated[str | None, typer.Option(help="All labels there can be: 0..9 or sick,well.")] = None,
    tasks: Annotated[str | None, typer.Option(help="The tasks in order: a,b,c or 1..12 or 2026-01..2026-12.")] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Units you expect in a task.")] = None,
    per_person: Annotated[int | None, typer.Option(min=1, help="At most so many tasks of one unit.")] = None,
    records: Annotated[int | None, typer.Option(min=1, help="At most so many records of one unit in a task.")] = None,
    test: Annotated[str | None, typer.Option(help="A public test file, relative to the declaration.")] = None,
    delimiter: Annotated[
        str, typer.Option(callback=_delimiter, help="Between the cells of a CSV file: one character, or tab.")
    ] = ",",
    decimal: Annotated[Literal[".", ","], typer.Option(help="Before the decimals of a number.")] = ".",
    encoding: Annotated[
        Literal["utf-8", "latin-1", "cp1252"],
        typer.Option(help="The encoding of a CSV file; cp1252 is that of Windows."),
    ] = "utf-8",
) -> None:
    """Write the declaration of private data beside it, and ask for the public facts. Only column names are shown.

    In a CSV file a line is a record; no newlines in cells."""
    from tacit.data.tables import is_csv
    from tacit.data.template import column_names, protecting, still_open, suggest, write_template

    with sentences():
        names = column_names(file, delimiter, encoding)
        guess = suggest(names)
        who = person or guess.person
        answers = replace(
            guess,
            label=label or guess.label,
            task=task or guess.task,
            person=who,
            labels=labels,
            tasks=_list(tasks),
            size=size,
            tasks_per_unit=per_person,
            records_per_unit=records,
            test=test,
            delimiter=delimiter,
            decimal=decimal,
            encoding=encoding,
        )
        answers = (
            _ask(answers, names, unit, csv=is_csv(file))
            if _terminal() and not yes
            else protecting(answers, unit or ("record" if who is None else "person"))
        )
        place = write_template(file, answers, output)
        missing = still_open(names, answers)
        fill = f"fill in {', '.join(missing)}, then run" if missing else "next"
        out.print(f"wrote {place}; {fill}: tacit data check {shlex.quote(str(place))}")


def _terminal() -> bool:
    """Somebody is there to answer."""
    return sys.stdin.isatty()


def _ask(answers: "Answers", names: tuple[str, ...], unit: "Protected | None", *, csv: bool) -> "Answers":
    """Every public fact in turn; Enter keeps what is shown, and an empty answer leaves it open."""
    from tacit.data.template import protecting

    if names:
        out.print(f"columns: {', '.join(names)}")
    label = _text("column of labels", answers.label) if names else None
    task = _text("column of tasks (empty: one task)", answers.task) if names else None
    person = _text("column of persons (empty: none)", answers.person) if names else None
    protect = person is not None and typer.confirm("protect persons (otherwise records)?", default=unit != "record")
    several = task is not None or not names
    answers = protecting(answers, "person" if protect else "record")
    return replace(
        answers,
        label=label,
        person=person,
        task=task,
        labels=_text("all labels there can be (0..9, or sick,well)", answers.labels),
        tasks=_list(_text("the tasks in order (a,b,c or 2026-01..2026-12)", ",".join(answers.tasks) or None))
        if several
        else (),
        size=typer.prompt("units you expect in a task", default=answers.size or 1000, type=int),
        tasks_per_unit=_count(f"a {answers.unit} is in at most so many tasks", answers.tasks_per_unit),
        records_per_unit=_count("with so many records in each", answers.records_per_unit),
        test=_text("public test file (empty: none)", answers.test),
        decimal=_decimal(answers.decimal) if csv else answers.decimal,
    )


def _count(question: str, default: int | None) -> int | None:
    """A whole number from 1; asked again until it is one, or empty."""
    while (said := _text(question, None if default is None else str(default))) is not None:
        if said.isdecimal() and int(said) >= 1:
            return int(said)
        out.print("a whole number from 1, or nothing to leave it open")
    return None


def _decimal(default: "Decimal") -> "Decimal":
    while (said := _text("decimal mark of numbers (. or ,)", default)) not in (".", ","):
        out.print("a point or a comma")
    return cast("Decimal", said)


def _text(question: str, default: str | None) -> str | None:
    said: str = typer.prompt(question, default=default or "", show_default=bool(default))
    return said.strip() or None


def _list(said: str | None) -> tuple[str, ...]:
    """Names with commas between; `1..12` and `2026-01..2026-12` are all from the first to the last."""
    from tacit.data.facts import task_range

    parts = [part.strip() for part in (said or "").split(",") if part.strip()]
    return tuple(name for part in parts for name in task_range(part))
