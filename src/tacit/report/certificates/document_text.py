"""What a document about a certificate says, as plain texts of limited length, which HTML and PDF show alike.

Everything is public or charged: it comes from a certificate, from what its curator declared, and from the accuracy that
a run reports. Texts are cut to what fits on one page; the certificate has them in full.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from tacit.certificate import Certificate
from tacit.certificate.attack_text import AttackWords, attack_words, up
from tacit.certificate.certificate_text import EXACT_ARITHMETIC, REAL_ARITHMETIC, model_hash
from tacit.certificate.declared_fields import TITLES, Deployment, declared_rows
from tacit.report.certificate_words import audits, observer, protected, strength
from tacit.words import counted

T = TypeVar("T")
MORE = "…"
"""Ends a text that was cut."""
_NAME, _LINE, _SENTENCE, _FIELD = 70, 130, 420, 150
_MOST_LISTED, _MOST_AUDITS = 9, 2
_ALWAYS_PUBLIC = (
    "all code, plans, clipping norms and noise levels; only the random draws are secret",
    "the number, order and dates of tasks and releases, and their nominal sizes as declared",
)


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number that is shown large.

    Attributes:
        title: What it is.
        value: The number with its unit.
        note: What it means.
    """

    title: str
    value: str
    note: str


@dataclass(frozen=True, kw_only=True)
class DocumentText:
    """What a document says.

    Attributes:
        title: The name of the data product, or of the method.
        subtitle: The method, the data and the date.
        guaranteed: Whether a finite ε is certified.
        verdict: The guarantee in plain words.
        numbers: ε, µ and the bounds on attackers; none if nothing is guaranteed.
        facts: Questions and answers.
        groups: The table of bounds for several units, its headings first; empty if nothing is guaranteed.
        assumptions: Their state and what they say.
        public: What is public all the same.
        not_counted: What the bound does not cover.
        declared: What the curator states, by field.
        unstated: The fields that are not stated, and where the stated ones come from.
        audits: The results of audits.
        identity: Ids, dates, hashes and the signature.
        small_print: How the numbers were computed.
    """

    title: str
    subtitle: str
    guaranteed: bool
    verdict: str
    numbers: tuple[Number, ...]
    facts: tuple[tuple[str, str], ...]
    groups: tuple[tuple[str, ...], ...]
    assumptions: tuple[tuple[str, str], ...]
    public: tuple[str, ...]
    not_counted: tuple[str, ...]
    declared: tuple[tuple[str, str], ...]
    unstated: str
    audits: tuple[str, ...]
    identity: tuple[tuple[str, str], ...]
    small_print: str

    @property
    def letters(self) -> int:
        """How many letters there are, for the size of the type."""
        return sum(map(_room, _texts(asdict(self))))


def document_text(
    certificate: Certificate, *, utility: str = "", later: Deployment | None = None, later_source: str = ""
) -> DocumentText:
    """The text of the document about a certificate.

    Args:
        certificate: The certificate.
        utility: How useful the models are, with an interval; "" if that is not known.
        later: Declared fields that were given beside the certificate; they replace its own.
        later_source: The name of the file that they come from.

    Returns:
        The text.
    """
    certified, kind = certificate.claims.certified, certificate.unit.kind
    words = attack_words(certificate)
    rows = dict(declared_rows(certificate, later))
    ordered = sorted(certificate.assumptions, key=lambda one: ("violated", "declared", "checked").index(one.state))
    return DocumentText(
        title=cut(rows.pop("name", "") or f"Models of the stream {certificate.ledger.stream}", _NAME),
        subtitle=cut(
            f"{certificate.method} · {counted(certified.all_tasks, 'task')} · {certificate.created[:10]}", 110
        ),
        guaranteed=words is not None,
        verdict=_verdict(certificate, words),
        numbers=() if words is None else _numbers(certificate, words),
        facts=tuple((question, cut(answer, _SENTENCE)) for question, answer in _facts(certificate)),
        groups=() if words is None else (_headings(kind), *words.groups),
        assumptions=tuple(
            (state, says) for state, says in _cut_all([a.state for a in ordered], [a.says for a in ordered])
        ),
        public=_listed([*_ALWAYS_PUBLIC, *_public(certificate)]),
        not_counted=_listed(certificate.not_accounted),
        declared=tuple((title, cut(text, _FIELD)) for title, text in _with_utility(rows, utility)),
        unstated=_unstated(rows, utility, later, later_source),
        audits=_audits(certificate),
        identity=_identity(certificate),
        small_print=_small_print(words),
    )


def _numbers(certificate: Certificate, words: AttackWords) -> tuple[Number, ...]:
    kind, (_, epsilon, advantage, some, few) = certificate.unit.kind, words.groups[0]
    delta = certificate.claims.certified.delta
    return (
        Number(title="ε", value=f"≤ {epsilon}", note=f"with δ = {delta:g}, for one {kind}"),
        Number(title="µ of Gaussian DP", value=_limit(words.mu[0]), note=words.mu[1]),
        Number(
            title="attacker's advantage", value=f"≤ {advantage}", note="found minus false alarms; guessing: 0\u202f%"
        ),
        Number(title="found at 1\u202f% false alarms", value=f"≤ {some}", note="guessing finds 1\u202f%"),
        Number(title="found at 0.1\u202f% false alarms", value=f"≤ {few}", note="guessing finds 0.1\u202f%"),
    )


def _limit(number: str) -> str:
    return number if number == "none" else f"≤ {number}"


def _verdict(certificate: Certificate, words: AttackWords | None) -> str:
    certified, kind = certificate.claims.certified, certificate.unit.kind
    said = strength(certified.epsilon, certified.delta, certified.reason, kind)
    if words is None:
        return cut(said, _SENTENCE)
    return (
        f"{cut(said, _SENTENCE)} An attacker who wrongly accuses 1\u202f% of the {kind}s that were not in the data "
        f"finds at most {words.groups[0][3]} of those that were."
    )


def _headings(kind: str) -> tuple[str, ...]:
    return (f"{kind}s together", "ε", "advantage", "found at 1\u202f%", "found at 0.1\u202f%")


def _facts(certificate: Certificate) -> list[tuple[str, str]]:
    rules = [rule for rule in certificate.claims.certified.over_tasks if rule.applies]
    guaranteed = certificate.claims.certified.epsilon is not None
    over = [f"The bound holds for {rule.holds_for} ({rule.rule} composition)." for rule in rules if guaranteed]
    over += [] if rules else [certificate.claims.certified.reason]
    total, kind = certificate.same_units, certificate.unit.kind
    added = [] if total is None else [other for other in total.streams if other.added]
    if total is not None and added:
        bound = "no finite ε" if total.epsilon is None else f"ε = {up(total.epsilon)}, δ = {total.delta:g}"
        over.append(f"Over this and {counted(len(added), 'other stream')} that may have the same {kind}s: {bound}.")
    exact = EXACT_ARITHMETIC if certificate.arithmetic == "exact" else REAL_ARITHMETIC
    chosen = f"Tuning: {certificate.tuning}. Arithmetic: {exact}."
    facts = [
        ("Who is protected", protected(certificate)),
        ("From whom", observer(certificate) if guaranteed else ""),
        ("Over time", " ".join(over)),
        ("How it was made", chosen),
    ]
    return [(question, answer) for question, answer in facts if answer]


def _public(certificate: Certificate) -> list[str]:
    """What is public of this stream besides what always is."""
    policy = certificate.labels.policy
    found = (
        [] if policy == "none" else [f"the label sets ({policy}); how many records are outside them is not released"]
    )
    if certificate.adjacency != "add-or-remove":
        found.append(f"the number of {certificate.unit.kind}s")
    if released := certificate.observer.metrics_released:
        found.append(f"charged values: {', '.join(released)}")
    steps = [mechanism.plan.get("steps") for mechanism in certificate.mechanisms]
    if known := [step for step in steps if isinstance(step, int)]:
        found.append(f"the number of steps of each task (at most {max(known):,} in one plan) and every noisy result")
    found += [f"also used: {words}" for words in certificate.beside]
    return found


def _with_utility(rows: dict[str, str], utility: str) -> list[tuple[str, str]]:
    return [*rows.items(), *([("utility", utility)] if utility else [])]


def _unstated(rows: dict[str, str], utility: str, later: Deployment | None, source: str) -> str:
    missing = [title for title in TITLES.values() if title not in rows and title != "name"]
    missing += [] if utility else ["utility"]
    said = f"Not stated: {', '.join(missing)}." if missing else "Every field is stated."
    if later is not None:
        return (
            f"{said} What is stated was given in {cut(source, _NAME)} beside the certificate: no signature covers it."
        )
    if not rows:
        return said
    return f"{said} The statements are the curator's; the ledger records them, tacit does not check them."


def _audits(certificate: Certificate) -> tuple[str, ...]:
    found = audits(certificate)
    more = (
        [f"{counted(len(found) - _MOST_AUDITS, 'more audit')} in the certificate"] if len(found) > _MOST_AUDITS else []
    )
    return (*(cut(one, 2 * _LINE) for one in found[:_MOST_AUDITS]), *more)


def _identity(certificate: Certificate) -> tuple[tuple[str, str], ...]:
    signature, hashed = certificate.signature, model_hash(certificate)
    signed = "no: anyone may have written it" if signature is None else f"Ed25519, key {signature.public_key}"
    library = f"{certificate.library.name} {certificate.library.version}"
    facts = (
        ("certificate", certificate.id),
        ("issued", f"{certificate.created[:10]} by {library}"),
        ("ledger", f"{certificate.ledger.id}, stream {certificate.ledger.stream}, entry {certificate.ledger.head_seq}"),
        ("model", "the certificate names none" if hashed is None else f"SHA-256 {hashed}"),
        ("signed", signed),
    )
    return tuple((name, cut(value, 120)) for name, value in facts)


def _small_print(words: AttackWords | None) -> str:
    if words is None:
        return "No number on a certificate without a finite ε bounds what an attacker can do."
    return (
        f"All numbers are upper bounds, rounded up, over every attack that sees what is named under “From whom”, by "
        f"{words.computed}. A false alarm takes who was not in the data for one who was. Several together, such as a "
        "family: by iterating the trade-off curve (Dong, Roth & Su 2022, Theorem 2.14); ε at the same δ."
    )


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, tuple | list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []


def _room(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def cut(text: str, most: int) -> str:
    """A text in one line that takes no more room than `most` letters, and that cannot change what surrounds it.

    Args:
        text: Any text.
        most: The room, in letters.

    Returns:
        The text without control and formatting characters; with an ellipsis where it was cut.
    """
    kept: list[str] = []
    room, marks = most, 0
    for letter in " ".join(str(text)[: 8 * most].split()):
        category = unicodedata.category(letter)
        if category[0] == "C":
            continue
        marks = marks + 1 if category[0] == "M" else 0
        if marks > 2:
            continue
        room -= 0 if marks else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if room < 0:
            return "".join(kept).rstrip() + MORE
        kept.append(letter)
    return "".join(kept) + (MORE if len(str(text)) > 8 * most else "")


def _listed(texts: Iterable[str]) -> tuple[str, ...]:
    every = list(texts)
    return tuple(text for _, text in _cut_all(every, every))


def _cut_all(things: Sequence[T], texts: Sequence[str]) -> list[tuple[T, str]]:
    """The first things with their texts, cut; the last says how many more there are."""
    found = [(thing, cut(text, _LINE)) for thing, text in zip(things, texts, strict=True)]
    if len(found) <= _MOST_LISTED:
        return found
    more = f"{len(found) - _MOST_LISTED + 1} more in the certificate"
    return [*found[: _MOST_LISTED - 1], (found[_MOST_LISTED - 1][0], more)]
