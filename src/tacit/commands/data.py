"""`tacit data`: what public data there is, how it is got and checked, and how private data is declared."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from tacit.commands._shared import Json, out, sentences

if TYPE_CHECKING:
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
    """Get a public data set from the Hugging Face hub (needs `pip install 'tacit[hub]'`)."""
    from tacit.data.hub import fetch

    with sentences():
        out.print(f"{name} is in {fetch(name, root, source)}")


@data.command("check")
def data_check(
    source: Annotated[str, typer.Argument(help="A name, or a declaration (.yaml).", autocompletion=_names)],
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Check a named data set, or a declaration and its files; nothing is said of private values or counts."""
    from tacit.data.check import check

    with sentences():
        found = check(source, root)
    if as_json:
        out.print_json(json.dumps([asdict(row) for row in found]))
    else:
        for row in found:
            out.print(
                Text.assemble(("ok " if row.ok else "no ", "green" if row.ok else "red"), f"{row.what}: {row.says}")
            )
    if not all(row.ok for row in found):
        raise typer.Exit(1)


@data.command("declare")
def data_declare(
    file: Annotated[Path, typer.Argument(help="CSV, Parquet, .npz, or a folder of images.")],
    output: Annotated[Path | None, typer.Option("--out", help="The declaration; otherwise beside FILE.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; what is not said is left to fill in.")] = False,
    label: Annotated[str | None, typer.Option(help="The column of labels.")] = None,
    task: Annotated[str | None, typer.Option(help="The column that says which task.")] = None,
    person: Annotated[str | None, typer.Option(help="The column that says whose; persons are then protected.")] = None,
    labels: Annotated[str | None, typer.Option(help="All labels there can be: 0..9 or sick,well.")] = None,
    tasks: Annotated[str | None, typer.Option(help="The tasks in order, with commas between.")] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Units you expect in a task.")] = None,
    per_person: Annotated[int, typer.Option(min=1, help="At most so many tasks of one unit.")] = 1,
    records: Annotated[int, typer.Option(min=1, help="At most so many records of one unit in a task.")] = 1,
    test: Annotated[str | None, typer.Option(help="A public test file, relative to the declaration.")] = None,
) -> None:
    """Write the declaration of private data beside it, and ask for the public facts. Only column names are shown."""
    from tacit.data.template import column_names, suggest, write_template

    with sentences():
        names = column_names(file)
        guess = suggest(names)
        answers = replace(
            guess,
            label=label or guess.label,
            task=task or guess.task,
            person=person or guess.person,
            labels=labels,
            tasks=_list(tasks),
            size=size,
            unit="person" if person else "record",
            tasks_per_unit=per_person,
            records_per_unit=records,
            test=test,
        )
        if _terminal() and not yes:
            answers = _ask(answers, names)
        place = write_template(file, answers, output)
        out.print(f"wrote {place}; fill in what is open, then run: tacit data check {place}")


def _terminal() -> bool:
    """Somebody is there to answer."""
    return sys.stdin.isatty()


def _ask(answers: "Answers", names: tuple[str, ...]) -> "Answers":
    """Every public fact in turn; Enter keeps what is shown, and an empty answer leaves it open."""
    if names:
        out.print(f"columns: {', '.join(names)}")
    label = _text("column of labels", answers.label) if names else None
    task = _text("column of tasks (empty: one task)", answers.task) if names else None
    person = _text("column of persons (empty: none)", answers.person) if names else None
    protect = person is not None and typer.confirm("protect persons (otherwise records)?", default=True)
    several = task is not None or not names
    return replace(
        answers,
        label=label,
        person=person,
        task=task,
        labels=_text("all labels there can be (0..9, or sick,well)", answers.labels),
        tasks=_list(_text("the tasks in order (a,b,c)", ",".join(answers.tasks) or None)) if several else (),
        size=typer.prompt("units you expect in a task", default=answers.size or 1000, type=int),
        unit="person" if protect else "record",
        tasks_per_unit=typer.prompt("a unit is in at most so many tasks", default=answers.tasks_per_unit, type=int),
        records_per_unit=typer.prompt("with so many records in each", default=answers.records_per_unit, type=int),
        test=_text("public test file (empty: none)", answers.test),
    )


def _text(question: str, default: str | None) -> str | None:
    said: str = typer.prompt(question, default=default or "", show_default=bool(default))
    return said.strip() or None


def _list(said: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (said or "").split(",") if part.strip())
