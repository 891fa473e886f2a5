"""docs/audit.md names files that exist, and its numbers of lines are those of the files."""

import re
from pathlib import Path

import pytest

from support.import_graph import FILES, MODULES, room

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "audit.md"
TOLERANCE = 0.15
AFTERNOON = 2200
"""The largest number of lines of part 1."""
TYPES_ONLY = {"tacit.data.samples", "tacit.data.stream"}
PARTS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
ROW = re.compile(r"^\| \[[^\]]+\]\(\.\./([^)]+)\) \| ([\d,]+) \|", re.MULTILINE)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_every_linked_file_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8"))
    assert len(links) > 30
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


@pytest.mark.parametrize("part", PARTS, ids=[part.split(":")[0] for part in PARTS])
def test_the_numbers_of_lines_are_right(part: str) -> None:
    """Each file, and each part as a whole, has as many lines as the page says, within 15 %."""
    title, rows = part.splitlines()[0], ROW.findall(part)
    stated = re.search(r"about ([\d,]+) lines", title)
    assert stated and rows
    lines = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path, _ in rows}
    for path, count in rows:
        assert abs(number(count) - lines[path]) <= TOLERANCE * lines[path], (path, count, lines[path])
    assert abs(number(stated[1]) - sum(lines.values())) <= TOLERANCE * sum(lines.values()), (title, lines)


def test_part_1_can_be_read_in_an_afternoon() -> None:
    assert PARTS[0].startswith("Part 1:")
    assert sum(number(count) for _, count in ROW.findall(PARTS[0])) <= AFTERNOON


def test_every_helper_of_data_that_the_guarantee_rests_on_is_listed() -> None:
    resting = [imported for module, imported in MODULES.items() if room(module) in ("privacy", "gradients")]
    helpers = {other for imported in resting for other in imported if room(other) == "data"} - TYPES_ONLY
    paths = {str(FILES[helper].relative_to(ROOT)) for helper in helpers}
    listed = {path for path, _ in ROW.findall(PAGE.read_text(encoding="utf-8")) if "/data/" in path}
    assert listed == paths
