"""`tacit run`, `tacit sweep`, `tacit presets`: experiments from one command each."""

import json
import shlex
import textwrap
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tacit.commands._asked import asked, named, plan
from tacit.commands._shared import Json, cap_asked, err, out, sentences, stopping
from tacit.errors import ConfigError
from tacit.words import counted

if TYPE_CHECKING:
    from tacit.experiment.config import Accumulation, Config, Sweep
    from tacit.experiment.endless import Standing
    from tacit.experiment.sweep import Cell


def _names(incomplete: str) -> list[str]:
    """For tab completion."""
    from tacit.experiment.loading import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)]


What = Annotated[
    str,
    typer.Argument(
        metavar="PRESET_OR_FILE",
        autocompletion=_names,
        help="A preset (see `tacit presets`), a configuration file, a declaration of your own data, or a run folder.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change one key, such as learner.steps=100; @FILE: all keys of a file."
    ),
]
TheLedger = Annotated[
    Path | None,
    typer.Option("--ledger", envvar="TACIT_LEDGER", help="The ledger of private data. Public data needs none."),
]
UnitCap = Annotated[
    str | None,
    typer.Option(
        metavar="EPS|none",
        help="Of a new ledger: what one unit may lose over all its streams, ε or ε,δ. Asked for on a terminal; "
        "otherwise the budget of this run.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Processes = Annotated[int | None, typer.Option(min=1, help="How many at a time; otherwise as many as there are cores.")]


def run(
    what: What,
    sets: Sets = None,
    method: Annotated[str | None, typer.Option(help="The learner: short for --set learner=…")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The budget: short for --set budget.epsilon=…")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many, from 0: short for --set seeds=…")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="The run folder; otherwise runs/NAME-TIME.")] = None,
    ledger: TheLedger = None,
    unit_cap: UnitCap = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="With --resume: the folder was moved, its ledger and data were not.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="With --resume: where the declaration of your data lies now.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TASK", help="Learn up to this task for now; --resume goes on later.")
    ] = None,
    arrived: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK",
            help="Of private data in one file that grows: the rows of this task have arrived since the last call. Rows "
            "are never counted to find out.",
        ),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="For a stream without end: learn up to this many tasks in all, for now.")
    ] = None,
    accept_large_delta: Annotated[
        bool,
        typer.Option("--accept-large-delta", help="Of private data: a δ above one over the declared number of units."),
    ] = False,
    processes: Processes = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Learn a stream of tasks; print accuracy per task, forgetting, ε claimed and ε certified.

    \b
    tacit run quickstart
    tacit run quickstart --method NaiveDPSGD --epsilon 0.5 --seeds 3
    tacit run mydata.yaml --ledger mydata.ledger
    tacit run mydata.yaml --ledger mydata.ledger --until 2026-03
    tacit run runs/mydata-20260401-120000 --resume --arrived 2026-04
    tacit run runs/quickstart-20260101-120000 --resume
    tacit run hassanpour2022/endless --tasks 20

    mydata.yaml is a declaration of your own data; `tacit data declare` writes one.
    Exit code 0 when it is done, 1 when something is wrong, 2 for a wrong call, 3 for a mistake in tacit itself,
    130 when stopped by Ctrl-C.
    """
    from tacit.experiment.config import Accumulation, Sweep
    from tacit.experiment.display import display
    from tacit.experiment.endless import run_endless
    from tacit.experiment.endless_config import Endless
    from tacit.experiment.runner import run as run_all
    from tacit.experiment.sweep import sweep as run_cells
    from tacit.experiment.table import show

    with sentences():
        config = named(what, asked(sets, method, epsilon, seeds, accept_large_delta=accept_large_delta))
        place = _place(what, config, folder, resume=resume)
        if resume and not Path(place).exists():
            raise ConfigError(
                f"there is no run at {place} to go on with; check its name, or leave --resume out to begin one there"
            )
    with sentences(), stopping(f"go on by: tacit run {shlex.quote(str(place))} --resume"):
        if tasks is not None and not isinstance(config, Endless):
            raise ConfigError(
                f"--tasks {tasks} is for a stream without end, and {what} is of the kind {config.kind!r}; use --until, "
                "or set data.tasks"
            )
        if until is not None and isinstance(config, Sweep | Accumulation | Endless):
            raise ConfigError(
                f"--until {until} is for a single run, and {what} is of the kind {config.kind!r}; leave it out"
            )
        if (moved or data is not None) and isinstance(config, Sweep | Accumulation):
            raise ConfigError(
                f"--moved and --data are for a single run, and {what} is of the kind {config.kind!r}; leave them out"
            )
        if arrived and isinstance(config, Sweep | Accumulation | Endless):
            raise ConfigError(
                f"--arrived {arrived[0]} is for a single run, and {what} is of the kind {config.kind!r}; leave it out"
            )
        if isinstance(config, Sweep):
            with display(err, quiet=quiet) as tell:
                cells = run_cells(config, place, ledger=ledger, processes=processes, tell=tell)
            _show_cells(cells, place, config.reference, as_json=as_json)
            return
        if isinstance(config, Endless):
            cap = unit_cap if resume else cap_asked(unit_cap, ledger, config)
            with display(err, quiet=quiet) as tell:
                standing = run_endless(
                    config,
                    place,
                    ledger=ledger,
                    resume=resume,
                    tasks=tasks,
                    unit_cap=cap,
                    moved=moved,
                    data=data,
                    tell=tell,
                )
            _show_standing(standing, as_json=as_json)
            return
        if isinstance(config, Accumulation):
            with display(err, quiet=quiet) as tell:
                _, run_curves, _ = config.target()
                curves = run_curves(place, **config.options, tell=tell)
            _show_curves(config.kind, curves, as_json=as_json)
            return
        cap = unit_cap if resume else cap_asked(unit_cap, ledger, config)
        with display(err, quiet=quiet) as tell:
            found = run_all(
                config, place, ledger=ledger, resume=resume, until=until, arrived=arrived or (), processes=processes,
                unit_cap=cap, moved=moved, data=data, tell=tell,
            )  # fmt: skip
        if as_json:
            facts = {"folder": str(found.folder), "left": found.left, **found.metrics}
            out.print_json(json.dumps(facts, allow_nan=False))
        else:
            show(found, out)


def sweep(
    what: What,
    grid: Annotated[
        list[str] | None, typer.Option(metavar="KEY=A,B,…", help="A key and its values; every combination is run.")
    ] = None,
    sets: Sets = None,
    folder: Annotated[Path | None, typer.Option("--out", help="The folder; the same again goes on.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the sweep in the folder, as begun.")] = False,
    ledger: TheLedger = None,
    processes: Processes = None,
    limit_minutes: Annotated[float | None, typer.Option(min=0, help="Start no run after so many minutes.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a grid over any keys; one CSV of all cells. Called again with the same --out, or with the folder, it goes on.

    \b
    tacit sweep quickstart --grid learner.steps=30,60 --grid budget.epsilon=0.5,1,2 --out runs/grid
    tacit sweep compare --out runs/compare --limit-minutes 30
    tacit sweep runs/compare --resume
    """
    from tacit.experiment.display import display
    from tacit.experiment.loading import is_sweep
    from tacit.experiment.sweep import sweep as run_all

    with sentences():
        cells_to_run = plan(what, grid or [], sets or [])
        own = Path(what) if Path(what).is_dir() and is_sweep(Path(what)) else None
        if resume and folder is None and own is None:
            raise ConfigError(f"--resume needs the folder of the sweep: tacit sweep FOLDER --resume, got {what!r}")
        if own is not None and folder is None and (grid or sets):
            raise ConfigError(
                f"{what} goes on as it was begun; leave --grid and --set out, or begin another sweep by --out"
            )
        place = folder or own or Path("runs") / plain_name(cells_to_run.name)
    with sentences(), stopping(f"go on by: tacit sweep {shlex.quote(str(place))} --resume"):
        with display(err, quiet=quiet) as tell:
            cells = run_all(
                cells_to_run, place, ledger=ledger, processes=processes, limit_minutes=limit_minutes, tell=tell
            )
        _show_cells(cells, place, cells_to_run.reference, as_json=as_json)


def presets(as_json: Json = False) -> None:
    """What `tacit run` knows by name, what data it needs, and whether that is here."""
    from tacit.data.named import way_out
    from tacit.experiment.loading import presets as listed

    with sentences():
        found = listed()
        if as_json:
            out.print_json(json.dumps([asdict(one) for one in found]))
            return
        for one in found:
            missing = f"  missing: {', '.join(one.missing)}" if one.missing else ""
            out.print(Text.assemble((one.name, "bold"), (missing, "yellow")))
            said = textwrap.shorten(one.description, out.width - 2, placeholder=" …")
            out.print(f"  {said if out.is_terminal else one.description}")
        for name in dict.fromkeys(name for one in found for name in one.missing):
            out.print(f"{name}: {way_out(name)}", style="yellow")
        out.print("--json: all that each of them says, and the data that it needs", style="dim")


def register(app: typer.Typer) -> None:
    """Put the commands of this file into the app."""
    for command in (run, sweep, presets):
        app.command(command.__name__)(command)


def _place(what: str, config: "Config | Accumulation | Sweep", given: Path | None, *, resume: bool) -> Path:
    """The folder of a run."""
    if given is not None:
        return given
    if Path(what).is_dir():
        return Path(what)
    if resume:
        raise ConfigError(f"--resume needs the folder of the run: tacit run FOLDER --resume, or --out, got {what!r}")
    return Path("runs") / f"{plain_name(config.name)}-{time.strftime('%Y%m%d-%H%M%S')}"


def _show_curves(kind: str, found: Any, *, as_json: bool) -> None:
    from tacit.experiment import accounting_table

    if as_json:
        out.print_json(json.dumps(found))
        return
    if kind == "accounting":
        accounting_table.show(found, out)
        return
    table = Table(
        "curve", "kind", "of", f"ε after {counted(found['tasks'], 'task')}", "δ", "by", box=None, padding=(0, 2, 0, 0)
    )
    for curve in found["curves"]:
        epsilon, delta = f"{curve['epsilon']:.4g}", f"{curve['delta']:g}"
        table.add_row(curve["curve"], curve["kind"], curve["scope"], epsilon, delta, curve["accountant"])
    out.print(table)
    out.print("\n".join(f"wrote {file}" for file in found["files"]))


def _show_standing(found: "Standing", *, as_json: bool) -> None:
    if as_json:
        facts = {**asdict(found), "folder": str(found.folder), "release": str(found.release)}
        out.print_json(json.dumps(facts, allow_nan=False))
        return
    accuracy = "" if found.accuracy is None else f", accuracy on the last of them {found.accuracy:.1%}"
    certified = "no finite ε certified" if found.epsilon is None else f"ε certified {found.epsilon:.3g}"
    out.print(f"{counted(found.learnt, 'task')} learnt{accuracy}, {certified}")
    out.print(f"answers come from the last release: {found.release}")
    if found.ended is None:
        out.print(f"go on by: tacit run {shlex.quote(str(found.folder))} --resume")


def _show_cells(cells: "list[Cell]", place: Path, beside: str | None, *, as_json: bool) -> None:
    from tacit.experiment import attack_table
    from tacit.experiment.comparison import show
    from tacit.experiment.reference import reference
    from tacit.experiment.sweep import row

    table = None if beside is None else reference(beside)
    if as_json:
        papers = [None if table is None else table.beside(cell.config) for cell in cells]
        said = [{} if paper is None else {"paper": asdict(paper)} for paper in papers]
        rows = zip(cells, said, strict=True)
        out.print_json(json.dumps([{**cell.changes, **row(cell), **paper} for cell, paper in rows]))
    else:
        show(cells, out, table)
        if any(cell.attacked or cell.not_attacked for cell in cells):
            attack_table.show(cells, out)
        out.print(f"\neach run, its releases and certificates: {place}")
    if any(cell.status.startswith("failed") or cell.not_attacked for cell in cells):
        raise typer.Exit(1)


def plain_name(name: str) -> str:
    return name.replace("/", "-").replace(" ", "-")
