"""The figures of a folder as pictures in memory."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tacit.report.charts.figures import figures
from tacit.report.charts.image_files import write_figure
from tacit.report.reading.run_folders import read_folders


def drawn(folder: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Draw every figure that a folder has data for.

    Args:
        folder: The folder of a run, a sweep or an endless stream.

    Yields:
        The kind, a PNG and an SVG.
    """
    found = read_folders([folder])
    with tempfile.TemporaryDirectory() as place:
        for kind, figure in figures(found.runs).items():
            files = [write_figure(figure, found.runs, Path(place) / f"{kind}{suffix}") for suffix in (".png", ".svg")]
            yield kind, files[0].read_bytes(), files[1].read_bytes()
