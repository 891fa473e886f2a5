"""Copies of a ledger: two of them in use are two budgets for the same people.

Guarantee: on one machine and for one user, a copy that lacks an entry written to another copy of the same ledger is
refused, also where ledger, keys and anchor were copied or put back together: the newest entry is remembered in the
user's own state folder as well (TACIT_STATE, or XDG_STATE_HOME, or ~/.local/state). And a ledger whose file is not the
one that was written last (the anchor knows its inode) is refused until somebody says that it was moved. Copies that
are said to be moved and then both used on different machines are not noticed here; certificates in other hands show it
(`tacit ledger verify --certificate`). Ledgers without private streams are not watched.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, select

from tacit.privacy.ledger.tables import log, streams
from tacit.privacy.ledger.terms import Head


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The newest entry of a ledger that this user wrote on this machine, and the file it was written to."""

    head: Head
    path: str


def watched(connection: Connection) -> bool:
    """Whether the ledger has a private stream."""
    return connection.execute(select(streams.c.id).where(streams.c.public.is_(False)).limit(1)).first() is not None


def recall(ledger: str) -> Seen | None:
    """What is remembered of a ledger; None where nothing is."""
    try:
        data = json.loads(_file(ledger).read_text())
        return Seen(head=Head(seq=int(data["seq"]), hash=str(data["hash"])), path=str(data["path"]))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None


def remember(ledger: str, head: Head, path: Path) -> None:
    """Note the newest entry. Where there is no place for it nothing is noted: the anchor is the witness."""
    try:
        file = _file(ledger)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{os.getpid()}.new")
        draft.write_text(json.dumps({"seq": head.seq, "hash": head.hash, "path": str(path)}))
        draft.replace(file)
    except (OSError, RuntimeError):
        return


def lacks(connection: Connection, seen: Seen | None) -> bool:
    """Whether the chain lacks what was written to another copy."""
    if seen is None:
        return False
    found = connection.execute(select(log.c.hash).where(log.c.seq == seen.head.seq)).scalar_one_or_none()
    return found != seen.head.hash


def elsewhere(where: str, seen: Seen) -> str:
    """The sentence for a copy that lacks entries."""
    return (
        f"the ledger {where} lacks entry {seen.head.seq}, which was written to it or to a copy of it at {seen.path}: "
        "two copies in use are two budgets for the same people; go on with the newest copy, or accept the loss with "
        "tacit ledger reanchor"
    )


def moved(where: str) -> str:
    """The sentence for a file that is another one than was written last."""
    return (
        f"the ledger {where} is not the file that was written last: it was copied, restored or moved to another disk; "
        "if no other copy of it is in use any more, say so with tacit ledger reanchor"
    )


def _file(ledger: str) -> Path:
    named = os.environ.get("TACIT_STATE") or os.environ.get("XDG_STATE_HOME")
    base = Path(named) if named else Path.home() / ".local" / "state"
    return base / "tacit" / "ledgers" / f"{ledger}.json"
