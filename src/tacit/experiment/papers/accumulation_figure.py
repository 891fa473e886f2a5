"""The figure of `accumulation`: left the claimed totals as in the paper, right what is said of one record."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tacit.errors import ConfigError
from tacit.words import install

Kind = Literal["claimed", "certified"]
Scope = Literal["all tasks", "record of task 1"]
CLAIMED = ("#9a9a9a", "#c9a227")  # claims are dashed and pale: they are not certified
CERTIFIED = ("#1b7f5c", "#2f5d9b", "#7a4e9c", "#b5452c")


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One ε after a number of tasks."""

    tasks: int
    curve: str
    kind: Kind
    scope: Scope
    epsilon: float
    delta: float
    accountant: str
    """PLD or RDP, whichever is smaller (RDP answers alone where PLD is too large); or where a claim comes from."""


def draw(points: Sequence[CurvePoint], file: Path) -> None:
    """Draw the points to a PNG file."""
    figure = blank(file, (11, 4.6))
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    left, right = figure.subplots(1, 2)
    _lines(left, [point for point in points if point.scope == "all tasks"])
    _lines(right, [point for point in points if point.scope != "all tasks"])
    left.set_title("claimed in total, all tasks added up", fontsize=11)
    right.set_title("one record of the first task", fontsize=11)
    delta = points[0].delta
    for axes in (left, right):
        axes.set_xlabel("tasks learned")
        axes.set_ylabel(f"ε at δ = {delta:g}")
        axes.set_yscale("log")
        if max(point.tasks for point in points) > 40:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        low, high = axes.get_ylim()
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_ylim(low, high * (high / low) ** 0.45)  # room for the legend above the curves
        dressed(axes)
        axes.legend(loc="upper left", fontsize=8.5, edgecolor="none", framealpha=1.0)
    figure.savefig(file, dpi=160)


def blank(file: Path, size: tuple[float, float]) -> Any:
    """An empty figure, where matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            f"{file.name} was not drawn because matplotlib is missing; the numbers are written, "
            f"and {install('plots')} brings it"
        ) from None
    return Figure(figsize=size, layout="constrained")


def dressed(axes: Any) -> None:
    """A pale grid behind the curves, and no frame."""
    axes.grid(True, which="major", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _lines(axes: Any, points: Sequence[CurvePoint]) -> None:
    curves: dict[tuple[str, str, str], list[CurvePoint]] = {}
    for point in points:
        source = point.accountant if point.kind == "claimed" else ""
        curves.setdefault((point.kind, point.curve, source), []).append(point)
    names = list(dict.fromkeys((kind, curve) for kind, curve, _ in curves))
    claims = [name for name in names if name[0] == "claimed"]
    bounds = [name for name in names if name[0] == "certified"]
    several = len({source for kind, _, source in curves if kind == "claimed"}) > 1
    for (kind, curve, source), found in curves.items():
        x, y = [point.tasks for point in found], [point.epsilon for point in found]
        if kind == "claimed":
            style = {"color": CLAIMED[claims.index((kind, curve)) % len(CLAIMED)], "linestyle": "--"}
            if source.startswith("drawn"):
                style["linestyle"] = ":"
            axes.plot(x, y, label=f"claimed: {curve}" + (f" ({source})" if several else ""), linewidth=1.8, **style)
        else:
            color = CERTIFIED[bounds.index((kind, curve)) % len(CERTIFIED)]
            axes.plot(x, y, label=f"certified: {curve}", color=color, marker="o", markersize=3.5, linewidth=1.8)
