"""CSV, LaTeX and BibTeX."""

import csv
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import yaml

from tacit.learners import LEARNERS, find
from tacit.report.bibliography import bibtex, entries
from tacit.report.charts.figures import figure_of
from tacit.report.exports import HEAD, figure_csv, latex, results_csv
from tacit.report.reading.run_data import RunData
from tacit.report.reading.run_folders import read_folders

ROOT = Path(__file__).parents[2]


def test_csv(trained: Path) -> None:
    runs = read_folders([trained]).runs
    rows = list(csv.DictReader(StringIO(results_csv(runs))))
    assert tuple(rows[0]) == HEAD and [row["run"] for row in rows] == ["AGEM", "DPCL", "RoutedExperts"]
    assert rows[0]["epsilon_certified"] == "" and float(rows[1]["epsilon_certified"]) == runs[1].epsilon
    names = {run.key: run.label for run in runs}
    curve = list(csv.DictReader(StringIO(figure_csv(figure_of("accuracy", runs), names))))
    assert len(curve) == 9 and set(curve[0]) == {"run", "tasks", "mean", "low", "high"} and curve[3]["run"] == "DPCL"


def test_latex_escapes_names(trained: Path) -> None:
    runs = read_folders([trained]).runs
    text = latex([replace(runs[0], label=r"a_b & 50% \x {y} #1 $ ^ ~"), RunData(key="r9", label="b", folder=Path())])
    assert r"a\_b \& 50\% \textbackslash{}x \{y\} \#1 \$ \textasciicircum{} \textasciitilde{} & $" in text
    assert "b & -- & -- & none" in text and text.count(r"\\") == 3 and "booktabs" in text


def test_every_learner_cites_what_its_class_names() -> None:
    """`reference` of a class names authors and years; the entry of each has a key made of both."""
    for name in LEARNERS:
        for author, year in re.findall(r"([A-Z]\w+)(?: et al\.| (?:&|and) \w+)? (\d{4}b?)", find(name).reference):
            key = f"{author.lower()}{year}"
            assert key in entries(), (name, key)
            assert name in entries()[key][1], (name, key)


def test_entries_name_learners_that_exist() -> None:
    for text, learners in entries().values():
        assert learners == {"*"} or learners <= LEARNERS.keys(), learners - LEARNERS.keys()
        assert text.count("{") == text.count("}") and "learners" not in text


def test_the_papers_of_the_citation_file_are_among_them() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    known = " ".join(text.replace("{", "").replace("}", "") for text, _ in entries().values())
    for one in cited:
        assert one["title"] in known
        names = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in one["authors"])
        assert names in known, names


@pytest.mark.parametrize(("methods", "keys"), [(["AGEM"], {"tacit", "chaudhry2019"}), (["mine.py:Mine"], {"tacit"})])
def test_only_what_was_used_is_cited(methods: list[str], keys: set[str]) -> None:
    assert set(re.findall(r"@\w+\{(\w+),", bibtex(methods))) == keys
