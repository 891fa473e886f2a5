"""`plot(folders, "accuracy", "curve.pdf")`: one figure of some runs as a file, for a paper."""

from collections.abc import Sequence
from pathlib import Path

from tacit.report.charts.figures import figure_of
from tacit.report.charts.image_files import write_figure
from tacit.report.reading.run_folders import read_folders


def plot(folders: Sequence[str | Path], kind: str, out: str | Path) -> Path:
    """Draw one figure of some runs.

    Args:
        folders: Folders of runs, sweeps or endless streams.
        kind: "accuracy", "forgetting", "matrix", "epsilon", "budget", "tradeoff" or "attacks".
        out: The file; its suffix (.png, .svg or .pdf) decides the format.

    Returns:
        The path of the file.

    Raises:
        ConfigError: A folder has no run, there is no such figure or no data for it, or the file cannot be written.
    """
    found = read_folders(folders)
    return write_figure(figure_of(kind, found.runs), found.runs, out)
