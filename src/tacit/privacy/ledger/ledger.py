"""The ledger: what every unit of every stream may still lose, kept for as long as the data is.

Guarantee: a charge is on disk before the call returns, and nothing above a stream's budget is ever charged, however
many processes share the file and wherever they die. Every change is one entry of a hash chain; the tables are a
projection of it; a file that was rolled back, changed or copied over is refused. The ledger belongs to the data, not
to a run.
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
from tacit.privacy.filters import RenyiFilter
from tacit.privacy.ledger import enrolment, gate, making, opening, profile, proposal, reading, spending, summary, totals
from tacit.privacy.ledger.book import signed
from tacit.privacy.ledger.decisions import Decisions
from tacit.privacy.ledger.entries import Entry, entries
from tacit.privacy.ledger.terms import (
    BlockRow,
    Mode,
    Overlap,
    Statement,
    StreamTerms,
    Summary,
    Ticket,
    Verification,
    Work,
)
from tacit.privacy.ledger.totals import UnitTotal
from tacit.privacy.ledger.verify import verify
from tacit.privacy.policy import Policy


class Ledger(Decisions):
    """A ledger in a file; keys at `<path>.keys`, the witness of its newest entry at `<path>.anchor`.

    Example: `with Ledger("hospital.ledger") as ledger: ledger.stream(StreamTerms(name="scans", budget=budget))`
    """

    def epsilon(self, stream_id: int) -> float:
        """What one unit of the stream may have lost so far, over all its tasks."""
        with self._read() as connection:
            return reading.epsilon(connection, making.stream_row(connection, stream_id), self._prices)[0]

    def streams(self) -> list[tuple[int, StreamTerms]]:
        """Every stream and what was declared about it."""
        with self._read() as connection:
            return [(row.id, making.terms_of(row)) for row in profile.all_streams(connection)]

    def summary(self, stream_id: int) -> Summary:
        """Everything a certificate needs, from one snapshot, at a cost that does not grow with the number of tasks."""
        with self._read() as connection:
            policy = opening.recorded_policy(connection)
            return summary.of_stream(connection, stream_id, self.id, policy, self._prices)

    def totals(self) -> tuple[UnitTotal, ...]:
        """What one unit may have lost over all streams that may hold it, for each kind of unit."""
        with self._read() as connection:
            return totals.of_units(connection, opening.recorded_policy(connection), self._prices)

    def entries(self) -> list[Entry]:
        """Every entry of the chain, the oldest first."""
        with self._read() as connection:
            return list(entries(connection))

    def states(self, stream: str, task: str) -> set[str] | None:
        """The states of the grants that read a task, those that were called off aside; None: it was never admitted."""
        with self._read() as connection:
            return spending.states(connection, self.keys.identity("stream", stream), task)

    def unfinished(self, stream_id: int, holder: str) -> list[tuple[str, str]]:
        """(kind, pin) of every grant of this holder on the stream that was charged and not released."""
        with self._read() as connection:
            return spending.unfinished(connection, stream_id, holder)

    def statement(self, stream_id: int) -> Statement:
        """Every block and every grant of a stream, from one snapshot: for audits, it grows with the stream."""
        with self._read() as connection:
            policy = opening.recorded_policy(connection)
            return reading.statement(connection, stream_id, self.id, policy, self._prices)

    def verify(self) -> Verification:
        """Run the whole log again and compare every table, price and curve; refuse at the first difference."""
        with self._read() as connection:
            witnessed = self._anchor.read() if self._anchor else None
            if witnessed is not None and not opening.contains(connection, witnessed):
                raise LedgerError(opening.rolled_back(str(self.path), witnessed))
            return verify(connection, self.keys if self.keys.present else None)

    def check(self, ticket: Ticket) -> None:
        """Refuse a ticket whose grant another process took over."""
        with self._read() as connection:
            spending.held(connection, ticket)

    def stream(self, terms: StreamTerms) -> int:
        """Create the stream, or find it by its name; other terms than the recorded ones are refused."""
        if self.is_throwaway and not terms.public:
            raise LedgerError(
                f"stream {terms.name!r} is private and a throw-away ledger forgets; open a Ledger in a file"
            )
        with self._write() as txn:
            policy = opening.recorded_policy(txn.connection)
            if self.keys.test and not terms.public:
                policy.require("allow_test_keys", what=f"the private stream {terms.name!r} under test keys")
            return making.stream(txn, terms, self.keys, policy)

    def check_room(self, terms: StreamTerms, lists: Sequence[Sequence[DpEvent]] = ()) -> None:
        """Refuse a stream that is not there yet and that the policy's unit_cap has no room for: all of its tasks, each
        with one of these lists. Nothing is written."""
        with self._read() as connection:
            policy = opening.recorded_policy(connection)
            if all(row.name != terms.name for row in profile.all_streams(connection)):
                gate.check_new(connection, terms, policy)
                if not terms.public:
                    gate.check_whole(connection, terms.name, terms.tasks_per_unit, lists, self._prices, policy)

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
        """Create the block of a task, or find it. `like` is the shape of an open block's filter."""
        with self._write() as txn:
            return making.block(
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

    def find(self, stream: str, task: str, part: str = "all") -> tuple[BlockRow, StreamTerms]:
        """A block that is in the ledger, by the names it was declared under, and the terms of its stream."""
        with self._read() as connection:
            return making.find(connection, stream, task, part, self.keys)

    def split(
        self, block_id: int, parts: Mapping[str, int], shares: Mapping[str, float] | None = None
    ) -> list[BlockRow]:
        """Cut a block into parts that inherit all its promises; the block itself cannot be charged any more."""
        with self._write() as txn:
            return making.split(txn, block_id, parts, shares or {}, self.keys)

    def enroll(self, stream_id: int, task: str, names: NDArray[np.uint64], tasks_per_unit: int) -> NDArray[np.bool_]:
        """Which of these units may take part in the task: those in it already, and those in fewer than k others."""
        with self._write() as txn:
            return enrolment.enroll(txn, stream_id, task, names, tasks_per_unit, self.keys)

    def expose(self, block_id: int, why: str) -> None:
        """Write, before it happens, that records of a block leave the vault unprotected: its stream has no finite ε."""
        signed("vault", why)
        self._durable("expose")
        with self._write() as txn:
            row = making.raw_block(txn.connection, block_id)
            spending.live(row)
            if not making.stream_row(txn.connection, row.stream_id).public:
                opening.recorded_policy(txn.connection).require(
                    "allow_unsafe", what=f"handing out the raw records of task {row.task!r}"
                )
            if not reading.was_exposed(txn.connection, block_id, why):
                txn.record("expose", {"block": block_id, "why": why})

    def generations(self) -> set[int]:
        """Key generations that a rotation must keep: of unfinished grants, and of series that go on."""
        with self._read() as connection:
            return spending.generations(connection)

    def require_live(self, block_id: int) -> None:
        """Refuse what would use the records of a block that was retired."""
        with self._read() as connection:
            spending.live(making.raw_block(connection, block_id))

    def left(self, block_id: int, holder: str | None = None) -> RenyiFilter:
        """What an open block may still be charged; unfinished grants of the holder, which it can take up again, count
        as not charged. A committed block is refused: it has no filter."""
        with self._read() as connection:
            return reading.left(connection, making.raw_block(connection, block_id), holder)

    def retire(self, block_id: int) -> None:
        """No read of this block any more; what it promised stays on its account."""
        with self._write() as txn:
            spending.retire(txn, making.raw_block(txn.connection, block_id))

    def commit(self, lists: Mapping[int, Sequence[DpEvent]]) -> None:
        """Promise the whole event list of committed blocks, in one transaction and once."""
        self._ahead(lambda connection, policy: proposal.of_lists(connection, lists, self._prices, policy))
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
        horizon: int = 1,
        lease_s: float = 3600,
    ) -> Ticket:
        """Hold the cost of all reads, in one transaction; `charge` spends it, `void` gives it back."""
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
        horizon: int = 1,
        lease_s: float = 3600,
    ) -> Ticket:
        """Reserve and charge in one transaction."""
        self._durable("bill")
        work = Work(pin=pin, holder=holder, kind=kind, plan=plan, series=series, horizon=horizon, lease_s=lease_s)
        return self._reserve(reads, work, charge=True)

    def charge(self, ticket: Ticket) -> None:
        """Spend a reservation, durably; noise may be drawn once this returned."""
        self._durable("charge")
        with self._write() as txn:
            spending.charge(txn, ticket)

    def release(self, ticket: Ticket, output_hash: str | None = None) -> None:
        """Say that the output of a charged grant left."""
        with self._write() as txn:
            spending.release(txn, ticket, output_hash)

    def void(self, ticket: Ticket) -> None:
        """Give a reservation back; what is charged is spent."""
        with self._write() as txn:
            spending.void(txn, ticket)

    def resume(self, *, pin: str, holder: str, lease_s: float = 3600) -> Ticket | None:
        """Take over the newest unfinished grant of the same work and holder; older tickets of it are fenced off."""
        with self._write() as txn:
            return spending.resume(txn, pin=pin, holder=holder, lease_s=lease_s)

    def unfinished_alike(self, *work: Any) -> list[tuple[str, bool]]:
        """Unfinished work on the very same (kind, reads, reader, holder), oldest first: its pin, whether charged."""
        with self._read() as connection:
            return spending.unfinished_alike(connection, *work)

    def sweep(self, now: float | None = None) -> int:
        """Void reservations whose lease ran out; how many."""
        with self._write() as txn:
            return spending.sweep(txn, time.time() if now is None else now)

    def _ahead(self, ask: Callable[[Connection, Policy], object]) -> None:
        """Ask the gate before taking the lock: prices take time. If it refuses, void expired reservations first."""
        try:
            with self._read() as connection:
                ask(connection, opening.recorded_policy(connection))
        except BudgetExceeded:
            if self.sweep() == 0:
                raise

    def _reserve(self, reads: Sequence[tuple[int, DpEvent]], work: Work, *, charge: bool) -> Ticket:
        self._ahead(lambda connection, policy: proposal.of_reads(connection, reads, self._prices, policy))
        with self._write() as txn:
            policy = opening.recorded_policy(txn.connection)
            checked = proposal.of_reads(txn.connection, reads, self._prices, policy)
            ticket = spending.reserve(txn, checked, work, self.keys)
            self._prices.keep(txn.connection, checked.lists)
            if charge:
                spending.charge(txn, ticket)
            return replace(ticket, charged=charge)
