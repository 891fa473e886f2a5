"""A vault for synthetic records: the same exits and refusals, the first steps of every grant, and no charge.

A learner that cannot work (a model, loss, optimizer or setting that fails) fails here, before the ledger of private
data is charged. Nothing in it is private, so its errors are shown in full.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dp_accounting import dp_event
from torch import nn

from tacit.errors import VaultError
from tacit.privacy.ledger import Ledger, Ticket
from tacit.privacy.vault.exits.billing import Bill, Biller, Charges
from tacit.privacy.vault.exits.gradient_exit import GradientExit
from tacit.privacy.vault.exits.grant import Grant
from tacit.privacy.vault.exits.individual_filter import FilterPlan
from tacit.privacy.vault.exits.plans import GradientPlan
from tacit.privacy.vault.exits.repeat_and_select import Plan
from tacit.privacy.vault.intake.blocks import Block, Declared, Loss, Read
from tacit.privacy.vault.intake.feature_map import FeatureMap
from tacit.privacy.vault.intake.store import Journal
from tacit.privacy.vault.vault import Vault

STEPS = 2
"""The number of steps of every grant; the second has the momentum of the first."""


class Rehearsal(Vault):
    """A vault on a throw-away ledger, whose blocks are declared public.

    Raises:
        VaultError: The ledger is kept in a file, or a block is declared private: nothing is charged here.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        if not ledger.is_throwaway:
            raise VaultError("a rehearsal charges nothing, so it takes a throw-away ledger; use Ledger.throwaway()")
        self._free = _FreeBiller(ledger, None)
        self._connect(self._free)
        self.grant = _FirstSteps(self.grant)

    @property
    def exits(self) -> int:
        """The number of exits that were used so far."""
        return self._free.bills

    def admit(self, source: Any, declared: Declared, *, through: FeatureMap | None = None) -> Block:
        if not declared.public:
            raise VaultError("a rehearsal charges nothing, so its records are synthetic; declare them public")
        return super().admit(source, declared, through=through)

    def commit(self, reads: Mapping[Block, Sequence[Plan | FilterPlan | dp_event.DpEvent]]) -> None:
        """Commits nothing."""


class _FirstSteps(GradientExit):
    """Grants the first steps of a plan."""

    def __init__(self, whole: GradientExit) -> None:
        super().__init__(whole._access)

    def __call__(
        self,
        blocks: Sequence[Read | Block] | Read | Block,
        plan: GradientPlan,
        model: nn.Module,
        loss: Loss,
        *,
        work: Mapping[str, Any] | None = None,
        reader: str | None = None,
    ) -> Grant:
        short = replace(plan, steps=min(plan.steps, STEPS))
        return super().__call__(blocks, short, model, loss, work=work, reader=reader)


class _FreeBiller(Biller):
    """Issues bills without a charge."""

    def __init__(self, ledger: Ledger, store: None) -> None:
        super().__init__(ledger, store)
        self._keys = ledger.keys
        self.bills = 0

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
        self.bills += 1
        name = f"rehearsal {self.bills}"
        ticket = Ticket(grant=name, token=0, generation=self._keys.generation, series=(name,) if in_series else ())
        return Bill(ticket=ticket, journal=Journal(None), ledger=None, charged=False)
