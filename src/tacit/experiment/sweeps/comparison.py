"""A sweep as one table: one column per cell if there are few, otherwise one row per cell.

The numbers of a paper are in columns (or rows) of their own, under its name."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.experiment.runs import record_counts, run_summary
from tacit.experiment.runs.run_summary import RunSummary
from tacit.experiment.sweeps.cell import DONE, Cell
from tacit.experiment.sweeps.reference import Reference, printed
from tacit.experiment.sweeps.significance import CAVEAT
from tacit.experiment.sweeps.table import accuracy, of, of_accuracy

FEW = 4
LONG = 28
"""Characters of a name, from which on settings that follow from others are left out of it."""
FIGURES = {"average_accuracy": of_accuracy, "forgetting": of}
"""Figures of `metrics.json` beside each other, and how each is printed."""
P = "p over tasks / seeds"


def show(cells: Sequence[Cell], console: Console, reference: Reference | None = None) -> None:
    """Print the results of the cells, next to a paper's table."""
    names = labels([cell.changes for cell in cells])
    done = [run_summary.read(cell.config, cell.folder) if cell.status == DONE else None for cell in cells]
    known = [one for one in done if one is not None]
    console.print()
    columns = None
    if len(known) == len(cells) <= FEW and len({one.tasks for one in known}) == 1:
        columns = _beside(names, known, cells, reference)
    console.print(columns if columns and _fits(columns, console) else _lines(names, cells, done, reference))
    found = [None if one is None else one.metrics for one in done]
    for more in (
        worst_forgetting(names, cells, found, reference),
        _handovers(names, found),
        record_counts.table(names, found),
    ):
        if more is not None:
            console.print()
            console.print(more)
    for one in known:
        if one.metrics["epsilon_certified"] is None:
            reason = one.metrics["epsilon_certified_reason"]
            console.print(Text(f"{one.metrics['method']}: no finite epsilon is certified: {reason}", style="bold red"))
    if known:
        given = {one.metrics["task_id"] for one in known}
        console.print(protocol(given, [len(cell.config.seeds) for cell in cells]), style="dim")
    for caveat in dict.fromkeys(caveat for one in known for caveat in one.metrics.get("caveats", ())):
        console.print(caveat, style="dim")
    if any(cell.compared for cell in cells):
        console.print(CAVEAT, style="dim")
    if reference is not None:
        for trend in reference.trends:
            console.print(f"{reference.title}: {trend}", style="dim")
        console.print(_source(reference, cells, done), style="dim")


def _fits(table: Table, console: Console) -> bool:
    """Whether the table fits without truncating a word."""
    anything = console.options.update(max_width=10**4)
    return console.measure(table, options=anything).minimum <= console.width


def _whole_words(table: Table, *names: str) -> None:
    """Make columns at least as wide as the longest word of their header; the first, of these names."""
    for column, texts in zip(table.columns, [names, *([str(one.header)] for one in table.columns[1:])], strict=True):
        column.min_width = max((len(word) for text in texts for word in text.split()), default=None)


def protocol(given: Iterable[str], seeds: Iterable[int]) -> str:
    """How accuracy was measured, and what the ± means."""
    spread = "± is the standard deviation over seeds" if max(seeds) > 1 else "one seed"
    return f"task at test: {', '.join(sorted(given))}; {spread}"


def labels(changes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names that distinguish the cells: the method, then the settings that vary within a method.

    Of a long name the last settings are left out that follow from one of the others.
    """
    method = "learner.method"
    by_method: dict[Any, list[Mapping[str, Any]]] = {}
    for one in changes:
        by_method.setdefault(one.get(method), []).append(one)

    def label(one: Mapping[str, Any]) -> str:
        peers = by_method[one.get(method)]
        differ = [key for key in one if key != method and any(peer.get(key) != one[key] for peer in peers)]
        words = [f"{key.rpartition('.')[2]}={one[key]}" for key in differ]
        for key, word in list(zip(differ, words, strict=True))[:0:-1]:
            if len(" ".join(words)) > LONG and any(_decides(peers, other, key) for other in differ if other != key):
                words.remove(word)
                differ.remove(key)
        return " ".join(([str(one[method])] if method in one else []) + words) or "base"

    return [label(one) for one in changes]


def _decides(peers: Sequence[Mapping[str, Any]], key: str, other: str) -> bool:
    """Whether cells with the same value of one key have the same value of the other."""
    known: dict[str, str] = {}
    return all(known.setdefault(str(one.get(key)), str(one.get(other))) == str(one.get(other)) for one in peers)


def _source(reference: Reference, cells: Sequence[Cell], found: Sequence[RunSummary | None]) -> str:
    """The source of the paper's numbers, and how this sweep differs from the paper."""
    differ = dict.fromkeys(
        what
        for cell, one in zip(cells, found, strict=True)
        if one is not None and reference.beside(cell.config) is not None
        for what in reference.differences(cell.config, len(one.tasks))
    )
    here = f"; here: {', '.join(differ)}" if differ else ""
    return f"{reference.title}: as printed in {reference.source}, not measured here{here}"


def _paper(reference: Reference, cell: Cell) -> tuple[str, str]:
    """Accuracy and forgetting in the row of the paper that a cell corresponds to."""
    row = reference.beside(cell.config)
    return ("–", "–") if row is None else (printed(row.aa), printed(row.af))


def _beside(
    names: Sequence[str], found: Sequence[RunSummary], cells: Sequence[Cell], reference: Reference | None
) -> Table:
    table = Table("", *names, box=None, padding=(0, 2, 0, 0))
    _whole_words(table)
    for index, task in enumerate(found[0].tasks):
        table.add_row(task, *(accuracy(one.last_row[index]) if one.last_row else "not measured" for one in found))
    for title, (key, shown) in zip(("average accuracy", "forgetting"), FIGURES.items(), strict=True):
        table.add_row(Text(title, style="bold"), *(shown(one.metrics[key]) for one in found))
    if reference is not None:
        papers = [_paper(reference, cell) for cell in cells]
        for place, what in enumerate(("average accuracy", "forgetting")):
            table.add_row(f"{reference.title}: {what}", *(one[place] for one in papers))
    if any(cell.compared for cell in cells):
        table.add_row(P, *_p(cells))
    table.add_row("ε claimed (task / total)", *(_claimed(one.metrics) for one in found))
    table.add_row(Text("ε certified", style="bold"), *(_certified(one.metrics) for one in found))
    return table


def _lines(
    names: Sequence[str], cells: Sequence[Cell], found: Sequence[RunSummary | None], reference: Reference | None
) -> Table:
    compared = any(cell.compared for cell in cells)
    columns = ["", "average accuracy", "forgetting", *([P] if compared else [])]
    columns += [] if reference is None else [f"{reference.title}: accuracy", "forgetting"]
    table = Table(*columns, "ε claimed (task / total)", "ε certified", box=None, padding=(0, 2, 0, 0))
    _whole_words(table, *names)
    for name, cell, one, p in zip(names, cells, found, _p(cells), strict=True):
        if one is None:
            table.add_row(name, Text(cell.status, style="yellow"))
        else:
            figures = [shown(one.metrics[key]) for key, shown in FIGURES.items()] + ([p] if compared else [])
            paper = () if reference is None else _paper(reference, cell)
            table.add_row(name, *figures, *paper, _claimed(one.metrics), _certified(one.metrics))
    return table


def worst_forgetting(
    names: Sequence[str], cells: Sequence[Cell], found: Sequence[Mapping[str, Any] | None], reference: Reference | None
) -> Table | None:
    """Worst forgetting and learning curve area, where the paper prints them; None if it does not."""
    papers = [None if reference is None else reference.beside(cell.config) for cell in cells]
    if reference is None or not any(row is not None and row.worst is not None for row in papers):
        return None
    columns = ("", "worst forgetting", reference.title, "learning curve area", reference.title)
    table = Table(*columns, box=None, padding=(0, 2, 0, 0))
    _whole_words(table, *names)
    for name, metrics, row in zip(names, found, papers, strict=True):
        if metrics is not None:
            lca = (metrics["lca"] or {}).get("paper")
            table.add_row(
                name,
                of(metrics["worst_forgetting"]),
                "–" if row is None else printed(row.worst),
                "–" if lca is None else _number(lca["mean"], lca["std"]),
                "–" if row is None or row.lca is None else _number(*row.lca),
            )
    return table if table.row_count else None


def _number(mean: float | None, std: float | None) -> str:
    """A figure that is no share, with its spread over seeds."""
    return f"{mean:.3f}" + ("" if std is None or math.isnan(std) else f" ± {std:.3f}")


def _handovers(names: Sequence[str], found: Sequence[Mapping[str, Any] | None]) -> Table | None:
    """For cells with several learners in turn: the forgetting of each on its own tasks, and the drop where it began.

    Figs. 6 to 8 of Hassanpour et al. 2022, as one table; None if no cell has several learners.
    """
    table = Table(
        "learners in turn", "forgetting of each", "drop where the next begins", box=None, padding=(0, 2, 0, 0)
    )
    for name, metrics in zip(names, found, strict=True):
        learners = (metrics or {}).get("learners", ())
        if len(learners) > 1:
            each, later = ([of(learner[key]) for learner in learners] for key in ("forgetting", "drop"))
            table.add_row(name, ", ".join(each), ", ".join(later[1:]))
    return table if table.row_count else None


def _p(cells: Sequence[Cell]) -> list[str]:
    """The comparison of each cell with its baseline."""
    origins = {cell.baseline.name for cell in cells if cell.baseline is not None}

    def of_cell(cell: Cell) -> str:
        found = cell.compared
        if found is None:
            return "baseline" if cell.name in origins else "–"
        return " / ".join("–" if math.isnan(p) else f"{p:.2g}" for p in (found.tasks[-1], found.seeds))

    return [of_cell(cell) for cell in cells]


def _claimed(metrics: Mapping[str, Any]) -> str:
    claimed = metrics["epsilon_claimed"]
    return "–" if claimed is None else f"{claimed['per_task']:.3g} / {claimed['total']:.3g}"


def _certified(metrics: Mapping[str, Any]) -> Text:
    certified = metrics["epsilon_certified"]
    if certified is None:
        return Text("none", style="bold red")
    return Text(f"{certified['per_record']:.3g} (a {certified['unit']}, δ = {certified['delta']:g})", style="green")
