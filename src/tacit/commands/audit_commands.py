"""`tacit audit`: attacks on releases, compared with what (ε, δ) allows."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tacit.commands.console import out
from tacit.commands.options import Json
from tacit.errors import ConfigError

audit = typer.Typer(no_args_is_help=True, help="Attack releases, and compare the results with what (ε, δ) allows.")


@audit.callback()
def main() -> None:
    """Attack releases, and compare the results with what (ε, δ) allows."""


@audit.command("label-space")
def label_space(
    epsilon: Annotated[float, typer.Option(help="The ε per record, > 0.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Between 0 and 1.")] = 1e-5,
    records: Annotated[
        int | None, typer.Option(help="Number of records to test. Default: enough to show a leak.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="A random seed, to repeat the audit.")] = None,
    as_json: Json = False,
) -> None:
    """Test whether the label set of a release reveals membership, for every kind of label space.

    Synthetic records are in the data or not; the attacker sees label sets and noisy sums, and guesses.
    """
    from tacit.audit import label_set_leakage, membership

    results = label_set_leakage.audit(epsilon=epsilon, delta=delta, records=records, seed=seed)
    if as_json:
        return out.print_json(data=[asdict(result) | {"consistent": result.consistent} for result in results])
    table = Table("neighbours", "label set", "advantage", "allowed", "", box=None)
    for result in results:
        verdict = Text("consistent", style="green") if result.consistent else Text("NOT PRIVATE", style="bold red")
        measured = f"{result.advantage:.2f} (≥ {max(0.0, result.at_least):.2f})"
        table.add_row(result.neighbours, result.space, measured, f"{result.bound:.2f}", verdict)
    out.print(table)
    out.print(
        "advantage: true positive rate minus false positive rate; in brackets its lower bound at "
        f"{membership.CONFIDENCE:.0%} confidence. allowed: the largest advantage under ε = {epsilon:g}, "
        f"δ = {delta:g}. Evidence, not proof.",
        style="dim",
    )


@audit.command("replacement-cascade")
def replacement_cascade(
    runs: Annotated[int, typer.Option(help="Number of simulated runs with the record, and again without it.")] = 20_000,
    uses: Annotated[
        int | None, typer.Option(help="Number of uses of the memory. Default: 60, 200, 500 for σ = 2, 4, 8.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The random seed of the simulated noise.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure what one record changes if a record whose budget is spent is replaced by the next one.

    Compares the rule of Hassanpour et al. 2022, for a memory of one record, with admission by a record's own tag.
    """
    from tacit.audit import replacement_cascade

    results = replacement_cascade.audit(runs=runs, uses=uses, seed=seed)
    records, without, beside = replacement_cascade.counterexample()
    if as_json:
        rows = [asdict(result) | {"refuted": result.refuted} for result in results]
        example = {"records": records, "enter": without, "enter_beside_one_more": beside}
        return out.print_json(data={"findings": rows, "efficient_memory": example})
    table = Table("rule", "σ", "uses", "ε per record", "exact ε of this pair", "measured ε ≥", "", box=None)
    for result in results:
        certified = "none" if result.certified is None else f"{result.certified:.3g} certified"
        per_record = certified if result.claimed is None else f"{result.claimed:g} claimed"
        verdict = Text("REFUTED", style="bold red") if result.refuted else Text("consistent", style="green")
        row = (f"{result.noise:g}", str(result.uses), per_record, f"{result.exact:.1f}", f"{result.at_least:.2f}")
        table.add_row(result.rule, *row, verdict)
    out.print(table)
    out.print(
        f"efficient memory by the batch's mean margin: {without} of {records} records are admitted, but {beside} of "
        f"{records} if one more record is in the batch"
    )
    out.print("claimed: by the paper's accounting.", style="dim")
    return _evidence(runs)


@audit.command("batch-clipping")
def batch_clipping(
    runs: Annotated[int, typer.Option(help="Number of simulated runs with the record, and again without it.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The random seed of the simulated noise.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure what one record changes if the gradient of a batch is clipped, and not that of each record.

    Attacks the rules of Desai et al. 2021 (its code) and Hassanpour et al. 2022; the control clips each record.
    """
    from tacit.audit import batch_clipping

    results = batch_clipping.audit(runs=runs, seed=seed)
    if as_json:
        return out.print_json(data=[asdict(result) | {"refuted": result.refuted} for result in results])
    table = Table("rule", "σ", "true σ", "steps", "stated ε", "exact ε", "measured ε ≥", "", box=None)
    for result in results:
        verdict = Text("REFUTED", style="bold red") if result.refuted else Text("consistent", style="green")
        steps = f"{result.steps}" if result.rate == 1 else f"{result.steps} at {result.rate:g}"
        row = (f"{result.noise:g}", f"{result.multiplier:.3g}", steps, f"{result.stated:.3g}", f"{result.exact:.3g}")
        table.add_row(result.rule, *row, f"{result.at_least:.2f}", verdict)
    out.print(table)
    out.print(
        "σ: noise over the clip, as accounted; true σ: noise over what the worst record changes. steps: at their "
        "sampling rate, if the order of records is secret. stated: by the paper, or by an accountant of such "
        "steps. exact: of this pair of worlds. ≥: measured.",
        style="dim",
    )
    return _evidence(runs)


def _evidence(runs: int) -> None:
    from tacit.audit import membership

    out.print(
        f"δ = {membership.DELTA:g}, {runs} runs with and {runs} without the record, confidence "
        f"{membership.CONFIDENCE:.0%}: this many runs can show at most ε = {membership.most(runs):.1f}. "
        "Evidence, not proof.",
        style="dim",
    )


@audit.command("lifelong-reconstruction")
def lifelong_reconstruction(
    data: Annotated[str, typer.Option(help="digits, or mnist if it is in TACIT_DATA.")] = "digits",
    epsilon: Annotated[float, typer.Option(help="The ε that L2DP-ML claims, in (0, 10].")] = 0.5,
    victim: Annotated[int, typer.Option(help="Index of the record that the attacker does not know.")] = 0,
    runs: Annotated[int, typer.Option(help="Runs of the authors' code on each of two neighbouring data sets.")] = 20,
    picture: Annotated[Path | None, typer.Option("--out", help="Draw the result to this PNG file.")] = None,
    as_json: Json = False,
) -> None:
    """Reconstruct a training record and its label from released parameters of L2DP-ML (Lai et al. 2022).

    The attacker knows the releases, the learning rate and all records but one. The control is a noisy sum at the same
    ε. The authors' code, whose noise does not cancel as exactly, is attacked by telling two data sets apart.
    """
    from tacit.audit import reconstruction

    if picture is not None:
        if picture.is_dir() or picture.suffix != ".png":
            raise ConfigError(f"--out must be a PNG file, got {picture}; use a name such as attack.png")
        try:
            picture.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot create the folder of {picture}: {error.strerror}; choose another") from None
    report = reconstruction.audit(data=data, epsilon=epsilon, victim=victim, runs=runs)
    if picture is not None:
        from tacit.audit.reconstruction import draw

        draw(report, picture)
    if as_json:
        facts = {k: getattr(report, k) for k in ("data", "claimed", "certified", "reason", "scale", "spread", "label")}
        rows = [
            {"release": finding.release, "rmse": finding.rmse, "label": finding.label} for finding in report.findings
        ]
        code = {"runs": runs, "right": report.code.right, "wrong": report.code.wrong, "at_least": report.code.at_least}
        return out.print_json(data=facts | {"findings": rows, "code": code})
    table = Table("release", "rmse", f"label (true: {report.label})", "", box=None)
    for finding in report.findings:
        success = finding.rmse < report.spread / 2
        verdict = Text("RECONSTRUCTED", style="bold red") if success else Text("not found", style="green")
        label = "–" if finding.label is None else str(finding.label)
        table.add_row(finding.release, f"{finding.rmse:.3g}", label, verdict)
    out.print(table)
    out.print(
        f"claimed: ε = {report.claimed:.3g} for any number of tasks, by noise of scale {report.scale:.0f} per pixel"
    )
    out.print(f"certified: no finite ε: {report.reason}", style="bold red")
    out.print(
        f"rmse: of features in [−1, 1] with standard deviation {report.spread:.2f}. private sum: the noisy sum of "
        f"the same records at ε = {epsilon:g}, δ = {reconstruction.DELTA:g}, minus all records but one.",
        style="dim",
    )
    told = report.code
    out.print(
        f"the authors' code (variant code), one released step: recognised were {told.right} of {runs} runs with a "
        f"differing record and {runs - told.wrong} of {runs} without: ε ≥ {told.at_least:.2f} with 95 % confidence, "
        "and more with more runs"
    )
    if picture is not None:
        out.print(f"picture: {picture}")
