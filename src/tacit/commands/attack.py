"""`tacit attack`: how the releases of a run stand up to changes of their inputs."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from tacit.commands._shared import Json, err, out, sentences
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.experiment.attack_found import Found
    from tacit.experiment.attack_section import AttackSection
    from tacit.metrics import Summary


def attack(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="The folder of a run or of a sweep.")],
    kind: Annotated[
        Literal["fgsm", "ifgsm", "mim", "pgd", "all"], typer.Option("--attack", help="Which one, or all.")
    ] = "all",
    norm: Annotated[Literal["linf", "l2", "l1"], typer.Option(help="How changes are measured.")] = "linf",
    radius: Annotated[float, typer.Option(help="How large they may be.")] = 0.1,
    steps: Annotated[int | None, typer.Option(min=1, help="Otherwise as in the attack's paper.")] = None,
    step_size: Annotated[
        float | None, typer.Option(help="Otherwise the radius over the steps; 2.5 times that for PGD.")
    ] = None,
    decay: Annotated[float, typer.Option(help="How much of its past gradients MIM keeps.")] = 1.0,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Evaluations a gradient; otherwise 1, or 8 with a noise layer.")
    ] = None,
    span: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--range",
            metavar="LOW HIGH",
            help="The smallest and the largest number that a feature may be, such as --range 0 1; otherwise those of "
            "the test sets.",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Rows of each test set; 0: all.")] = 500,
    certificates: Annotated[int, typer.Option(min=0, help="Draws of a certificate; 0: none.")] = 1000,
    allow_code: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE_OR_SHA256",
            help="A Python file of your own that the run names (its method, its backbone), or the file's SHA-256; no "
            "other is run.",
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option("--out", help="A CSV file with every accuracy.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Json = False,
) -> None:
    """Attack every release of a run on its public test sets; certify what can be. Nothing is charged.

    Of a sweep, every cell is attacked; of a stream without end, the last release, on the test sets of its last tasks.

    \b
    tacit attack runs/quickstart-20260101-120000
    tacit attack runs/digits --attack pgd --norm l2 --radius 0.5 --rows 0 --out attacks.csv

    Certificates need a network with a noise layer: model: {network: noisy}.
    """
    from tacit.experiment.attack_found import write
    from tacit.experiment.attack_section import AttackSection
    from tacit.experiment.attack_table import certificate
    from tacit.experiment.attacked import attack_run
    from tacit.experiment.loading import is_sweep
    from tacit.experiment.validation import validated
    from tacit.plugins import code_hash, is_hash, is_own
    from tacit.robustness.attacks import KINDS

    with sentences():
        if file is not None and not file.absolute().parent.is_dir():
            raise ConfigError(f"there is no folder for {file}; make it, or give another file by --out")
        said = {"norm": norm, "radius": radius, "steps": steps, "step_size": step_size, "decay": decay, "range": span}
        chosen = {"kinds": KINDS if kind == "all" else (kind,), "draws": draws, "rows": rows or None}
        section = validated(AttackSection, {**said, **chosen, "certificates": certificates})
        tell = (lambda said: None) if quiet else err.print
        allowed = [
            one if is_hash(one) else code_hash(one.rpartition(":")[0] if is_own(one) else one)
            for one in allow_code or ()
        ]
        if is_sweep(folder):
            return _sweep(folder, section, tell, file, allowed, as_json=as_json)
        found = attack_run(folder, section.asked(), tell, allow_code=allowed)
        if file is not None:
            write(file, {"": found})
    if as_json:
        return out.print_json(json.dumps(_facts(found), allow_nan=False))
    out.print(_table(found))
    for note in found.notes():
        out.print(note, style="dim")
    if found.no_certificate is not None:
        out.print(f"nothing is certified: {found.no_certificate}", style="dim")
    else:
        out.print(f"{certificate([found])} ({certificates} draws)", style="dim")
    if file is not None:
        out.print(f"wrote {file}")


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command("attack")(attack)


def _sweep(
    folder: Path,
    section: "AttackSection",
    tell: "Callable[[str], None]",
    file: Path | None,
    allowed: list[str],
    *,
    as_json: bool,
) -> None:
    """Every cell, and one table of them all."""
    from tacit.experiment import attack_table
    from tacit.experiment.attack_found import write
    from tacit.experiment.attacked_sweep import attack_sweep

    cells = attack_sweep(folder, section.asked(), tell, allow_code=allowed)
    if file is not None:
        write(file, {cell.name: cell.attacked for cell in cells if cell.attacked is not None})
    if as_json:
        found = [(cell, {} if cell.attacked is None else _facts(cell.attacked)) for cell in cells]
        facts = [{"cell": cell.name, "not_attacked": cell.not_attacked, **known} for cell, known in found]
        out.print_json(json.dumps(facts, allow_nan=False))
    else:
        attack_table.show(cells, out)
        if file is not None:
            out.print(f"wrote {file}")
    if any(cell.not_attacked for cell in cells):
        raise typer.Exit(1)


def _table(found: "Found") -> Table:
    """Average accuracy over the tasks so far, after each task; and what is forgotten by the end."""
    table = Table("after task", *found.columns, box=None, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    for number in found.rows:
        table.add_row(found.tasks[number], *(_share(found.average(column, number)) for column in found.columns))
    if found.rows[0] > 0:  # of the releases before, nothing is known
        return table
    table.add_row("forgetting", *(_share(found.forgetting(column)) for column in found.columns), style="bold")
    return table


def _facts(found: "Found") -> dict[str, object]:
    """For scripts: each accuracy, and the attacks as they were run."""
    return {
        "attacks": [asdict(one) | {"described": one.describe()} for one in found.attacks],
        "answer_draws": found.answer_draws,
        "without_gradient": found.flat,
        "no_certificate": found.no_certificate,
        "average_accuracy": {column: found.last(column).mean for column in found.columns},
        "forgetting": {
            column: None if math.isnan(mean := found.forgetting(column).mean) else mean for column in found.columns
        },
        "measured": [asdict(one) for one in found.measured],
    }


def _share(value: "Summary") -> str:
    from tacit.experiment.table import share

    return share(value.mean, value.std)
