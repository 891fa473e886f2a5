"""One source of figures: docs/figures.yaml, the tables of docs/, the papers' picture and README.md agree."""

import re
from pathlib import Path

import pytest
import yaml
from site_builder.figures import BLOCK, FILE, README, ROOT, Benchmark, load
from site_builder.tables import cell, cells, tables

from site_builder import figures, learner_pages

BENCHMARKS = load()
FIGURES = [figure for benchmark in BENCHMARKS for figure in benchmark.figures]


def test_figures_agree_with_the_tables_of_the_pages() -> None:
    assert list(figures.disagreements(BENCHMARKS)) == []


def test_readme_has_the_tables_as_they_are() -> None:
    text = README.read_text(encoding="utf-8")
    assert figures.rendered(text, BENCHMARKS) == text
    assert text.count("<!-- figures:") == text.count("<!-- /figures -->") == len(BLOCK.findall(text))


def test_figures_agree_with_the_picture_of_the_papers() -> None:
    panels = yaml.safe_load((ROOT / "docs" / "pictures" / "papers.yaml").read_text(encoding="utf-8"))
    bars = {(panel["title"], bar["name"], bar["note"] if panel["title"].startswith("Lai 2022: act") else ""): bar
            for panel in panels for bar in panel["bars"] if "value" in bar}  # fmt: skip
    named = 0
    for benchmark in yaml.safe_load(FILE.read_text(encoding="utf-8")).values():
        for line in benchmark["figures"]:
            if "bar" not in line:
                continue
            named += 1
            (bar,) = [one for (title, name, _), one in bars.items() if [title, name] == line["bar"]]
            assert bar["value"] == pytest.approx(line["mean"], abs=0.051), line
            if "std" in line and "std" in bar:
                assert bar["std"] == pytest.approx(line["std"], abs=0.051), line
    assert named > 10


def test_every_figure_is_of_a_learner_and_has_a_number() -> None:
    known = set(learner_pages.classes())
    for figure in FIGURES:
        assert figure.learner in known and figure.mean is not None and figure.seeds >= 1, figure
        assert (ROOT / "docs" / figure.page).exists()
        assert figure.std is None or figure.seeds > 1, figure


def test_docstrings_of_learners_have_no_figures() -> None:
    """A number in a docstring would be a second source."""
    for name, learner in learner_pages.classes().items():
        said = learner_pages.words(learner)
        assert not re.search(r"\d+(\.\d+)?\s?%|\d+\.\d ±", f"{said.about} {said.edges}"), name


def test_a_number_that_differs_is_found(tmp_path: Path) -> None:
    benchmark = BENCHMARKS[0]
    text = (ROOT / "docs" / benchmark.page).read_text(encoding="utf-8")
    (tmp_path / "papers").mkdir()
    (tmp_path / benchmark.page).write_text(text.replace("92.9 ± 0.01", "93.9 ± 0.01"), encoding="utf-8")
    (wrong,) = figures.disagreements((benchmark,), tmp_path)
    assert "RoutedExperts" in wrong and "93.9" in wrong and "take" in wrong


def test_numbers_are_taken_from_the_pages(tmp_path: Path) -> None:
    file = tmp_path / "figures.yaml"
    text = FILE.read_text(encoding="utf-8")
    file.write_text(re.sub(r"mean: 92\.9, std: 0\.01", "mean: 1.0", text), encoding="utf-8")
    figures.take(file)
    assert file.read_text(encoding="utf-8") == text


def test_a_block_of_a_page_is_rendered() -> None:
    page = "before\n<!-- figures:permuted-mnist -->\nold\n<!-- /figures -->\nafter\n"
    made = figures.rendered(page, BENCHMARKS)
    assert (
        "old" not in made and "| `RoutedExperts` |" in made and made.startswith("before\n") and made.endswith("after\n")
    )
    assert figures.rendered(made, BENCHMARKS) == made
    with pytest.raises(ValueError, match="there are no figures 'other'"):
        figures.rendered(page.replace("permuted-mnist", "other"), BENCHMARKS)


def test_a_table_has_a_column_for_each_guarantee() -> None:
    (split,) = [one for one in BENCHMARKS if one.name == "split-mnist"]
    assert isinstance(split, Benchmark)
    heading = figures.table(split).splitlines()[0]
    assert "ε = 0.5 |" in heading and "ε = 0.5 claimed" in heading and "no privacy" in heading


def test_cells_of_a_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n## B (c)\n| a | x \\| y |\n|---|---|\n| g | **1** |\n| | 2 |\n", encoding="utf-8")
    assert cells("| a | x \\| y |") == ["a", "x | y"]
    assert cell(page, "B (c)", "g", "x | y") == "1"
    assert cell(page, "B (c)", "g → 2", "x | y") == "2"
    assert tables(["no table"]) == []
    with pytest.raises(ValueError, match="0 cells"):
        cell(page, "B (c)", "h", "x | y")
    with pytest.raises(ValueError, match="0 headings"):
        cell(page, "C", "g", "x | y")
