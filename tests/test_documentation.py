"""The pages of the repository link to files that exist."""

import re
from pathlib import Path

import pytest
import yaml

from tacit.experiment.config.loading import preset_names

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("tests/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_documentation_imports_from_rooms() -> None:
    """Only the page about extending the vault imports from its modules."""
    for page in PAGES:
        if page.name == "adding-an-exit.md":
            continue
        deep = re.findall(r"^from (tacit\.\w+\.[\w.]+) import", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not deep, page


def test_every_preset_of_a_paper_is_on_the_page_of_reproductions() -> None:
    """With its figures, or with the words that it was not run."""
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    silent = [name for name in preset_names() if "/" in name and name not in page]
    assert not silent


def test_every_bar_of_the_picture_is_on_the_page_of_reproductions() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    panels = yaml.safe_load((ROOT / "docs" / "pictures" / "papers.yaml").read_text(encoding="utf-8"))
    bars = [bar for panel in panels for bar in panel["bars"]]
    for bar in bars:
        assert "value" in bar or bar["note"] == "not run here", bar
        assert "value" not in bar or f"{bar['value']:.1f}" in page, bar
