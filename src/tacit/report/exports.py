"""The results as files for other programs: CSV tables and a LaTeX table."""

import csv
import io
import math
from collections.abc import Iterable, Sequence

from tacit.metrics import Summary
from tacit.report.charts.figure import Figure
from tacit.report.reading.run_data import RunData
from tacit.report.sentences import clipped

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
}  # fmt: skip
HEAD = (
    "run", "method", "tasks", "seeds", "average_accuracy", "average_accuracy_std", "forgetting", "forgetting_std",
    "epsilon_certified", "epsilon_certified_all_tasks", "delta", "unit", "epsilon_claimed_per_task",
    "epsilon_claimed_total", "status",
)  # fmt: skip


def results_csv(runs: Sequence[RunData]) -> str:
    """One line for each run.

    Args:
        runs: The runs.

    Returns:
        CSV with a header.
    """

    def line(run: RunData) -> tuple[object, ...]:
        certified, claimed = run.certified or {}, run.claimed or {}
        return (
            run.label, run.method, run.points[-1] if run.points else len(run.tasks), len(run.seeds),
            *_parts(run.average_accuracy), *_parts(run.forgetting), *(certified.get(name, "") for name in
            ("per_record", "all_tasks", "delta", "unit")), claimed.get("per_task", ""), claimed.get("total", ""),
            run.status,
        )  # fmt: skip

    return _csv(HEAD, map(line, runs))


def figure_csv(figure: Figure, names: dict[str, str]) -> str:
    """The data of a figure.

    Args:
        figure: The figure.
        names: The full name of each run, by its key.

    Returns:
        CSV with a header.
    """
    columns = [place for place, column in enumerate(figure.columns) if column != "name"]
    head = [figure.columns[place] for place in columns]
    rows = ([names.get(row[0], row[0]) if place == 0 else row[place] for place in columns] for row in figure.rows)
    return _csv(head, rows)


def latex(runs: Sequence[RunData]) -> str:
    r"""A table for a paper, with the rules of the package booktabs.

    Args:
        runs: The runs.

    Returns:
        A `tabular` environment.
    """
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{tabular}{lccc}",
        r"\toprule",
        r"Run & Average accuracy (\%) & Forgetting (\%) & Certified $\varepsilon$ \\",
        r"\midrule",
    ]
    for run in runs:
        epsilon = "none" if run.epsilon is None else f"{run.epsilon:.3g}"
        name = "".join(_LATEX.get(letter, letter) for letter in clipped(run.label))
        lines.append(rf"{name} & {_cell(run.average_accuracy)} & {_cell(run.forgetting)} & {epsilon} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _parts(value: Summary | None) -> tuple[object, object]:
    return ("", "") if value is None else (value.mean, "" if math.isnan(value.std) else value.std)


def _cell(value: Summary | None) -> str:
    if value is None:
        return "--"
    return (
        f"${100 * value.mean:.1f}$" if math.isnan(value.std) else rf"${100 * value.mean:.1f} \pm {100 * value.std:.1f}$"
    )


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()
