"""One figure of a report: a Vega-Lite specification, made by Altair, and the rows that it draws."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt

from tacit.metrics import summarise
from tacit.report.charts.chart_theme import colour, dash
from tacit.report.reading.run_data import RunData

Row = tuple[Any, ...]
NAME = 48
"""Characters of a run's name in a chart; tables have the whole name."""
ROWS = "rows"
"""The name of the data in a specification."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure.

    Attributes:
        kind: Its name, as `tacit plot` takes it.
        title: What it shows.
        summary: The same in a sentence or two, for those who cannot see it.
        spec: The Vega-Lite specification; its data is named `rows`.
        columns: The fields of the data.
        rows: The rows of all runs; the first field is the key of the run.
        headings: What the columns are called in a table for readers.
        panels: Whether each run has a panel of its own.
    """

    kind: str
    title: str
    summary: str
    spec: dict[str, Any]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    headings: tuple[str, ...]
    panels: bool = False
    note: str = field(default="")
    """What is not in it, and why."""

    @property
    def keys(self) -> list[str]:
        """The runs that have rows."""
        return list(dict.fromkeys(row[0] for row in self.rows))

    def whole(self, key: str | None = None) -> dict[str, Any]:
        """The specification with its data.

        Args:
            key: The run of a panel; None for all runs.

        Returns:
            A specification that can be drawn by itself.
        """
        chosen = [row for row in self.rows if key is None or row[0] == key]
        values = [dict(zip(self.columns, row, strict=True)) for row in chosen]
        return {**copy.deepcopy(self.spec), "datasets": {ROWS: values}}


def name_in_charts(runs: Sequence[RunData]) -> dict[str, str]:
    """The name of each run in charts: its label, shortened; unique.

    Args:
        runs: The runs.

    Returns:
        The names by the keys of the runs.
    """
    names: dict[str, str] = {}
    for run in runs:
        short = run.label if len(run.label) <= NAME else f"{run.label[: NAME - 1]}…"
        names[run.key] = short if short not in names.values() else f"{short[: NAME - 8]} [{run.key}]"
    return names


def data() -> alt.NamedData:
    """The data of every figure, which is given apart from its specification.

    Returns:
        A reference.
    """
    return alt.NamedData(name=ROWS)


def colours(runs: Sequence[RunData], rows: Sequence[Row], *, dashed: bool = False) -> dict[str, Any]:
    """The encoding of runs by colour, and by dashes where there are more runs than colours.

    Args:
        runs: All runs; a run's place among them sets its colour.
        rows: The rows of the figure; runs without a row are not in its legend.
        dashed: Also encode runs as dashes.

    Returns:
        Encodings for Altair.
    """
    drawn = {row[0] for row in rows}
    places = {name: place for place, (key, name) in enumerate(name_in_charts(runs).items()) if key in drawn}
    names = list(places)
    scale = alt.Scale(domain=names, range=[colour(place) for place in places.values()])
    found: dict[str, Any] = {"color": alt.Color("name:N").scale(scale)}
    if dashed:
        dashes = alt.Scale(domain=names, range=[dash(place) for place in places.values()])
        found["strokeDash"] = alt.StrokeDash("name:N").scale(dashes)
    return found


def whole_numbers(rows: Sequence[Row], column: int) -> list[int]:
    """At most eleven ticks for an axis of numbers of tasks, evenly spaced.

    Args:
        rows: The rows of the figure.
        column: Where the number is.

    Returns:
        The numbers.
    """
    first, last = (choose(int(row[column]) for row in rows) for choose in (min, max))
    return list(range(first, last + 1, max(1, -(-(last - first) // 10))))


def spread(values: Sequence[float]) -> tuple[float, float, float] | None:
    """The mean over seeds, and the mean minus and plus one standard deviation; None if it was not measured."""
    if not values or any(map(math.isnan, values)):
        return None
    found = summarise(values)
    around = 0.0 if math.isnan(found.std) else found.std
    return rounded(found.mean), rounded(found.mean - around), rounded(found.mean + around)


def rounded(value: float) -> float:
    """Six digits are more than a chart shows."""
    return float(f"{value:.6g}")
