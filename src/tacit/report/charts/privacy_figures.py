"""Figures of privacy: ε over tasks, what each block has left, and accuracy against ε.

What a block has left follows from the plans that were charged to it, which are public. The individual meters of records
are secret; no figure reads them.
"""

from collections.abc import Sequence

import altair as alt

from tacit.report.charts.accuracy_figures import HEIGHT
from tacit.report.charts.chart_theme import PALETTE
from tacit.report.charts.figure import Figure, Row, colours, data, name_in_charts, rounded, spread, whole_numbers
from tacit.report.reading.run_data import RunData

CERTIFIED = "certified, a {unit}"
EVERY = "certified, in every task"
CLAIMED = "claimed by the paper"
LONG = 18
"""Characters of a task's name, from which on it is shortened."""
BLOCKS = 40
"""Blocks of the budget figure; of a longer stream, the last ones."""


def epsilon(runs: Sequence[RunData]) -> Figure | None:
    """ε certified and ε claimed, after each task.

    Args:
        runs: The runs.

    Returns:
        The figure; None if no run has a finite ε.
    """
    names, rows = name_in_charts(runs), list[Row]()
    unit = next((str(run.certified["unit"]) for run in runs if run.certified), "record")
    certified = CERTIFIED.format(unit=unit)
    for run in runs:
        for step in run.privacy:
            for kind, value in ((certified, step.certified), (EVERY, step.every_task), (CLAIMED, step.claimed)):
                if value is not None:
                    rows.append((run.key, names[run.key], step.tasks, kind, rounded(value)))
    if not rows:
        return None
    kinds = [kind for kind in (certified, EVERY, CLAIMED) if any(row[3] == kind for row in rows)]
    dashes = dict(zip((certified, EVERY, CLAIMED), ([1, 0], [6, 4], [2, 3]), strict=True))
    base = alt.Chart(data()).encode(
        x=alt.X("tasks:Q")
        .title("tasks learned")
        .axis(values=whole_numbers(rows, 2), format="d")
        .scale(nice=False, padding=8, zero=False),
        y=alt.Y("epsilon:Q").title("ε").axis(tickCount=5).scale(zero=True),
        color=colours(runs, rows)["color"],
        detail="kind:N",
    )
    line = base.mark_line().encode(
        strokeDash=alt.StrokeDash("kind:N")
        .scale(domain=kinds, range=[dashes[kind] for kind in kinds])
        .legend(symbolStrokeColor="gray", columns=1, labelLimit=200),
    )
    points = base.mark_point(filled=True, size=46, opacity=1).encode(
        tooltip=["name:N", alt.Tooltip("kind:N", title="ε"), "tasks:Q", alt.Tooltip("epsilon:Q", format=".4g")]
    )
    absent = [run.label for run in runs if not run.private]
    return Figure(
        kind="epsilon",
        title="ε certified and claimed",
        summary="The privacy loss after each task. What is certified comes from the ledger; a claim is a paper's own "
        "formula and is not certified.",
        spec=alt.layer(line, points).properties(width="container", height=HEIGHT).to_dict(),
        columns=("run", "name", "tasks", "kind", "epsilon"),
        headings=("run", "name", "tasks learned", "bound", "ε"),
        rows=tuple(rows),
        note=_without("No finite ε is certified", absent),
    )


def budget(runs: Sequence[RunData]) -> Figure | None:
    """What the block of each task was charged by its public plans, and what it has left, as a panel for each run.

    Args:
        runs: The runs.

    Returns:
        The figure; None if no run has a budget.
    """
    rows: list[Row] = []
    for run in runs:
        for place, block in list(enumerate(run.blocks))[-BLOCKS:]:
            if run.budget is not None and block.spent is not None:
                left = max(0.0, run.budget - block.spent)
                name = block.task if len(block.task) <= LONG else f"{block.task[: LONG - 5]}… {place + 1}"
                shown = f"{left:.2g} left" if left else "nothing left"
                rows.append((run.key, name, "charged", rounded(block.spent), ""))
                rows.append((run.key, name, "left", float(f"{left:.3g}"), shown))
    if not rows:
        return None
    longest = max(sum(row[0] == key for row in rows) for key in dict.fromkeys(row[0] for row in rows)) // 2
    base = alt.Chart(data()).encode(
        y=alt.Y("task:N").title("block of task").sort(None).axis(grid=False, labelLimit=110)
    )
    bars = base.mark_bar(cornerRadius=2).encode(
        x=alt.X("epsilon:Q").title("ε").axis(tickCount=4, grid=True),
        color=alt.Color("part:N")
        .scale(domain=["charged", "left"], range=[PALETTE[0], "#7d8a97"])
        .legend(symbolType="square", symbolStrokeWidth=0),
        tooltip=[alt.Tooltip("task:N"), "part:N", alt.Tooltip("epsilon:Q", title="ε", format=".4g")],
    )
    most = max(run.budget for run in runs if run.budget is not None)
    text = base.mark_text(align="right", dx=-6, color="white", fontSize=11).encode(x=alt.datum(most), text="words:N")
    return Figure(
        kind="budget",
        title="Budget left of each block",
        summary="For the records of each task, the ε that their public plans were charged, all planned reads included, "
        "and what is left of the budget.",
        spec=alt.layer(bars, text)
        .properties(width="container", height=longest * (26 if longest <= 12 else 14))
        .to_dict(),
        columns=("run", "task", "part", "epsilon", "words"),
        headings=("run", "block of task", "part", "ε", "in words"),
        rows=tuple(rows),
        panels=True,
        note="Budgets that the learner tracks for single records are secret and are not shown.",
    )


def tradeoff(runs: Sequence[RunData]) -> Figure | None:
    """Average accuracy against the certified ε, with the spread over seeds; runs of one method are joined.

    Args:
        runs: The runs.

    Returns:
        The figure; None if there are not two runs with an accuracy, one of them private.
    """
    names, rows = name_in_charts(runs), list[Row]()
    measured = [run for run in runs if run.average_accuracy is not None]
    private = [run for run in measured if run.epsilon is not None]
    for run in measured:
        found = run.average_accuracy
        assert found is not None
        point = spread(run.per_seed) or (rounded(found.mean),) * 3
        eps = None if run.epsilon is None else rounded(run.epsilon)
        rows.append((run.key, names[run.key], run.method[:48], eps, *point))
    if len(measured) < 2 or not private:
        return None
    values = [run.epsilon for run in private if run.epsilon]
    scale = _scale(values)
    finite = alt.Chart(data()).transform_filter("isValid(datum.epsilon)")
    x = alt.X("epsilon:Q").title("certified ε").scale(scale).axis(tickCount=6, grid=True)
    color = colours(runs, rows)["color"].legend(symbolType="circle", symbolStrokeWidth=0, symbolSize=90)
    joined = finite.mark_line(strokeWidth=1.5, opacity=0.5, color="#8a94a0").encode(x=x, y="mean:Q", detail="method:N")
    bars = finite.mark_rule(strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q", color=color)
    points = finite.mark_point(filled=True, size=110, opacity=1).encode(
        x=x,
        y=alt.Y("mean:Q").title("average accuracy").axis(format="%", tickCount=5).scale(zero=False, padding=16),
        color=color,
        tooltip=["name:N", alt.Tooltip("epsilon:Q", title="ε", format=".4g"), alt.Tooltip("mean:Q", format=".1%")],
    )
    without = alt.Chart(data()).transform_filter("!isValid(datum.epsilon)")
    rules = without.mark_rule(strokeDash=[5, 4], strokeWidth=2).encode(y="mean:Q", color=color, tooltip=["name:N"])
    absent = [run.label for run in measured if not run.private]
    return Figure(
        kind="tradeoff",
        title="Accuracy against privacy",
        summary="Each point is a run: to the left more privacy, higher up more accuracy. Bars are one standard "
        "deviation over seeds.",
        spec=alt.layer(rules, joined, bars, points).properties(width="container", height=HEIGHT).to_dict(),
        columns=("run", "name", "method", "epsilon", "mean", "low", "high"),
        headings=("run", "name", "method", "certified ε", "average accuracy", "mean − std", "mean + std"),
        rows=tuple(rows),
        note=_without("Dashed: no finite ε is certified", absent),
    )


def _scale(values: Sequence[float]) -> alt.Scale:
    """Of ε: logarithmic where the values differ by a factor, and from 0 where they are all alike."""
    if values and max(values) / min(values) > 8:
        return alt.Scale(type="log", padding=24)
    alike = not values or max(values) / min(values) < 1.2
    return (
        alt.Scale(domain=[0, 1.5 * max(values, default=1.0)], nice=True) if alike else alt.Scale(zero=False, padding=40)
    )


def _without(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(name if len(name) <= 60 else f"{name[:59]}…" for name in names[:5])
    return f"{what} for {shown}{f' and {len(names) - 5} others' if len(names) > 5 else ''}."
