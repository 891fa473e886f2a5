"""`tacit sweep`: runs every combination of a grid of settings."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.commands.console import err, out, resume_hint
from tacit.commands.options import Json, Processes, Quiet, RunLedger, Sets, Target
from tacit.commands.report_command import Report, draw_report
from tacit.commands.track_command import Track, chosen
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.experiment.sweeps.cell import Cell


def sweep(
    target: Target,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,…", help="A configuration key and its values; every combination is run."),
    ] = None,
    sets: Sets = None,
    cells: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Run only the cells whose name fits, such as '*epsilon=0.5*'; repeat it for several patterns. A "
            "pattern that fits none lists the names.",
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="The sweep folder; a sweep that is already there is resumed.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the sweep in the folder with its original settings.")
    ] = False,
    ledger: RunLedger = None,
    processes: Processes = None,
    limit_minutes: Annotated[
        float | None, typer.Option(min=0, help="Start no further run after this many minutes.")
    ] = None,
    report: Report = True,
    track: Track = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run every combination of a grid of settings; write one CSV file with all results.

    Repeating the command with the same --out, or giving the folder, resumes the sweep.

    \b
    tacit sweep quickstart --grid learner.steps=30,60 --grid budget.epsilon=0.5,1,2 --out runs/grid
    tacit sweep compare --out runs/compare --limit-minutes 30
    tacit sweep compare --cells '*RoutedExperts*'
    tacit sweep runs/compare --resume
    """
    from tacit.commands.arguments import load_sweep
    from tacit.experiment.config.loading import is_sweep
    from tacit.experiment.display import display
    from tacit.experiment.sweeps.sweep import sweep as run_sweep

    plan = load_sweep(target, grid or [], sets or [])
    existing = Path(target) if Path(target).is_dir() and is_sweep(Path(target)) else None
    if resume and folder is None and existing is None:
        raise ConfigError(f"--resume needs the folder of the sweep: tacit sweep FOLDER --resume, got {target!r}")
    if existing is not None and folder is None and (grid or sets):
        raise ConfigError(
            f"{target} is resumed with its original settings; omit --grid and --set, or start another sweep with --out"
        )
    path = folder or existing or Path("runs") / folder_name(plan.name)
    trackers = chosen(track)
    with resume_hint(f"resume with: tacit sweep {shlex.quote(str(path))} --resume"):
        with display(err, quiet=quiet) as progress:
            results = run_sweep(
                plan, path, ledger=ledger, only=cells or (), processes=processes, limit_minutes=limit_minutes,
                progress=progress, trackers=trackers,
            )  # fmt: skip
        try:
            show_cells(results, path, plan.reference, as_json=as_json)
        finally:
            draw_report(path, wanted=report, as_json=as_json)


def folder_name(name: str) -> str:
    """The name of a configuration as the name of a folder."""
    return name.replace("/", "-").replace(" ", "-")


def show_cells(cells: "Sequence[Cell]", path: Path, reference_name: str | None, *, as_json: bool) -> None:
    """Prints the results of a sweep, beside the paper's where it has a reference. Exits with 1 if a cell failed."""
    if as_json:
        out.print_json(data=json_rows(cells, reference_name))
    else:
        print_cells(cells, path, reference_name)
    exit_if_failed(cells)


def print_cells(cells: "Sequence[Cell]", path: Path, reference_name: str | None) -> None:
    """Prints the tables of a sweep."""
    from tacit.experiment.sweeps import attack_table
    from tacit.experiment.sweeps.comparison import show
    from tacit.experiment.sweeps.reference import reference

    table = None if reference_name is None else reference(reference_name)
    show(cells, out, table)
    if any(cell.attacked or cell.not_attacked for cell in cells):
        attack_table.show(cells, out, table)
    out.print(f"\nruns with their releases and certificates: {path}")


def json_rows(cells: "Sequence[Cell]", reference_name: str | None) -> list[dict[str, Any]]:
    """The changes, results and status of each cell, and the paper's figures."""
    from tacit.experiment.sweeps.reference import reference
    from tacit.experiment.sweeps.sweep import columns_of

    table = None if reference_name is None else reference(reference_name)
    rows = []
    for cell in cells:
        paper = None if table is None else table.beside(cell.config)
        rows.append({**cell.changes, **columns_of(cell), **({} if paper is None else {"paper": asdict(paper)})})
    return rows


def exit_if_failed(cells: "Sequence[Cell]") -> None:
    """Exits with 1 if a cell failed."""
    if any(cell.status.startswith("failed") or cell.not_attacked for cell in cells):
        raise typer.Exit(1)
