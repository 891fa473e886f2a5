"""Draws docs/pictures/papers.png: the papers' figures beside those of docs/reproduction.md and docs/papers.

python bench/pictures.py [--out FILE]
"""

import argparse
from pathlib import Path
from typing import Any

import yaml

from tacit.experiment.papers.accumulation_figure import blank, dressed

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
KINDS = {
    "paper": ("#b9b9b9", "printed in the paper (claimed ε)"),
    "published": ("#b5452c", "retrained as published (no ε)"),
    "certified": ("#2f5d9b", "corrected and certified (ε)"),
    "successor": ("#1b7f5c", "another method, certified (ε)"),
    "free": ("#ffffff", "without privacy"),
}
ACCURACY = "average accuracy after the last task, %"
ROW, DPI = 0.36, 90


def main(out: Path) -> None:
    panels = yaml.safe_load((PICTURES / "papers.yaml").read_text())
    rows = [panels[start : start + 2] for start in range(0, len(panels), 2)]
    heights = [0.9 + ROW * max(len(panel["bars"]) for panel in row) for row in rows]
    figure = blank(out, (14, sum(heights) + 0.5))
    for every, row in zip(figure.subplots(len(rows), 2, height_ratios=heights), rows, strict=True):
        for axes, panel in zip(every, row, strict=True):
            paint(axes, panel["title"], panel["bars"], panel.get("label", ACCURACY))
    boxes = {}
    for axes in figure.axes:
        found, names = axes.get_legend_handles_labels()
        boxes |= dict(zip(names, found, strict=True))
    figure.legend(boxes.values(), boxes, loc="outside lower center", ncols=5, fontsize=9, edgecolor="none")
    figure.draw_without_rendering()
    right = max(needed(axes) for axes in figure.axes)
    for axes in figure.axes:
        axes.set_xlim(0, right)
    figure.savefig(out, dpi=DPI)


def needed(axes: Any) -> float:
    """The right end of the axis at which every text beside a bar is inside the frame."""
    width = axes.get_window_extent().width
    return max(text.get_position()[0] / (1 - text.get_window_extent().width / width) for text in axes.texts) + 1


def paint(axes: Any, title: str, bars: list[dict[str, Any]], label: str) -> None:
    """One bar for each figure, with its value and its ε beside it."""
    for place, bar in enumerate(bars):
        color, words = KINDS[bar["kind"]]
        value, std, note = bar.get("value"), bar.get("std"), bar.get("note")
        edge = "black" if bar["kind"] == "free" else color
        axes.barh(-place, value or 0, xerr=std, color=color, edgecolor=edge, height=0.7, label=words, capsize=3)
        number = "" if value is None else f"{value:.1f}" + ("" if std is None else f" ± {std}")
        axes.text(
            (value or 0) + (std or 0) + 1,
            -place,
            "  ".join(filter(None, (number, note))),
            va="center",
            fontsize=9,
            in_layout=False,
        )
    axes.set_yticks([-place for place in range(len(bars))], [bar["name"] for bar in bars], fontsize=9)
    axes.set_xticks(range(0, 101, 20))
    axes.set_title(title, fontsize=10.5, loc="left")
    axes.set_xlabel(label, fontsize=9)
    dressed(axes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURES / "papers.png")
    main(parser.parse_args().out)
