"""A meter for each unit: gradients with any noise, as often as one likes, until a unit's own losses reach ρ.

Guarantee (Feldman & Zrnic 2021, individual Rényi filters): whatever noise, models and losses are chosen from what came
out before, all outputs together are (α, αρ)-RDP at every order α for one unit more or less. Each unit's gradient is
clipped and costs its own ‖g‖²/(2 noise² clip²); a unit takes part if and only if what it has spent and this cost stay
within ρ, and once it does not, never again. So a unit with small gradients is used longer than the clip would allow.

What that rests on: the decision about a unit looks at the unit itself and at what was released, at no other unit; what
it has spent, and whether it is out, is written to disk before an output leaves and is never let out itself; nobody
comes in because someone is out; all units are read in every step (no sampling), so that no step hides who takes part.
A crash gives nothing back: what was spent for an output that nobody saw stays spent. Nor does a store that was lost or
put back: noise hangs on the ledger's token, which rises whenever a meter is taken up, and a tally that is older than
the last time is refused.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from dp_accounting import dp_event
from torch import Tensor, nn

from tacit.data.records import Records
from tacit.errors import LedgerError, PlanError, VaultError
from tacit.gradients import Clipper, ExactSum, Flat
from tacit.privacy import calibrate, events, rowwise
from tacit.privacy.billing import Bill
from tacit.privacy.budget import Budget
from tacit.privacy.declared import Block, Loss, Read
from tacit.privacy.exits import at_a_time, chunks, guarded
from tacit.privacy.grid import GridNoise
from tacit.privacy.ledger import Ledger, Ticket
from tacit.privacy.plan import Plan, SumPlan, check_noise, positive
from tacit.privacy.still import dice, unchanged
from tacit.privacy.store import Spent, Store, Tally

FULL = 2**50
"""ρ in whole units: costs are rounded up to such units and added exactly. More than this: out for good."""
_UP = 1 + 1e-9  # more than the rounding of a cost can take off


@dataclass(frozen=True, kw_only=True)
class MeterPlan:
    """What one unit may lose over all gradients of a meter: the Rényi divergence of order α stays below α·rho."""

    rho: float

    def __post_init__(self) -> None:
        positive("rho", self.rho, "it is what one unit may lose; MeterPlan.for_budget finds it")

    @classmethod
    def for_budget(cls, budget: Budget, tasks_per_unit: int = 1, *, beside: Sequence[Plan] = ()) -> "MeterPlan":
        """The largest ρ that the budget allows, in all `tasks_per_unit` tasks of a unit together; `beside`: what else
        is read of each block."""
        others = [plan.event for plan in beside]

        def over(log_rho: float) -> float:
            event = events.compose([events.zcdp(math.exp(log_rho)), *others])
            return -1.0 if calibrate.fits(event, budget, tasks_per_unit) else 1.0

        found = calibrate.bracketed(over, start=-4.0, good=-40.0, bad=20.0, tolerance=1e-9)
        if found is None:
            raise PlanError(f"nothing is left of {budget} for a meter; give what is read beside it more noise")
        return cls(rho=math.exp(found) * (1 - 1e-6))  # open blocks round costs up and limits down

    @property
    def event(self) -> dp_event.DpEvent:
        """What the block is charged, once."""
        return events.zcdp(self.rho)

    def describe(self) -> dict[str, object]:
        return {"plan": "meter", **asdict(self)}


class Meter:
    """Made by `Vault.meter`. `meter.gradient(model, loss, noise=…, clip=…)` as often as one likes."""

    def __init__(
        self,
        *,
        plan: MeterPlan,
        block: Block,
        records: Records,
        y: Tensor,
        bill: Bill,
        tally: Tally,
        keys: tuple[bytes, bytes],
        most: int,
        held: Callable[[], Records],
        live: Callable[[], None],
        count: Callable[[SumPlan, Callable[[], float], Mapping[str, Any]], float],
    ) -> None:
        self.plan = plan
        self._block, self._records, self._y, self._most = block, records, y, most
        self._bill, self._tally, (self._noise, self._dice) = bill, tally, keys
        self._held, self._live, self._count = held, live, count
        self._owner = np.repeat(np.arange(records.units), np.diff(records.starts))
        self._known: tuple[nn.Module, Loss, float, Clipper] | None = None
        self._done, self._process = False, os.getpid()
        token = bill.ticket.token
        if not bill.charged:
            # Zeros first: of a charged meter without a tally one knows that the tally was lost, and refuses it.
            tally.write(Spent(units=torch.zeros(records.units, dtype=torch.int64), steps=0, token=token))
            bill.charge()
        last = tally.read()
        if last is None or len(last.units) != records.units:
            raise VaultError(
                f"what the units of {block} have spent is not in this store any more; the block can be read no more"
            )
        if last.token < token - 1:
            raise _put_back(block)
        if self.steps < last.steps:
            raise VaultError(
                f"the store has lost steps of the meter of {block}: its journal has {self.steps} of {last.steps}; "
                "put the journal back, without it the block can be read no more"
            )
        if last.token < token:  # another process came and went since `foretell`; nobody has since
            tally.write(replace(last, token=token))
        self._spent = last.units

    @property
    def steps(self) -> int:
        """How many gradients were begun, also by earlier processes: public."""
        return len(self._bill.journal)

    def gradient(self, model: nn.Module, loss: Loss, *, noise: float, clip: float) -> dict[str, Tensor]:
        """(Σ clipped gradients of the units that take part + N(0, (noise · clip)²)) / the public nominal size.

        `noise` and `clip` may depend on everything that was released before."""
        check_noise(noise, "a unit's cost is its share of the clip over the noise, squared and halved")
        positive("clip", clip, "it bounds what one unit can change")
        self._ready()
        clipper = self._clipper(model, loss, clip)
        step = self._bill.journal.begin()  # durable: this step's noise is drawn in no other process
        total = clipper.total()
        spent = self._spent.clone()
        cost = 0.5 / self.plan.rho / noise / noise
        most = min([self._most, *at_a_time(model)])
        with dice(model, self._dice, step), unchanged(model):
            for index, group in chunks(self._records, torch.arange(self._records.units), most):
                guarded(partial(self._add, clipper, total, spent, index, group, clip, cost))
        noise_of = GridNoise(len(total.flat), self._noise, noise * clip, total.flat.device)
        out = noise_of.released(total, step, over=self._block.size, dtype=clipper.layout.dtype)
        # Durable before anything leaves.
        self._tally.write(Spent(units=spent, steps=step + 1, token=self._bill.ticket.token))
        self._spent = spent
        return clipper.views(out)

    def left(self, plan: SumPlan) -> float:
        """A noisy number of the units that are not out yet, billed by itself: commit it with the meter's plan."""
        self._ready()
        which = {"of": self._bill.ticket.grant, "steps": self.steps}
        return self._count(plan, lambda: float((self._spent <= FULL).sum()), which)

    def pause(self) -> None:
        """Let another meter object, in this process or another one, take it up."""
        self._bill.journal.close()

    def close(self) -> None:
        """End it for good; what was charged stays charged."""
        if not self._done:
            self._done = True
            self._bill.release()
            self._tally.delete()

    def _ready(self) -> None:
        if self._done:
            raise VaultError(f"the meter of {self._block} was closed; what it released can be used for ever")
        if os.getpid() != self._process:
            raise VaultError("a meter belongs to the process that asked for it; ask for it in this process")
        self._live()
        if self._held() is not self._records:
            raise VaultError(f"the records of {self._block} were taken in again or relabelled; ask for its meter again")

    def _clipper(self, model: nn.Module, loss: Loss, clip: float) -> Clipper:
        """One that has shown, on made-up rows, that model and loss treat each record by itself."""
        if self._known is not None and self._known[:3] == (model, loss, clip):
            trained = tuple(name for name, p in model.named_parameters() if p.requires_grad)
            if trained == self._known[3].names:
                return self._known[3]
        clipper = Clipper(model, loss, Flat(norm=clip))
        rowwise.check_training(Read(self._block), self._records, model, loss, clipper)
        self._known = (model, loss, clip, clipper)
        return clipper

    def _add(
        self, clipper: Clipper, total: ExactSum, spent: Tensor, index: Tensor, group: Tensor, clip: float, cost: float
    ) -> None:
        """Add the clipped gradients of the units that can pay, and take what they cost off their own meters."""
        if len(index) == 0:
            return
        first = int(self._owner[int(index[0])]) - int(group[0])
        # Rounding to steps may make a gradient longer than its norm, by half a step in each coordinate.
        rounding = 0.5 * total.step * math.sqrt(len(total.flat))

        def judge(norms: Tensor) -> Tensor:
            units = self._owner[index.numpy()] if self._records.single else np.arange(first, first + len(norms))
            mine = spent[units]
            takes = pay(mine, norms.cpu().double() + rounding, clip, cost)
            spent[units] = mine
            return takes.to(norms.device)

        device = total.flat.device
        x, y = self._records.features(index).to(device), self._y[index].to(device)
        clipper.add(total, x, y, None if self._records.single else group.to(device), judge=judge)


def foretell(ledger: Ledger, store: Store, block: Block, pin: str) -> None:
    """Write the token that comes next into a meter's tally, before the ledger raises it; refuse a tally that the ledger
    has passed.

    So the ledger passes a tally only if it went on elsewhere, or was put back. A kill before the raise leaves a tally
    that is one ahead, a kill after it one that is even: nothing left in between, and both go on. A store that was put
    back to a moment since the meter was taken up last looks like such a kill, and is not noticed.
    """
    ledger.require_live(block.id)
    for grant, tally in store.tallies(block.name, pin).items():
        journal = store.journal(pin)  # its lock: nobody else writes the tally meanwhile
        try:
            if (held := tally.read()) is None:
                continue
            if _is_newest(ledger, grant, held.token):
                tally.write(replace(held, token=held.token + 1))
            elif not _is_newest(ledger, grant, held.token - 1):
                raise _put_back(block)
        finally:
            journal.close()


def _is_newest(ledger: Ledger, grant: str, token: int) -> bool:
    try:
        ledger.check(Ticket(grant=grant, token=token, generation=0))
    except LedgerError:
        return False
    return True


def _put_back(block: Block) -> VaultError:
    return VaultError(
        f"the meter of {block} was taken up after this tally was written: the store was put back, and what units have "
        "spent since is lost; put its newest files back, without them the block can be read no more"
    )


def pay(spent: Tensor, norms: Tensor, clip: float, cost: float) -> Tensor:
    """Who takes part; `spent` is changed in place. `cost`: of a gradient as long as the clip, as a share of ρ."""
    # What is not finite counts as nothing in the sum, and pays in full.
    share = (norms / clip).nan_to_num(nan=1.0, posinf=1.0).clamp(max=1.0).square()
    asked = (share * (cost * _UP * FULL)).nan_to_num(nan=math.inf).clamp(1, FULL + 1).ceil().to(torch.int64)
    takes = spent + asked <= FULL
    spent.copy_(torch.where(takes, spent + asked, FULL + 1))
    return takes
