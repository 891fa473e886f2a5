"""An open ledger file: its keys, its transactions and its anchor.

Formal guarantees: every write is one atomic transaction, which is on disk and witnessed by the anchor when the call
returns. A copy that lacks entries written to another copy on this machine is refused (`storage.copy_detection`).
"""

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, Self

from sqlalchemy import Connection, Engine

from tacit.charge_flag import touch
from tacit.errors import LedgerError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger import history, officers, opening
from tacit.privacy.ledger.limits.policy import Cap, Policy
from tacit.privacy.ledger.limits.prices import Prices
from tacit.privacy.ledger.log import chain
from tacit.privacy.ledger.log.chain import Transaction
from tacit.privacy.ledger.storage import copy_detection, engine, schema
from tacit.privacy.ledger.storage.anchor import Anchor
from tacit.privacy.ledger.storage.values import Head, StreamSummary
from tacit.privacy.randomness.keys import KeyRing


class LedgerFile:
    """Opens and closes a ledger, and runs its transactions. `Ledger` documents the arguments and attributes."""

    busy_s = 30.0
    """Seconds to wait for another process's write."""

    def __init__(
        self,
        path: str | Path,
        *,
        policy: Policy | None = None,
        keys: KeyRing | None = None,
        unit_cap: Budget | Literal["none"] | None = None,
    ) -> None:
        self._open(Path(path).absolute(), policy, keys, None, unit_cap)

    @classmethod
    def throwaway(cls, *, keys: KeyRing | None = None, unit_cap: Budget | Literal["none"] | None = None) -> Self:
        """A ledger for public data: in a temporary folder, with keys in memory, deleted by `close`.

        Args:
            keys: The keys; new random ones by default.
            unit_cap: The cap of one unit over all streams, as of `Ledger`.

        Returns:
            The ledger.
        """
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
        self._init_state(Prices(), None if folder else Anchor(path))
        self._engine = engine.connect(path, busy_s=self.busy_s)
        try:
            capped = _with_cap(policy, unit_cap)
            self.id, self.keys = opening.prepare(self._engine, path, self._anchor, keys, capped, _reason(unit_cap))
            if policy is not None and capped != self.policy:
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

    def _init_state(self, prices: Prices, anchor: Anchor | None) -> None:
        self._local, self._prices, self._anchor = threading.local(), prices, anchor

    @classmethod
    def reanchor(
        cls, path: str | Path, *, by: str = "", why: str, keys: Sequence[officers.Key] = (), anyway: bool = False
    ) -> Head:
        """Accept a ledger that was rolled back, lost its anchor, lacks entries of another copy, or was moved.

        After an accepted loss, every later certificate states that charges may be missing. Moving a ledger loses
        nothing. The chain records who accepted it and why.

        Args:
            path: The ledger's file.
            by: Who accepts it; the officers' names where `keys` are given.
            why: The reason.
            keys: Private key files of officers, where the ledger has officers.
            anyway: Accept a loss that the ledger does not show.

        Returns:
            The new head of the chain.

        Raises:
            LedgerError: There is no ledger, nothing is to be accepted, or signatures are missing.
        """
        file = Path(path).absolute()
        if not file.is_file():
            raise LedgerError(f"there is no ledger at {file}; check the path")
        database, anchor = engine.connect(file, busy_s=cls.busy_s), Anchor(file)
        try:
            if not opening.begun(database, str(file)):
                raise LedgerError(f"there is no ledger at {file}; check the path")
            with write_transaction(database, file, anchor, accepting=True) as txn:
                kind, body = _accepted_loss(txn, file, anchor, anyway=anyway)
                txn.record(kind, officers.signed(txn.connection, kind, body, keys, by=by, why=why))
            return txn.head
        finally:
            database.dispose()

    @property
    def head(self) -> Head:
        """The newest entry of the chain."""
        with self._read() as connection:
            return chain.head(connection)

    def contains(self, head: Head) -> bool:
        """Whether the chain contains this entry, such as the head that a certificate names.

        Args:
            head: The entry.

        Returns:
            False if the ledger was rolled back since, or is another one.
        """
        with self._read() as connection:
            return opening.contains(connection, head)

    def summary_at(self, head: Head, stream: str) -> StreamSummary:
        """The summary of a stream as it was just after an entry, computed from the log alone.

        Args:
            head: The entry.
            stream: The stream's keyed identity (`StreamSummary.identity`).

        Returns:
            The summary, as `summary` gave it at that time.
        """
        with self._read() as connection:
            return history.summary_at(connection, head, stream, self.id)

    @property
    def policy(self) -> Policy:
        """The policy that was adopted last, by any process."""
        with self._read() as connection:
            return opening.recorded_policy(connection)

    @property
    def is_throwaway(self) -> bool:
        """Whether this ledger is for public data only and is deleted by `close`."""
        return self._folder is not None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Register many streams, blocks and event lists in one transaction.

        Charges are refused inside, because nothing is on disk before the end.

        Returns:
            A context manager; everything is written when it ends without an error.
        """
        with self._write():
            yield

    def _require_durable(self, what: str) -> None:
        if getattr(self._local, "txn", None) is not None:
            raise LedgerError(f"{what} inside transaction() would not be on disk when it returns; {what} after it")

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
        with write_transaction(self._engine, self.path, self._anchor) as txn:
            self._local.txn = txn
            try:
                yield txn
            finally:
                self._local.txn = None

    def close(self) -> None:
        """Close the file; a throw-away ledger is deleted."""
        self._engine.dispose()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _accepted_loss(txn: Transaction, path: Path, anchor: Anchor, *, anyway: bool) -> tuple[str, dict[str, object]]:
    """What is to be accepted: the kind and the body of the entry."""
    witnessed, last = anchor.read_loosely(), copy_detection.last_write(txn.ledger)
    whole = witnessed is not None and opening.contains(txn.connection, witnessed)
    watched = copy_detection.watched(txn.connection)
    lacks = copy_detection.lacks(txn.connection, last)
    if whole and watched and not lacks and not anchor.is_of(path):
        return "move", {"to": str(path)}
    if whole and not anyway and not (watched and lacks):
        raise LedgerError(
            f"the ledger {path} is in order and there is nothing to accept; to accept a loss that only you know of "
            "(every later certificate would say that charges may be missing), add --anyway"
        )
    heads = [head for head in (witnessed, None if last is None else last.head) if head is not None]
    return "reanchor", {"lost": max((head.seq for head in heads), default=None)}


def _with_cap(policy: Policy | None, unit_cap: Budget | Literal["none"] | None) -> Policy | None:
    if unit_cap is None:
        return policy
    cap = None if unit_cap == "none" else Cap.of(unit_cap, counts="budgets")
    return (policy or Policy()).model_copy(update={"unit_cap": cap})


def _reason(unit_cap: Budget | Literal["none"] | None) -> str:
    if unit_cap is None:
        return "the ledger was made"
    cap = "none" if unit_cap == "none" else f"ε = {unit_cap.epsilon:g}, δ = {unit_cap.delta:g}"
    return f"the ledger was made with unit_cap: {cap}"


@contextmanager
def write_transaction(
    database: Engine, path: Path, anchor: Anchor | None, *, accepting: bool = False
) -> Iterator[Transaction]:
    """A write transaction that updates the anchor. The database's lock is always taken before the anchor's.

    A copy that lacks entries of another copy is refused, unless `accepting` that.
    """
    name: str | None = None  # the id of a ledger whose copies are watched
    with ExitStack() as lock:
        with engine.transaction(database, str(path), write=True) as connection:
            txn = Transaction(connection)
            schema.require_current(connection)  # under the lock that the transaction holds
            yield txn
            if txn.broken:
                raise LedgerError("a call inside transaction() failed, so nothing was written; try it again")
            if txn.grew and anchor is not None:
                name = txn.ledger if copy_detection.watched(connection) else None
                last = copy_detection.last_write(name) if name is not None and not accepting else None
                if last is not None and copy_detection.lacks(connection, last):
                    raise LedgerError(copy_detection.outdated(str(path), last))
                lock.enter_context(anchor.locked())
                anchor.draft(txn.head, None if name is None else path)
        if txn.grew and anchor is not None:
            anchor.publish()
            if name is not None:
                copy_detection.remember(name, txn.head, path)
