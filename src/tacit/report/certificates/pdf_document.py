"""The document about a certificate as a PDF of one side of A4, set by Typst (the extra `pdf`).

The texts reach Typst as JSON in an input, never as markup, so nothing in them is interpreted. Typst's own fonts are
embedded in the file. Fonts of the system are used only where a text has letters that these lack. The file is tagged for
screen readers (PDF/UA-1) and dated by its certificate, so the same certificate gives the same bytes.
"""

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

from tacit.errors import ConfigError
from tacit.report.certificates.document_text import DocumentText
from tacit.report.page import ASSETS
from tacit.words import install

_LONG_WORD = re.compile(r"\S{25,}")
_PIECE = re.compile(r"(\S{12})(?=\S)")
_COVERED = ((0x20, 0x530), (0x590, 0x600), (0x1E00, 0x2600))
"""Letters of Typst's own fonts: Latin, Greek, Cyrillic, Hebrew, punctuation and mathematics."""


def pdf_document(text: DocumentText, *, issued: str) -> bytes:
    """The document as PDF.

    Args:
        text: What it says.
        issued: When the certificate was issued, in ISO format.

    Returns:
        The content of the file.

    Raises:
        ConfigError: The package `typst` is not installed, or cannot set the text.
    """
    return b"".join(_compiled(text, issued, "pdf"))


def pictures_of_document(text: DocumentText, *, issued: str) -> list[bytes]:
    """The pages of the PDF as PNG pictures. Arguments and errors as in `pdf_document`."""
    return _compiled(text, issued, "png")


def _compiled(text: DocumentText, issued: str, kind: Literal["pdf", "png"]) -> list[bytes]:
    try:
        import typst
    except ImportError:
        raise ConfigError(
            f"a PDF needs the package typst, which is not installed: {install('pdf')}; or write .html, and print it"
        ) from None
    texts = _breakable(asdict(text))
    data = json.dumps(texts)
    own = all(
        any(low <= ord(letter) < high for low, high in _COVERED) for letter in json.dumps(texts, ensure_ascii=False)
    )
    options: dict[str, Any] = {
        "format": kind,
        "sys_inputs": {"data": data, "issued": _day(issued).date().isoformat()},
        "font_paths": typst.Fonts(include_system_fonts=not own, include_embedded_fonts=True),
        "timestamp": int(_day(issued).timestamp()),
    }
    # The standard refuses letters that no font has; they are better shown as boxes than not at all.
    compiled: Any = typst.compile
    standards = [{"pdf_standards": "ua-1"}, {}] if kind == "pdf" else [{}]
    for number, standard in enumerate(standards, start=1):
        try:
            found = compiled((ASSETS / "certificate.typ").read_bytes(), **options, **standard)
            return found if isinstance(found, list) else [found]
        except typst.TypstError as error:
            if number == len(standards):
                message = f"Typst could not set the document: {error.message}; write .html instead"
                raise ConfigError(message) from None
    raise AssertionError


def _breakable(value: Any) -> Any:
    """The texts with places at which long words may be broken."""
    if isinstance(value, dict):
        return {name: _breakable(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [_breakable(one) for one in value]
    if not isinstance(value, str):
        return value
    return _LONG_WORD.sub(lambda word: _PIECE.sub("\\1\u200b", word.group()), value)


def _day(issued: str) -> datetime:
    try:
        return datetime.fromisoformat(issued[:10]).replace(tzinfo=UTC)
    except ValueError:
        return datetime(1970, 1, 1, tzinfo=UTC)
