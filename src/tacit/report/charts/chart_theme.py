"""The look of all charts: a palette that colour-blind readers can tell apart, and a light and a dark configuration."""

from typing import Any

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c6bb1", "#7f7f7f")
"""Of Okabe and Ito (2008), without its black and yellow, which do not show on both backgrounds."""
DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
"""After all colours are used once, lines are dashed."""
FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


def colour(place: int) -> str:
    """The colour of a run.

    Args:
        place: Its place among the runs.

    Returns:
        A hexadecimal colour.
    """
    return PALETTE[place % len(PALETTE)]


def dash(place: int) -> list[int]:
    """The dash of a run's lines.

    Args:
        place: Its place among the runs.

    Returns:
        Lengths of dashes and gaps.
    """
    return DASHES[place // len(PALETTE) % len(DASHES)]


def theme(*, dark: bool = False) -> dict[str, Any]:
    """The Vega-Lite configuration of all charts.

    Args:
        dark: For a dark background.

    Returns:
        The configuration.
    """
    ink, soft, line = ("#e6e8eb", "#a4acb6", "#343a43") if dark else ("#1c2127", "#5b6570", "#e4e7eb")
    return {
        "background": "transparent" if dark else "white",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "domain": False,
            "grid": True,
            "gridColor": line,
            "labelColor": soft,
            "labelFontSize": 12,
            "labelLimit": 140,
            "labelPadding": 6,
            "tickColor": line,
            "tickSize": 0,
            "titleColor": soft,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 10,
        },
        "axisX": {"grid": False, "domain": True, "domainColor": line},
        "legend": {
            "labelColor": ink,
            "labelFontSize": 12,
            "labelLimit": 200,
            "orient": "top",
            "columnPadding": 18,
            "columns": 3,
            "symbolStrokeWidth": 2.5,
            "symbolType": "stroke",
            "title": None,
            "offset": 14,
            "rowPadding": 4,
            "symbolSize": 260,
            "layout": {"top": {"direction": "vertical", "margin": 4, "anchor": "start"}},
        },
        "header": {"labelColor": ink, "titleColor": soft},
        "line": {"strokeWidth": 2.25, "strokeCap": "round"},
        "area": {"opacity": 0.16},
        "rule": {"color": soft},
        "text": {"color": ink, "fontSize": 12},
        "title": {"color": ink, "fontSize": 14, "fontWeight": 600, "anchor": "start"},
    }


HEAT = ("#f4f7fa", "#0b4f7d")
"""From the lowest to the highest accuracy."""
ABSENT = "#00000000"
"""Of cells without a measurement."""
