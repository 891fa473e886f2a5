"""Tables of Markdown pages: the cells of one under a heading."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        columns: The headings of its columns.
        rows: The cells of each row.
    """

    columns: list[str]
    rows: list[list[str]]


def cells(line: str) -> list[str]:
    """The cells of a line of a table, without the stars of bold text."""
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("**", "").replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def section(page: Path, heading: str) -> list[str]:
    """The lines below a heading of a page, up to the next heading.

    Raises:
        ValueError: The page has no such heading.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines) if re.fullmatch(r"#+ +" + re.escape(heading), line.strip())]
    if len(starts) != 1:
        raise ValueError(f"{page.name} has {len(starts)} headings {heading!r}; name one in docs/figures.yaml")
    below = lines[starts[0] + 1 :]
    ends = [number for number, line in enumerate(below) if re.match(r"#+ ", line)]
    return below[: ends[0] if ends else None]


def tables(lines: list[str]) -> list[Table]:
    """The tables among lines of Markdown."""
    found: list[Table] = []
    block: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("|"):
            block.append(line)
        elif block:
            if len(block) > 2:
                found.append(Table(columns=cells(block[0]), rows=[cells(row) for row in block[2:]]))
            block = []
    return found


def cell(page: Path, heading: str, row: str, column: str) -> str:
    """One cell, found by the words that its row begins with and the heading of its column.

    Args:
        page: The Markdown page.
        heading: The heading of its section, as written.
        row: The row's first cell, or its second where the first column groups rows, without bold; `first → second`
            where that alone occurs twice. A first cell that is empty counts as that of the row above.
        column: The heading of the column.

    Raises:
        ValueError: There is no such cell, or there are several.
    """
    found = []
    for table in tables(section(page, heading)):
        if column in table.columns:
            at = table.columns.index(column)
            group = ""
            for line in table.rows:
                group = line[0] or group
                if row in (*line[:2], f"{group} → {line[1]}") and at < len(line):
                    found.append(line[at])
    if len(found) != 1:
        raise ValueError(
            f"{page.name}, section {heading!r}, has {len(found)} cells of row {row!r} and column {column!r}; "
            "correct the line of docs/figures.yaml"
        )
    return found[0]
