"""Text of any origin as Markdown that shows it and means nothing: no markup, no links, no HTML, no table cells."""

import re
import unicodedata

LONGEST = 200
"""Characters of a name."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]()!|~$^]|^[#+=\-]|(?<=^\d)[.)])")
_LINKED = re.compile(r"://|www\.|@|mailto", re.IGNORECASE)
"""What renderers turn into links even where nothing marks it as one."""
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Categories of characters that are not seen, or that change the direction of others."""


def visible(text: object, longest: int = LONGEST) -> str:
    """A text on one line, in which every character can be seen.

    Args:
        text: Any value.
        longest: The number of characters to keep.

    Returns:
        The beginning of the text; characters that hide or turn others are written as their code points.
    """
    line = " ".join(str(text).split())
    line = line if len(line) <= longest else f"{line[: longest - 1]}…"
    return "".join(f"U+{ord(one):04X}" if unicodedata.category(one) in _HIDDEN else one for one in line)


def name(text: object) -> str:
    """A name as a span of code, also in a cell of a table.

    Args:
        text: The name, of any origin.

    Returns:
        Markdown.
    """
    shown = visible(text).replace("|", "¦")
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {shown or '(empty)'} {fence}" if longest else f"`{shown or '(empty)'}`"


def sentence(text: object) -> str:
    """A sentence in which names of any origin may be quoted.

    Args:
        text: The sentence.

    Returns:
        Markdown; a span of code if a renderer would make a link of something in it.
    """
    shown = visible(text, 2000) or "(empty)"
    if _LINKED.search(shown):
        return f"`{shown.replace('`', chr(39)).replace('|', '¦')}`"
    plain = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain)
