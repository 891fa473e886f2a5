"""The figure of a sweep: average accuracy over tasks, and the final figures beside those that the paper printed."""

import math
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
COLORS = (*CERTIFIED, "#3b9dbd", "#c9a227", "#6b6b6b", "#d27ab0", "#8a5a2b", "#23395d")
LINES = ("-", "--", ":", "-.")


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
    panels = PANELS[shows](done, reference)
    if not panels:
        return None
    figure = blank(file, (5.2 * len(panels), max(4.6, 1.6 + 0.24 * len(done))))
    figure.suptitle(title, fontsize=12)
    for panel, axes in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
        panel(axes)
        dressed(axes)
    _legend(figure)
    figure.savefig(file, dpi=160)
    return file


Panel = Callable[[Any], None]


def _style(place: int) -> dict[str, Any]:
    return {"color": COLORS[place % len(COLORS)], "linestyle": LINES[place // len(COLORS) % len(LINES)]}


def _legend(figure: Any) -> None:
    found: dict[str, Any] = {}
    for axes in figure.axes:
        lines, names = axes.get_legend_handles_labels()
        found |= {name: line for name, line in zip(names, lines, strict=True) if name not in found}
    if found:
        columns = 1 if max(map(len, found)) > 60 else 2
        figure.legend(
            list(found.values()), list(found), loc="outside lower center", ncols=columns, fontsize=8, edgecolor="none"
        )


def _curves(axes: Any, curves: Mapping[str, np.ndarray], *, scale: float, ylabel: str) -> None:
    """Mean and standard deviation over seeds (rows) of each curve over tasks (columns)."""
    for place, (name, rows) in enumerate(curves.items()):
        x, mean = np.arange(1, rows.shape[1] + 1), scale * rows.mean(0)
        axes.plot(x, mean, label=name, linewidth=1.8, marker="o", markersize=3, **_style(place))
        if len(rows) > 1:
            spread = scale * rows.std(0, ddof=1)
            axes.fill_between(x, mean - spread, mean + spread, color=_style(place)["color"], alpha=0.15, linewidth=0)
    _over_tasks(axes, ylabel)


def _over_tasks(axes: Any, ylabel: str) -> None:
    axes.set_xlabel("tasks learned")
    axes.set_ylabel(ylabel)
    axes.xaxis.get_major_locator().set_params(integer=True)


def _accuracy(done: Named, reference: str | None) -> list[Panel]:
    rows = {name: np.array(run_summary.average_curves(cell.config, cell.folder)) for name, cell in done}
    rows = {name: one for name, one in rows.items() if one.size}
    if not rows:
        return []

    def over_tasks(axes: Any) -> None:
        _curves(axes, rows, scale=100, ylabel="average accuracy in %")

    def final(key: str, what: str, of_paper: int) -> Panel:
        def panel(axes: Any) -> None:
            table = None if reference is None else reference_of(reference)
            printed = "printed in the paper"
            for place, (name, cell) in enumerate(done):
                found, y = cell.metrics.get(key) or {}, -place
                if found.get("mean") is not None:
                    axes.errorbar(
                        100 * found["mean"], y, xerr=100 * (found.get("std") or 0.0), fmt="o", capsize=3,
                        color=_style(list(rows).index(name))["color"] if name in rows else "black",
                    )  # fmt: skip
                row = None if table is None else table.beside(cell.config)
                value = None if row is None else (row.aa, row.af)[of_paper]
                if value is not None and value[0] is not None:
                    axes.plot(value[0], y, "D", markersize=7, markerfacecolor="none", color="black", label=printed)
                    printed = "_again"
            axes.set_yticks([-place for place in range(len(done))], [name for name, _ in done], fontsize=8)
            axes.set_xlabel(f"{what} in %, after the last task")

        return panel

    return [
        over_tasks,
        final("average_accuracy", "average accuracy", 0),
        final("forgetting", "forgetting", 1),
    ]


def _p(done: Named, _reference: str | None) -> list[Panel]:
    found = {name: cell.compared for name, cell in done}
    curves = {name: np.array([one.tasks]) for name, one in found.items() if one is not None}
    if not curves:
        return []

    def panel(axes: Any) -> None:
        for place, (name, row) in enumerate(curves.items()):
            x = np.arange(2, row.shape[1] + 2)
            axes.plot(x, row[0], label=name, linewidth=1.8, marker="o", markersize=3, **_style(place))
        axes.axhline(0.05, color="black", linewidth=0.8, linestyle=":")
        axes.set_yscale("log")
        _over_tasks(axes, "p against the baseline (tasks are not independent samples)")

    return [panel]


def _records(done: Named, _reference: str | None) -> list[Panel]:
    counts = [(name, cell.metrics.get("consumption")) for name, cell in done]
    known = [(name, one) for name, one in counts if one]
    if not known:
        return []

    def panel(axes: Any) -> None:
        places = range(len(known))
        for key, offset, color in (("admitted", 0.2, COLORS[1]), ("retired", -0.2, COLORS[3])):
            axes.barh([offset - p for p in places], [one[key] for _, one in known], height=0.36, label=key, color=color)
        axes.set_yticks([-p for p in places], [name for name, _ in known], fontsize=8)
        axes.set_xlabel("records of the memory, expected, over all tasks")

    return [panel]


def _attacks(done: Named, _reference: str | None) -> list[Panel]:
    known = [(name, cell.attacked) for name, cell in done if cell.attacked is not None]
    if not known:
        return []
    columns = list(dict.fromkeys(column for _, one in known for column in one.columns))

    def bars(title: str, value: Literal["last", "forgetting"]) -> Panel:
        def panel(axes: Any) -> None:
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
            axes.set_xticks([place + 0.4 - width / 2 for place in range(len(known))], [name for name, _ in known])
            axes.tick_params(axis="x", labelrotation=20, labelsize=8)
            axes.set_ylabel(title)

        return panel

    return [bars("average accuracy in %, after the last task", "last"), bars("forgetting in %", "forgetting")]


PANELS: Mapping[Shows, Callable[[Named, str | None], list[Panel]]] = {
    "accuracy": _accuracy,
    "p": _p,
    "records": _records,
    "attacks": _attacks,
}
