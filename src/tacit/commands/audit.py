"""`tacit audit`: what an attacker finds out from releases, beside what is allowed."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tacit.commands._shared import Json, out, sentences

audit = typer.Typer(no_args_is_help=True, help="Attack releases, and compare what is found with what (ε, δ) allows.")


@audit.callback()
def main() -> None:
    """Attack releases, and compare what is found with what (ε, δ) allows."""


@audit.command("label-space")
def label_space(
    epsilon: Annotated[float, typer.Option(help="Of one record, > 0.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Between 0 and 1.")] = 1e-5,
    records: Annotated[int | None, typer.Option(help="In question, in tasks without others; default: enough.")] = None,
    seed: Annotated[int | None, typer.Option(help="To repeat coins and noise.")] = None,
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
