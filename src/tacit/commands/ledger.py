"""`tacit ledger`: what was charged."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tacit.commands import _decisions
from tacit.commands._shared import Json, LedgerPath, looked_at, out, sentences, stream_named

if TYPE_CHECKING:
    from tacit.privacy.ledger import UnitTotal

ledger = typer.Typer(
    no_args_is_help=True,
    help="What was charged: show, meter, log, verify, rebuild; and decisions: raise, officers, reanchor.",
)


@ledger.command("show")
def show(ledger: LedgerPath, as_json: Json = False) -> None:
    """Each stream with its budget and what one unit may have lost."""
    with sentences(), looked_at(ledger) as book:
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
        head, totals, officers = book.head, book.totals(), book.officers()
    if as_json:
        facts = {
            "head": {"seq": head.seq, "hash": head.hash},
            "streams": rows,
            "totals": [asdict(total) | {"left": total.left} for total in totals],
            "officers": [officer.name for officer in officers],
        }
        out.print_json(json.dumps(facts, allow_nan=True))
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
    for total in totals:
        _show_total(total)
    out.print(_decisions.signing(officers))
    out.print(f"head {head.seq} {head.hash}")


def _show_total(total: "UnitTotal") -> None:
    """What one unit may have lost, whichever streams it is in."""
    many = len(total.streams) > 1
    over = f"over all {len(total.streams)} streams, which may hold the same {total.unit}s" if many else "in its stream"
    out.print(
        f"one {total.unit} {over}: at most ε = {_rounded(total.epsilon)}, δ = {total.delta:g} ({total.adjacency}; "
        f"{total.accountant}); when all budgets are spent ε = {total.budget_epsilon:g}, δ = {total.budget_delta:g}"
    )
    if many:
        out.print("  so long as streams and plans were fixed in advance; a unit_cap holds however they are chosen")
    for names in total.disjoint:
        out.print(f"  nobody is in two of {', '.join(names)}, as the policy declares: only the costliest is added")
    if total.cap is not None:
        out.print(f"  unit_cap ε = {total.cap.epsilon:g}, δ = {total.cap.delta:g}: left {_rounded(total.left or 0.0)}")
    else:
        out.print("  no unit_cap: a new stream adds all of its budget (tacit policy adopt sets one)")


@ledger.command("meter")
def meter(
    stream: str,
    ledger: LedgerPath,
    last: Annotated[int | None, typer.Option(min=1, help="Blocks of the last N tasks; readers are whole.")] = None,
    as_json: Json = False,
) -> None:
    """Each block of a STREAM: what it was charged, for whom and for what, and what is left; and each reader."""
    from tacit.privacy.readers import in_short, view

    with sentences(), looked_at(ledger) as book:
        found = view(book.statement(stream_named(book, stream)[0]), book.totals())
    if last is not None:
        named = list(dict.fromkeys(block.task for block in found.blocks))[-last:]
        found = replace(found, blocks=tuple(block for block in found.blocks if block.task in named))
    if as_json:
        return out.print_json(json.dumps(asdict(found), allow_nan=True))
    table = Table("block", "state", "ε charged", "left in it alone", "by", "for", box=None)
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
    whole = found.unit
    out.print(f"budget of one unit: ε = {found.budget:g}, δ = {found.delta:g}")
    out.print(
        f"a {whole.unit} in {whole.tasks} task(s), the most that was declared: lost at most "
        f"ε = {_rounded(whole.epsilon)}, left {_rounded(whole.left)}"
    )
    if whole.other_streams:
        out.print(
            f"the same {whole.unit}s may be in {', '.join(whole.other_streams)}: over all streams together at most "
            f"ε = {_rounded(whole.all_streams)}, δ = {whole.all_streams_delta:g}"
        )


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

    with sentences(), looked_at(ledger, checking=True) as book:
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
        out.print(_decisions.signing(book.officers()))


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
            f"keys and anchor stay: move {ledger}, {ledger}-wal and {ledger}-shm away, then {into} to {ledger}, and "
            f"say so with tacit ledger reanchor --ledger {ledger} --why …"
        )


@ledger.command("log")
def log(
    ledger: LedgerPath,
    stream: Annotated[str | None, typer.Option(help="Entries about this stream or the whole ledger.")] = None,
    last: Annotated[int | None, typer.Option(min=1, help="The last N entries.")] = None,
    as_json: Json = False,
) -> None:
    """Every entry of the ledger's chain: who, when, what, why."""
    from tacit.privacy.log_lines import lines

    with sentences(), looked_at(ledger) as book:
        if stream is not None:
            stream_named(book, stream)
        found = list(lines(book.entries(), stream=stream))[-(last or 0) :]
    if as_json:
        return out.print_json(json.dumps([asdict(line) for line in found]))
    for line in found:
        names = f"{', '.join(line.streams)}: " if line.streams and line.kind != "stream" else ""
        out.print(f"{line.seq:>5}  {line.when or 'no date':<25}  {names}{line.what}")
        if line.by is not None:
            out.print(f"{'':>5}  {'':<25}  by {line.who}: {line.why}", style="dim")


def _rounded(epsilon: float) -> str:
    return "0" if epsilon < 1e-6 else f"{epsilon:.4g}"


_decisions.register(ledger)
