"""`tacit ledger`: what was charged to a ledger, and whether the ledger is intact."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tacit.commands.console import out
from tacit.commands.ledger_access import find_stream, view_ledger
from tacit.commands.options import Json, LedgerPath
from tacit.commands.privacy import ledger_decisions
from tacit.words import counted

if TYPE_CHECKING:
    from tacit.privacy.ledger import UnitTotal

ledger = typer.Typer(
    no_args_is_help=True,
    help="Charges: show, meter, log, verify, rebuild. Decisions: raise, officers, reanchor.",
)


@ledger.command("show")
def show(ledger: LedgerPath, as_json: Json = False) -> None:
    """Show each stream with its budget and the privacy loss charged so far."""
    with view_ledger(ledger) as book:
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
        return out.print_json(data=facts, allow_nan=True)
    table = Table("stream", "protects", "ε charged", "ε budget", "δ", box=None)
    for row in rows:
        protects, charged = f"{row['unit']}, {row['adjacency']}", f"{row['epsilon']:.4g}"
        table.add_row(str(row["stream"]), protects, charged, f"{row['budget']:g}", f"{row['delta']:g}")
    out.print(table)
    for total in totals:
        _show_total(total)
    out.print(ledger_decisions.signing_status(officers))
    out.print(f"head {head.seq} {head.hash}")


def _show_total(total: "UnitTotal") -> None:
    """Prints the privacy loss of one unit over all streams that may hold it."""
    several = len(total.streams) > 1
    where = (
        f"over all {len(total.streams)} streams, which may hold the same {total.unit}s" if several else "in its stream"
    )
    out.print(
        f"one {total.unit} {where}: at most ε = {_rounded(total.epsilon)}, δ = {total.delta:g} ({total.adjacency}; "
        f"{total.accountant}); once all budgets are spent ε = {total.budget_epsilon:g}, δ = {total.budget_delta:g}"
    )
    if several:
        out.print("  valid if streams and plans were fixed in advance; a unit_cap holds however they are chosen")
    for names in total.disjoint:
        out.print(f"  the policy declares {', '.join(names)} disjoint: only the costliest of them is counted")
    if total.cap is not None:
        left = _rounded(total.left or 0.0)
        out.print(f"  unit_cap ε = {total.cap.epsilon:g}, δ = {total.cap.delta:g}: ε = {left} left")
    else:
        out.print("  no unit_cap: a new stream adds its whole budget (tacit policy adopt sets a cap)")


@ledger.command("blocks")
def blocks(
    stream: str,
    ledger: LedgerPath,
    last: Annotated[int | None, typer.Option(min=1, help="Show only the blocks of the last N tasks.")] = None,
    as_json: Json = False,
) -> None:
    """Show each block of a STREAM: the charges, their readers, and the budget that is left."""
    from tacit.certificate.spending import spending, summarize

    with view_ledger(ledger) as book:
        shown = spending(book.statement(find_stream(book, stream)[0]), book.totals())
    if last is not None:
        latest = list(dict.fromkeys(block.task for block in shown.blocks))[-last:]
        shown = replace(shown, blocks=tuple(block for block in shown.blocks if block.task in latest))
    if as_json:
        return out.print_json(data=asdict(shown), allow_nan=True)
    table = Table("block", "state", "ε charged", "ε left", "reader", "mechanism", box=None)
    for block in shown.blocks:
        if block.state == "split":  # its parts have rows of their own, with all charges
            continue
        head = (f"{block.task}/{block.part}", block.state, _rounded(block.epsilon), _rounded(block.left))
        for index, row in enumerate(summarize(block.charges) or [("–", "no charge yet")]):
            table.add_row(*(head if index == 0 else ("",) * 4), *row)
    out.print(table)
    if shown.readers:
        readers = Table("reader", "tasks", "claimed ε", "certified ε of the blocks read", box=None)
        for reader in shown.readers:
            readers.add_row(reader.reader, str(len(reader.tasks)), _rounded(reader.claimed), _rounded(reader.certified))
        out.print(readers)
        out.print(
            "claimed: the moments accountant over the training steps of the reader's tasks, without memory reads, as "
            "in the papers. certified: for one unit, over all readers of its block.",
            style="dim",
        )
    whole = shown.unit
    out.print(f"budget of one unit: ε = {shown.budget:g}, δ = {shown.delta:g}")
    out.print(
        f"a {whole.unit} in {counted(whole.tasks, 'task')}, the declared maximum: charged at most "
        f"ε = {_rounded(whole.epsilon)}, ε = {_rounded(whole.left)} left"
    )
    if whole.other_streams:
        out.print(
            f"the same {whole.unit}s may be in {', '.join(whole.other_streams)}: over all streams at most "
            f"ε = {_rounded(whole.all_streams)}, δ = {whole.all_streams_delta:g}"
        )


@ledger.command("verify")
def verify(
    ledger: LedgerPath,
    certificate: Annotated[
        Path | None,
        typer.Option(
            help="Also check a certificate or a release folder: its entry in the ledger and the price of every event."
        ),
    ] = None,
) -> None:
    """Check the database file, and recompute hashes, tables and prices from the logged events."""
    from tacit.certificate import ledger_check, repricing
    from tacit.certificate.certificate import Certificate
    from tacit.commands.privacy.certificate_commands import check_binding
    from tacit.commands.release_folders import locate

    with view_ledger(ledger, verifying=True) as book:
        verified = book.verify()
        if certificate is not None:
            file, release = locate(certificate)
            checked = Certificate.load(file)
            check_binding(checked, release)
            repricing.reprice(checked)
            ledger_check.check(checked, book)
        out.print(
            f"verified: {counted(verified.entries, 'entry')}, {counted(verified.streams, 'stream')}, "
            f"{counted(verified.blocks, 'block')}, {counted(verified.grants, 'grant')}"
        )
        out.print(ledger_decisions.signing_status(book.officers()))


@ledger.command("rebuild")
def rebuild(
    ledger: LedgerPath, into: Annotated[Path, typer.Option(help="The new file; the damaged one is not changed.")]
) -> None:
    """Rebuild a damaged ledger from its log into another file, and verify that file."""
    from tacit.privacy.ledger import rebuild as rebuild_into

    verified = rebuild_into(ledger, into)
    out.print(
        f"rebuilt and verified: {counted(verified.entries, 'entry')}, {counted(verified.blocks, 'block')}, "
        f"{counted(verified.grants, 'grant')} in {into}; keep the keys and the anchor: move {ledger}, {ledger}-wal "
        f"and {ledger}-shm away, rename {into} to {ledger}, and run tacit ledger reanchor --ledger {ledger} --why …"
    )


@ledger.command("log")
def log(
    ledger: LedgerPath,
    stream: Annotated[str | None, typer.Option(help="Only entries about this stream or the ledger as a whole.")] = None,
    last: Annotated[int | None, typer.Option(min=1, help="Only the last N entries.")] = None,
    as_json: Json = False,
) -> None:
    """Print the entries of the ledger: who, when, what, why."""
    from tacit.certificate.log_text import lines

    with view_ledger(ledger) as book:
        if stream is not None:
            find_stream(book, stream)
        entries = list(lines(book.entries(), stream=stream))[-(last or 0) :]
    if as_json:
        return out.print_json(data=[asdict(line) for line in entries])
    for line in entries:
        names = f"{', '.join(line.streams)}: " if line.streams and line.kind != "stream" else ""
        out.print(f"{line.seq:>5}  {line.when or 'no date':<25}  {names}{line.what}")
        if line.by is not None:
            out.print(f"{'':>5}  {'':<25}  by {line.who}: {line.why}", style="dim")


def _rounded(epsilon: float) -> str:
    return "0" if epsilon < 1e-6 else f"{epsilon:.4g}"


ledger_decisions.register(ledger)
