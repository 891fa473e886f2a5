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
    from tacit.experiment.attacked import Found
    from tacit.metrics import Summary


def attack(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="The folder of a run.")],
    kind: Annotated[
        Literal["fgsm", "ifgsm", "mim", "pgd", "all"], typer.Option("--attack", help="Which one, or all.")
    ] = "all",
    norm: Annotated[Literal["linf", "l2", "l1"], typer.Option(help="How changes are measured.")] = "linf",
    radius: Annotated[float, typer.Option(help="How large they may be.")] = 0.1,
    steps: Annotated[int | None, typer.Option(min=1, help="Otherwise as in the attack's paper.")] = None,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Evaluations a gradient; otherwise 1, or 8 with a noise layer.")
    ] = None,
    span: Annotated[
        tuple[float, float] | None, typer.Option("--range", help="Of features; otherwise that of the test sets.")
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Of each test set; 0: all.")] = 500,
    certificates: Annotated[int, typer.Option(min=0, help="Draws of a certificate; 0: none.")] = 1000,
    file: Annotated[Path | None, typer.Option("--out", help="A CSV file with every accuracy.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Json = False,
) -> None:
    """Attack every release of a run on its public test sets; certify what can be. Nothing is charged.

    \b
    tacit attack runs/quickstart-20260101-120000
    tacit attack runs/digits --attack pgd --norm l2 --radius 0.5 --rows 0 --out attacks.csv

    Certificates need a network with a noise layer: model: {network: noisy}.
    """
    from tacit.experiment.attacked import Asked, attack_run
    from tacit.robustness.attacks import KINDS, Attack

    with sentences():
        if file is not None and not file.absolute().parent.is_dir():
            raise ConfigError(f"there is no folder for {file}; make it, or give another file by --out")
        chosen = KINDS if kind == "all" else (kind,)
        attacks = tuple(
            Attack(kind=one, norm=norm, radius=radius, steps=None if one == "fgsm" else steps) for one in chosen
        )
        asked = Asked(attacks=attacks, draws=draws, range=span, rows=rows or None, certificates=certificates)
        found = attack_run(folder, asked, (lambda said: None) if quiet else err.print)
        if file is not None:
            found.write(file)
    if as_json:
        return out.print_json(json.dumps(_facts(found), allow_nan=False))
    out.print(_table(found))
    for one in found.attacks:
        out.print(one.describe(), style="dim")
    if found.no_certificate is not None:
        out.print(f"nothing is certified: {found.no_certificate}", style="dim")
    else:
        out.print(
            f"certified: no change of {norm} {radius:g} turns the right answer, by PixelDP's bound from {certificates} "
            "draws, at 95% a record; it is about the mean over all noise",
            style="dim",
        )
    if file is not None:
        out.print(f"wrote {file}")


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command("attack")(attack)


def _table(found: "Found") -> Table:
    """Average accuracy over the tasks so far, after each task; and what is forgotten by the end."""
    table = Table("after task", *found.columns, box=None, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    for number, name in enumerate(found.tasks):
        table.add_row(name, *(_share(found.average(column, number)) for column in found.columns))
    table.add_row("forgetting", *(_share(found.forgetting(column)) for column in found.columns), style="bold")
    return table


def _facts(found: "Found") -> dict[str, object]:
    """For scripts: each accuracy, and the attacks as they were run."""
    last = len(found.tasks) - 1
    return {
        "attacks": [asdict(one) | {"described": one.describe()} for one in found.attacks],
        "no_certificate": found.no_certificate,
        "average_accuracy": {column: found.average(column, last).mean for column in found.columns},
        "forgetting": {
            column: None if math.isnan(mean := found.forgetting(column).mean) else mean for column in found.columns
        },
        "measured": [asdict(one) for one in found.measured],
    }


def _share(value: "Summary") -> str:
    from tacit.experiment.table import share

    return share(value.mean, value.std)
