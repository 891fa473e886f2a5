"""The cells of a sweep under attack, as two tables: accuracy after the last task, and what is forgotten."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.experiment.attacks.results import CERTIFIED, AttackResults
from tacit.experiment.sweeps.cell import Cell
from tacit.experiment.sweeps.comparison import labels
from tacit.experiment.sweeps.table import percent
from tacit.metrics import Summary

NAMES = {"clean": "clean", "fgsm": "FGSM", "ifgsm": "I-FGSM", "mim": "MIM", "pgd": "PGD", CERTIFIED: "certified"}


def show(cells: Sequence[Cell], console: Console) -> None:
    """Print what is known of the cells under attack, and how it was found."""
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
    for note in dict.fromkeys(note for one in known for note in one.notes()):
        console.print(note, style="dim")
    if CERTIFIED in columns:
        console.print(certificate(known), style="dim")
    refused = {one.no_certificate for one in known if one.no_certificate is not None}
    for reason in sorted(refused):
        console.print(f"–: nothing is certified: {reason}", style="dim")


def certificate(known: Sequence[AttackResults]) -> str:
    """What a certified accuracy says, in a sentence."""
    how = next(one.attacks[0] for one in known if CERTIFIED in one.columns)
    return (
        f"certified: no change of {how.ball} turns the right answer, by PixelDP's bound, at 95% a record; it is about "
        "the mean over all noise"
    )


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
