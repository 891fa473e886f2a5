"""The figure of a sweep: average accuracy over tasks, and the final figures beside those that the paper printed.

Curves are in one panel for each method, or for each value of its first setting where a method has many cells; final
figures are in one row for each cell, named once.
"""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.experiment.papers.accumulation_figure import CERTIFIED, blank, dressed
from tacit.experiment.runs import run_summary
from tacit.experiment.sweeps.cell import DONE, Cell
from tacit.experiment.sweeps.comparison import labels
from tacit.experiment.sweeps.reference import reference as reference_of

Shows = Literal["accuracy", "p", "records", "attacks"]
Named = Sequence[tuple[str, Cell]]
Curves = Mapping[str, np.ndarray]
"""Rows are seeds and columns are tasks."""
COLORS = (*CERTIFIED, "#3b9dbd", "#c9a227", "#6b6b6b", "#d27ab0", "#8a5a2b", "#23395d")
LINES = ("-", "--", ":", "-.")
IN_PANEL = 8
"""The most curves in a panel, where settings can tell them apart."""
ACROSS = 3
PANEL_HEIGHT, ROW_HEIGHT, TITLE_HEIGHT = 3.3, 0.24, 0.5


def draw(cells: Sequence[Cell], file: Path, shows: Shows, *, title: str, reference: str | None) -> Path | None:
    """Draw the finished cells of a sweep.

    Args:
        cells: The cells; those without results are left out.
        file: The PNG file.
        shows: accuracy: over tasks, with the final accuracy and forgetting beside the paper's. p: the p values of
            comparisons with the baseline. records: the expected numbers of retired records. attacks: accuracy under
            each attack.
        title: The title.
        reference: The paper's table, if the sweep has one.

    Returns:
        The file, or None if there is nothing to draw yet.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    names = labels([cell.changes for cell in cells])
    done = [(name, cell) for name, cell in zip(names, cells, strict=True) if cell.status == DONE]
    made = SHEETS[shows](done, reference)
    if made is None:
        return None
    (width, height), paint = made
    figure = blank(file, (width, height + TITLE_HEIGHT))
    figure.suptitle(title, fontsize=12)
    paint(figure)
    figure.savefig(file, dpi=130)
    return file


Sheet = tuple[tuple[float, float], Callable[[Any], None]]
"""The size in inches, and what paints it."""


def _style(place: int) -> dict[str, Any]:
    return {"color": COLORS[place % len(COLORS)], "linestyle": LINES[place // len(COLORS) % len(LINES)]}


def panels(names: Sequence[str]) -> dict[str, list[str]]:
    """Names by the method that they begin with, and by its first settings as well where a method has many."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.split()[0], []).append(name)
    while (divided := _divided(found)) != found:
        found = divided
    return found


def _divided(found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The groups that are too large, divided by one more word of the names."""
    divided: dict[str, list[str]] = {}
    for group, own in found.items():
        more = len(group.split()) + 1
        if len(own) > IN_PANEL and max(len(name.split()) for name in own) > more:
            for name in own:
                divided.setdefault(" ".join(name.split()[:more]), []).append(name)
        else:
            divided[group] = own
    return divided


def _sheet_of_curves(curves: Curves, *, scale: float, ylabel: str, log: bool = False) -> Sheet:
    """One panel for each group of curves."""
    groups = panels(list(curves))
    across = min(ACROSS, len(groups))
    down = math.ceil(len(groups) / across)

    def paint(figure: Any) -> None:
        every = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
        for axes in every.flat[len(groups) :]:
            axes.remove()
        for axes, (group, names) in zip(every.flat, groups.items(), strict=False):
            for place, name in enumerate(names):
                rows = curves[name]
                first = 2 if log else 1
                x, mean = np.arange(first, rows.shape[1] + first), scale * rows.mean(0)
                own = name.removeprefix(group).strip() or ("default" if len(names) > 1 else group)
                axes.plot(x, mean, label=own, linewidth=1.8, marker="o", markersize=3, **_style(place))
                if len(rows) > 1:
                    spread = scale * rows.std(0, ddof=1)
                    color = _style(place)["color"]
                    axes.fill_between(x, mean - spread, mean + spread, color=color, alpha=0.15, linewidth=0)
            if log:
                axes.axhline(0.05, color="black", linewidth=0.8, linestyle=":")
                axes.set_yscale("log")
            axes.set_title(group, fontsize=10)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("tasks learned")
            if len(names) > 1:
                axes.legend(fontsize=7.5, edgecolor="none", framealpha=0.7)
            dressed(axes)
        for axes in every[:, 0]:
            axes.set_ylabel(ylabel)

    return (max(5.5, 4.2 * across), PANEL_HEIGHT * down), paint


def _accuracy(done: Named, reference: str | None) -> Sheet | None:
    rows = {name: np.array(run_summary.average_curves(cell.config, cell.folder)) for name, cell in done}
    rows = {name: one for name, one in rows.items() if one.size}
    if not rows:
        return None
    (width, top), curves = _sheet_of_curves(rows, scale=100, ylabel="average accuracy in %")
    colors = {name: _style(place)["color"] for own in panels(list(rows)).values() for place, name in enumerate(own)}
    bottom = 1.0 + ROW_HEIGHT * len(done)

    def final(axes: Any, key: str, what: str, of_paper: int) -> None:
        table = None if reference is None else reference_of(reference)
        printed = "printed in the paper"
        for place, (name, cell) in enumerate(done):
            found, y = cell.metrics.get(key) or {}, -place
            if found.get("mean") is not None:
                spread, color = 100 * (found.get("std") or 0.0), colors.get(name, "black")
                axes.errorbar(100 * found["mean"], y, xerr=spread, fmt="o", capsize=3, color=color)
            row = None if table is None else table.beside(cell.config)
            value = None if row is None else (row.aa, row.af)[of_paper]
            if value is not None and value[0] is not None:
                axes.plot(value[0], y, "D", markersize=7, markerfacecolor="none", color="black", label=printed)
                printed = "_again"
        axes.set_yticks([-place for place in range(len(done))], [name for name, _ in done], fontsize=8)
        axes.set_ylim(0.6 - len(done), 0.6)
        axes.set_xlabel(f"{what} in %, after the last task")
        if printed == "_again":
            axes.legend(fontsize=7.5, edgecolor="none", framealpha=0.7)
        dressed(axes)

    def paint(figure: Any) -> None:
        above, below = figure.subfigures(2, 1, height_ratios=(top, bottom))
        curves(above)
        left, right = below.subplots(1, 2, sharey=True)
        final(left, "average_accuracy", "average accuracy", 0)
        final(right, "forgetting", "forgetting", 1)

    return (max(width, 11.0), top + bottom), paint


def _p(done: Named, _reference: str | None) -> Sheet | None:
    found = {name: cell.compared for name, cell in done}
    curves = {name: np.array([one.tasks]) for name, one in found.items() if one is not None}
    if not curves:
        return None
    return _sheet_of_curves(curves, scale=1, ylabel="p (tasks are not independent)", log=True)


def _records(done: Named, _reference: str | None) -> Sheet | None:
    counts = [(name, cell.metrics.get("consumption")) for name, cell in done]
    known = [(name, one) for name, one in counts if one]
    if not known:
        return None

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        places = range(len(known))
        for key, offset, color in (("admitted", 0.2, COLORS[1]), ("retired", -0.2, COLORS[3])):
            axes.barh([offset - p for p in places], [one[key] for _, one in known], height=0.36, label=key, color=color)
        axes.set_yticks([-p for p in places], [name for name, _ in known], fontsize=8)
        axes.set_xlabel("records of the memory, expected, over all tasks")
        axes.legend(fontsize=8, edgecolor="none")
        dressed(axes)

    return (9.0, 1.5 + 2 * ROW_HEIGHT * len(known)), paint


def _attacks(done: Named, _reference: str | None) -> Sheet | None:
    known = [(name, cell.attacked) for name, cell in done if cell.attacked is not None]
    if not known:
        return None
    columns = list(dict.fromkeys(column for _, one in known for column in one.columns))
    names = [textwrap.fill(name.replace("_", " "), 18) for name, _ in known]

    def bars(axes: Any, title: str, value: Literal["last", "forgetting"]) -> None:
        width = 0.8 / len(columns)
        for number, column in enumerate(columns):
            found = [getattr(one, value)(column) if column in one.columns else None for _, one in known]
            axes.bar(
                [place + number * width for place in range(len(known))],
                [math.nan if one is None else 100 * one.mean for one in found],
                width=width,
                yerr=[0.0 if one is None or math.isnan(one.std) else 100 * one.std for one in found],
                label=column,
                color=COLORS[number % len(COLORS)],
            )
        axes.set_xticks([place + 0.4 - width / 2 for place in range(len(known))], names, fontsize=8)
        axes.set_ylabel(title)
        dressed(axes)

    def paint(figure: Any) -> None:
        above, below = figure.subplots(2, 1)
        bars(above, "average accuracy in %,\nafter the last task", "last")
        bars(below, "forgetting in %", "forgetting")
        lines, found = above.get_legend_handles_labels()
        figure.legend(lines, found, loc="outside lower center", ncols=6, fontsize=8, edgecolor="none")

    return (max(7.0, 1.9 * len(known)), 7.5), paint


SHEETS: Mapping[Shows, Callable[[Named, str | None], Sheet | None]] = {
    "accuracy": _accuracy,
    "p": _p,
    "records": _records,
    "attacks": _attacks,
}
