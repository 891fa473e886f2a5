"""An open ledger file: its keys, its transactions and its anchor. `Ledger` adds what can be written in it.

Guarantee: every write is one transaction (all of it or nothing), on disk and witnessed by the anchor when it returns.
"""

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, Self

from sqlalchemy import Connection, Engine

from tacit.errors import LedgerError
from tacit.privacy.budget import Budget
from tacit.privacy.keys import KeyRing
from tacit.privacy.ledger import chain, copies, engine, history, officers, opening, schema
from tacit.privacy.ledger.anchor import Anchor
from tacit.privacy.ledger.chain import Transaction
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.terms import Head, Summary
from tacit.privacy.policy import Cap, Policy
from tacit.privacy.touched import touch


class Book:
    """A chain of entries in a file; keys at `<path>.keys`, the witness of the newest entry at `<path>.anchor`."""

    busy_s = 30.0
    """How long to wait for another process's write."""

    def __init__(
        self,
        path: str | Path,
        *,
        policy: Policy | None = None,
        keys: KeyRing | None = None,
        unit_cap: Budget | Literal["none"] | None = None,
    ) -> None:
        """Open the ledger, or make it. `unit_cap` is the most that one unit may lose over all streams: the sum of their
        budgets stays below it. "none" writes down that there is to be none."""
        place = Path(path).absolute()
        self._open(place, policy, keys, None, unit_cap)

    @classmethod
    def throwaway(cls, *, keys: KeyRing | None = None, unit_cap: Budget | Literal["none"] | None = None) -> Self:
        """A ledger for data declared public: in a temporary folder, keys in memory, gone with `close`."""
        self = cls.__new__(cls)
        folder = tempfile.TemporaryDirectory(prefix="tacit-")
        self._open(Path(folder.name) / "ledger", None, keys or KeyRing.create(None), folder, unit_cap)
        return self

    def _open(
        self,
        path: Path,
        policy: Policy | None,
        keys: KeyRing | None,
        folder: "tempfile.TemporaryDirectory[str] | None",
        unit_cap: Budget | Literal["none"] | None = None,
    ) -> None:
        opening.touch(path)
        self.path = path
        self._folder = folder
        self._begin(Prices(), None if folder else Anchor(path))
        self._engine = engine.connect(path, busy_s=self.busy_s)
        try:
            first = _capped(policy, unit_cap)
            self.id, self.keys = opening.prepare(self._engine, path, self._anchor, keys, first, _why(unit_cap))
            policy = first if policy is not None else None
            if policy is not None and policy != self.policy:
                raise LedgerError(
                    f"the ledger {path} holds another policy than the one given; call ledger.adopt(policy, by=…, why=…)"
                )
            cap = self.policy.cap
            if unit_cap is not None and cap != (None if unit_cap == "none" else unit_cap):
                raise LedgerError(
                    f"the ledger {path} has {'no unit_cap' if cap is None else f'a unit_cap of {cap}'}, got "
                    f"{unit_cap}; leave it out, or have another adopted (tacit policy adopt)"
                )
        except BaseException:
            self._engine.dispose()
            raise

    def _begin(self, prices: Prices, anchor: Anchor | None) -> None:
        self._local, self._prices, self._anchor = threading.local(), prices, anchor

    @classmethod
    def reanchor(
        cls, path: str | Path, *, by: str = "", why: str, keys: Sequence[officers.Key] = (), anyway: bool = False
    ) -> Head:
        """Accept a ledger that was rolled back, lost its anchor or lacks entries of another copy: every later
        certificate says that charges may be missing. Or one that was moved, which loses nothing. The chain says who and
        why. A ledger that is in order is refused, except `anyway`."""
        place = Path(path).absolute()
        if not place.is_file():
            raise LedgerError(f"there is no ledger at {place}; check the path")
        base, anchor = engine.connect(place, busy_s=cls.busy_s), Anchor(place)
        try:
            if not opening.begun(base, str(place)):
                raise LedgerError(f"there is no ledger at {place}; check the path")
            with writing(base, place, anchor, accepting=True) as txn:
                kind, body = _loss(txn, place, anchor, anyway=anyway)
                txn.record(kind, officers.signed(txn.connection, kind, body, keys, by=by, why=why))
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
        if self._anchor is not None:
            touch()
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


def _loss(txn: Transaction, path: Path, anchor: Anchor, *, anyway: bool) -> tuple[str, dict[str, object]]:
    """What there is to accept: the kind of the entry, and what it says."""
    witnessed, seen = anchor.read_loosely(), copies.recall(txn.ledger)
    whole = witnessed is not None and opening.contains(txn.connection, witnessed)
    watched = copies.watched(txn.connection)
    if whole and watched and not copies.lacks(txn.connection, seen) and not anchor.is_of(path):
        return "move", {"to": str(path)}
    if whole and not anyway and not (watched and copies.lacks(txn.connection, seen)):
        raise LedgerError(
            f"the ledger {path} is in order and there is nothing to accept; to accept a loss that only you know of "
            "(every later certificate would say that charges may be missing), add --anyway"
        )
    known = [one for one in (witnessed, None if seen is None else seen.head) if one is not None]
    lost = max((one.seq for one in known), default=None)
    return "reanchor", {"lost": lost}


def _capped(policy: Policy | None, unit_cap: Budget | Literal["none"] | None) -> Policy | None:
    if unit_cap is None:
        return policy
    cap = None if unit_cap == "none" else Cap.of(unit_cap, counts="budgets")
    return (policy or Policy()).model_copy(update={"unit_cap": cap})


def _why(unit_cap: Budget | Literal["none"] | None) -> str:
    if unit_cap is None:
        return "the ledger was made"
    said = "none" if unit_cap == "none" else f"ε = {unit_cap.epsilon:g}, δ = {unit_cap.delta:g}"
    return f"the ledger was made, and its unit_cap was asked for: {said}"


@contextmanager
def writing(base: Engine, path: Path, anchor: Anchor | None, *, accepting: bool = False) -> Iterator[Transaction]:
    """A write transaction and its witnesses. The database's lock is always taken before the anchor's.

    A copy that lacks what was written to another one is refused, unless just that is being accepted."""
    name: str | None = None  # of a ledger that is watched
    with ExitStack() as lock:
        with engine.transaction(base, str(path), write=True) as connection:
            txn = Transaction(connection)
            schema.require_current(connection)  # under the lock that the transaction has taken
            yield txn
            if txn.broken:
                raise LedgerError("a call inside together() failed, so nothing of it was written; try it again")
            if txn.grew and anchor is not None:
                name = txn.ledger if copies.watched(connection) else None
                seen = copies.recall(name) if name is not None and not accepting else None
                if seen is not None and copies.lacks(connection, seen):
                    raise LedgerError(copies.elsewhere(str(path), seen))
                lock.enter_context(anchor.locked())
                anchor.draft(txn.head, None if name is None else path)
        if txn.grew and anchor is not None:
            anchor.publish()
            if name is not None:
                copies.remember(name, txn.head, path)


def signed(by: str, why: str) -> None:
    """Refuse what nobody answers for."""
    if not by.strip() or not why.strip():
        raise LedgerError(f"say by whom and why, it stays in the ledger; got by={by!r}, why={why!r}")
