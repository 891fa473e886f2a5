"""A witness beside the ledger: the newest (seq, hash) of its chain.

Guarantee: after a write returned, the anchor names it; it never goes back; a database that does not contain what
the anchor names was rolled back or exchanged, and is refused. The anchor's bytes are on disk before the commit
(a full disk stops the commit), and are moved into place after it, under a lock that the kernel drops with its
process.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import LedgerError
from tacit.privacy.ledger.terms import Head


class Anchor:
    """The anchor file of one ledger."""

    def __init__(self, ledger: Path) -> None:
        self.path = ledger.with_name(ledger.name + ".anchor")
        self._draft = ledger.with_name(ledger.name + ".anchor.new")
        self._lock = ledger.with_name(ledger.name + ".lock")

    def read(self) -> Head | None:
        """The head that was witnessed last; None where there is no anchor yet."""
        try:
            data = json.loads(self.path.read_text())
            return Head(seq=int(data["seq"]), hash=str(data["hash"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"cannot read the anchor {self.path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise LedgerError(f"the anchor {self.path} is damaged; restore it from the backup of the ledger") from None

    def inode(self) -> int | None:
        """The ledger's file when it was written last; None where the anchor does not say."""
        try:
            found = json.loads(self.path.read_text()).get("file")
        except (OSError, ValueError, AttributeError):
            return None
        return found if isinstance(found, int) else None

    def is_of(self, ledger: Path) -> bool:
        """Whether this is the file that was written last, as far as the anchor says."""
        return self.inode() in (None, ledger.stat().st_ino)

    def read_loosely(self) -> Head | None:
        """The same, or None where the anchor cannot be read."""
        try:
            return self.read()
        except LedgerError:
            return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the ledger's folder: short, and gone when the process dies."""
        try:
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(
                f"cannot lock the ledger beside {self._lock}: {error.strerror}; check its folder"
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def draft(self, head: Head, ledger: Path | None = None) -> None:
        """Before the commit: put the bytes on disk, with which file it is. Call with the lock held."""
        facts = {"seq": head.seq, "hash": head.hash} | ({} if ledger is None else {"file": ledger.stat().st_ino})
        try:
            handle = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w") as file:
                json.dump(facts, file)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise LedgerError(f"cannot write the anchor {self._draft}: {error.strerror}; nothing was charged") from None

    def publish(self) -> None:
        """After the commit: the draft becomes the anchor. Call with the lock still held."""
        try:
            self._draft.replace(self.path)
        except OSError as error:
            raise LedgerError(
                f"the ledger was written but its anchor {self.path} was not: {error.strerror}; the charge stands"
            ) from None
