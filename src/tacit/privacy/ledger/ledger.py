"""The ledger: what every unit of every stream was charged, and what it may still lose.

Formal guarantees:

* A charge is on disk before the call that makes it returns.
* No charge exceeds the budget of its stream or the policy's cap, whatever processes share the file and wherever they
  are killed.
* Every change is one entry of a hash chain, and the tables follow from the chain. A file that was rolled back, changed
  or replaced by a copy is refused (see `storage.copy_detection` for what cannot be noticed).

Conditions: the file system honours fsync, and the ledger is kept as long as the data. It belongs to the data, not to a
run.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dp_accounting.dp_event import DpEvent
from numpy.typing import NDArray
from sqlalchemy import Connection

from tacit.errors import BudgetExceeded, LedgerError
from tacit.privacy.ledger import enrolment, grants, opening, proposal, registration, statement
from tacit.privacy.ledger.decisions import Decisions
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.officers import require_reason
from tacit.privacy.ledger.queries import LedgerQueries
from tacit.privacy.ledger.storage import lookup
from tacit.privacy.ledger.storage.values import BlockRow, Mode, Overlap, StreamTerms, Ticket, Work


class Ledger(LedgerQueries, Decisions):
    """A ledger in a file. Its keys are at `<path>.keys`, the witness of its newest entry at `<path>.anchor`.

    Args:
        path: The ledger's file; a new ledger is made if there is none.
        policy: The policy of a new ledger, or the one that an existing ledger must have.
        keys: The keys, where they are not at `<path>.keys`.
        unit_cap: The most that one unit may lose over all streams: the sum of their budgets stays below it. "none"
            records that there is to be no cap.

    Attributes:
        id: The ledger's random id.
        path: The file's absolute path.
        keys: The keys that identities, sampling and noise derive from.
        policy: The policy adopted last.
        head: The newest entry of the chain.

    Raises:
        LedgerError: The file is not a ledger, is damaged, was rolled back or moved, or lacks its keys.

    Example:
        >>> with Ledger("hospital.ledger") as ledger:
        ...     stream_id = ledger.stream(StreamTerms(name="scans", budget=Budget(epsilon=1.0, delta=1e-6)))
    """

    def stream(self, terms: StreamTerms) -> int:
        """Register a stream, or find it by its name.

        Args:
            terms: Its budget, unit, bounds and other public facts.

        Returns:
            The stream's id.

        Raises:
            LedgerError: The stream is recorded with other terms, or is private in a throw-away ledger.
            BudgetExceeded: Its budget does not fit the policy's unit_cap.
        """
        if self.is_throwaway and not terms.public:
            raise LedgerError(
                f"stream {terms.name!r} is private, and a private stream needs a ledger file; use Ledger(path)"
            )
        with self._write() as txn:
            policy = opening.recorded_policy(txn.connection)
            if self.keys.test and not terms.public:
                policy.require("allow_test_keys", what=f"the private stream {terms.name!r} under test keys")
            return registration.register_stream(txn, terms, self.keys, policy)

    def block(
        self,
        stream_id: int,
        task: str,
        *,
        part: str = "all",
        mode: Mode = "committed",
        like: DpEvent | None = None,
        size: int,
        labels: Sequence[Any] = (),
        fingerprint: str | None = None,
        overlap: Overlap = "declared",
    ) -> BlockRow:
        """Register the block of a task, or find it.

        Args:
            stream_id: The stream.
            task: The task's name.
            part: The part's name; "all" for a whole task.
            mode: "committed" (one event list, fixed before the first read) or "open" (adaptive reads under a filter).
            like: The event whose Rényi curve gives an open block's filter its shape.
            size: The declared, public size.
            labels: The declared, public labels.
            fingerprint: A keyed hash of the records, by which they are recognised under another name.
            overlap: Whether the vault enforces the bounds per unit, or they are only declared.

        Returns:
            The block as the ledger has it.
        """
        with self._write() as txn:
            return registration.register_block(
                txn,
                stream_id,
                task,
                part=part,
                mode=mode,
                like=like,
                size=size,
                labels=labels,
                fingerprint=fingerprint,
                overlap=overlap,
                keys=self.keys,
                prices=self._prices,
                policy=opening.recorded_policy(txn.connection),
            )

    def split(
        self,
        block_id: int,
        parts: Mapping[str, int],
        shares: Mapping[str, float] | None = None,
        *,
        fingerprint: str | None = None,
    ) -> list[BlockRow]:
        """Split a block into parts that inherit its charges; the block itself cannot be charged any more.

        Args:
            block_id: The block.
            parts: The nominal size of each part, by name.
            shares: The share of the block's units in each part, by name.
            fingerprint: The keyed hash of the records that are split. Without ids, other records are refused later.

        Returns:
            The parts, in the order in which they are named.

        Raises:
            LedgerError: The block is retired, or split already otherwise or with other records.
        """
        with self._write() as txn:
            return registration.split_block(txn, block_id, parts, shares or {}, self.keys, fingerprint)

    def enroll(self, stream_id: int, task: str, names: NDArray[np.uint64], tasks_per_unit: int) -> NDArray[np.bool_]:
        """Record which units are in a task.

        Args:
            stream_id: The stream.
            task: The name of the task.
            names: The keyed hashes of the task's units.
            tasks_per_unit: The largest number of tasks of a unit.

        Returns:
            A mask of the units that may take part: those already in it, and those in fewer than `tasks_per_unit`
            others.
        """
        with self._write() as txn:
            return enrolment.enroll(txn, stream_id, task, names, tasks_per_unit, self.keys)

    def retire(self, block_id: int) -> None:
        """Forbid further reads of a block; its charges remain.

        Args:
            block_id: The block.
        """
        with self._write() as txn:
            grants.retire(txn, lookup.raw_block(txn.connection, block_id))

    def expose(self, block_id: int, why: str) -> None:
        """Record, in advance, that unprotected records of a block are released: its stream then has no finite ε.

        Args:
            block_id: The block.
            why: The reason, which certificates state.

        Raises:
            PolicyError: The block is private and the policy does not allow unsafe exits.
            LedgerError: The block is public, and a private stream has the same records.
        """
        require_reason("vault", why)
        self._require_durable("expose")
        with self._write() as txn:
            row = lookup.raw_block(txn.connection, block_id)
            grants.require_not_retired(row)
            if not lookup.stream_row(txn.connection, row.stream_id).public:
                opening.recorded_policy(txn.connection).require(
                    "allow_unsafe", what=f"handing out the raw records of task {row.task!r}"
                )
            else:
                registration.require_not_private(txn.connection, row.root_id)
            if not statement.was_exposed(txn.connection, block_id, why):
                txn.record("expose", {"block": block_id, "why": why})

    def commit(self, lists: Mapping[int, Sequence[DpEvent]]) -> None:
        """Commit the whole event lists of blocks, in one transaction. A list is committed once.

        Args:
            lists: The events of all reads, by block id.

        Raises:
            BudgetExceeded: A list does not fit, or its block is committed to another one.
        """
        self._check_before_lock(lambda connection, policy: proposal.of_lists(connection, lists, self._prices, policy))
        with self._write() as txn:
            policy = opening.recorded_policy(txn.connection)
            groups, names = proposal.of_lists(txn.connection, lists, self._prices, policy)
            if groups:
                body = [{"events": events, "blocks": blocks} for events, blocks in groups.items()]
                txn.record("commit", {"lists": body})
                self._prices.keep(txn.connection, names)

    def reserve(
        self,
        reads: Sequence[tuple[int, DpEvent]],
        *,
        pin: str,
        holder: str,
        kind: str,
        plan: Mapping[str, Any],
        series: str | None = None,
        horizon: int | None = 1,
        lease_s: float = 3600,
    ) -> Ticket:
        """Reserve the cost of all reads in one transaction; `charge` spends it, `void` returns it.

        Args:
            reads: Pairs of block id and event.
            pin: Fingerprint of the work; only the same work can resume the grant.
            holder: The store that may resume it.
            kind: The mechanism.
            plan: The plan, as plain JSON values; it is stored and printed in certificates.
            series: The series of correlated noise, if any.
            horizon: The number of positions of the series; None if it is not known.
            lease_s: Seconds until the uncharged reservation expires.

        Returns:
            The ticket of the grant, not charged yet.

        Raises:
            BudgetExceeded: The reads do not fit.
        """
        work = Work(pin=pin, holder=holder, kind=kind, plan=plan, series=series, horizon=horizon, lease_s=lease_s)
        return self._reserve(reads, work, charge=False)

    def bill(
        self,
        reads: Sequence[tuple[int, DpEvent]],
        *,
        pin: str,
        holder: str,
        kind: str,
        plan: Mapping[str, Any],
        series: str | None = None,
        horizon: int | None = 1,
        lease_s: float = 3600,
    ) -> Ticket:
        """Reserve and charge in one transaction; see `reserve`.

        Args:
            reads: Pairs of a block's id and the event that it is charged.
            pin: The fingerprint of the work.
            holder: Who may resume the work.
            kind: The name of the exit.
            plan: The public settings, for the log.
            series: The name of a series of releases with correlated noise.
            horizon: The number of releases in the series; None if it is not known.
            lease_s: Seconds after which an uncharged reservation may be voided.

        Returns:
            The ticket of the charged grant.

        Raises:
            BudgetExceeded: A read does not fit in its block's budget.
        """
        self._require_durable("bill")
        work = Work(pin=pin, holder=holder, kind=kind, plan=plan, series=series, horizon=horizon, lease_s=lease_s)
        return self._reserve(reads, work, charge=True)

    def charge(self, ticket: Ticket) -> None:
        """Spend a reservation, durably. Noise may be drawn once this returned.

        Args:
            ticket: The reserved grant.
        """
        self._require_durable("charge")
        with self._write() as txn:
            grants.charge(txn, ticket)

    def release(self, ticket: Ticket, output_hash: str | None = None) -> None:
        """Record that the output of a charged grant was released.

        Args:
            ticket: The charged grant.
            output_hash: The SHA-256 of the output, for the log.

        Raises:
            LedgerError: The ticket is superseded, or its grant is not charged.
        """
        with self._write() as txn:
            grants.release(txn, ticket, output_hash)

    def void(self, ticket: Ticket) -> None:
        """Return a reservation; a charged grant cannot be voided.

        Args:
            ticket: The reserved grant.
        """
        with self._write() as txn:
            grants.void(txn, ticket)

    def resume(self, *, pin: str, holder: str, lease_s: float = 3600) -> Ticket | None:
        """Issue a new ticket for the newest unfinished grant of the same work and holder; None if there is none.

        Args:
            pin: The fingerprint of the work.
            holder: Who reserved it.
            lease_s: Seconds after which an uncharged reservation may be voided.

        Returns:
            The ticket, or None.
        """
        with self._write() as txn:
            return grants.resume(txn, pin=pin, holder=holder, lease_s=lease_s)

    def void_expired(self, now: float | None = None) -> int:
        """Void the reservations whose lease has expired.

        Args:
            now: The time in seconds since 1970; the system's clock by default.

        Returns:
            The number of voided reservations.
        """
        with self._write() as txn:
            return grants.void_expired(txn, time.time() if now is None else now)

    def _check_before_lock(self, ask: Callable[[Connection, Policy], object]) -> None:
        """Ask the gate before taking the write lock, since pricing is slow. On refusal, void expired reservations."""
        try:
            with self._read() as connection:
                ask(connection, opening.recorded_policy(connection))
        except BudgetExceeded:
            if self.void_expired() == 0:
                raise

    def _reserve(self, reads: Sequence[tuple[int, DpEvent]], work: Work, *, charge: bool) -> Ticket:
        self._check_before_lock(lambda connection, policy: proposal.of_reads(connection, reads, self._prices, policy))
        with self._write() as txn:
            policy = opening.recorded_policy(txn.connection)
            checked = proposal.of_reads(txn.connection, reads, self._prices, policy)
            ticket = grants.reserve(txn, checked, work, self.keys)
            self._prices.keep(txn.connection, checked.lists)
            if charge:
                grants.charge(txn, ticket)
            return replace(ticket, charged=charge)
