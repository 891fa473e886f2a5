"""Figures: what they draw, and files of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.report import plot
from tacit.report.charts.chart_theme import PALETTE, colour, dash, theme
from tacit.report.charts.figures import FIGURES, figure_of, figures
from tacit.report.reading.run_data import Collection, RunData, TaskLoss
from tacit.report.reading.run_folders import read_folders


@pytest.fixture(scope="module")
def found(trained: Path) -> Collection:
    return read_folders([trained])


def test_every_kind_is_drawn(found: Collection) -> None:
    drawn = figures(found.runs)
    assert list(drawn) == list(FIGURES)
    for figure in drawn.values():
        assert figure.spec["$schema"].endswith(".json") and "datasets" not in figure.spec
        assert figure.rows and all(len(row) == len(figure.columns) == len(figure.headings) for row in figure.rows)
        assert figure.title and figure.summary and set(figure.keys) <= {run.key for run in found.runs}


def test_a_band_is_one_standard_deviation(found: Collection) -> None:
    run = found.runs[1]
    rows = [row for row in figure_of("accuracy", found.runs).rows if row[0] == run.key]
    values = np.array(run.average_curves)
    for row, mean, std in zip(rows, values.mean(0), values.std(0, ddof=1), strict=True):
        assert row[3:] == pytest.approx((mean, mean - std, mean + std), abs=1e-5)


def test_the_matrix_has_what_was_measured(found: Collection) -> None:
    rows = [row for row in figure_of("matrix", found.runs).rows if row[0] == "r1"]
    assert [row[1:3] for row in rows] == [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]
    assert rows[-1][3] == pytest.approx(found.runs[1].matrix[2, 2], abs=1e-4)


def test_claimed_and_certified_are_apart(found: Collection) -> None:
    figure = figure_of("epsilon", found.runs)
    kinds = {row[3] for row in figure.rows if row[0] == "r1"}
    assert kinds == {"certified, a record", "certified, in every task", "claimed by the paper"}
    assert "r0" not in figure.keys and "AGEM" in figure.note


def test_a_block_has_left_what_its_plans_were_not_charged() -> None:
    run = RunData(key="r0", label="a", folder=Path(), budget=2.0, blocks=(TaskLoss(task="t", spent=1.25),))
    rows = figure_of("budget", [run]).rows
    assert [row[2:4] for row in rows] == [("charged", 1.25), ("left", 0.75)]
    with pytest.raises(ConfigError, match="no data for the figure 'budget'; figures with data: none"):
        figure_of("budget", [replace(run, budget=None)])


def test_runs_without_privacy_are_in_the_tradeoff_as_lines(found: Collection) -> None:
    by = {row[0]: row[3] for row in figure_of("tradeoff", found.runs).rows}
    assert by["r0"] is None and by["r1"] == pytest.approx(2, abs=0.01)


def test_names_of_charts_are_short_and_differ() -> None:
    runs = [
        RunData(key=f"r{n}", label="x" * 100 + str(n), folder=Path(), average_curves=((0.5,),), points=(1,))
        for n in range(3)
    ]
    names = {row[1] for row in figure_of("accuracy", runs).rows}
    assert len(names) == 3 and all(len(name) <= 48 for name in names)


def test_more_runs_than_colours_are_dashed() -> None:
    assert len({(colour(place), tuple(dash(place))) for place in range(32)}) == 32 and len(set(PALETTE)) == 8
    assert theme()["background"] == "white" and theme(dark=True)["axis"]["gridColor"] != theme()["axis"]["gridColor"]


@pytest.mark.parametrize(
    ("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<svg"), ("A.PDF", b"%PDF")], ids=["png", "svg", "pdf"]
)
@pytest.mark.parametrize("kind", ["accuracy", "matrix"])
def test_a_file_of_a_figure(trained: Path, tmp_path: Path, kind: str, name: str, begins: bytes) -> None:
    assert plot([trained], kind, tmp_path / name).read_bytes().startswith(begins)


def test_wrong_figures_are_one_sentence(run_of: Callable[[str], Path], tmp_path: Path) -> None:
    for kind, name, words in (
        ("acuracy", "a.png", "there is no figure 'acuracy'; did you mean accuracy?"),
        ("accuracy", "a.gif", "no known suffix; use one of .png, .svg, .pdf"),
        ("accuracy", "no/where/a.png", "cannot write"),
        ("epsilon", "a.png", "no data for the figure 'epsilon'"),
    ):
        with pytest.raises(ConfigError, match=words):
            plot([run_of("AGEM")], kind, tmp_path / name)
