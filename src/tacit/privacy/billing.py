"""How an exit is paid for: a reservation, a durable charge, a release; or a place under an umbrella charge.

Guarantee: `Bill.charge` returns only when the charge is durable. With a store, work that was billed and not finished is
found again by its pin and billed once; a copy of the folder, another configuration or a second process finds nothing.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dp_accounting import dp_event

from tacit.errors import BudgetExceeded, VaultError
from tacit.privacy import events
from tacit.privacy.declared import Block
from tacit.privacy.filters import RenyiFilter
from tacit.privacy.ledger import Ledger, Ticket
from tacit.privacy.store import Journal, Store

Charges = Sequence[tuple[Block, dp_event.DpEvent]]


@dataclass(kw_only=True)
class Bill:
    """One grant's place in the ledger, and the journal of its steps."""

    ticket: Ticket
    journal: Journal
    ledger: Ledger | None
    """None: an umbrella pays."""
    charged: bool
    first: int = 0
    """The first step that it is good for: those before were drawn by other work, and are never drawn again."""
    later: "list[tuple[Bill, str | None]] | None" = None
    """Where a release waits until the work around it is saved."""

    def charge(self) -> None:
        """Durable before it returns; does nothing the second time."""
        if not self.charged:
            if self.ledger is not None:
                self.ledger.charge(self.ticket)
            self.charged = True

    def release(self, output_hash: str | None = None) -> None:
        if self.later is not None:
            self.later.append((self, output_hash))
            return
        if self.ledger is not None:
            self.ledger.release(self.ticket, output_hash)
        self.journal.close(forget=True)

    def void(self) -> None:
        """Before noise was drawn: nothing is owed."""
        if self.ledger is not None:
            self.ledger.void(self.ticket)
        self.journal.close(forget=True)


@dataclass(kw_only=True)
class _Trial:
    ticket: Ticket
    number: int
    left: dict[int, list[str]]
    taken: int = field(default=0)


class Biller:
    """Bills the reads of one vault to its ledger, under one holder's name."""

    def __init__(self, ledger: Ledger, store: Store | None) -> None:
        self._ledger, self._store = ledger, store
        self._holder = secrets.token_hex(16) if store is None else store.holder
        self._trial: _Trial | None = None
        self._later: list[tuple[Bill, str | None]] | None = None
        self._inside: list[Bill] = []
        self._corrected = False

    @property
    def in_trial(self) -> bool:
        """Whether an umbrella pays for what is read now."""
        return self._trial is not None

    @contextmanager
    def corrected(self) -> Iterator[None]:
        """Within it, work that asks for the very reads of work that was charged and not finished takes them over, from
        the first step that was not drawn: a failure after the charge does not cost the records a second one.

        The steps that were drawn are lost, and their coins and noise are never derived again."""
        before, self._corrected = self._corrected, True
        try:
            yield
        finally:
            self._corrected = before

    @contextmanager
    def until_saved(self) -> Iterator[None]:
        """Within it, finished work stays billed and resumable; it is marked released when all of it is saved.

        A crash between the last step and the save loses nothing: the same work is found by its pin, and gives the same
        results again under the same noise."""
        if self._later is not None:
            raise VaultError("until_saved is not nested; end the work around it first")
        later: list[tuple[Bill, str | None]] = []
        self._later, self._inside = later, []
        try:
            yield
        except BaseException:
            for bill in self._inside:  # so that the same work can be taken up again in this process
                bill.journal.close()
            raise
        finally:
            self._later = None
            for bill in self._inside:
                bill.later = None
        for bill, output_hash in later:
            bill.release(output_hash)

    def settle(self, stream: int) -> None:
        """Release what this holder finished and saved, but did not mark, on a stream. A meter goes on until it ends."""
        if self._store is not None:
            for kind, name in self._ledger.unfinished(stream, self._holder):
                if kind != "meter":
                    self.end(name)

    def end(self, pin: str) -> None:
        """Release work of this holder that goes on no more, in whichever process it was begun."""
        assert self._store is not None  # otherwise it is this process's own
        journal = self._store.journal(pin)
        try:
            if (ticket := self._ledger.resume(pin=pin, holder=self._holder)) is not None:
                self._ledger.release(ticket, None)
        except BaseException:
            journal.close()
            raise
        journal.close(forget=True)

    def left(self, block: Block) -> RenyiFilter:
        """What is left in an open block's filter, beside the unfinished work that this store would find again."""
        return self._ledger.left(block.id, None if self._store is None else self._holder)

    def reserve(self, kind: str, reads: Charges, plan: Mapping[str, Any], pin: str) -> Bill:
        """Hold the budget of a grant, or find the grant again if this very work was begun and not finished."""
        return self._find_or_make(kind, reads, plan, pin, self._ledger.reserve, charged=False)

    def bill(
        self,
        kind: str,
        reads: Charges,
        plan: Mapping[str, Any],
        pin: str,
        *,
        series: str | None = None,
        horizon: int = 1,
    ) -> Bill:
        """Reserve and charge in one transaction: for exits that release once."""
        book = partial(self._ledger.bill, series=series, horizon=horizon)
        bill = self._find_or_make(kind, reads, plan, pin, book, charged=True, in_series=series is not None)
        bill.charge()
        return bill

    @contextmanager
    def trial(self, ticket: Ticket, number: int, allowance: Mapping[int, Sequence[dp_event.DpEvent]]) -> Iterator[None]:
        """Within it, reads are paid for by the umbrella, as far as the allowance of one trial goes."""
        if self._trial is not None:
            raise VaultError("a tuning trial cannot start another tuning; put all its choices in one search space")
        left = {block: [events.to_json(event) for event in allowed] for block, allowed in allowance.items()}
        self._trial = _Trial(ticket=ticket, number=number, left=left)
        try:
            yield
        finally:
            self._trial = None

    def _find_or_make(
        self,
        kind: str,
        reads: Charges,
        plan: Mapping[str, Any],
        pin: str,
        book: Callable[..., Ticket],
        *,
        charged: bool,
        in_series: bool = False,
    ) -> Bill:
        if self._trial is not None:
            return self._under_umbrella(self._trial, reads, in_series)
        journal = Journal(None) if self._store is None else self._store.journal(pin)  # locked: one live holder a pin
        try:
            ticket = None if self._store is None else self._ledger.resume(pin=pin, holder=self._holder)
            if ticket is not None and self._store is not None:
                # Where other work took it over, this one goes on after that.
                first = 0 if self._store.taker(pin) is None else self._store.take_over(pin, pin, len(journal))
                return self._opened(ticket, journal, charged=ticket.charged, first=first)
            charges = [(block.id, event) for block, event in reads]
            if not in_series and (taken := self._taken_over(kind, charges, plan, pin)) is not None:
                journal.close(forget=True)
                return taken
            journal.clear()
            ticket = book(charges, pin=pin, holder=self._holder, kind=kind, plan=dict(plan))
        except BaseException:
            journal.close()
            raise
        return self._opened(ticket, journal, charged=charged)

    def _taken_over(
        self, kind: str, charges: Sequence[tuple[int, dp_event.DpEvent]], plan: Mapping[str, Any], pin: str
    ) -> Bill | None:
        """The charge of other work on the very same reads that was begun and will not be finished, for what is left of
        it: asked for by `corrected`, or taken over by this work before."""
        if self._store is None:
            return None
        for other, charged in self._ledger.unfinished_alike(kind, charges, plan.get("reader"), self._holder):
            own = self._store.taker(other) == pin
            if not (own or self._corrected):
                continue
            try:
                journal = self._store.journal(other)
            except VaultError:  # it is at work
                continue
            if not charged:  # nothing was read under it: it is given back
                self._give_back(other, journal)
                continue
            if not own and kind == "gradient" and len(journal) >= int(plan["steps"]):
                journal.close()
                raise VaultError(
                    f"all {plan['steps']} steps that were charged for were drawn under other settings, so there is "
                    "none left to go on with; ask again with the settings that they were drawn under"
                )
            left = kind == "gradient" or own or not (len(journal) or journal.kept() is not None)
            ticket = self._ledger.resume(pin=other, holder=self._holder) if left else None
            if ticket is None:  # its one result has left, or another process was quicker
                journal.close()
                continue
            first = self._store.take_over(other, pin, len(journal))
            return self._opened(ticket, journal, charged=ticket.charged, first=first)
        return None

    def _give_back(self, pin: str, journal: Journal) -> None:
        """Void a reservation of this holder under which nothing was read."""
        ticket = self._ledger.resume(pin=pin, holder=self._holder)
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
                    f"this trial asked to read {block} in a way its tuning plan does not hold, or once more than it "
                    "does; name every read of a trial in TuningPlan.reads"
                ) from None
        trial.left, trial.taken = left, trial.taken + 1
        name = f"{trial.ticket.grant}/trial {trial.number}/{trial.taken}"
        ticket = Ticket(grant=name, token=0, generation=trial.ticket.generation)
        return Bill(ticket=ticket, journal=Journal(None), ledger=None, charged=True)
