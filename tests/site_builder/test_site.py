"""The built site: complete by itself, and searched from disk in a real browser without a console error."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from site_builder.repository import ROOT

pytest.importorskip("mkdocs")
pytestmark = pytest.mark.slow
LOADS = {
    "script": ("src",), "img": ("src", "srcset"), "link": ("href",), "iframe": ("src",), "source": ("src",),
}  # fmt: skip
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built once for all workers of the session; broken links and failing tutorials fail here."""
    cache = Path(os.environ["TACIT_TEST_CACHE"])
    folder = cache / "site"
    with FileLock(cache / "site.lock"):
        if not (folder / "index.html").exists():
            done = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
                cwd=ROOT,
                env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr[-3000:]
    return folder


class Loaded(HTMLParser):
    """What a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") in ("canonical", "next", "prev"):
            return
        self.addresses += [given[name] or "" for name in LOADS.get(tag, ()) if name in given]


def test_no_page_loads_anything_from_a_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        reader = Loaded()
        text = page.read_text(encoding="utf-8")
        reader.feed(text)
        assert [one for one in reader.addresses if re.match(r"(https?:)?//", one)] == [], page
        assert "mermaid" not in text.partition("<article")[2].partition("</article>")[0] or "repo/" in str(page), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_the_site_has_what_it_promises(site: Path) -> None:
    tutorial = (site / "tutorials" / "reading_a_certificate.html").read_text(encoding="utf-8")
    assert "PRIVACY CERTIFICATE" in tutorial and (site / "tutorials" / "reading_a_certificate.ipynb").exists()
    learner = (site / "learners" / "MomentsClassifier.html").read_text(encoding="utf-8")
    assert "Sharp edges" in learner and "52.9 ± 0.2" in learner
    assert 'id="tacit.privacy.Vault.admit"' in (site / "api" / "privacy.html").read_text(encoding="utf-8")
    source = (site / "repo/src/tacit/privacy/randomness/sampling.py.html").read_text(encoding="utf-8")
    assert "def poisson" in re.sub(r"<[^>]+>", "", source)
    assert "0.1.0" in (site / "repo" / "changelog.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright.sync_api")
    from support.browser import chromium

    with chromium() as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_search_works_from_disk(site: Path, browser: Any, scheme: str) -> None:
    page = browser.new_context(color_scheme=scheme).new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").press_sequentially("union-Poisson")
    page.wait_for_selector(".md-search-result__item a", timeout=60_000)
    found = page.locator(".md-search-result__item a").evaluate_all("links => links.map(link => link.href)")
    assert any("glossary.html" in link or "composition.html" in link for link in found)
    page.goto(found[0])
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("name", ["index", "start", "learners/RoutedExperts", "api/privacy", "tutorials/own_csv"])
def test_pages_fit_a_phone(site: Path, browser: Any, name: str) -> None:
    page = browser.new_context(viewport=PHONE).new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((site / f"{name}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert said == []
