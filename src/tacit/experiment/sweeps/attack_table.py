"""The cells of a sweep under attack, as two tables: accuracy after the last task, and what is forgotten."""

from collections.abc import Callable, Sequence
from statistics import fmean

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.experiment.attacks.results import CERTIFIED, AttackResults
from tacit.experiment.sweeps.cell import Cell
from tacit.experiment.sweeps.comparison import labels
from tacit.experiment.sweeps.reference import Reference
from tacit.experiment.sweeps.table import percent
from tacit.metrics import Summary

NAMES = {"clean": "clean", "fgsm": "FGSM", "ifgsm": "I-FGSM", "mim": "MIM", "pgd": "PGD", CERTIFIED: "certified"}


def show(cells: Sequence[Cell], console: Console, reference: Reference | None = None) -> None:
    """Print what is known of the cells under attack, and how it was found, beside a paper's gains."""
    names = labels([cell.changes for cell in cells])
    known = [cell.attacked for cell in cells if cell.attacked is not None]
    if not known:
        for name, cell in zip(names, cells, strict=True):
            console.print(Text(f"{name}: {cell.not_attacked or 'not attacked yet'}", style="yellow"))
        return
    columns = [column for column in NAMES if any(column in one.columns for one in known)]
    console.print()
    console.print(_table("average accuracy", names, cells, columns, AttackResults.last))
    console.print()
    console.print(_table("forgetting", names, cells, columns, AttackResults.forgetting))
    if reference is not None and any(row.gain is not None for row in reference.rows):
        console.print()
        console.print(_gains(names, cells, reference))
    for note in dict.fromkeys(note for one in known for note in one.notes()):
        console.print(note, style="dim")
    for said in dict.fromkeys(one.certificate() for one in known if CERTIFIED in one.columns):
        console.print(f"certified: {said}", style="dim")
    refused = {one.no_certificate for one in known if one.no_certificate is not None}
    for reason in sorted(refused):
        console.print(f"–: nothing is certified: {reason}", style="dim")


def under_attack(results: AttackResults) -> float:
    """The accuracy after the last task, as a mean over the attacks and seeds."""
    return fmean(results.last(attack.kind).mean for attack in results.attacks)


def _gains(names: Sequence[str], cells: Sequence[Cell], reference: Reference) -> Table:
    """What each cell adds to the accuracy under attack of the cell before it, which it extends."""
    heads = ("under attack, mean of all attacks", "accuracy", "gain", f"{reference.title}: gain")
    table = Table(*heads, box=None, padding=(0, 2, 0, 0))
    before: float | None = None
    for name, cell in zip(names, cells, strict=True):
        now = None if cell.attacked is None else under_attack(cell.attacked)
        row = reference.beside(cell.config)
        ours = "–" if now is None or before is None else f"{100 * (now - before):+.2f}"
        paper = "–" if row is None or row.gain is None else f"{row.gain:+g}"
        table.add_row(name, "–" if now is None else f"{now:.1%}", ours, paper)
        before = now
    return table


def _table(
    title: str,
    names: Sequence[str],
    cells: Sequence[Cell],
    columns: Sequence[str],
    of: Callable[[AttackResults, str], Summary],
) -> Table:
    table = Table(title, *(NAMES[column] for column in columns), box=None, padding=(0, 2, 0, 0))
    for name, cell in zip(names, cells, strict=True):
        if cell.attacked is None:
            table.add_row(name, Text(cell.not_attacked or "not attacked yet", style="yellow"))
        else:
            results = cell.attacked
            shown = (percent(of(results, column)) if column in results.columns else "–" for column in columns)
            table.add_row(name, *shown)
    return table
