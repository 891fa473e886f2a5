"""The pages of the repository link to files and sections that exist."""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tacit.experiment.config.loading import preset_names

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for pattern in ("*.md", *(f"{room}/**/*.md" for room in ("bench", "docs", "examples", "src", "tests")))
    for page in ROOT.glob(pattern)
)
REPRODUCTION = [ROOT / "docs" / name for name in ("reproduction.md", "trials.md", "speed.md")]
REPRODUCTION += sorted((ROOT / "docs" / "papers").glob("*.md"))
"""The pages that report the papers' figures and what was measured."""


def without_code(text: str) -> str:
    """A page's text without blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names of a page's sections, as GitHub makes them of the headings."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ +(.+?) *#*$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_sections(page: Path) -> None:
    missing = []
    text = re.sub(r"`[^`\n]*`", "", without_code(page.read_text(encoding="utf-8")))
    for link in re.findall(r"\]\(<?([^)\s>]+)", text):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, section = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (section and target.suffix == ".md" and section not in anchors(target)):
            missing.append(link)
    assert not missing


def test_sections_have_the_names_that_github_gives_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b`, c & [d](e.md)\n## Two\n```\n# code\n```\n## Two\n### σ = 2: *yes*\n", encoding="utf-8")
    assert anchors(page) == {"a-b-c--d", "two", "two-1", "σ--2-yes"}


def test_documentation_imports_from_rooms() -> None:
    """Only the page about extending the vault imports from its modules."""
    for page in PAGES:
        if page.name == "adding-an-exit.md":
            continue
        deep = re.findall(r"^from (tacit\.\w+\.[\w.]+) import", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not deep, page


def reported() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in REPRODUCTION)


def test_every_preset_of_a_paper_is_on_the_pages_of_reproductions() -> None:
    """With its figures, or with the words that it was not run."""
    pages = reported()
    silent = [name for name in preset_names() if "/" in name and name not in pages]
    assert not silent


def test_every_bar_of_the_picture_is_on_the_pages_of_reproductions() -> None:
    pages = reported()
    panels = yaml.safe_load((ROOT / "docs" / "pictures" / "papers.yaml").read_text(encoding="utf-8"))
    bars = [bar for panel in panels for bar in panel["bars"]]
    for bar in bars:
        assert "value" in bar or bar["note"] == "not run", bar
        assert "value" not in bar or f"{bar['value']:.1f}" in pages, bar
