"""The figures of a report by name."""

from collections.abc import Callable, Sequence

from tacit.errors import ConfigError
from tacit.report.charts.accuracy_figures import accuracy, attacks, forgetting, matrix
from tacit.report.charts.figure import Figure
from tacit.report.charts.privacy_figures import budget, epsilon, tradeoff
from tacit.report.reading.run_data import RunData
from tacit.words import nearest

FIGURES: dict[str, Callable[[Sequence[RunData]], Figure | None]] = {
    "accuracy": accuracy,
    "forgetting": forgetting,
    "matrix": matrix,
    "epsilon": epsilon,
    "budget": budget,
    "tradeoff": tradeoff,
    "attacks": attacks,
}


def figures(runs: Sequence[RunData]) -> dict[str, Figure]:
    """All figures that the runs have data for.

    Args:
        runs: The runs.

    Returns:
        The figures by their kind.
    """
    drawn = {kind: draw(runs) for kind, draw in FIGURES.items()}
    return {kind: figure for kind, figure in drawn.items() if figure is not None}


def figure_of(kind: str, runs: Sequence[RunData]) -> Figure:
    """One figure.

    Args:
        kind: Its name.
        runs: The runs.

    Returns:
        The figure.

    Raises:
        ConfigError: There is no such kind, or the runs have no data for it.
    """
    if kind not in FIGURES:
        raise ConfigError(f"there is no figure {kind!r}; {nearest(kind, FIGURES)}")
    found = FIGURES[kind](runs)
    if found is None:
        others = ", ".join(figures(runs)) or "none"
        raise ConfigError(f"the runs have no data for the figure {kind!r}; figures with data: {others}")
    return found
