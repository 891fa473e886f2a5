"""What `accounting` found: sentences, then tables with printed, formula and certified one below the other, and when a
learner would halt."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Values = Mapping[str, Any]


def show(found: Values, console: Console) -> None:
    """Print what `accounting.run` returned: where budgets are printed, and after the last task."""
    for note in found["notes"]:
        console.print(note)
    for note in found["words"]:
        console.print(note, style="dim")
    console.print()
    points: Sequence[Values] = found["points"]
    halting = [("epsilon", p["at"], p["tasks"]) for p in points if p["reading"] == "printed"]
    last = [(p["of"], p["at"], found["tasks"]) for p in points if p["reading"] != "printed"]
    for of, at, tasks in dict.fromkeys((*halting, *last)):
        mine = [p for p in points if (p["of"], p["at"], p["tasks"]) == (of, at, tasks)]
        if any(p["reading"] == "certified" for p in mine):
            what = f"ε at δ = {at:g}" if of == "epsilon" else f"δ at ε = {at:g}"
            console.print(_table(f"{what}, after {tasks} tasks", mine, found["halts"]))
            console.print()
    console.print("\n".join(f"wrote {file}" for file in found["files"]))


def _table(title: str, points: Sequence[Values], halts: Sequence[Values]) -> Table:
    """One line a curve, one column for each data set and noise."""
    columns = sorted({(p["data"], p["noise"]) for p in points if p["reading"] != "printed"})
    heads = [f"{data}\nσ = {noise:g}" for data, noise in columns]
    table = Table("", *heads, title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in dict.fromkeys((p["reading"], p["curve"]) for p in points):
        values = {(p["data"], p["noise"]): p["value"] for p in points if (p["reading"], p["curve"]) == name}
        table.add_row(": ".join(name), *(_number(values.get(column)) for column in columns))
        if name[0] == "printed":
            said = {(h["data"], h["noise"], h["budget"]): h["formula"] for h in halts}
            ends = [said.get((*column, values.get(column))) for column in columns]
            table.add_row("formula: tasks within that GPB", *("–" if end is None else f"{end:,}" for end in ends))
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if value else "< 1e-300"
