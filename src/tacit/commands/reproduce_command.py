"""`tacit reproduce`: makes the tables and figures of the papers."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tacit.commands.console import err, out, resume_hint
from tacit.commands.options import Json, Processes, Quiet
from tacit.commands.run_command import show_curves
from tacit.commands.sweep_command import exit_if_failed, json_rows, print_cells

if TYPE_CHECKING:
    from tacit.experiment.sweeps.reproduction import Item, Reproduced


def _complete_item(incomplete: str) -> list[str]:
    from tacit.experiment.sweeps.reproduction import catalogue

    return [name for item in catalogue() for name in item.names if name.startswith(incomplete)]


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="PAPER/ITEM",
            autocompletion=_complete_item,
            help="A table or figure, such as desai2021/table-1. Default: list all of them.",
        ),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="The folder of all reproductions.")] = Path("runs/reproduce"),
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Where it runs: device=cuda, or threads=2 for each run."),
    ] = None,
    processes: Processes = None,
    limit_minutes: Annotated[
        float | None, typer.Option(min=0, help="Start no further run after this many minutes.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make a table or figure of one of the five papers, with the paper's numbers beside those measured here.

    Runs what is missing, prints the table and draws the figure. Repeating the command continues where it stopped; once
    everything has run, it only prints, at once.

    \b
    tacit reproduce
    tacit reproduce desai2021/figure-2a
    tacit reproduce lai2022/table-1-mnist --limit-minutes 30
    tacit reproduce desai2021/table-1 --set device=cuda --jobs 8
    """
    from tacit.experiment.sweeps.cached_output import keep_printed, print_again

    if name is None:
        return _list(folder, as_json=as_json)
    if not as_json and not sets and print_again(name, folder, out):
        return
    from tacit.experiment.display import display
    from tacit.experiment.sweeps import reproduction

    item = reproduction.find(name)
    with resume_hint(f"continue with: tacit reproduce {name}"), display(err, quiet=quiet) as progress:
        found = reproduction.reproduce(
            item, folder, sets=sets or (), processes=processes, limit_minutes=limit_minutes, progress=progress
        )
    if as_json or not found.finished:
        return _show(item, found, folder, as_json=as_json)
    with out.capture() as printed:
        _show(item, found, folder, as_json=as_json)
    keep_printed(name, folder, out, printed.get())
    out.file.write(printed.get())


def _show(item: "Item", found: "Reproduced", folder: Path, *, as_json: bool) -> None:
    if found.figure is not None and not as_json:
        out.print(f"figure: {found.figure}")
    if found.cells is None:
        return show_curves(item.plan.kind, found.curves, as_json=as_json)
    parts = [
        (one, part.cells or (), getattr(one.plan, "reference", None))
        for one, part in zip((item, *item.others), (found, *found.beside), strict=True)
    ]
    if as_json:
        out.print_json(data=[row for _, cells, reference in parts for row in json_rows(cells, reference)])
    else:
        for one, cells, reference in parts:
            print_cells(cells, one.folder(folder), reference)
    exit_if_failed([cell for _, cells, _ in parts for cell in cells])


def _list(folder: Path, *, as_json: bool) -> None:
    """Prints every table and figure: whether it has been run, and which data is missing."""
    from tacit.data.benchmarks.named import way_out
    from tacit.experiment.sweeps.reproduction import catalogue, missing_data

    missing = missing_data()
    rows = [
        {
            "name": item.name,
            "about": item.about,
            "also": list(item.also),
            "preset": item.preset,
            "state": item.state(folder),
            "missing": list(missing.get(item.preset, ())),
        }
        for item in catalogue()
    ]
    if as_json:
        return out.print_json(data=rows)
    wide = max(len(str(row["name"])) for row in rows)
    for row in rows:
        state = "missing data" if row["missing"] and row["state"] != "done" else str(row["state"])
        words = f"{row['about']} (also {', '.join(row['also'])})" if row["also"] else str(row["about"])
        if out.is_terminal:
            words = textwrap.shorten(words, max(20, out.width - wide - 16), placeholder=" …")
        color = {"done": "green", "not run": "dim"}.get(state, "yellow")
        out.print(Text.assemble((f"{row['name']:<{wide}}  ", "bold"), (f"{state:<12}  ", color), words))
    for needed in sorted({name for names in missing.values() for name in names}):
        out.print(f"{needed}: {way_out(needed)}", style="yellow")
