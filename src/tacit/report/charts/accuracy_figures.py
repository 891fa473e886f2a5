"""Figures of accuracy: over tasks, forgetting over tasks, the accuracy matrix, and under attack."""

import math
from collections.abc import Callable, Sequence

import altair as alt

from tacit.experiment.sweeps.attack_table import NAMES
from tacit.report.charts.chart_theme import HEAT
from tacit.report.charts.figure import Figure, Row, colours, data, name_in_charts, rounded, spread, whole_numbers
from tacit.report.reading.run_data import Curves, RunData

HEIGHT = 300
SQUARE = 30
"""Tasks of the largest matrix that is drawn; of a longer one, the last ones."""


def accuracy(runs: Sequence[RunData]) -> Figure | None:
    """Average accuracy over tasks, with a band of one standard deviation over seeds.

    Args:
        runs: The runs.

    Returns:
        The figure; None if no run has such a curve.
    """
    summary = (
        "After each task, the mean accuracy on the tasks learned so far. The band is one standard deviation over seeds."
    )
    return _curves(runs, "accuracy", "Average accuracy", summary, lambda run: run.average_curves, "average accuracy")


def forgetting(runs: Sequence[RunData]) -> Figure | None:
    """Forgetting over tasks, with a band of one standard deviation over seeds.

    Args:
        runs: The runs.

    Returns:
        The figure; None if no run has such a curve.
    """
    summary = (
        "After each task, how far accuracy on earlier tasks fell below its best: 0 is perfect memory. The band is one "
        "standard deviation over seeds."
    )
    return _curves(runs, "forgetting", "Forgetting", summary, lambda run: run.forgetting_curves, "forgetting")


def matrix(runs: Sequence[RunData]) -> Figure | None:
    """The accuracy on each task after each task, as a heat map for each run.

    Args:
        runs: The runs.

    Returns:
        The figure; None if no run has measured it.
    """
    rows: list[Row] = []
    longest = 0
    for run in runs:
        first = max(0, len(run.matrix) - SQUARE)
        longest = max(longest, len(run.matrix) - first)
        for after in range(first, len(run.matrix)):
            for on in range(first, after + 1):
                if not math.isnan(value := run.matrix[after, on]):
                    place = run.first_task
                    rows.append((run.key, place + after, place + on, round(float(value), 4)))
    if not rows:
        return None
    numbers = longest <= 10
    base = alt.Chart(data()).encode(
        x=alt.X("on:O").title("accuracy on task").axis(labelAngle=0, labelOverlap=True, domain=False),
        y=alt.Y("after:O").title("after task").axis(labelOverlap=True, grid=False),
    )
    cells = base.mark_rect(cornerRadius=3, stroke=None).encode(
        color=alt.Color("accuracy:Q").scale(domain=[0, 1], range=list(HEAT), clamp=True).legend(None),
        tooltip=[
            alt.Tooltip("after:O", title="after task"),
            alt.Tooltip("on:O", title="on task"),
            alt.Tooltip("accuracy:Q", format=".1%"),
        ],
    )
    text = base.mark_text(fontSize=12).encode(
        text=alt.Text("accuracy:Q", format=".0%"),
        color=alt.condition("datum.accuracy > 0.5", alt.value("white"), alt.value("#1c2127")),
    )
    chart = alt.layer(cells, text) if numbers else alt.layer(cells)
    step = 34 if longest <= 10 else 16
    return Figure(
        kind="matrix",
        title="Accuracy on each task after each task",
        summary="A row for each moment, a column for each task, the mean over seeds; darker is more accurate. A column "
        "that fades downwards is a task that is being forgotten.",
        spec=chart.properties(width="container", height=step * longest).to_dict(),
        columns=("run", "after", "on", "accuracy"),
        headings=("run", "after task", "on task", "accuracy"),
        rows=tuple(rows),
        panels=True,
    )


def attacks(runs: Sequence[RunData]) -> Figure | None:
    """Average accuracy after the last task, clean and under each attack.

    Args:
        runs: The runs.

    Returns:
        The figure; None if no run was attacked.
    """
    names, rows = name_in_charts(runs), list[Row]()
    for run in runs:
        for column in NAMES:
            if run.attacks is not None and column in run.attacks.columns:
                found = run.attacks.last(column)
                if not math.isnan(found.mean):
                    around = 0.0 if math.isnan(found.std) else found.std
                    low, high = rounded(found.mean - around), rounded(found.mean + around)
                    rows.append((run.key, names[run.key], NAMES[column], rounded(found.mean), low, high))
    if not rows:
        return None
    base = alt.Chart(data()).encode(
        x=alt.X("attack:N").title(None).sort(list(NAMES.values())).axis(labelAngle=0, labelFontSize=12),
        xOffset=alt.XOffset("name:N").sort([names[run.key] for run in runs]),
    )
    bars = base.mark_bar(cornerRadiusEnd=3).encode(
        y=alt.Y("accuracy:Q").title("average accuracy").axis(format="%", tickCount=5),
        tooltip=["name:N", "attack:N", alt.Tooltip("accuracy:Q", format=".1%")],
        color=colours(runs, rows)["color"],
    )
    whiskers = base.mark_rule().encode(y="low:Q", y2="high:Q")
    return Figure(
        kind="attacks",
        title="Accuracy under attack",
        summary="The average accuracy after the last task on clean inputs, under each attack, and certified.",
        spec=alt.layer(bars, whiskers).properties(width="container", height=HEIGHT).to_dict(),
        columns=("run", "name", "attack", "accuracy", "low", "high"),
        headings=("run", "name", "attack", "accuracy", "mean − std", "mean + std"),
        rows=tuple(rows),
    )


def _curves(
    runs: Sequence[RunData], kind: str, title: str, summary: str, of: Callable[[RunData], Curves], axis: str
) -> Figure | None:
    names, rows = name_in_charts(runs), list[Row]()
    for run in runs:
        for place, tasks in enumerate(run.points):
            if (point := spread([curve[place] for curve in of(run) if place < len(curve)])) is not None:
                rows.append((run.key, names[run.key], tasks, *point))
    if not rows:
        return None
    base = alt.Chart(data()).encode(
        x=alt.X("tasks:Q")
        .title("tasks learned")
        .axis(values=whole_numbers(rows, 2), format="d")
        .scale(nice=False, padding=8, zero=False),
    )
    encoded = colours(runs, rows, dashed=True)
    band = base.mark_area().encode(y="low:Q", y2="high:Q", color=encoded["color"])
    line = base.mark_line().encode(y=alt.Y("mean:Q").title(axis).axis(format="%", tickCount=5), **encoded)
    points = base.mark_point(filled=True, size=46, opacity=1).encode(
        y="mean:Q",
        color=encoded["color"],
        tooltip=["name:N", alt.Tooltip("tasks:Q"), alt.Tooltip("mean:Q", title=axis, format=".1%")],
    )
    layers = [band, line, points] if len(rows) <= 400 else [band, line]
    return Figure(
        kind=kind,
        title=title,
        summary=summary,
        spec=alt.layer(*layers).properties(width="container", height=HEIGHT).to_dict(),
        columns=("run", "name", "tasks", "mean", "low", "high"),
        headings=("run", "name", "tasks learned", axis, "mean − std", "mean + std"),
        rows=tuple(rows),
    )
