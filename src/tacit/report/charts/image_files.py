"""One figure as a file: PNG, SVG or PDF, drawn by vl-convert without a network."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.report.charts.chart_theme import theme
from tacit.report.charts.figure import Figure
from tacit.report.reading.run_data import RunData

SUFFIXES = (".png", ".svg", ".pdf")
SIZE = {"width": 460, "height": 280}
SCALE = 3.0
"""Pixels of a PNG per unit of a chart."""


def write_figure(figure: Figure, runs: Sequence[RunData], path: str | Path) -> Path:
    """Draw a figure into a file. Of a figure with a panel for each run, the panels are side by side.

    Args:
        figure: The figure.
        runs: The runs, for the titles of panels.
        path: The file; its suffix decides the format.

    Returns:
        The path.

    Raises:
        ConfigError: The suffix is not one of .png, .svg and .pdf, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{str(path)!r} has no known suffix; use one of {', '.join(SUFFIXES)}")
    import vl_convert

    config = theme()
    longest = max((len(row[1]) for row in figure.rows if figure.columns[1] == "name"), default=8)
    columns = max(1, min(3, SIZE["width"] // (7 * longest + 45)))  # so that legends are not wider than the chart
    config["legend"] |= {"columns": columns, "labelLimit": SIZE["width"] // columns - 45}
    spec = json.dumps({**_fixed(figure, runs), "config": config})
    suffix = path.suffix.lower()
    drawn: str | bytes
    if suffix == ".svg":
        drawn = vl_convert.vegalite_to_svg(spec)
    elif suffix == ".pdf":
        drawn = vl_convert.vegalite_to_pdf(spec)
    else:
        drawn = vl_convert.vegalite_to_png(spec, scale=SCALE)
    try:
        path.write_bytes(drawn.encode() if isinstance(drawn, str) else drawn)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; give another file with --out") from None
    return path


def _fixed(figure: Figure, runs: Sequence[RunData]) -> dict[str, Any]:
    """The specification at a fixed size, with the data, and the panels side by side."""
    if not figure.panels:
        return {**figure.whole(), "width": SIZE["width"]}
    names = {run.key: run.label for run in runs}
    panels = []
    for key in figure.keys:
        one = figure.whole(key)
        values = one.pop("datasets")["rows"]
        panels.append({**one, "width": SIZE["height"], "title": names.get(key, key)[:48], "data": {"values": values}})
    for panel in panels:
        for unwanted in ("config", "$schema"):
            panel.pop(unwanted, None)
    schema = figure.spec.get("$schema")
    return {"$schema": schema, "concat": panels, "columns": 3, "spacing": 40} if len(panels) > 1 else {
        "$schema": schema, **panels[0]
    }  # fmt: skip
