"""The anchor: a file beside the ledger that names the newest entry of its chain.

Formal guarantees:

* After a write returned, the anchor names its entry, and it never names an earlier one again. A database that lacks
  this entry was rolled back or replaced, and is refused.
* The new anchor is on disk before the commit, so a full disk prevents the commit, and it is moved into place after the
  commit, under a lock that the kernel releases when the process dies.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import LedgerError
from tacit.privacy.ledger.storage.values import Head


class Anchor:
    """The anchor file of one ledger."""

    def __init__(self, ledger: Path) -> None:
        self.path = ledger.with_name(ledger.name + ".anchor")
        self._draft = ledger.with_name(ledger.name + ".anchor.new")
        self._lock = ledger.with_name(ledger.name + ".lock")

    def read(self) -> Head | None:
        """The entry that the anchor names; None if there is no anchor."""
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
        """The inode of the ledger's file at the last write; None if the anchor has none."""
        try:
            inode = json.loads(self.path.read_text()).get("file")
        except (OSError, ValueError, AttributeError):
            return None
        return inode if isinstance(inode, int) else None

    def is_of(self, ledger: Path) -> bool:
        """Whether this is the file written last, as far as the anchor records it."""
        return self.inode() in (None, ledger.stat().st_ino)

    def read_loosely(self) -> Head | None:
        """The entry that the anchor names; None if the anchor cannot be read."""
        try:
            return self.read()
        except LedgerError:
            return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the ledger's file lock, which is released when the process dies."""
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
        """Write the new anchor to disk, before the commit. Call with the lock held."""
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
        """Move the new anchor into place, after the commit. Call with the lock still held."""
        try:
            self._draft.replace(self.path)
        except OSError as error:
            raise LedgerError(
                f"the ledger was written but its anchor {self.path} was not: {error.strerror}; the charge stands"
            ) from None
