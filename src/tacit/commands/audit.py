"""`tacit audit`: what an attacker finds out from releases, beside what is allowed."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tacit.commands._shared import Json, out, sentences
from tacit.errors import ConfigError

audit = typer.Typer(no_args_is_help=True, help="Attack releases, and compare what is found with what (ε, δ) allows.")


@audit.callback()
def main() -> None:
    """Attack releases, and compare what is found with what (ε, δ) allows."""


@audit.command("label-space")
def label_space(
    epsilon: Annotated[float, typer.Option(help="The ε of one record, > 0.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Between 0 and 1.")] = 1e-5,
    records: Annotated[int | None, typer.Option(help="Records in question; default: enough to show a leak.")] = None,
    seed: Annotated[int | None, typer.Option(help="Repeats the coins and the noise.")] = None,
    as_json: Json = False,
) -> None:
    """Whether the label set of a release tells who is in the data, for every way to such a set.

    Made-up records are there or not; the attacker sees label sets and noisy sums, and says which.
    """
    from tacit.experiment import label_audit

    with sentences():
        found = label_audit.audit(epsilon=epsilon, delta=delta, records=records, seed=seed)
    if as_json:
        return out.print_json(json.dumps([asdict(one) | {"consistent": one.consistent} for one in found]))
    table = Table("one record changes", "label set", "advantage", "allowed", "", box=None)
    for one in found:
        verdict = Text("consistent", style="green") if one.consistent else Text("NOT PRIVATE", style="bold red")
        measured = f"{one.advantage:.2f} (≥ {max(0.0, one.at_least):.2f})"
        table.add_row(one.neighbours, one.space, measured, f"{one.bound:.2f}", verdict)
    out.print(table)
    out.print(
        "advantage: how often a record is found that is there, less how often one that is not; in brackets its lower "
        f"bound at {label_audit.CONFIDENCE:.0%}. allowed: by ε = {epsilon:g}, δ = {delta:g}. Evidence, not proof.",
        style="dim",
    )


@audit.command("replacement-cascade")
def replacement_cascade(
    runs: Annotated[int, typer.Option(help="Simulated runs with the record, and as many without it.")] = 20_000,
    uses: Annotated[int | None, typer.Option(help="Uses of the memory; default: 60, 200, 500 for σ = 2, 4, 8.")] = None,
    seed: Annotated[int, typer.Option(help="The random seed of the simulated noise.")] = 0,
    as_json: Json = False,
) -> None:
    """What one record changes when the next one takes the place of a record whose budget is spent.

    The rule of Hassanpour et al. 2022 with a memory of one record, and admission by each record's own tag beside it.
    """
    from tacit.experiment import cascade

    with sentences():
        found = cascade.audit(runs=runs, uses=uses, seed=seed)
    records, without, beside = cascade.counterexample()
    if as_json:
        rows = [asdict(one) | {"refuted": one.refuted} for one in found]
        example = {"records": records, "enter": without, "enter_beside_one_more": beside}
        return out.print_json(json.dumps({"findings": rows, "efficient_memory": example}))
    table = Table("rule", "σ", "uses", "ε of a record", "of this pair", "found ≥", "", box=None)
    for one in found:
        shown = "none" if one.certified is None else f"{one.certified:.3g} certified"
        said = shown if one.claimed is None else f"{one.claimed:g} claimed"
        verdict = Text("REFUTED", style="bold red") if one.refuted else Text("consistent", style="green")
        row = (f"{one.noise:g}", str(one.uses), said, f"{one.exact:.1f}", f"{one.at_least:.2f}")
        table.add_row(one.rule, *row, verdict)
    out.print(table)
    out.print(
        f"efficient memory by the batch's mean margin: {without} of {records} records enter, and {beside} of {records} "
        "once one record more is in the batch"
    )
    out.print(
        f"δ = {cascade.DELTA:g}, {runs} runs of each world, confidence {cascade.CONFIDENCE:.0%}: so few runs cannot "
        f"show more than {cascade.most(runs):.1f}. claimed: what the paper's bookkeeping shows for each record. "
        "Evidence, not proof.",
        style="dim",
    )


@audit.command("lifelong-reconstruction")
def lifelong_reconstruction(
    data: Annotated[str, typer.Option(help="digits, or mnist where TACIT_DATA has it.")] = "digits",
    epsilon: Annotated[float, typer.Option(help="As L2DP-ML claims it, > 0, at most 10.")] = 0.5,
    victim: Annotated[int, typer.Option(help="Which record of the first task is not known to the attacker.")] = 0,
    picture: Annotated[Path | None, typer.Option("--out", help="A PNG file to draw.")] = None,
    as_json: Json = False,
) -> None:
    """Read a training record and its label off released parameters of L2DP-ML as published (Lai et al. 2022).

    The attacker has the releases, the learning rate and all records but one; the control is an honest noisy sum.
    """
    from tacit.experiment import reconstruction

    with sentences():
        if picture is not None:
            if picture.is_dir() or picture.suffix != ".png":
                raise ConfigError(f"--out is the PNG file to draw, got {picture}; name one, such as attack.png")
            try:
                picture.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"cannot make the folder of {picture}: {error.strerror}; name another") from None
        found = reconstruction.audit(data=data, epsilon=epsilon, victim=victim)
        if picture is not None:
            from tacit.experiment.reconstruction_figure import draw

            draw(found, picture)
    if as_json:
        facts = {k: getattr(found, k) for k in ("data", "claimed", "certified", "reason", "scale", "spread", "label")}
        rows = [{"release": one.release, "rmse": one.rmse, "label": one.label} for one in found.findings]
        return out.print_json(json.dumps(facts | {"findings": rows}))
    table = Table("release", "rmse", f"label (is {found.label})", "", box=None)
    for one in found.findings:
        undone = one.rmse < found.spread / 2
        verdict = Text("RECONSTRUCTED", style="bold red") if undone else Text("not found", style="green")
        table.add_row(one.release, f"{one.rmse:.3g}", "–" if one.label is None else str(one.label), verdict)
    out.print(table)
    out.print(f"claimed: ε = {found.claimed:.3g} for ever, by noise of scale {found.scale:.0f} on every pixel")
    out.print(f"certified: no finite epsilon: {found.reason}", style="bold red")
    out.print(
        f"rmse: of features in [−1, 1], whose standard deviation is {found.spread:.2f}. an honest sum: the noisy sum "
        f"of the same records at ε = {epsilon:g}, δ = {reconstruction.DELTA:g}, less all records but one.",
        style="dim",
    )
    if picture is not None:
        out.print(f"picture: {picture}")
