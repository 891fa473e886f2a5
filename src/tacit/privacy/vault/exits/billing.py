"""Billing of exits: a reservation, a durable charge, and a release; or an allowance under a tuning's charge.

Formal guarantees
  * `Bill.charge` returns only when the charge is durable.
  * With a store, work that was billed and not finished is found again by its fingerprint and billed once. A copy of the
    store, another configuration or a second process does not find it.
  * Steps that other work has drawn under a charge are never drawn again (`Bill.first`).
  * The rest of a charge goes to work with the same events and the same turns of labels (classes, places): under other
    turns a unit could be read in more of the steps than are priced.
  * Inside a tuning trial, only reads that the tuning's charge covers are allowed.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dp_accounting import dp_event

from tacit.errors import BudgetExceeded, VaultError
from tacit.privacy.accounting import events
from tacit.privacy.accounting.filters import RenyiFilter
from tacit.privacy.ledger import Ledger, Ticket
from tacit.privacy.vault.intake.blocks import Block
from tacit.privacy.vault.intake.fingerprint import same_reads
from tacit.privacy.vault.intake.store import Journal, Store

Charges = Sequence[tuple[Block, dp_event.DpEvent]]


@dataclass(kw_only=True)
class Bill:
    """The charge of one piece of work, and the journal of its steps.

    Attributes:
        ticket: The grant in the ledger.
        journal: The steps that were released.
        ledger: The ledger that is charged; None if a tuning's charge covers the work.
        charged: Whether the charge is durable.
        first: The first step of this work. Earlier steps were drawn by other work, and are never drawn again.
        later: Where a release waits until the work around it is saved.
    """

    ticket: Ticket
    journal: Journal
    ledger: Ledger | None
    charged: bool
    first: int = 0
    later: "list[tuple[Bill, str | None]] | None" = None

    def charge(self) -> None:
        """Charges the ledger, durably. Does nothing the second time."""
        if not self.charged:
            if self.ledger is not None:
                self.ledger.charge(self.ticket)
            self.charged = True

    def release(self, output_hash: str | None = None) -> None:
        """Marks the work as finished; it can no longer be resumed."""
        if self.later is not None:
            self.later.append((self, output_hash))
            return
        if self.ledger is not None:
            self.ledger.release(self.ticket, output_hash)
        self.journal.close(forget=True)

    def void(self) -> None:
        """Cancels a reservation under which no noise was drawn."""
        if self.ledger is not None:
            self.ledger.void(self.ticket)
        self.journal.close(forget=True)


@dataclass(kw_only=True)
class _Trial:
    """One trial of a private tuning, and the reads of each block that it has left."""

    ticket: Ticket
    number: int
    left: dict[int, list[str]]
    taken: int = field(default=0)


class Biller:
    """Charges the reads of one vault to its ledger, in the name of one holder (its store)."""

    def __init__(self, ledger: Ledger, store: Store | None) -> None:
        self._ledger, self._store = ledger, store
        self._holder = secrets.token_hex(16) if store is None else store.holder
        self._trial: _Trial | None = None
        self._later: list[tuple[Bill, str | None]] | None = None
        self._inside: list[Bill] = []
        self._corrected = False

    @property
    def in_trial(self) -> bool:
        """Whether the charge of a private tuning covers what is read now."""
        return self._trial is not None

    @contextmanager
    def corrected(self) -> Iterator[None]:
        """Inside it, work may continue the charge of unfinished work with the same reads and other settings.

        It starts at the first step that was not drawn, so a failure after the charge does not cost the records a second
        charge. Steps that were drawn are lost; their coins and noise are never derived again.
        """
        before, self._corrected = self._corrected, True
        try:
            yield
        finally:
            self._corrected = before

    @contextmanager
    def until_saved(self) -> Iterator[None]:
        """Inside it, finished work stays resumable; it is marked as released when the block ends without an error.

        After a crash between the last step and the save, the same work is found by its fingerprint, and gives the same
        results under the same noise.
        """
        if self._later is not None:
            raise VaultError("until_saved is not nested; end the work around it first")
        later: list[tuple[Bill, str | None]] = []
        self._later, self._inside = later, []
        try:
            yield
        except BaseException:
            for bill in self._inside:  # so that this process can resume the same work
                bill.journal.close()
            raise
        finally:
            self._later = None
            for bill in self._inside:
                bill.later = None
        for bill, output_hash in later:
            bill.release(output_hash)

    def settle(self, stream: int) -> None:
        """Marks work on a stream that this holder finished and saved as released. Individual filters stay open."""
        if self._store is not None:
            for kind, name in self._ledger.unfinished(stream, self._holder):
                if kind != "meter":
                    self.end(name)

    def end(self, fingerprint: str) -> None:
        """Marks work of this holder as released, whichever process began it."""
        assert self._store is not None
        journal = self._store.journal(fingerprint)
        try:
            if (ticket := self._ledger.resume(pin=fingerprint, holder=self._holder)) is not None:
                self._ledger.release(ticket, None)
        except BaseException:
            journal.close()
            raise
        journal.close(forget=True)

    def remaining_budget(self, block: Block) -> RenyiFilter:
        """What an open block may still lose; unfinished work that this store can resume is not counted."""
        return self._ledger.remaining(block.id, None if self._store is None else self._holder)

    def reserve(self, kind: str, reads: Charges, plan: Mapping[str, Any], fingerprint: str) -> Bill:
        """Reserves the budget of a grant, or finds the grant of the same unfinished work."""
        return self._resume_or_reserve(kind, reads, plan, fingerprint, self._ledger.reserve, charged=False)

    def bill(
        self,
        kind: str,
        reads: Charges,
        plan: Mapping[str, Any],
        fingerprint: str,
        *,
        series: str | None = None,
        horizon: int | None = 1,
    ) -> Bill:
        """Reserves and charges in one transaction, for exits that release once."""
        book = partial(self._ledger.bill, series=series, horizon=horizon)
        bill = self._resume_or_reserve(kind, reads, plan, fingerprint, book, charged=True, in_series=series is not None)
        bill.charge()
        return bill

    @contextmanager
    def trial(self, ticket: Ticket, number: int, allowance: Mapping[int, Sequence[dp_event.DpEvent]]) -> Iterator[None]:
        """Inside it, the charge of a tuning covers reads, as far as the allowance of one trial goes."""
        if self._trial is not None:
            raise VaultError("a tuning trial cannot start another tuning; put all its choices in one search space")
        left = {block: [events.to_json(event) for event in allowed] for block, allowed in allowance.items()}
        self._trial = _Trial(ticket=ticket, number=number, left=left)
        try:
            yield
        finally:
            self._trial = None

    def _resume_or_reserve(
        self,
        kind: str,
        reads: Charges,
        plan: Mapping[str, Any],
        fingerprint: str,
        book: Callable[..., Ticket],
        *,
        charged: bool,
        in_series: bool = False,
    ) -> Bill:
        if self._trial is not None:
            return self._under_umbrella(self._trial, reads, in_series)
        store = self._store
        journal = Journal(None) if store is None else store.journal(fingerprint)  # locked: one process at a time
        try:
            ticket = None if store is None else self._ledger.resume(pin=fingerprint, holder=self._holder)
            if ticket is not None and store is not None:
                # If other work continued it, this work starts after the steps of that one.
                continued = store.continued_by(fingerprint) is not None
                first = store.continue_by(fingerprint, fingerprint, len(journal)) if continued else 0
                return self._opened(ticket, journal, charged=ticket.charged, first=first)
            charges = [(block.id, event) for block, event in reads]
            if not in_series and (rest := self._continued(kind, charges, plan, fingerprint)) is not None:
                journal.close(forget=True)
                return rest
            journal.clear()
            ticket = book(charges, pin=fingerprint, holder=self._holder, kind=kind, plan=dict(plan))
        except BaseException:
            journal.close()
            raise
        return self._opened(ticket, journal, charged=charged)

    def _continued(
        self, kind: str, charges: Sequence[tuple[int, dp_event.DpEvent]], plan: Mapping[str, Any], fingerprint: str
    ) -> Bill | None:
        """The rest of the charge of other, unfinished work with the same reads.

        Only inside `corrected`, or if this work has continued that charge before.
        """
        if self._store is None:
            return None
        same = {name: plan.get(name) for name in ("reader", "classes", "places")}
        for other, charged in self._ledger.unfinished_like(kind, charges, same, self._holder):
            own = self._store.continued_by(other) == fingerprint
            if not (own or self._corrected):
                continue
            try:
                journal = self._store.journal(other)
            except VaultError:  # another process is using it
                continue
            if not charged:  # nothing was read under it
                self._cancel(other, journal)
                continue
            if plan.get("classes") and not same_reads(other, fingerprint):
                journal.close()
                raise VaultError(
                    "this charge was begun on other records or labels, and a plan with classes prices each unit for "
                    "the steps of its own label only; admit the same records and labels, or plan with classes=0"
                )
            if not own and kind == "gradient" and len(journal) >= int(plan["steps"]):
                journal.close()
                raise VaultError(
                    f"all {plan['steps']} charged steps were drawn under other settings, so none is left; ask again "
                    "with the settings that they were drawn under"
                )
            left = kind == "gradient" or own or not (len(journal) or journal.kept() is not None)
            ticket = self._ledger.resume(pin=other, holder=self._holder) if left else None
            if ticket is None:  # its one result was released, or another process continued it
                journal.close()
                continue
            first = self._store.continue_by(other, fingerprint, len(journal))
            return self._opened(ticket, journal, charged=ticket.charged, first=first)
        return None

    def _cancel(self, fingerprint: str, journal: Journal) -> None:
        """Cancels a reservation of this holder under which nothing was read."""
        ticket = self._ledger.resume(pin=fingerprint, holder=self._holder)
        if ticket is not None and not ticket.charged:
            self._ledger.void(ticket)
        journal.close(forget=ticket is None or not ticket.charged)

    def _opened(self, ticket: Ticket, journal: Journal, *, charged: bool, first: int = 0) -> Bill:
        bill = Bill(
            ticket=ticket, journal=journal, ledger=self._ledger, charged=charged, first=first, later=self._later
        )
        if self._later is not None:
            self._inside.append(bill)
        return bill

    def _under_umbrella(self, trial: _Trial, reads: Charges, in_series: bool) -> Bill:
        if in_series:
            raise VaultError("a tuning trial cannot take part in a series over tasks; use a plan with horizon 1")
        left = {block: list(allowed) for block, allowed in trial.left.items()}
        for block, event in reads:
            try:
                left[block.id].remove(events.to_json(event))
            except (KeyError, ValueError):
                raise BudgetExceeded(
                    f"this trial reads {block} in a way that its tuning plan does not name, or more often; "
                    "name every read of a trial in TuningPlan.reads"
                ) from None
        trial.left, trial.taken = left, trial.taken + 1
        name = f"{trial.ticket.grant}/trial {trial.number}/{trial.taken}"
        ticket = Ticket(grant=name, token=0, generation=trial.ticket.generation)
        return Bill(ticket=ticket, journal=Journal(None), ledger=None, charged=True)
