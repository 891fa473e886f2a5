"""The exit `vault.individual_filter`: gradients with any noise, any number of times, under one charge per block.

Mechanism: every step reads all units (no sampling), clips each unit's gradient, adds up those of the units that can
still pay, and adds Gaussian noise of standard deviation noise · clip. A unit pays its own ‖g‖²/(2 noise² clip²), and
contributes if and only if the sum of its payments stays within ρ; once it does not, it is out for good. So a unit with
small gradients is used longer than the clipping norm alone would allow.

Formal guarantees (Feldman & Zrnic 2021, individual Rényi filters)
  * Whatever noise, models and losses are chosen from earlier releases, all releases together are (α, αρ)-RDP at every
    order α for adding or removing one unit. The block is charged this once (`FilterPlan.event`).
  * The decision about a unit depends on the unit itself and on earlier releases, on no other unit. No unit enters
    because another is out.
  * What a unit has spent is durable before a gradient is released, and is never released itself.
  * A crash gives nothing back. Noise keys depend on the ledger's token, which rises at every opening, so a store that
    is lost or restored never leads to the same noise twice.

Conditions
  * Model and loss treat each record by itself. They are tested on synthetic rows before the first gradient.
  * Noise, clipping norm, model and loss of a step depend on public facts and released values only.
  * The store, which holds what each unit has spent, is secret, and no file of it is changed by hand.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import torch
from dp_accounting import dp_event
from torch import Tensor, nn

from tacit.errors import PlanError, VaultError
from tacit.gradients import Clipper, ExactSum, Flat
from tacit.privacy.accounting import calibrate, events
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.randomness.grid import GridNoise
from tacit.privacy.randomness.keys import NOISE, SAMPLER
from tacit.privacy.vault.exits.access import Access, Exit
from tacit.privacy.vault.exits.billing import Bill
from tacit.privacy.vault.exits.count import noisy_count
from tacit.privacy.vault.exits.filter_state import (
    FULL,
    FilterState,
    FilterStateFile,
    admit_units,
    announce_opening,
    stale_state_error,
)
from tacit.privacy.vault.exits.plans import SumPlan, check_noise, positive
from tacit.privacy.vault.exits.repeat_and_select import Plan
from tacit.privacy.vault.intake import row_checks
from tacit.privacy.vault.intake.batches import batch_limits, batches, targets
from tacit.privacy.vault.intake.blocks import Block, Loss, Read
from tacit.privacy.vault.intake.fingerprint import fingerprint
from tacit.privacy.vault.intake.isolation import dice, guarded, unchanged


@dataclass(frozen=True, kw_only=True)
class FilterPlan:
    """What one unit may lose over all gradients of an individual filter.

    Attributes:
        rho: The Rényi divergence of every order α stays below α·rho.
    """

    rho: float

    def __post_init__(self) -> None:
        positive("rho", self.rho, "it is what one unit may lose; FilterPlan.for_budget finds it")

    @classmethod
    def for_budget(cls, budget: Budget, tasks_per_unit: int = 1, *, beside: Sequence[Plan] = ()) -> "FilterPlan":
        """The plan with the largest ρ that a budget allows.

        Args:
            budget: What a unit may lose.
            tasks_per_unit: The number of tasks of a unit that share the budget.
            beside: Other plans that are read from each block.

        Returns:
            The plan, with ρ just below what the budget leaves.

        Raises:
            PlanError: If the other plans use up the budget.
        """
        others = [plan.event for plan in beside]

        def over(log_rho: float) -> float:
            event = events.compose([events.zcdp(math.exp(log_rho)), *others])
            return -1.0 if calibrate.fits(event, budget, tasks_per_unit) else 1.0

        log_rho = calibrate.bracketed(over, start=-4.0, good=-40.0, bad=20.0, tolerance=1e-9)
        if log_rho is None:
            raise PlanError(
                f"nothing is left of {budget} for an individual filter; use more noise in the plans beside it"
            )
        return cls(rho=math.exp(log_rho) * (1 - 1e-6))  # open blocks round costs up and limits down

    @property
    def event(self) -> dp_event.DpEvent:
        """The one charge to the block."""
        return events.zcdp(self.rho)

    def describe(self) -> dict[str, object]:
        """The plan as it is stored in ledgers.

        Returns:
            Plain JSON values.
        """
        return {"plan": "meter", **asdict(self)}


class IndividualFilterExit(Exit):
    """`vault.individual_filter(block, plan)`."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self._open: dict[int, IndividualFilter] = {}

    def __call__(self, block: Block, plan: FilterPlan) -> "IndividualFilter":
        """Charges a block once for all gradients of an individual filter, and opens the filter.

        With a store, a later process that makes the same call resumes the filter without a second charge.

        Args:
            block: The block that is read.
            plan: What one unit may lose.

        Returns:
            The filter, which releases noisy gradients until it is closed.

        Raises:
            VaultError: If the block's records are not held, inside a tuning trial, or if the filter's state on disk
                is lost or too old.
            BudgetExceeded: If the charge does not fit in the block's budget.
        """
        if not isinstance(plan, FilterPlan):
            raise VaultError(f"individual_filter takes (block, FilterPlan), got {type(plan).__name__} as the plan")
        access, store = self._access, self._access.store
        if access.biller.in_trial:
            raise VaultError("a trial of private tuning cannot use an individual filter; use grants in trials")
        records = access.records(block)
        y = targets(block, records)
        if (earlier := self._open.pop(block.id, None)) is not None:
            earlier.pause()
        described = plan.describe() | records.mapping
        name = fingerprint(kind="meter", plan=described, block=block.id, records=records.digest)
        if store is not None:
            announce_opening(access.ledger, store, block, name)
        bill = access.biller.reserve("meter", [(block, plan.event)], described, name)
        file = None if store is None else store.filter_file(block.name, name, bill.ticket.grant)
        try:
            self._open[block.id] = IndividualFilter(
                plan=plan, block=block, y=y, bill=bill, state=FilterStateFile(file), access=access
            )
        except BaseException:
            if bill.charged:
                bill.journal.close()
            else:
                bill.void()
            raise
        return self._open[block.id]

    def end(self, block: Block) -> None:
        """Closes the block's filter for good, also one that an earlier process opened."""
        if (current := self._open.pop(block.id, None)) is not None:
            current.close()
        for name in () if self._access.store is None else self._access.store.open_filters(block.name):
            self._access.biller.end(name)


class IndividualFilter:
    """Computes noisy gradients of a block until each unit's own losses reach the plan's ρ. Made by the vault.

    Attributes:
        plan: What one unit may lose.
    """

    def __init__(
        self, *, plan: FilterPlan, block: Block, y: Tensor, bill: Bill, state: FilterStateFile, access: Access
    ) -> None:
        self.plan = plan
        self._block, self._y, self._bill, self._file, self._access = block, y, bill, state, access
        self._records = records = access.admission.records(block)
        keys, ticket = access.ledger.keys, bill.ticket
        # The token rises whenever the filter is opened, so no noise is drawn twice whatever becomes of the store.
        opening = (ticket.generation, ticket.grant, str(ticket.token))
        self._noise_key, self._dice_key = keys.derive(NOISE, *opening), keys.derive(SAMPLER, *opening)
        self._owner = np.repeat(np.arange(records.units), np.diff(records.starts))
        self._known: tuple[nn.Module, Loss, float, Clipper] | None = None
        self._done, self._process = False, os.getpid()
        if not bill.charged:
            # Zeros first: a charged filter without a state has lost it, and is refused.
            zeros = torch.zeros(records.units, dtype=torch.int64)
            state.write(FilterState(spent=zeros, steps=0, token=ticket.token))
            bill.charge()
        last = state.read()
        if last is None or len(last.spent) != records.units:
            raise VaultError(
                f"the store has lost the losses of the units of {block}, so the block can no longer be read"
            )
        if last.token < ticket.token - 1:
            raise stale_state_error(block)
        if self.steps < last.steps:
            raise VaultError(
                f"the store has lost steps of the individual filter of {block}: its journal has {self.steps} of "
                f"{last.steps}; restore the journal, without which the block can no longer be read"
            )
        if last.token < ticket.token:  # another process opened and closed it since `announce_opening`
            state.write(replace(last, token=ticket.token))
        self._spent = last.spent

    def __repr__(self) -> str:
        return f"IndividualFilter({self._block}, rho={self.plan.rho:g}, steps={self.steps})"

    @property
    def steps(self) -> int:
        """The number of gradients that were begun, also by earlier processes. Public."""
        return len(self._bill.journal)

    def gradient(self, model: nn.Module, loss: Loss, *, noise: float, clip: float) -> dict[str, Tensor]:
        """Releases the next noisy gradient.

        Args:
            model: The model; its trainable parameters get gradients.
            loss: A function of the model's output and the targets that returns one loss per row.
            noise: The noise multiplier of this step. It may depend on everything that was released before.
            clip: The clipping norm of this step, likewise.

        Returns:
            (Σ clipped gradients of the units that can pay + N(0, (noise · clip)²)) / the public nominal size, by
            parameter name.

        Raises:
            VaultError: If the filter was closed, belongs to another process, or its records were admitted again.
        """
        check_noise(noise, "a unit's cost is its share of the clip over the noise, squared and halved")
        positive("clip", clip, "it bounds what one unit can change")
        self._check_ready()
        clipper = self._clipper(model, loss, clip)
        step = self._bill.journal.begin()  # durable: this step's noise is drawn in no other process
        total = clipper.total()
        spent = self._spent.clone()
        cost = 0.5 / self.plan.rho / noise / noise
        limit = min([self._access.max_batch, *batch_limits(model)])
        with dice(model, self._dice_key, step), unchanged(model, loss):
            for index, group in batches(self._records, torch.arange(self._records.units), limit):
                guarded(partial(self._add, clipper, total, spent, index, group, clip, cost))
        grid_noise = GridNoise(len(total.flat), self._noise_key, noise * clip, total.flat.device)
        out = grid_noise.released(total, step, over=self._block.size, dtype=clipper.layout.dtype)
        # Durable before the gradient is released.
        self._file.write(FilterState(spent=spent, steps=step + 1, token=self._bill.ticket.token))
        self._spent = spent
        return clipper.views(out)

    def noisy_units_left(self, plan: SumPlan) -> float:
        """Releases a noisy number of the units that are not out yet; billed by itself.

        Args:
            plan: The noise multiplier. Commit it together with the filter's plan.
        """
        self._check_ready()
        detail = {"of": self._bill.ticket.grant, "steps": self.steps}
        return noisy_count(self._access, self._block, plan, lambda: int((self._spent <= FULL).sum()), detail)

    def pause(self) -> None:
        """Unlocks the filter, so that this process or another can open it again."""
        self._bill.journal.close()

    def close(self) -> None:
        """Ends the filter for good. The charge stands."""
        if not self._done:
            self._done = True
            self._bill.release()
            self._file.delete()

    def _check_ready(self) -> None:
        if self._done:
            raise VaultError(f"the individual filter of {self._block} was closed; what it released can still be used")
        if os.getpid() != self._process:
            raise VaultError("an individual filter belongs to the process that opened it; open it in this process")
        if self._access.records(self._block) is not self._records:
            raise VaultError(
                f"the records of {self._block} were admitted again or relabelled; open its individual filter again"
            )

    def _clipper(self, model: nn.Module, loss: Loss, clip: float) -> Clipper:
        """A clipper whose model and loss were tested, on synthetic rows, to treat each record by itself."""
        if self._known is not None and self._known[:3] == (model, loss, clip):
            trained = tuple(name for name, p in model.named_parameters() if p.requires_grad)
            if trained == self._known[3].names:
                return self._known[3]
        clipper = Clipper(model, loss, Flat(norm=clip))
        row_checks.check_training(Read(self._block), self._records, model, loss, clipper)
        self._known = (model, loss, clip, clipper)
        return clipper

    def _add(
        self, clipper: Clipper, total: ExactSum, spent: Tensor, index: Tensor, group: Tensor, clip: float, cost: float
    ) -> None:
        """Adds the clipped gradients of the units that can pay, and charges these units."""
        if len(index) == 0:
            return
        first = int(self._owner[int(index[0])]) - int(group[0])
        # Rounding to the grid may make a gradient longer than its norm, by half a step in each coordinate.
        rounding = 0.5 * total.step * math.sqrt(len(total.flat))

        def judge(norms: Tensor) -> Tensor:
            units = self._owner[index.numpy()] if self._records.single else np.arange(first, first + len(norms))
            own = spent[units]
            admitted = admit_units(own, norms.cpu().double() + rounding, clip, cost)
            spent[units] = own
            return admitted.to(norms.device)

        device = total.flat.device
        x, y = self._records.features(index).to(device), self._y[index].to(device)
        clipper.add(total, x, y, None if self._records.single else group.to(device), judge=judge)
