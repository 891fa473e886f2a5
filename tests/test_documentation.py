"""The pages of the repository link to files that exist."""

import re
from pathlib import Path

import pytest

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
