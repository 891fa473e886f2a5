"""A real browser for the tests of pages: Debian's Chromium, without a network of its own."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser. Without one the test is skipped, but fails where CI runs it."""
    if not Path(CHROMIUM).exists():
        words = f"there is no browser at {CHROMIUM}; install it with: apt-get install chromium"
        (pytest.fail if os.environ.get("CI_RUN") else pytest.skip)(words)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, with what it printed to its console and what it asked for.

    Attributes:
        page: The page of Playwright.
        console: Errors and warnings.
        requests: Addresses, without those of the file itself and of data inside it.
    """

    def __init__(self, browser: Browser, file: Path, **options: Any) -> None:
        self.page: Page = browser.new_context(accept_downloads=True, **options).new_page()
        self.console: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.console.append(message.text))
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("request", lambda request: self._request(request.url, file.as_uri()))
        self.page.goto(file.as_uri())
        self.drawn()

    def _request(self, url: str, own: str) -> None:
        if url.partition("#")[0] != own and not url.startswith(("data:", "blob:")):
            self.requests.append(url)

    def drawn(self, after: int = 0) -> int:
        """Wait until all charts are drawn; returns how often they were."""
        self.page.wait_for_function("after => Number(document.body.dataset.drawn || 0) > after", arg=after)
        return int(self.page.evaluate("Number(document.body.dataset.drawn)"))

    def marks(self, kind: str, selector: str) -> int:
        """The number of elements in a chart."""
        return self.page.locator(f'figure[data-kind="{kind}"] {selector}').count()

    def download(self, selector: str, folder: Path) -> Path:
        """Click, and wait for the file."""
        with self.page.expect_download() as waiting:
            self.page.locator(selector).first.click()
        path = folder / waiting.value.suggested_filename
        shutil.copy(waiting.value.path(), path)
        return path
