"""The log of a ledger in words: who did what, when and why, entry by entry.

It contains public facts and charged values only, and never the members of tasks.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.certificate.spending import describe
from tacit.privacy.ledger import NOT_AUTHENTICATED, LogEntry


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One entry of the chain in words."""

    seq: int
    when: str | None
    """The time in UTC, for work on records only the date; None for entries of versions that did not record it."""
    kind: str
    streams: tuple[str, ...]
    what: str
    by: str | None
    why: str | None
    signed_by: tuple[str, ...]
    """The officers who signed the entry."""
    authenticated: bool | None
    """Whether a decision is signed; None for other entries."""
    hash: str

    @property
    def who(self) -> str:
        """Who decided, and whether that is authenticated."""
        if self.by is None:
            return ""
        return f"{self.by} ({'signed' if self.authenticated else NOT_AUTHENTICATED})"


def lines(entries: Iterable[LogEntry], *, stream: str | None = None) -> Iterator[LogLine]:
    """Every entry in words; with `stream`, only entries about it or about the whole ledger."""
    for entry in entries:
        if stream is not None and entry.streams and stream not in entry.streams:
            continue
        body = entry.body
        marks = tuple(body.get("signatures", {}))
        yield LogLine(
            seq=entry.seq,
            when=body.get("at"),
            kind=entry.kind,
            streams=entry.streams,
            what=words(entry),
            by=body.get("by"),
            why=body.get("why"),
            signed_by=marks,
            authenticated=bool(marks) if "by" in body else None,
            hash=entry.hash,
        )


def words(entry: LogEntry) -> str:
    """The effect of an entry in words."""
    body, tasks = entry.body, _listed(entry.tasks)
    match entry.kind:
        case "open":
            return "the ledger was made"
        case "policy":
            return f"policy: {_policy(body['policy'])}"
        case "officer":
            deed = "registered" if body["action"] == "add" else "removed"
            return f"officer {body['name']!r} {deed}, public key {body['key']}"
        case "raise":
            before = body["from"]
            change = f"ε {before['epsilon']:g} → {body['epsilon']:g}"
            same = before["delta"] == body["delta"]
            return f"budget raised: {change}" + ("" if same else f", δ {before['delta']:g} → {body['delta']:g}")
        case "reanchor":
            lost = "" if body.get("lost") is None else f" before entry {body['lost']}"
            return f"a loss of entries{lost} was accepted: charges may be missing"
        case "move":
            return "the ledger was moved or restored, and no other copy is in use (declared)"
        case "stream":
            return _stream(body)
        case "enroll":
            return f"task {tasks}: its units were recorded"
        case "block":
            return f"task {tasks} admitted: {body['mode']}, nominal size {body['size']:,}"
        case "refresh":
            return f"task {tasks}: records admitted again"
        case "split":
            return f"task {tasks} split into {', '.join(child['part'] for child in body['children'])}"
        case "commit":
            return f"reads of {tasks} committed: {_events(e for group in body['lists'] for e in group['events'])}"
        case "reserve":
            return f"{entry.grant} on {tasks} reserved: {_events(event for _, event, _ in body['reads'])}"
        case "charge" | "release" | "resume":
            return f"{entry.grant} on {tasks} {entry.kind}d"
        case "void":
            return f"{entry.grant} on {tasks} voided before any noise was drawn; nothing was charged"
        case "retire":
            return f"{tasks} retired: no further reads"
        case "expose":
            return f"unprotected records of {tasks} released: no finite ε"
    return entry.kind


def _stream(body: Mapping[str, Any]) -> str:
    if body["public"]:
        return f"stream {body['name']!r} made: declared public"
    return (
        f"stream {body['name']!r} made: one {body['unit']} ({body['adjacency']}) may lose ε = {body['epsilon']:g}, "
        f"δ = {body['delta']:g}, in at most {body['tasks_per_unit']} task(s)"
    )


def _policy(policy: Mapping[str, Any]) -> str:
    """The statements that are on, and the other values."""
    statements = [key for key, value in policy.items() if value is True]
    if policy.get("may_raise"):
        statements.append(f"budgets may be raised by {', '.join(policy['may_raise'])}")
    if policy.get("signatures", 1) > 1:
        statements.append(f"decisions need {policy['signatures']} signatures")
    for names in policy.get("disjoint", ()):
        statements.append(f"no unit is in two of {', '.join(names)}")
    cap = policy.get("unit_cap")
    statements.append("no unit_cap" if cap is None else f"unit_cap ε = {cap['epsilon']:g}, δ = {cap['delta']:g}")
    return "; ".join(statements)


def _events(texts: Iterable[str]) -> str:
    counts = Counter(describe(json.loads(text)) for text in texts)
    return "; ".join(what if times == 1 else f"{times} times {what}" for what, times in counts.items())


def _listed(tasks: tuple[str, ...], most: int = 4) -> str:
    rest = f" and {len(tasks) - most} more" if len(tasks) > most else ""
    return ", ".join(tasks[:most]) + rest
