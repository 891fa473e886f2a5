"""A vault for synthetic records: the same exits and the same refusals, a few steps of every grant, and no charge.

A learner that cannot work (a model, loss, optimizer or setting that fails) fails here, before the ledger of private
data is asked for anything. Nothing of it is private, so its errors are shown in full.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dp_accounting import dp_event
from torch import nn

from tacit.privacy.billing import Bill, Biller, Charges
from tacit.privacy.declared import Block, Loss, Read
from tacit.privacy.grant import Grant
from tacit.privacy.ledger import Ledger, Ticket
from tacit.privacy.meter import MeterPlan
from tacit.privacy.plan import GradientPlan, Plan
from tacit.privacy.store import Journal
from tacit.privacy.vault import Vault

STEPS = 2
"""Of every grant: the second one has the first one's momentum."""


class Rehearsal(Vault):
    """Opened with a ledger that is thrown away; blocks in it are declared public."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._billing = self._free = _Free(ledger, None)

    @property
    def exits(self) -> int:
        """How many were asked for so far."""
        return self._free.bills

    def commit(self, reads: Mapping[Block, Sequence[Plan | MeterPlan | dp_event.DpEvent]]) -> None:
        """Nothing is promised."""
        return

    def grant(
        self,
        blocks: Sequence[Read | Block] | Read | Block,
        plan: GradientPlan,
        model: nn.Module,
        loss: Loss,
        *,
        work: Mapping[str, Any] | None = None,
        reader: str | None = None,
    ) -> Grant:
        """The first steps of the plan."""
        few = replace(plan, steps=min(plan.steps, STEPS))
        return super().grant(blocks, few, model, loss, work=work, reader=reader)


class _Free(Biller):
    """Bills that nobody pays."""

    def __init__(self, ledger: Ledger, store: None) -> None:
        super().__init__(ledger, store)
        self._keys = ledger.keys
        self.bills = 0
        self._series: list[str] = []

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
        self.bills += 1
        name = f"rehearsal {self.bills}"
        ticket = Ticket(grant=name, token=0, generation=self._keys.generation, series=(name,) if in_series else ())
        return Bill(ticket=ticket, journal=Journal(None), ledger=None, charged=False)
