"""The document: what it says, that it is one page whatever is written in it, and that no text is more than text."""

import builtins
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from report.certificates.conftest import MARKUP, STATED
from support.report_folders import HOSTILE, LONG
from tacit import Certificate
from tacit.certificate.attack_bounds import attack_bounds
from tacit.certificate.attack_text import percent, up
from tacit.certificate.declared_fields import TITLES, declared, declared_rows
from tacit.errors import ConfigError
from tacit.privacy.ledger.limits.deployment import Deployment
from tacit.report.certificates.document_text import DocumentText, cut, document_text
from tacit.report.certificates.html_document import html_document
from tacit.report.certificates.pdf_document import pdf_document, pictures_of_document

PAGE = re.compile(rb"/Type\s*/Page[^s]")


class Texts(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def stated(certificate: Certificate) -> Certificate:
    """The certificate, as issued under a policy with every field."""
    policy = certificate.ledger.policy | {"deployment": STATED}
    return certificate.model_copy(update={"ledger": certificate.ledger.model_copy(update={"policy": policy})})


def test_it_says_who_is_protected_from_whom_and_how_well(certificate: Certificate) -> None:
    bounds = attack_bounds(certificate)
    assert bounds is not None
    text = document_text(certificate)
    shown = Texts(html_document(text)).text
    for wanted in ("Each record of the stream 'visits'", "Anyone who sees", "Public all the same", "Not counted"):
        assert wanted in shown
    for number in (up(bounds.one.epsilon or 0), up(bounds.mu or 0), percent(bounds.one.advantage)):
        assert f"≤ {number}" in shown
    assert [row[0] for row in text.groups[1:]] == ["1", "2", "3", "5"]
    assert text.groups[1][2] == percent(bounds.one.advantage)
    assert text.groups[-1][3] == percent(bounds.groups[-1].true_positives[0])
    assert all(assumption.says in shown for assumption in certificate.assumptions)
    assert all(one in shown for one in certificate.not_accounted)
    assert certificate.id in shown and "no: anyone may have written it" in shown
    assert "privacy loss distributions of the charged events" in text.small_print


def test_what_is_not_declared_is_not_stated(certificate: Certificate) -> None:
    text = document_text(certificate)
    assert text.declared == ()
    assert all(title in text.unstated for title in TITLES.values() if title != "name")
    assert text.title == "Models of the stream visits"


def test_every_declared_field_is_shown(certificate: Certificate) -> None:
    text = document_text(stated(certificate), utility="average accuracy: 80 %")
    assert {title for title, _ in text.declared} == {*TITLES.values(), "utility"} - {"name"}
    assert text.title == "Ward triage" and "Every field is stated" in text.unstated
    assert dict(text.declared)["actors and trust"] == "Engineers: see raw visits"
    assert set(Deployment.model_fields) == set(TITLES) == set(STATED)


def test_fields_that_were_given_later_are_marked(certificate: Certificate) -> None:
    later = Deployment(intended_use="something else")
    text = document_text(stated(certificate), later=later, later_source="new.toml")
    assert dict(text.declared) == {"intended use": "something else"}
    assert "no signature covers it" in text.unstated and "new.toml" in text.unstated


def test_a_policy_that_cannot_be_understood_states_nothing(certificate: Certificate) -> None:
    policy: dict[str, Any] = {"deployment": {"intended_use": 7, "more": [{}]}}
    odd = certificate.model_copy(update={"ledger": certificate.ledger.model_copy(update={"policy": policy})})
    assert declared(odd) == Deployment() and declared_rows(odd) == ()


def test_nothing_is_promised_where_nothing_is_certified(certificate: Certificate) -> None:
    body = certificate.model_dump(mode="json")
    body["claims"]["certified"] |= {"epsilon": None, "reason": "raw records were released"}
    text = document_text(Certificate.model_validate(body | {"mode": "uncertified"}))
    assert not text.guaranteed and text.numbers == text.groups == ()
    assert text.verdict.startswith("Nothing is guaranteed: raw records were released")
    facts = dict(text.facts)
    assert facts["Who is protected"].startswith("Nobody") and "From whom" not in facts
    assert not any("bound holds" in answer for answer in facts.values())
    assert len(PAGE.findall(pdf_document(text, issued="2026-01-01"))) == 1


def test_no_text_is_more_than_text_in_html(hostile: Certificate) -> None:
    page = html_document(document_text(hostile))
    parsed = Texts(page)
    assert parsed.tags.isdisjoint({"script", "img", "b<", "a", "iframe"})
    assert "<script>" in parsed.text and MARKUP[:12] in parsed.text and "49" not in parsed.text.split("Identity")[0]
    assert "default-src 'none'" in page and "http://" not in page and 'src="' not in page
    assert "x" * 500 not in page


@pytest.fixture
def cramped(hostile: Certificate) -> DocumentText:
    return document_text(hostile, utility=LONG, later_source=HOSTILE)


def test_a_pdf_is_one_page_whatever_is_in_it(cramped: DocumentText, certificate: Certificate) -> None:
    for text in (cramped, document_text(certificate), document_text(stated(certificate))):
        content = pdf_document(text, issued="2026-11-20")
        assert content.startswith(b"%PDF-") and len(PAGE.findall(content)) == 1
        assert len(pictures_of_document(text, issued="2026-11-20")) == 1


def test_a_pdf_is_the_same_each_time_and_has_what_readers_need(certificate: Certificate) -> None:
    text = document_text(certificate)
    content = pdf_document(text, issued=certificate.created)
    assert content == pdf_document(text, issued=certificate.created)
    assert b"/Lang" in content and b"en" in content and b"/MarkInfo" in content and b"pdfuaid" in content
    assert b"/FontFile" in content
    assert content != pdf_document(text, issued="1999-12-31")
    assert pdf_document(text, issued="no date").startswith(b"%PDF-")


def test_without_typst_one_sentence_says_how_to_get_it(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "typst":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"needs the package typst.*\[pdf\].*or write \.html"):
        pdf_document(document_text(certificate), issued="2026-11-20")


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("short", 9, "short"),
        ("a  b\n\tc", 9, "a b c"),
        ("longer than that", 6, "longer…"),
        ("漢字漢字", 4, "漢字…"),
        ("a\u202eb\u0000c\u200bd", 9, "abcd"),
        ("e" + "\u0301" * 50, 9, "e\u0301\u0301"),
        ("x" * 10_000, 3, "xxx…"),
    ],
)
def test_cut(text: str, most: int, shown: str) -> None:
    assert cut(text, most) == shown


@pytest.mark.slow
def test_html_prints_on_one_side_of_a4_and_loses_nothing(
    cramped: DocumentText, certificate: Certificate, tmp_path: Path
) -> None:
    pytest.importorskip("playwright.sync_api")
    from support.browser import chromium

    file, wrong = tmp_path / "certificate.html", list[str]()
    with chromium() as browser:
        for text in (document_text(certificate), document_text(stated(certificate), utility="80 %"), cramped):
            file.write_text(html_document(text))
            page = browser.new_page()
            page.on("console", lambda message: wrong.append(message.text))
            page.goto(file.as_uri())
            for width in (390, 1100):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert len(PAGE.findall(page.pdf(format="A4", prefer_css_page_size=True))) == 1
            page.emulate_media(media="print")
            page.set_viewport_size({"width": round(184 / 25.4 * 96), "height": 1036})  # A4 without its margins
            inside, room = page.evaluate("(m => [m.scrollHeight, m.clientHeight])(document.querySelector('main'))")
            assert inside <= room
    assert wrong == []
