"""The document about a certificate as one HTML file that needs nothing else, and prints on one side of A4."""

from tacit.report.certificates.document_text import DocumentText
from tacit.report.page import ASSETS, rendered
from tacit.report.sentences import isolated


def html_document(text: DocumentText) -> str:
    """The document as HTML; every text is escaped.

    Args:
        text: What it says.

    Returns:
        HTML.
    """
    from markupsafe import Markup

    style = Markup((ASSETS / "certificate.css").read_text(encoding="utf-8"))
    return rendered("certificate.html.j2", text=text, isolated=isolated, style=style)
