"""The papers of the methods as BibTeX, from `assets/references.bib`, the only source of these entries."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

REFERENCES = Path(__file__).parent / "assets" / "references.bib"
_LEARNERS = re.compile(r",\n  learners = \{([^}]*)\}")
_ALL = "*"


@cache
def entries() -> dict[str, tuple[str, frozenset[str]]]:
    """Every entry.

    Returns:
        By its key, the text of the entry and the names of the learners that are from the paper.
    """
    found = {}
    for text in re.split(r"\n\n(?=@)", REFERENCES.read_text(encoding="utf-8").strip()):
        key, names = re.match(r"@\w+\{(\w+),", text), _LEARNERS.search(text)
        assert key is not None and names is not None, text
        learners = frozenset(name.strip() for name in names.group(1).split(","))
        found[key.group(1)] = (_LEARNERS.sub("", text), learners)
    return found


def bibtex(methods: Iterable[str]) -> str:
    """The entries to cite for some learners, tacit itself included.

    Args:
        methods: Names of learners; unknown ones have no entry.

    Returns:
        BibTeX.
    """
    used = set(methods) | {_ALL}
    return "\n\n".join(text for text, learners in entries().values() if learners & used) + "\n"
