"""Detection of copies of a ledger: two copies in use would be two budgets for the same people.

Formal guarantees, for ledgers with private streams, on one machine and for one user:

* A copy that lacks an entry written to another copy is refused, even if ledger, keys and anchor were copied or restored
  together. The newest entry is also recorded in the user's state folder (TACIT_STATE, XDG_STATE_HOME or
  ~/.local/state).
* A ledger whose file is not the one written last (the anchor records its inode) is refused until somebody declares that
  it was moved.

Not detected: a copy that was declared moved and is then used on another machine while the first stays in use.
Certificates in other hands reveal it (`tacit ledger verify --certificate`).
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, select

from tacit.privacy.ledger.storage.tables import log, streams
from tacit.privacy.ledger.storage.values import Head


@dataclass(frozen=True, kw_only=True)
class LastWrite:
    """The newest entry that this user wrote to a ledger on this machine, and the file it was written to."""

    head: Head
    path: str


def watched(connection: Connection) -> bool:
    """Whether copies of the ledger are detected: whether it has a private stream."""
    return connection.execute(select(streams.c.id).where(streams.c.public.is_(False)).limit(1)).first() is not None


def last_write(ledger: str) -> LastWrite | None:
    """The last write to a ledger, by its id; None if none is recorded."""
    try:
        data = json.loads(_file(ledger).read_text())
        return LastWrite(head=Head(seq=int(data["seq"]), hash=str(data["hash"])), path=str(data["path"]))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None


def remember(ledger: str, head: Head, path: Path) -> None:
    """Record the newest entry. Without a writable state folder nothing is recorded; the anchor remains."""
    try:
        file = _file(ledger)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{os.getpid()}.new")
        draft.write_text(json.dumps({"seq": head.seq, "hash": head.hash, "path": str(path)}))
        draft.replace(file)
    except (OSError, RuntimeError):
        return


def lacks(connection: Connection, last: LastWrite | None) -> bool:
    """Whether the chain lacks the entry that was written last."""
    if last is None:
        return False
    stored = connection.execute(select(log.c.hash).where(log.c.seq == last.head.seq)).scalar_one_or_none()
    return stored != last.head.hash


def outdated(where: str, last: LastWrite) -> str:
    """The error message for a copy that lacks entries."""
    return (
        f"the ledger {where} lacks entry {last.head.seq}, which was written to it or to a copy of it at {last.path}: "
        "two copies in use are two budgets for the same people; use the newest copy, or accept the loss with "
        "tacit ledger reanchor"
    )


def moved(where: str) -> str:
    """The error message for a file that is not the one written last."""
    return (
        f"the ledger {where} is not the file that was written last: it was copied, restored or moved to another disk; "
        "if no other copy of it is in use any more, declare it with tacit ledger reanchor"
    )


def _file(ledger: str) -> Path:
    state = os.environ.get("TACIT_STATE") or os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "tacit" / "ledgers" / f"{ledger}.json"
