"""The table of results: a row for each run, with the values that it is sorted by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.report.charts.chart_theme import colour
from tacit.report.paired_tests import paired_tests
from tacit.report.reading.run_data import RunData
from tacit.report.sentences import spread


@dataclass(frozen=True, kw_only=True)
class TableCell:
    """What a cell shows, and the number that it is sorted by; None where there is none."""

    text: str
    sort: float | None


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One run.

    Attributes:
        key: Of the run.
        name: Of the run, in full.
        colour: Of the run in charts.
        status: How far it has come.
        cells: One for each of `COLUMNS`.
    """

    key: str
    name: str
    colour: str
    status: str
    cells: tuple[TableCell, ...]


COLUMNS = ("average accuracy", "forgetting", "ε certified", "ε claimed (task / total)", "p (seeds / tasks)")
NONE = "–"


def results(runs: Sequence[RunData]) -> tuple[TableRow, ...]:
    """The rows of the table, in the order of the runs.

    Args:
        runs: The runs.

    Returns:
        One row for each run.
    """
    tests = paired_tests(runs)
    origins = {test.against.key for test in tests.values()}
    rows = []
    for place, run in enumerate(runs):
        test = tests.get(run.key)
        p = "reference" if test is None and run.key in origins else NONE
        if test is not None:
            p = " / ".join(NONE if math.isnan(value) else f"{value:.2g}" for value in (test.seeds, test.tasks))
        accuracy, lost, claimed = run.average_accuracy, run.forgetting, run.claimed
        cells = (
            TableCell(text=spread(accuracy), sort=None if accuracy is None else accuracy.mean),
            TableCell(text=spread(lost), sort=None if lost is None else lost.mean),
            TableCell(text=certified(run), sort=run.epsilon),
            TableCell(
                text=NONE if claimed is None else f"{claimed['per_task']:.3g} / {claimed['total']:.3g}",
                sort=None if claimed is None else claimed["total"],
            ),
            TableCell(text=p, sort=None if test is None or math.isnan(test.seeds) else test.seeds),
        )
        rows.append(TableRow(key=run.key, name=run.label, colour=colour(place), status=run.status, cells=cells))
    return tuple(rows)


def certified(run: RunData) -> str:
    """The certified ε with its unit.

    Args:
        run: The run.

    Returns:
        Such as `2 (a record)`, or `none`.
    """
    return "none" if run.certified is None else f"{run.certified['per_record']:.3g} (a {run.certified['unit']})"
