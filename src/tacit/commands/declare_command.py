"""`tacit data declare`: writes the declaration of private data from the owner's answers."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from tacit.commands.console import out

if TYPE_CHECKING:
    from tacit.data.input_form import Decimal
    from tacit.data.stream import Protected
    from tacit.experiment.owner.template import Answers


def _check_delimiter(text: str) -> str:
    from tacit.data.declared.parsing import one_delimiter

    try:
        return cast(str, one_delimiter(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def declare(
    file: Annotated[Path, typer.Argument(help="CSV, Parquet, .npz, or a folder of images.")],
    output: Annotated[
        Path | None,
        typer.Option("--out", help="The declaration file. Default: beside the data, FILE with the ending .yaml."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask no questions; facts not given are left to fill in.")] = False,
    label: Annotated[str | None, typer.Option(help="The label column.")] = None,
    task: Annotated[str | None, typer.Option(help="The column with the task of each record.")] = None,
    person: Annotated[
        str | None, typer.Option(help="The column with the person of each record; persons are then protected.")
    ] = None,
    unit: Annotated[
        Literal["record", "person"] | None,
        typer.Option(help="What to protect. Default: persons if there is a person column, otherwise records."),
    ] = None,
    labels: Annotated[str | None, typer.Option(help="All possible labels: 0..9 or sick,well.")] = None,
    tasks: Annotated[str | None, typer.Option(help="The tasks in order: a,b,c or 1..12 or 2026-01..2026-12.")] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Expected number of units in a task.")] = None,
    per_person: Annotated[int | None, typer.Option(min=1, help="Maximum number of tasks of one unit.")] = None,
    records: Annotated[int | None, typer.Option(min=1, help="Maximum number of records of one unit in a task.")] = None,
    test: Annotated[str | None, typer.Option(help="A public test file, relative to the declaration.")] = None,
    delimiter: Annotated[
        str, typer.Option(callback=_check_delimiter, help="CSV delimiter: one character, or tab.")
    ] = ",",
    decimal: Annotated[Literal[".", ","], typer.Option(help="Decimal mark of numbers in a CSV file.")] = ".",
    encoding: Annotated[
        Literal["utf-8", "latin-1", "cp1252"],
        typer.Option(help="Encoding of a CSV file; cp1252 is Windows' Western European."),
    ] = "utf-8",
) -> None:
    """Ask for the public facts about private data and write them to a declaration. Only column names are shown.

    In a CSV file each line is a record; cells contain no line breaks.

    \b
    tacit data declare visits.csv
    tacit data declare visits.csv --yes --tasks 2026-01..2026-12 --labels well,sick --size 200
    """
    from tacit.experiment.owner.template import (
        column_names,
        is_csv,
        left_out,
        protecting,
        still_open,
        suggest,
        write_template,
    )

    names = column_names(file, delimiter, encoding)
    suggested = suggest(names)
    person = person or suggested.person
    answers = replace(
        suggested,
        label=label or suggested.label,
        task=task or suggested.task,
        person=person,
        labels=labels,
        tasks=_parse_tasks(tasks),
        size=size,
        tasks_per_unit=per_person,
        records_per_unit=records,
        test=test,
        delimiter=delimiter,
        decimal=decimal,
        encoding=encoding,
    )
    if _is_interactive() and not yes:
        answers = _ask(answers, names, unit, csv=is_csv(file))
    else:
        answers = protecting(answers, unit or ("record" if person is None else "person"))
    path = write_template(file, answers, output)
    for column in left_out(file, names, answers):
        out.print(
            f"column {column} looks like an identifier, so it is not among the features: name it with --person, or "
            f"list the features in {path}",
            style="yellow",
        )
    missing = still_open(names, answers)
    step = f"fill in {', '.join(missing)}, then run" if missing else "next"
    out.print(f"wrote {path}; {step}: tacit data check {shlex.quote(str(path))}")


def _is_interactive() -> bool:
    return sys.stdin.isatty()


def _ask(answers: "Answers", names: tuple[str, ...], unit: "Protected | None", *, csv: bool) -> "Answers":
    """Asks for each public fact; Enter accepts the default, and an empty answer leaves the fact to fill in."""
    from tacit.experiment.owner.template import protecting

    if names:
        out.print(f"columns: {', '.join(names)}")
    label = _ask_text("label column", answers.label) if names else None
    task = _ask_text("task column (empty: a single task)", answers.task) if names else None
    person = _ask_text("person column (empty: none)", answers.person) if names else None
    protect = person is not None and typer.confirm("protect persons (otherwise records)?", default=unit != "record")
    answers = protecting(answers, "person" if protect else "record")
    return replace(
        answers,
        label=label,
        person=person,
        task=task,
        labels=_ask_text("all possible labels (0..9, or sick,well)", answers.labels),
        tasks=_parse_tasks(_ask_text("tasks in order (a,b,c or 2026-01..2026-12)", ",".join(answers.tasks) or None))
        if task is not None or not names
        else (),
        size=typer.prompt("expected number of units in a task", default=answers.size or 1000, type=int),
        tasks_per_unit=_ask_count(f"maximum number of tasks of one {answers.unit}", answers.tasks_per_unit),
        records_per_unit=_ask_count(
            f"maximum number of records of one {answers.unit} in a task", answers.records_per_unit
        ),
        test=_ask_text("public test file (empty: none)", answers.test),
        decimal=_ask_decimal(answers.decimal) if csv else answers.decimal,
    )


def _ask_text(question: str, default: str | None) -> str | None:
    answer: str = typer.prompt(question, default=default or "", show_default=bool(default))
    return answer.strip() or None


def _ask_count(question: str, default: int | None) -> int | None:
    """Asks until the answer is a whole number from 1, or empty."""
    while (answer := _ask_text(question, None if default is None else str(default))) is not None:
        if answer.isdecimal() and int(answer) >= 1:
            return int(answer)
        out.print("enter a whole number >= 1, or nothing to fill it in later")
    return None


def _ask_decimal(default: "Decimal") -> "Decimal":
    while (answer := _ask_text("decimal mark of numbers (. or ,)", default)) not in (".", ","):
        out.print("enter a point or a comma")
    return cast("Decimal", answer)


def _parse_tasks(text: str | None) -> tuple[str, ...]:
    """Task names separated by commas; `1..12` and `2026-01..2026-12` are ranges."""
    from tacit.data.declared.parsing import task_range

    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    return tuple(name for part in parts for name in task_range(part))
