"""An open ledger file: its keys, its transactions and its anchor. `Ledger` adds what can be written in it.

Guarantee: every write is one transaction (all of it or nothing), on disk and witnessed by the anchor when it returns.
"""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from sqlalchemy import Connection, Engine

from tacit.errors import LedgerError
from tacit.privacy.keys import KeyRing
from tacit.privacy.ledger import chain, engine, history, opening, schema
from tacit.privacy.ledger.anchor import Anchor
from tacit.privacy.ledger.chain import Transaction
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.terms import Head, Summary
from tacit.privacy.policy import Policy


class Book:
    """A chain of entries in a file; keys at `<path>.keys`, the witness of the newest entry at `<path>.anchor`."""

    busy_s = 30.0
    """How long to wait for another process's write."""

    def __init__(self, path: str | Path, *, policy: Policy | None = None, keys: KeyRing | None = None) -> None:
        self._open(Path(path).absolute(), policy, keys, None)

    @classmethod
    def throwaway(cls, *, keys: KeyRing | None = None) -> Self:
        """A ledger for data declared public: in a temporary folder, keys in memory, gone with `close`."""
        self = cls.__new__(cls)
        folder = tempfile.TemporaryDirectory(prefix="tacit-")
        self._open(Path(folder.name) / "ledger", None, keys or KeyRing.create(None), folder)
        return self

    def _open(
        self,
        path: Path,
        policy: Policy | None,
        keys: KeyRing | None,
        folder: "tempfile.TemporaryDirectory[str] | None",
    ) -> None:
        opening.touch(path)
        self.path = path
        self._folder = folder
        self._local = threading.local()
        self._prices = Prices()
        self._anchor = None if folder else Anchor(path)
        self._engine = engine.connect(path, busy_s=self.busy_s)
        try:
            made = opening.prepare(self._engine, path, self._anchor, keys, policy)
            self.id, self.keys = made
            if policy is not None and policy != self.policy:
                raise LedgerError(
                    f"the ledger {path} holds another policy than the one given; call ledger.adopt(policy, by=…, why=…)"
                )
        except BaseException:
            self._engine.dispose()
            raise

    @classmethod
    def reanchor(cls, path: str | Path, *, by: str, why: str) -> Head:
        """Accept a ledger whose anchor is missing or names an entry it has not; the chain says who and why."""
        signed(by, why)
        place = Path(path).absolute()
        if not place.exists():
            raise LedgerError(f"there is no ledger at {place}; check the path")
        base, anchor = engine.connect(place, busy_s=cls.busy_s), Anchor(place)
        try:
            if not opening.begun(base, str(place)):
                raise LedgerError(f"there is no ledger at {place}; check the path")
            with writing(base, place, anchor) as txn:
                lost = anchor.read_loosely()
                txn.record("reanchor", {"by": by, "why": why, "lost": None if lost is None else lost.seq})
            return txn.head
        finally:
            base.dispose()

    @property
    def head(self) -> Head:
        """The newest entry of the chain."""
        with self._read() as connection:
            return chain.head(connection)

    def contains(self, head: Head) -> bool:
        """Whether the chain has this entry: a certificate's head must be in it."""
        with self._read() as connection:
            return opening.contains(connection, head)

    def summary_at(self, head: Head, stream: str) -> Summary:
        """What a certificate of the stream of this identity said just after an entry, from the log alone."""
        with self._read() as connection:
            return history.summary_at(connection, head, stream, self.id)

    @property
    def policy(self) -> Policy:
        """The policy that was adopted last, by whichever process."""
        with self._read() as connection:
            return opening.recorded_policy(connection)

    @property
    def is_throwaway(self) -> bool:
        """Whether this ledger is for public data only and goes with `close`."""
        return self._folder is not None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make many streams, blocks and lists in one transaction.

        Charges are refused inside: they are on disk when they return, and here nothing is until the end.
        """
        with self._write():
            yield

    def _durable(self, what: str) -> None:
        if getattr(self._local, "txn", None) is not None:
            raise LedgerError(f"{what} inside together() would not be on disk when it returns; {what} after it")

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        txn: Transaction | None = getattr(self._local, "txn", None)
        if txn is not None:
            yield txn.connection
            return
        with engine.transaction(self._engine, str(self.path), write=False) as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Transaction]:
        outer: Transaction | None = getattr(self._local, "txn", None)
        if outer is not None:
            try:
                yield outer
            except BaseException:
                outer.broken = True
                raise
            return
        with writing(self._engine, self.path, self._anchor) as txn:
            self._local.txn = txn
            try:
                yield txn
            finally:
                self._local.txn = None

    def close(self) -> None:
        """Let go of the file; a throw-away ledger is deleted."""
        self._engine.dispose()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def writing(base: Engine, path: Path, anchor: Anchor | None) -> Iterator[Transaction]:
    """A write transaction and its witness. The database's lock is always taken before the anchor's."""
    with ExitStack() as lock:
        with engine.transaction(base, str(path), write=True) as connection:
            txn = Transaction(connection)
            schema.require_current(connection)  # under the lock that the transaction has taken
            yield txn
            if txn.broken:
                raise LedgerError("a call inside together() failed, so nothing of it was written; try it again")
            if txn.grew and anchor is not None:
                lock.enter_context(anchor.locked())
                anchor.draft(txn.head)
        if txn.grew and anchor is not None:
            anchor.publish()


def signed(by: str, why: str) -> None:
    """Refuse what nobody answers for."""
    if not by.strip() or not why.strip():
        raise LedgerError(f"say by whom and why, it stays in the ledger; got by={by!r}, why={why!r}")
