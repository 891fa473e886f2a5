"""The figure of `accounting`: above δ at one ε, below ε at one δ, for both data sets; a colour for each noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tacit.experiment.papers.accumulation_figure import CERTIFIED, blank, dressed

Reading = Literal["printed", "formula", "certified"]
SMALLEST = 1e-30
"""Where the axis of δ ends: what is smaller lies on it."""
BENCHMARKS = {"PMNIST": "permuted MNIST", "SCIFAR": "split CIFAR-100"}
"""The paper's short names of its benchmarks."""
STYLES: Mapping[str, Sequence[Mapping[str, Any] | None]] = {
    "printed": [{"linestyle": "", "marker": "*", "markersize": 9}],
    "formula": [{"linestyle": "--", "alpha": 0.6}, None, {"linestyle": ":", "alpha": 0.8}],
    "certified": [
        {"linestyle": "-", "linewidth": 2.2},
        {"linestyle": "-", "linewidth": 1.0, "marker": "o", "markersize": 3},
        {"linestyle": "-.", "linewidth": 1.0},
        None,
        {"linestyle": "-", "linewidth": 1.0, "marker": "x", "markersize": 5},
    ],
}
"""Of the curves of each reading, in order; None: not drawn, it is in the table."""


@dataclass(frozen=True, kw_only=True)
class AccountingPoint:
    """One ε at a δ, or one δ at an ε, after a number of tasks."""

    data: str
    noise: float
    tasks: int
    reading: Reading
    curve: str
    of: Literal["epsilon", "delta"]
    at: float
    """The δ of an ε, or the ε of a δ."""
    value: float
    accountant: str


def draw(points: Sequence[AccountingPoint], file: Path) -> None:
    """Draw the points to a PNG file: ε at the first δ that there is (printed budgets have their own)."""
    figure = blank(file, (13, 9.5))
    data = list(dict.fromkeys(point.data for point in points))
    first = {
        of: next(point.at for point in points if point.of == of and point.reading != "printed")
        for of in ("delta", "epsilon")
    }
    for row, (of, at) in zip(figure.subplots(2, len(data), squeeze=False), first.items(), strict=True):
        for axes, name in zip(row, data, strict=True):
            mine = [point for point in points if (point.data, point.of) == (name, of)]
            _curves(axes, [point for point in mine if point.at == at or point.reading == "printed"])
            what = f"δ at ε = {at:g} (smallest: {SMALLEST:g} or less)" if of == "delta" else f"ε at δ = {at:g}"
            axes.set_title(f"{BENCHMARKS.get(name, name)}: {what}", fontsize=11)
            axes.set_xlabel("tasks learned")
            axes.set_yscale("log")
            dressed(axes)
    lines, names = axes.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=2, fontsize=9, edgecolor="none")
    figure.savefig(file, dpi=140)


def _curves(axes: Any, points: Sequence[AccountingPoint]) -> None:
    noises = sorted({point.noise for point in points})
    curves: dict[tuple[str, str, float], list[AccountingPoint]] = {}
    for point in points:
        curves.setdefault((point.reading, point.curve, point.noise), []).append(point)
    colors = {noise: CERTIFIED[place % len(CERTIFIED)] for place, noise in enumerate(noises)}
    for noise, color in colors.items():
        axes.plot([], [], color=color, linewidth=4, label=f"σ = {noise:g}")
    for (reading, curve, noise), found in curves.items():
        of_reading = list(dict.fromkeys(name for kind, name, _ in curves if kind == reading))
        style = STYLES[reading][of_reading.index(curve)]
        if style is None:
            continue
        if noise == noises[0]:
            axes.plot([], [], color="#444444", label=f"{reading}: {curve}", **style)
        x, y = [point.tasks for point in found], [max(point.value, SMALLEST) for point in found]
        axes.plot(x, y, color=colors[noise], **style)
