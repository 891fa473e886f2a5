"""The live page in a real browser: new runs appear, and what the reader has chosen stays."""

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from support.report_folders import HOSTILE, by_hand, cell
from tacit.report import LiveReport

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow
LINES = "g.mark-line path"


def test_choices_stay_when_runs_go_on(trained: Path, tmp_path: Path) -> None:
    from support.browser import chromium

    folder = tmp_path / "runs"
    for method in ("AGEM", "DPCL"):
        shutil.copytree(cell(trained, method), folder / method)
    live = LiveReport([folder])
    thread = threading.Thread(target=live.serve)
    thread.start()
    try:
        with chromium() as browser:
            page = browser.new_context(viewport={"width": 1200, "height": 800}).new_page()
            console: list[str] = []
            requests: list[str] = []
            page.on("console", lambda message: console.append(message.text))
            page.on("pageerror", lambda error: console.append(str(error)))
            page.on("request", lambda request: requests.append(request.url))
            page.goto(live.address)
            drawn = _drawn(page, 0)
            assert page.locator("#live").inner_text() == "Live: this page follows the runs."
            page.locator('tr[data-run="r1"] input').uncheck()
            page.locator('[data-sort="1"]').click()
            page.locator('figure[data-kind="accuracy"] details summary').click()
            page.locator('[data-sort="1"]').focus()
            page.evaluate("scrollTo(0, 700)")
            drawn = _drawn(page, drawn)

            # A run of a hostile name, before the others in the order of the folders.
            by_hand(folder / "A first", trained, method=HOSTILE, tasks=3, level=0.99)
            drawn = _drawn(page, drawn)
            names = page.locator("#table tbody .name").all_text_contents()
            assert sorted(names) == ["A first", "AGEM", "DPCL"]
            picked = {
                row.locator(".name").text_content(): row.locator("input").is_checked()
                for row in page.locator("#table tbody tr").all()
            }
            assert picked == {"A first": True, "AGEM": True, "DPCL": False}
            assert page.locator(f'figure[data-kind="accuracy"] {LINES}').count() == 2
            assert page.locator('th[aria-sort="descending"]').count() == 1 and names[0] == "A first"
            assert page.evaluate("document.activeElement.dataset.sort") == "1"
            assert page.locator('figure[data-kind="accuracy"] details').get_attribute("open") is not None
            assert page.locator('figure[data-kind="accuracy"] tbody tr').count() == 2 * 3
            assert abs(page.evaluate("scrollY") - 700) < 100
            assert page.evaluate("window.hacked") is None
            page.locator('tr[data-run="r2"] input').check()  # the new content works as the first did
            _drawn(page, drawn)
            assert page.locator(f'figure[data-kind="accuracy"] {LINES}').count() == 3
            assert console == [] and all(url.startswith((live.address, "data:", "blob:")) for url in requests)

            page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.hacked=1>')")
            page.wait_for_timeout(200)
            assert page.evaluate("window.hacked") is None  # what is inserted later runs no code

            live.stop()
            thread.join()
            page.locator("#live", has_text="The server has ended").wait_for()
            assert page.locator("#table tbody tr").count() == 3
    finally:
        live.stop()
        thread.join()


def _drawn(page: Any, after: int) -> int:
    """Wait until the charts are drawn again, and no other drawing begins; returns how often they were."""
    page.wait_for_function("after => Number(document.body.dataset.drawn || 0) > after", arg=after)
    return int(page.evaluate("Number(document.body.dataset.drawn)"))
