"""Exits that release once: bill, compute, add noise, let out.

Guarantee: the charge is durable before a record is read; what left before a crash is given again as it was, and never
the same noise on something else.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from dp_accounting import dp_event
from torch import Tensor

from tacit.errors import VaultError
from tacit.privacy import toeplitz
from tacit.privacy.billing import Bill
from tacit.privacy.declared import Block
from tacit.privacy.keys import NOISE
from tacit.privacy.noise import gaussian_
from tacit.privacy.pin import pin
from tacit.privacy.plan import SumPlan
from tacit.privacy.unsafe import Unsafe


class Once(Unsafe):
    """What the sum-like exits of `Vault` share."""

    def _counted(
        self, block: Block, plan: SumPlan, units: Callable[[], float], detail: Mapping[str, Any] | None = None
    ) -> float:
        """Noisy number of some units of a block."""

        def compute() -> Tensor:
            return torch.tensor([units()])

        return float(self._release("count", block, plan, compute, shape=(1,), bound=1.0, detail=detail))

    def _release(
        self,
        kind: str,
        block: Block,
        plan: SumPlan,
        compute: Callable[[], Tensor],
        *,
        shape: tuple[int, ...],
        bound: float,
        detail: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """Bill, compute, add noise, let out: the one path of every sum-like exit. `bound`: the sensitivity."""
        if not isinstance(plan, SumPlan):
            raise VaultError(f"{kind} takes a SumPlan, got {type(plan).__name__}")
        if plan.horizon > 1 and plan.participations < block.tasks_per_unit:
            raise VaultError(
                f"a unit of {block.stream!r} may be in {block.tasks_per_unit} tasks, the plan covers "
                f"{plan.participations}; set participations={block.tasks_per_unit}"
            )
        described = {**plan.describe(), "kind": kind, "shape": list(shape), **(detail or {})}
        keys = self.ledger.keys
        series = f"{block.stream}/{kind}/{plan.series}/{pin(**described)[:16]}" if plan.horizon > 1 else None
        bill = self._bill(kind, block, plan.event, described, series=series, horizon=plan.horizon)
        if (before := bill.journal.kept()) is not None:
            bill.release()
            return before
        total = compute().to(torch.float64)
        if series is None:
            key = keys.derive(NOISE, bill.ticket.generation, bill.ticket.grant)
            noise = gaussian_(torch.empty(shape, dtype=torch.float64), key, 0, plan.std)
        else:  # noise of this task = e_t Σ_k g_k z_{t−k}; the z of earlier tasks are derived again, by their grants
            members = bill.ticket.series
            noise = torch.zeros(shape, dtype=torch.float64)
            for weight, grant in zip(toeplitz.inverse(plan.horizon), reversed(members), strict=False):
                key = keys.derive(NOISE, bill.ticket.generation, "series", grant)
                noise += weight * gaussian_(torch.empty(shape), key, 0, plan.std)
            noise *= toeplitz.easing(plan.horizon, plan.participations)[len(members) - 1]
        out = (total + bound * noise).to(torch.float32)
        bill.journal.keep(out)
        bill.release()
        return out

    def _bill(
        self,
        kind: str,
        block: Block,
        event: dp_event.DpEvent,
        described: Mapping[str, Any],
        *,
        series: str | None = None,
        horizon: int = 1,
    ) -> Bill:
        name = pin(kind=kind, plan=described, block=block.id, records=self._of(block).digest)
        return self._billing.bill(kind, [(block, event)], described, name, series=series, horizon=horizon)
