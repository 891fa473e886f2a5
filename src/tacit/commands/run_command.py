"""`tacit run`: learns a stream of tasks from a preset, a configuration or a declaration, and shows the results."""

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tacit.commands.console import err, out, resume_hint
from tacit.commands.ledger_access import ask_unit_cap
from tacit.commands.options import Epsilon, Json, Method, Processes, Quiet, RunLedger, Seeds, Sets, Target, UnitCap
from tacit.commands.report_command import Report, draw_report
from tacit.commands.sweep_command import folder_name, show_cells
from tacit.commands.track_command import Track, chosen
from tacit.errors import ConfigError
from tacit.words import accuracy_percent, counted

if TYPE_CHECKING:
    from tacit.experiment.config.config import Accumulation, Config, Sweep
    from tacit.experiment.runs.endless import EndlessStatus


def run(
    target: Target,
    sets: Sets = None,
    method: Method = None,
    epsilon: Epsilon = None,
    seeds: Seeds = None,
    folder: Annotated[Path | None, typer.Option("--out", help="The run folder. Default: runs/NAME-TIME.")] = None,
    ledger: RunLedger = None,
    unit_cap: UnitCap = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="With --resume: the folder was moved, but not its ledger and data.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="With --resume: the present path of the declaration of your data.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="For a stream with a last task: learn up to this one and stop; --resume continues later.",
        ),
    ] = None,
    arrived: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK",
            help="With --resume, for private data in a file that grows: confirm that all rows of this task are in the "
            "file, since tacit never counts rows. It is learned then.",
        ),
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(min=1, help="For an endless stream, which has no last task: stop after this many tasks in total."),
    ] = None,
    accept_large_delta: Annotated[
        bool,
        typer.Option("--accept-large-delta", help="For private data: accept a δ above 1 / (declared number of units)."),
    ] = False,
    processes: Processes = None,
    report: Report = True,
    track: Track = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Learn a stream of tasks; print accuracy per task, forgetting, claimed ε and certified ε.

    \b
    tacit run quickstart
    tacit run quickstart --method NaiveDPSGD --epsilon 0.5 --seeds 3
    tacit run mydata.yaml --ledger mydata.ledger
    tacit run mydata.yaml --ledger mydata.ledger --until 2026-03
    tacit run runs/mydata-20260401-120000 --resume --arrived 2026-04
    tacit run runs/quickstart-20260101-120000 --resume
    tacit run hassanpour2022/endless --tasks 20
    tacit run quickstart --track tensorboard --track mlflow

    mydata.yaml is a declaration of your own data; `tacit data declare` writes one.
    Exit codes: 0 success, 1 an error, 2 wrong usage, 3 an unexpected error in tacit, 130 stopped by Ctrl-C.
    """
    from tacit.commands.arguments import load_config, settings_from_options
    from tacit.experiment.config.config import Accumulation, Sweep
    from tacit.experiment.config.endless_config import Endless
    from tacit.experiment.config.loading import preset_names
    from tacit.experiment.display import display
    from tacit.experiment.progress import Stopped
    from tacit.experiment.runs.endless import run_endless
    from tacit.experiment.runs.runner import run as run_config
    from tacit.experiment.sweeps.sweep import sweep as run_sweep
    from tacit.experiment.sweeps.table import show

    settings = settings_from_options(sets, method, epsilon, seeds, accept_large_delta=accept_large_delta)
    if resume and folder is None and not Path(target).exists() and target.removesuffix(".yaml") not in preset_names():
        raise ConfigError(f"there is no file or run folder {target} to resume; check the path")
    config = load_config(target, settings)
    path = _run_folder(target, config, folder, resume=resume)
    if resume and not Path(path).exists():
        raise ConfigError(f"there is no run at {path} to resume; check the path, or omit --resume to start a run")
    if not resume and (Path(path) / "config.yaml").is_file():
        other = "" if folder is None else ", or pass another folder with --out"
        raise ConfigError(f"{path} has a run; continue it with `tacit run {shlex.quote(str(path))} --resume`{other}")
    trackers = chosen(track)
    _check_applicable(target, config, until=until, arrived=arrived, tasks=tasks, moved=moved or data is not None)
    with resume_hint(f"resume with: tacit run {shlex.quote(str(path))} --resume"):
        if isinstance(config, Sweep):
            with display(err, quiet=quiet) as progress:
                cells = run_sweep(
                    config, path, ledger=ledger, processes=processes, progress=progress, trackers=trackers
                )
            try:
                return show_cells(cells, path, config.reference, as_json=as_json)
            finally:
                draw_report(path, wanted=report, as_json=as_json)
        if isinstance(config, Accumulation):
            with display(err, quiet=quiet) as progress:
                curves = config.target()[1](path, **config.options, progress=progress)
            return show_curves(config.kind, curves, as_json=as_json)
        cap = unit_cap if resume else ask_unit_cap(unit_cap, ledger, config)
        if isinstance(config, Endless):
            try:
                with display(err, quiet=quiet) as progress:
                    standing = run_endless(
                        config, path, ledger=ledger, resume=resume, tasks=tasks, unit_cap=cap, moved=moved, data=data,
                        progress=progress, trackers=trackers,
                    )  # fmt: skip
            except Stopped:
                draw_report(path, wanted=report, as_json=as_json)
                raise
            _show_standing(standing, as_json=as_json)
            return draw_report(path, wanted=report, as_json=as_json)
        with display(err, quiet=quiet) as progress:
            result = run_config(
                config, path, ledger=ledger, resume=resume, until=until, arrived=arrived or (), processes=processes,
                unit_cap=cap, moved=moved, data=data, progress=progress, trackers=trackers,
            )  # fmt: skip
        if as_json:
            facts = {"folder": str(result.folder), "left": result.left, **result.metrics}
            out.print_json(data=facts, allow_nan=False)
        else:
            show(result, out)
        draw_report(path, wanted=report, as_json=as_json)


def _run_folder(target: str, config: "Config | Accumulation | Sweep", given: Path | None, *, resume: bool) -> Path:
    if given is not None:
        return given
    if Path(target).is_dir():
        return Path(target)
    if resume:
        raise ConfigError(f"--resume needs the folder of the run: tacit run FOLDER --resume, or --out, got {target!r}")
    return Path("runs") / f"{folder_name(config.name)}-{time.strftime('%Y%m%d-%H%M%S')}"


def _check_applicable(
    target: str,
    config: "Config | Accumulation | Sweep",
    *,
    until: str | None,
    arrived: list[str] | None,
    tasks: int | None,
    moved: bool,
) -> None:
    """Refuses options that this kind of configuration does not have."""
    kind = f"and {target} has kind {config.kind!r}"
    if tasks is not None and config.kind == "run":
        raise ConfigError(f"--tasks {tasks} is for an endless stream, and this stream is finite: use --until TASK")
    if tasks is not None and config.kind != "endless":
        raise ConfigError(f"--tasks {tasks} is for an endless stream, {kind}; omit it")
    if until is not None and config.kind != "run":
        raise ConfigError(f"--until {until} is for a single run, {kind}; omit it")
    if arrived and config.kind != "run":
        raise ConfigError(f"--arrived {arrived[0]} is for a single run, {kind}; omit it")
    if moved and config.kind not in ("run", "endless"):
        raise ConfigError(f"--moved and --data are for a single run, {kind}; omit them")


def show_curves(kind: str, results: Any, *, as_json: bool) -> None:
    """Prints the values after the last task of a configuration that computes curves."""
    from tacit.experiment.papers import accounting_table

    if as_json:
        return out.print_json(data=results)
    if kind == "accounting":
        return accounting_table.show(results, out)
    if kind == "consumption":
        return _show_consumption(results)
    tasks = counted(results["tasks"], "task")
    table = Table("curve", "kind", "scope", f"ε after {tasks}", "δ", "accountant", box=None, padding=(0, 2, 0, 0))
    for curve in results["curves"]:
        epsilon, delta = f"{curve['epsilon']:.4g}", f"{curve['delta']:g}"
        table.add_row(curve["curve"], curve["kind"], curve["scope"], epsilon, delta, curve["accountant"])
    out.print(table)
    out.print("\n".join(f"wrote {file}" for file in results["files"]))


def _show_consumption(results: Any) -> None:
    heads = ("data", "learners", "σ", "a record stays", "admitted", "retired", "held at most", "reads")
    table = Table(*heads, box=None, padding=(0, 2, 0, 0))
    for one in results["totals"]:
        numbers = (f"{one[name]:,}" for name in ("admitted", "retired", "held", "read"))
        stay = counted(one["stay"], "task")
        table.add_row(one["data"], str(one["learners"]), f"{one['noise']:g}", stay, *numbers)
    out.print(table)
    out.print(f"records of the memory, expected, over {counted(results['tasks'], 'task')}; nothing was trained")
    out.print("\n".join(f"wrote {file}" for file in results["files"]))


def _show_standing(standing: "EndlessStatus", *, as_json: bool) -> None:
    if as_json:
        facts = {**asdict(standing), "folder": str(standing.folder), "release": str(standing.release)}
        return out.print_json(data=facts, allow_nan=False)
    accuracy = (
        "" if standing.accuracy is None else f", accuracy on the last tasks {accuracy_percent(standing.accuracy)}"
    )
    certified = "no finite ε certified" if standing.epsilon is None else f"certified ε {standing.epsilon:.3g}"
    out.print(f"{counted(standing.learned, 'task')} learned{accuracy}, {certified}")
    out.print(f"last release: {standing.release}")
    if standing.ended is None:
        out.print(f"resume with: tacit run {shlex.quote(str(standing.folder))} --resume")
