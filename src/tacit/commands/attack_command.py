"""`tacit attack`: adversarial attacks on the releases of a run."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from tacit.commands.console import err, out
from tacit.commands.options import Json, Quiet
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.experiment.attacks.results import AttackResults
    from tacit.experiment.config.attack_section import AttackSection


def attack(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="The folder of a run or a sweep.")],
    kind: Annotated[
        Literal["fgsm", "ifgsm", "mim", "pgd", "all"], typer.Option("--attack", help="The attack, or all of them.")
    ] = "all",
    norm: Annotated[Literal["linf", "l2", "l1"], typer.Option(help="The norm of a perturbation.")] = "linf",
    radius: Annotated[float, typer.Option(help="The largest norm of a perturbation.")] = 0.1,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Number of steps. Default: as in the attack's paper.")
    ] = None,
    step_size: Annotated[
        float | None, typer.Option(help="Step size. Default: radius / steps; 2.5 times that for PGD.")
    ] = None,
    decay: Annotated[float, typer.Option(help="Decay factor of MIM's momentum.")] = 1.0,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Evaluations per gradient. Default: 1, or 8 with a noise layer.")
    ] = None,
    span: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--range",
            metavar="LOW HIGH",
            help="The valid range of a feature, such as --range 0 1. Default: the range of the test sets.",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Number of records of each test set; 0: all.")] = 500,
    certificates: Annotated[
        int, typer.Option(min=0, help="Noise draws of a robustness certificate; 0: no certificates.")
    ] = 1000,
    bound: Annotated[
        Literal["pixeldp", "smoothing", "ibp", "auto"],
        typer.Option(
            help="How a certificate is computed: PixelDP's bound; randomised smoothing, never smaller; interval bounds "
            "of networks without noise; or (auto) smoothing where there is noise, interval bounds where there is none."
        ),
    ] = "pixeldp",
    certified_norm: Annotated[
        Literal["linf", "l2", "l1"] | None,
        typer.Option(help="The norm of certified accuracy. Default: that of the attacks."),
    ] = None,
    certified_radius: Annotated[
        float | None, typer.Option(help="The radius of certified accuracy. Default: that of the attacks.")
    ] = None,
    allow_code: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE_OR_SHA256",
            help="Allow a Python file that the run names (its learner or backbone), or the file's SHA-256. No other "
            "code that it names is executed.",
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option("--out", help="Write every accuracy to this CSV file.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Attack every release of a run on its public test sets, and certify robustness where possible. Nothing is charged.

    For a sweep, every cell is attacked; for an endless stream, the last release on the test sets of the last tasks.

    \b
    tacit attack runs/quickstart-20260101-120000
    tacit attack runs/digits --attack pgd --norm l2 --radius 0.5 --rows 0 --out attacks.csv

    tacit attack runs/noisy --bound smoothing --certified-norm l2 --certified-radius 0.1

    tacit attack runs/robust --attack pgd --bound ibp --rows 0

    Certificates by pixeldp and smoothing need a network with noise: model: {network: noisy} or {network: smoothed}.
    They reach farthest in the layer's own norm, mostly l2: a radius in linf is worth √(number of features) times as
    much there. Those by interval bounds need none, and are not 0 where the network was trained for them: model:
    {network: interval}.
    """
    from tacit.experiment.attacks.attacked import attack_run
    from tacit.experiment.attacks.results import write
    from tacit.experiment.config.attack_section import AttackSection
    from tacit.experiment.config.loading import is_sweep
    from tacit.experiment.config.validation import validated
    from tacit.plugins import code_hash, is_hash, is_own
    from tacit.robustness.attacks import KINDS

    if file is not None and not file.absolute().parent.is_dir():
        raise ConfigError(f"the folder of {file} does not exist; create it, or give another file with --out")
    options = {"norm": norm, "radius": radius, "steps": steps, "step_size": step_size, "decay": decay, "range": span}
    chosen = {"kinds": KINDS if kind == "all" else (kind,), "draws": draws, "rows": rows or None}
    asked = {"certificates": certificates, "bound": bound, "certified_norm": certified_norm}
    section = validated(AttackSection, {**options, **chosen, **asked, "certified_radius": certified_radius})
    notify = (lambda _: None) if quiet else err.print
    allowed = [
        code if is_hash(code) else code_hash(code.rpartition(":")[0] if is_own(code) else code)
        for code in allow_code or ()
    ]
    if is_sweep(folder):
        return _attack_sweep(folder, section, notify, file, allowed, as_json=as_json)
    results = attack_run(folder, section, notify, allow_code=allowed)
    if file is not None:
        write(file, {"": results})
    if as_json:
        return out.print_json(data=_facts(results), allow_nan=False)
    out.print(_table(results))
    for note in results.notes():
        out.print(note, style="dim")
    if results.no_certificate is not None:
        out.print(f"robustness is not certified: {results.no_certificate}", style="dim")
    else:
        drawn = "" if results.certified is not None and results.certified.bound == "ibp" else f" ({certificates} draws)"
        out.print(f"certified: {results.certificate()}{drawn}", style="dim")
    if file is not None:
        out.print(f"wrote {file}")


def _attack_sweep(
    folder: Path,
    section: "AttackSection",
    notify: "Callable[[str], None]",
    file: Path | None,
    allowed: list[str],
    *,
    as_json: bool,
) -> None:
    """Attacks every cell of a sweep and prints one table."""
    from tacit.experiment.attacks.results import write
    from tacit.experiment.sweeps import attack_table
    from tacit.experiment.sweeps.attacked_sweep import attack_sweep

    cells = attack_sweep(folder, section, notify, allow_code=allowed)
    if file is not None:
        write(file, {cell.name: cell.attacked for cell in cells if cell.attacked is not None})
    if as_json:
        facts = [
            {
                "cell": cell.name,
                "not_attacked": cell.not_attacked,
                **({} if cell.attacked is None else _facts(cell.attacked)),
            }
            for cell in cells
        ]
        out.print_json(data=facts, allow_nan=False)
    else:
        attack_table.show(cells, out)
        if file is not None:
            out.print(f"wrote {file}")
    if any(cell.not_attacked for cell in cells):
        raise typer.Exit(1)


def _table(results: "AttackResults") -> Table:
    """The average accuracy over the tasks learned so far after each task, and the forgetting after the last."""
    from tacit.experiment.sweeps.table import percent

    table = Table("after task", *results.columns, box=None, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    for number in results.rows:
        table.add_row(results.tasks[number], *(percent(results.average(column, number)) for column in results.columns))
    if results.rows[0] > 0:  # earlier releases were not kept, so forgetting is unknown
        return table
    table.add_row("forgetting", *(percent(results.forgetting(column)) for column in results.columns), style="bold")
    return table


def _facts(results: "AttackResults") -> dict[str, object]:
    """The output of `--json`: every accuracy, and the settings of the attacks."""
    return {
        "attacks": [asdict(attack) | {"described": attack.describe()} for attack in results.attacks],
        "answer_draws": results.answer_draws,
        "without_gradient": results.flat,
        "no_certificate": results.no_certificate,
        "certified": None if results.certified is None else asdict(results.certified),
        "largest_radius": results.largest_radius,
        "average_accuracy": {column: results.last(column).mean for column in results.columns},
        "forgetting": {
            column: None if math.isnan(mean := results.forgetting(column).mean) else mean for column in results.columns
        },
        "measured": [asdict(accuracy) for accuracy in results.measured],
    }
