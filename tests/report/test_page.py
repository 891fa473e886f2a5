"""The page: self-contained, with every section, and every name shown as text."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.report_folders import HOSTILE, LONG, RIGHT_TO_LEFT, hostile, many
from tacit.report import write_report
from tacit.report.page import PICKED, page
from tacit.report.reading.run_folders import read_folders


class Parsed(HTMLParser):
    """The elements of a page, its texts, and what is inside its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] == "script":
            self.scripts[-1] += data
        else:
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.scripts[0]))


@pytest.fixture(scope="module")
def shown(trained: Path) -> Parsed:
    return Parsed(page(read_folders([trained])))


def test_it_has_every_section(shown: Parsed) -> None:
    ids = {attributes["id"] for _, attributes in shown.tags if "id" in attributes}
    assert ids >= {
        "results", "curves", "matrix", "privacy", "attacks", "audits", "certificate", "repeat", "table", "data",
    }  # fmt: skip
    assert {one["data-kind"] for one in shown.all("figure")} == {
        "accuracy", "forgetting", "matrix", "epsilon", "budget", "tradeoff", "attacks",
    }  # fmt: skip
    text = " ".join(shown.texts)
    for words in ("is the most accurate private method", "certified for each record", "Assumptions", "Not counted",
                  "secret Poisson sampling", "runs outside this ledger", "None. The certified", "scenario: permuted",
                  "torch 2.", "what is left of the budget"):  # fmt: skip
        assert words in text, words


def test_it_asks_for_nothing_else(shown: Parsed) -> None:
    for tag, attributes in shown.tags:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    policy = next(one["content"] for one in shown.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "default-src 'none'" in policy and "connect-src" not in policy
    assert [one.get("src") for one in shown.all("script")] == [None] * 3


def test_it_can_be_read_without_seeing_it(shown: Parsed) -> None:
    tags = [tag for tag, _ in shown.tags]
    assert tags.count("h1") == tags.count("main") == 1 and tags.count("table") == tags.count("caption") == 1
    headings = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(later <= before + 1 for before, later in pairwise(headings))
    assert all(one.get("scope") in ("col", "row") for one in shown.all("th"))
    ids = {attributes["id"] for _, attributes in shown.tags if "id" in attributes}
    for _, attributes in shown.tags:
        assert attributes.get("aria-labelledby") is None or attributes["aria-labelledby"] in ids
    assert all(f"#{one}" in [a.get("href") for a in shown.all("a")] for one in ("results", "privacy", "repeat"))
    for one in shown.all("div"):
        assert one.get("role") != "img" or one.get("aria-label")
    assert dict(shown.tags)["html"]["lang"] == "en"


def test_downloads_are_inside(shown: Parsed) -> None:
    files = shown.data["downloads"]
    assert files["csv"]["text"].startswith("run,method,") and files["csv"]["text"].count("\n") == 4
    assert r"\toprule" in files["latex"]["text"] and "@inproceedings{desai2021" in files["bibtex"]["text"]
    assert files["accuracy"]["text"].startswith("run,tasks,mean")


def test_hostile_names_are_text(trained: Path, tmp_path: Path) -> None:
    found = read_folders([hostile(tmp_path / "bad", trained)])
    assert sorted(run.label for run in found.runs) == sorted([HOSTILE, LONG, RIGHT_TO_LEFT])
    parsed = Parsed(page(found))
    assert len(parsed.all("script")) == 3 and not parsed.all("img") and not parsed.all("b")[4:]
    text = " ".join(parsed.texts)
    assert HOSTILE in text and RIGHT_TO_LEFT in text and LONG in text
    assert "<" not in parsed.scripts[0] and "&" not in parsed.scripts[0]
    assert HOSTILE in [one["name"] for one in parsed.data["runs"]]
    assert parsed.data["downloads"]["csv"]["text"].count("script") >= 2
    names = {row[1] for row in parsed.data["figures"]["accuracy"]["rows"]}
    assert len(names) == 3 and max(map(len, names)) <= 48


def test_letters_that_are_none(trained: Path, tmp_path: Path) -> None:
    path = write_report([hostile(tmp_path / "bad", trained, ["nul \x1b[31m", "half a letter \\ud800"])])
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_fifty_runs_of_twenty_tasks_are_small(trained: Path, tmp_path: Path) -> None:
    found = read_folders([many(tmp_path / "many", trained, 50, 20)])
    text = page(found)
    parsed = Parsed(text)
    figures = parsed.data["figures"]
    assert len(parsed.all("input")) == 50 and len(parsed.data["best"]) == PICKED
    assert len(figures["accuracy"]["rows"]) == 50 * 20 and len(figures["matrix"]["rows"]) == 50 * 210
    assert len(text) - len(parsed.scripts[1]) < 2.5e6
    assert text.count("vegaEmbed = ") <= 2 and text.count('"$schema"') == len(figures)


def test_the_page_says_the_same_twice(trained: Path, tmp_path: Path) -> None:
    """No time and no random name is on it."""
    one, two = (write_report([trained], tmp_path / f"{name}.html") for name in "ab")
    assert one.read_bytes() == two.read_bytes()


def test_where_it_is_written(swept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_report([swept]) == swept / "report.html"
    assert write_report([swept, swept]).resolve() == tmp_path / "report.html"


def test_the_certificate_bounds_every_attack(shown: Parsed) -> None:
    text = " ".join(shown.texts)
    for question in ("What can an attacker do?", "When few are accused?", "As µ-GDP?", "Families and groups?"):
        assert question in text
    assert "Upper bounds, rounded up, by privacy loss distributions of the charged events" in text
