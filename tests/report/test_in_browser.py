"""The page in a real browser: charts, choices, downloads, hostile names, phones, and fifty runs at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.report_folders import HOSTILE, LONG, RIGHT_TO_LEFT, hostile, many
from tacit.report import write_report

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow
LINES = "g.mark-line path"
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from support.browser import chromium

    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def tiny(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([trained], tmp_path_factory.mktemp("page") / "tiny.html")


@pytest.fixture(scope="module")
def crowd(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crowd")
    return write_report([many(folder / "many", trained, 50, 20)], folder / "many.html")


@pytest.fixture(scope="module")
def bad(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    return write_report([hostile(folder / "bad", trained)], folder / "bad.html")


def watched(browser: Any, file: Path, **options: Any) -> Any:
    from support.browser import Watched

    return Watched(browser, file, **options)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_without_an_error_or_a_request(browser: Any, tiny: Path, scheme: str) -> None:
    seen = watched(browser, tiny, color_scheme=scheme)
    for kind in ("accuracy", "forgetting", "epsilon", "tradeoff", "attacks"):
        assert seen.marks(kind, "svg") == 1, kind
    assert seen.marks("accuracy", LINES) == 3 and seen.marks("matrix", "svg") == 3 and seen.marks("budget", "svg") == 2
    assert seen.marks("matrix", "g.mark-rect path") == 3 * 6
    assert seen.console == [] and seen.requests == []
    background = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]


def test_runs_are_picked_and_sorted(browser: Any, tiny: Path) -> None:
    seen = watched(browser, tiny)
    page, drawn = seen.page, seen.drawn()
    page.locator('input[data-run="r1"]').uncheck()
    drawn = seen.drawn(drawn)
    assert seen.marks("accuracy", LINES) == 2 and seen.marks("matrix", "svg") == 2
    assert page.locator("#picked").inner_text() == "2 of 3 runs in the charts"
    page.locator('[data-pick="none"]').click()
    drawn = seen.drawn(drawn)
    assert seen.marks("accuracy", "svg") == 0 and "None of the picked runs" in page.locator("#curves").inner_text()
    page.locator('[data-pick="all"]').click()
    seen.drawn(drawn)
    assert seen.marks("accuracy", LINES) == 3
    accuracy = page.locator('[data-sort="1"]')
    accuracy.click()
    values = [float(one.get_attribute("data-value")) for one in page.locator("#table tbody tr td:nth-child(2)").all()]
    assert values == sorted(values, reverse=True)
    accuracy.press("Enter")
    up = [float(one.get_attribute("data-value")) for one in page.locator("#table tbody tr td:nth-child(2)").all()]
    assert up == sorted(values) and page.locator("th[aria-sort=ascending]").count() == 1
    page.locator('[data-sort="3"]').click()
    assert page.locator("#table tbody tr td:nth-child(4)").all()[-1].get_attribute("data-value") == ""
    assert seen.console == []


def test_downloads(browser: Any, tiny: Path, tmp_path: Path) -> None:
    seen = watched(browser, tiny)
    for selector, name, begins in (
        ('[data-download="csv"]', "results.csv", b"run,method,"),
        ('[data-download="latex"]', "results.tex", b"% needs"),
        ('[data-download="bibtex"]', "methods.bib", b"@misc{tacit,"),
        ('[data-download="accuracy"]', "accuracy.csv", b"run,tasks,"),
        ('figure[data-kind="accuracy"] [data-save="png"]', "accuracy.png", b"\x89PNG"),
        ('figure[data-kind="accuracy"] [data-save="svg"]', "accuracy.svg", b"<svg"),
        ('figure[data-kind="matrix"] .panel .tools button:first-child', "matrix.png", b"\x89PNG"),
    ):
        file = seen.download(selector, tmp_path)
        assert file.name == name and file.read_bytes().startswith(begins), name
    assert seen.console == [] and seen.requests == []


def test_data_of_a_chart_as_a_table(browser: Any, tiny: Path) -> None:
    seen = watched(browser, tiny)
    details = seen.page.locator('figure[data-kind="accuracy"] details')
    details.locator("summary").click()
    details.locator("tbody tr").first.wait_for()
    assert details.locator("tbody tr").count() == 9 and details.locator("caption").inner_text() == "Average accuracy"
    assert details.locator("thead th").all_inner_texts()[0] == "run"


def test_it_is_used_by_keyboard(browser: Any, tiny: Path) -> None:
    page = watched(browser, tiny).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    page.locator('input[data-run="r0"]').focus()
    page.keyboard.press("Space")
    assert not page.locator('input[data-run="r0"]').is_checked()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("name", ["tiny", "bad", "crowd"])
def test_nothing_is_wider_than_a_phone(browser: Any, name: str, request: pytest.FixtureRequest) -> None:
    seen = watched(browser, request.getfixturevalue(name), viewport=PHONE)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert (
        seen.page.evaluate("Math.max(...[...document.querySelectorAll('.chart svg')].map(x => x.clientWidth))") <= 390
    )


def test_hostile_names_are_shown_as_text(browser: Any, bad: Path) -> None:
    seen = watched(browser, bad)
    page = seen.page
    names = page.locator("#table tbody .name").all_text_contents()
    assert sorted(names) == sorted([HOSTILE, LONG, RIGHT_TO_LEFT])
    assert page.evaluate("window.hacked") is None and page.locator("img").count() == 0
    assert page.locator("script").count() == 3 and seen.console == [] and seen.requests == []
    assert seen.marks("accuracy", LINES) == 3
    assert any(HOSTILE[:20] in one for one in page.locator('figure[data-kind="accuracy"] svg text').all_text_contents())
    assert all(box["height"] < 200 for row in page.locator("#table tbody tr").all() if (box := row.bounding_box()))
    page.locator('figure[data-kind="matrix"] details summary').click()
    page.locator('figure[data-kind="matrix"] tbody tr').first.wait_for()
    assert page.evaluate("window.hacked") is None


def test_fifty_runs_of_twenty_tasks(browser: Any, crowd: Path) -> None:
    seen = watched(browser, crowd)
    page, drawn = seen.page, seen.drawn()
    assert page.locator("#table tbody tr").count() == 50 and page.locator("input:checked").count() == 8
    assert seen.marks("accuracy", LINES) == 8 and seen.marks("matrix", "svg") == 6
    page.locator('[data-pick="all"]').click()
    drawn = seen.drawn(drawn)
    assert seen.marks("accuracy", LINES) == 50 and seen.marks("matrix", "svg") == 6
    assert page.evaluate("document.querySelectorAll('*').length") < 20_000
    page.locator('[data-pick="best"]').click()
    seen.drawn(drawn)
    assert seen.marks("accuracy", LINES) == 8 and seen.console == []


def test_it_prints(browser: Any, tiny: Path, tmp_path: Path) -> None:
    page = watched(browser, tiny, color_scheme="dark").page
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible() and not page.locator(".tools").first.is_visible()
    page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
