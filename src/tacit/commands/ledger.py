"""`tacit ledger`: what was charged."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tacit.commands._shared import By, Json, LedgerPath, Why, existing, out, sentences
from tacit.errors import LedgerError, TacitError

ledger = typer.Typer(no_args_is_help=True, help="What was charged: show, verify, raise, reanchor.")


@ledger.command("show")
def show(ledger: LedgerPath, as_json: Json = False) -> None:
    """Each stream with its budget and what one unit may have lost."""
    with sentences(), existing(ledger) as book:
        rows = [
            {
                "stream": terms.name,
                "unit": str(terms.budget.unit),
                "adjacency": str(terms.budget.adjacency),
                "budget": terms.budget.epsilon,
                "epsilon": book.epsilon(number),
                "delta": terms.budget.delta,
                "tasks_per_unit": terms.tasks_per_unit,
            }
            for number, terms in book.streams()
        ]
        head = book.head
    if as_json:
        out.print_json(json.dumps({"head": {"seq": head.seq, "hash": head.hash}, "streams": rows}, allow_nan=True))
        return
    table = Table("stream", "protects", "ε charged", "of", "δ", box=None)
    for row in rows:
        table.add_row(
            str(row["stream"]),
            f"{row['unit']}, {row['adjacency']}",
            f"{row['epsilon']:.4g}",
            f"{row['budget']:g}",
            f"{row['delta']:g}",
        )
    out.print(table)
    out.print(f"head {head.seq} {head.hash}")


@ledger.command("verify")
def verify(
    ledger: LedgerPath,
    certificate: Annotated[
        Path | None, typer.Option(help="Also check that this certificate's head is in the chain.")
    ] = None,
) -> None:
    """Recompute everything from the events: hashes, tables, prices."""
    from tacit.privacy.certificate import Certificate
    from tacit.privacy.ledger import Head

    with sentences(), existing(ledger) as book:
        found = book.verify()
        if certificate is not None:
            said = Certificate.load(certificate).ledger
            if said.id != book.id or not book.contains(Head(seq=said.head_seq, hash=said.head_hash)):
                raise LedgerError(
                    f"the head in {certificate} is not in this ledger: it was rolled back, or is another ledger"
                )
        out.print(
            f"in order: {found.entries} entries, {found.streams} streams, {found.blocks} blocks, {found.grants} grants"
        )


@ledger.command("raise")
def raise_budget(
    stream: str,
    ledger: LedgerPath,
    epsilon: Annotated[float, typer.Option(help="The new ε of one unit.")],
    by: By,
    why: Why,
) -> None:
    """Raise the budget of a STREAM, if the policy lets this person."""
    from dataclasses import replace

    with sentences(), existing(ledger) as book:
        found = {terms.name: (number, terms) for number, terms in book.streams()}
        if stream not in found:
            raise TacitError(f"the ledger has no stream {stream!r}; it has {', '.join(found) or 'none'}")
        number, terms = found[stream]
        book.raise_budget(number, replace(terms.budget, epsilon=epsilon), by=by, why=why)
        out.print(f"{stream}: ε {terms.budget.epsilon:g} → {epsilon:g}")


@ledger.command("reanchor")
def reanchor(ledger: LedgerPath, by: By, why: Why) -> None:
    """Accept a ledger that was rolled back or lost its anchor; every later certificate says so."""
    from tacit.privacy.ledger import Ledger

    with sentences():
        head = Ledger.reanchor(ledger, by=by, why=why)
        out.print(f"accepted; the head is now {head.seq}")
