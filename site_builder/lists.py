"""Lists and tables right after a line of text, as code hosts show them, for Python-Markdown."""

import re
from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

ITEM = re.compile(r"^( {0,3})([-*+]|\d+\.) +\S")


class Separate(Preprocessor):
    """Puts an empty line before a list, and before a table, that follows a line of text."""

    def run(self, lines: list[str]) -> list[str]:
        """The lines of a page, with empty lines where Python-Markdown needs them."""
        made: list[str] = []
        inside = False  # a list, whose items may have lines that begin at the margin of its text
        for line in lines:
            before = made[-1] if made else ""
            item = bool(ITEM.match(line))
            table = line.startswith("|") and not before.startswith("|")
            if before.strip() and ((item and not inside) or table):
                made.append("")
            made.append(line)
            if item:
                inside = True
            elif not line.strip() or not line.startswith(" "):
                inside = inside and bool(line.strip()) and line.startswith(" ")
        return made


class Lists(Extension):
    """The preprocessor, as an extension of Python-Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Runs after fenced code has been taken out."""
        md.preprocessors.register(Separate(md), "separate_lists", 24)


def makeExtension(**options: Any) -> Lists:
    """What Python-Markdown calls."""
    return Lists(**options)
