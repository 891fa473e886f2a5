"""`tacit ledger`: what was charged."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tacit.commands._shared import By, Json, LedgerPath, Why, existing, out, sentences
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.privacy.ledger import Ledger, StreamTerms

ledger = typer.Typer(no_args_is_help=True, help="What was charged: show, meter, verify, rebuild, raise, reanchor.")


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


@ledger.command("meter")
def meter(
    stream: str,
    ledger: LedgerPath,
    last: Annotated[int | None, typer.Option(min=1, help="Blocks of the last N tasks; readers are whole.")] = None,
    as_json: Json = False,
) -> None:
    """Each block of a STREAM: what it was charged, for whom and for what, and what is left; and each reader."""
    from tacit.privacy.readers import in_short, view

    with sentences(), existing(ledger) as book:
        found = view(book.statement(_stream(book, stream)[0]))
    if last is not None:
        named = list(dict.fromkeys(block.task for block in found.blocks))[-last:]
        found = replace(found, blocks=tuple(block for block in found.blocks if block.task in named))
    if as_json:
        return out.print_json(json.dumps(asdict(found), allow_nan=True))
    table = Table("block", "state", "ε charged", "left", "by", "for", box=None)
    for block in found.blocks:
        if block.state == "split":  # its parts have lines of their own, and all that is charged
            continue
        head = (f"{block.task}/{block.part}", block.state, _rounded(block.epsilon), _rounded(block.left))
        for place, row in enumerate(in_short(block.charges) or [("–", "nothing yet")]):
            table.add_row(*(head if place == 0 else ("",) * 4), *row)
    out.print(table)
    if found.readers:
        readers = Table("reader", "tasks", "claimed ε", "certified ε of what it read", box=None)
        for one in found.readers:
            readers.add_row(one.reader, str(len(one.tasks)), _rounded(one.claimed), _rounded(one.certified))
        out.print(readers)
        out.print(
            "claimed: the training steps of the reader's tasks by the moments accountant, as the papers count (reads "
            "of the memory are not in it). certified: of one unit, over all readers of its block.",
            style="dim",
        )
    out.print(f"budget of one unit: ε = {found.budget:g}, δ = {found.delta:g}")


@ledger.command("verify")
def verify(
    ledger: LedgerPath,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Also check this certificate, or that of a release: its head, and every event priced again."),
    ] = None,
) -> None:
    """Check the database file, and recompute everything from the events: hashes, tables, prices."""
    from tacit.commands.certificate import bound_to, located
    from tacit.privacy import repricing, witness
    from tacit.privacy.certificate import Certificate

    with sentences(), existing(ledger) as book:
        found = book.verify()
        if certificate is not None:
            file, release = located(certificate)
            said = Certificate.load(file)
            bound_to(said, release)
            repricing.reprice(said)
            witness.check(said, book)
        out.print(
            f"in order: {found.entries} entries, {found.streams} streams, {found.blocks} blocks, {found.grants} grants"
        )


@ledger.command("rebuild")
def rebuild(
    ledger: LedgerPath, into: Annotated[Path, typer.Option(help="A new file; the damaged one is not changed.")]
) -> None:
    """Make a damaged ledger anew from its log, in another file, and verify that one."""
    from tacit.privacy.ledger import rebuild as made_anew

    with sentences():
        found = made_anew(ledger, into)
        out.print(
            f"rebuilt and in order: {found.entries} entries, {found.blocks} blocks, {found.grants} grants in {into}; "
            f"keys and anchor stay: move {ledger}, {ledger}-wal and {ledger}-shm away, then {into} to {ledger}"
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
    with sentences(), existing(ledger) as book:
        number, terms = _stream(book, stream)
        book.raise_budget(number, replace(terms.budget, epsilon=epsilon), by=by, why=why)
        out.print(f"{stream}: ε {terms.budget.epsilon:g} → {epsilon:g}")


@ledger.command("reanchor")
def reanchor(ledger: LedgerPath, by: By, why: Why) -> None:
    """Accept a ledger that was rolled back or lost its anchor; every later certificate says so."""
    from tacit.privacy.ledger import Ledger

    with sentences():
        head = Ledger.reanchor(ledger, by=by, why=why)
        out.print(f"accepted; the head is now {head.seq}")


def _rounded(epsilon: float) -> str:
    return "0" if epsilon < 1e-6 else f"{epsilon:.4g}"


def _stream(book: "Ledger", name: str) -> "tuple[int, StreamTerms]":
    """The stream of this name, and what was declared about it."""
    found = {terms.name: (number, terms) for number, terms in book.streams()}
    if name not in found:
        raise TacitError(f"the ledger has no stream {name!r}; it has {', '.join(found) or 'none'}")
    return found[name]
