"""Exits that release once: bill, compute exactly, add noise, round to the public grid, let out.

Guarantee: the charge is durable before a record is read; what left before a crash is given again as it was, and never
the same noise on something else.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from dp_accounting import dp_event
from torch import Tensor

from tacit.errors import VaultError
from tacit.privacy import toeplitz
from tacit.privacy.billing import Bill
from tacit.privacy.declared import Block
from tacit.privacy.grid import Exact, ExactNumbers, noisy
from tacit.privacy.keys import NOISE
from tacit.privacy.pin import pin
from tacit.privacy.plan import SumPlan
from tacit.privacy.unsafe import Unsafe


class Once(Unsafe):
    """What the sum-like exits of `Vault` share."""

    def _counted(
        self, block: Block, plan: SumPlan, units: Callable[[], float], detail: Mapping[str, Any] | None = None
    ) -> float:
        """Noisy number of some units of a block."""

        def compute() -> Exact:
            return ExactNumbers([int(units())], 1.0)

        return float(self._release("count", block, plan, compute, shape=(1,), bound=1.0, detail=detail))

    def _release(
        self,
        kind: str,
        block: Block,
        plan: SumPlan,
        compute: Callable[[], Exact],
        *,
        shape: tuple[int, ...],
        bound: float,
        detail: Mapping[str, Any] | None = None,
        quieter: int = 0,
    ) -> Tensor:
        """Bill, compute, add noise, round to the grid, let out: the one path of every sum-like exit.

        `bound`: the most that one unit changes the sum, in the norm where the last `quieter` coordinates count double;
        these get noise of 1/√2 of the standard deviation.
        """
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
        total = compute()
        if series is None:
            sources = [(1.0, keys.derive(NOISE, bill.ticket.generation, bill.ticket.grant))]
        else:  # noise of this task = e_t Σ_k g_k z_{t−k}; the z of earlier tasks are derived again, by their grants
            members = bill.ticket.series
            ease = toeplitz.easing(plan.horizon, plan.participations)[len(members) - 1]
            sources = [
                (weight * ease, keys.derive(NOISE, bill.ticket.generation, "series", grant))
                for weight, grant in zip(toeplitz.inverse(plan.horizon), reversed(members), strict=False)
            ]
        count = math.prod(shape)
        out = torch.cat(
            [
                noisy(total, part, [(bound * share * weight, key) for weight, key in sources], plan.std, number)
                for number, (part, share) in enumerate(
                    ((slice(0, count - quieter), 1.0), (slice(count - quieter, count), 0.5**0.5))
                )
                if part.stop > part.start
            ]
        ).view(shape)
        out = out.to(torch.float32)
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
