"""Exits that release one result: bill, compute an exact sum, add noise, round to the public grid, release.

Formal guarantees
  * The charge is durable before code runs on records or noise is drawn.
  * The released tensor is the exact sum plus Gaussian noise of standard deviation `bound · plan.std`, rounded to a
    public grid. If one unit changes the sum by at most `bound`, the release costs each unit `plan.event`.
  * With a store, a release that is repeated after a crash returns the stored result: the same noise is never added to
    another sum.

Conditions: `compute` adds up bounded contributions of single units, exactly (`ExactSum`, `ExactNumbers`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from dp_accounting import dp_event
from torch import Tensor

from tacit.errors import VaultError
from tacit.gradients.exact import SLACK
from tacit.privacy.accounting import toeplitz
from tacit.privacy.randomness.grid import Exact, noisy
from tacit.privacy.randomness.keys import NOISE
from tacit.privacy.vault.exits.access import Access
from tacit.privacy.vault.exits.billing import Bill
from tacit.privacy.vault.exits.plans import SumPlan
from tacit.privacy.vault.intake.blocks import Block
from tacit.privacy.vault.intake.fingerprint import fingerprint


def bill_once(
    access: Access,
    kind: str,
    block: Block,
    event: dp_event.DpEvent,
    described: Mapping[str, Any],
    *,
    series: str | None = None,
    horizon: int | None = 1,
) -> Bill:
    """Charges one release of one block; the charge is durable when this returns.

    Args:
        access: The vault's parts.
        kind: The exit's name in the ledger.
        block: The block that is read.
        event: The privacy event that is charged.
        described: All public settings of the release. The same settings on the same records resume the same release.
        series: The name of a series of releases with correlated noise.
        horizon: The number of releases in the series; None if it is not known.
    """
    held = access.admission.records(block)
    described = {**described, **held.mapping}
    name = fingerprint(kind=kind, plan=described, block=block.id, records=held.digest)
    return access.biller.bill(kind, [(block, event)], described, name, series=series, horizon=horizon)


def release_once(
    access: Access,
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
    """Releases a noisy sum over the units of a block.

    Args:
        access: The vault's parts.
        kind: The exit's name in the ledger.
        block: The block that is read.
        plan: Noise multiplier, and the series that the release belongs to.
        compute: Computes the exact sum. It is called after the charge.
        shape: The public shape of the result.
        bound: The most that one unit changes the sum, in the Euclidean norm in which each of the last `quieter`
            coordinates counts twice.
        detail: Further public settings, for the ledger and for recognising repeated work.
        quieter: The number of last coordinates, whose noise has 1/√2 of the standard deviation.

    Returns:
        A float32 tensor on the public grid.

    Raises:
        VaultError: If the plan is no `SumPlan`, or covers fewer participations than the stream allows a unit.
    """
    if not isinstance(plan, SumPlan):
        raise VaultError(f"{kind} takes a SumPlan, got {type(plan).__name__}")
    if plan.correlated and plan.participations < block.tasks_per_unit:
        raise VaultError(
            f"a unit of {block.stream!r} may be in {block.tasks_per_unit} tasks, the plan covers "
            f"{plan.participations}; set participations={block.tasks_per_unit}"
        )
    described = {**plan.describe(), "kind": kind, "shape": list(shape), **(detail or {})}
    series = f"{block.stream}/{kind}/{plan.series}/{fingerprint(**described)[:16]}" if plan.correlated else None
    bill = bill_once(access, kind, block, plan.event, described, series=series, horizon=plan.horizon)
    if (earlier := bill.journal.kept()) is not None:
        bill.release()
        return earlier
    total = compute()
    if series is None:
        sources = [(1.0, access.noise_key(bill.ticket))]
    else:
        # The noise of task t is Σ_k w_k z_{t−k}; the z of earlier tasks are derived again from their grants.
        members, keys = bill.ticket.series, access.ledger.keys
        weights = toeplitz.weights(plan.horizon, len(members) - 1, plan.participations, plan.early)
        sources = [
            (weight, keys.derive(NOISE, bill.ticket.generation, "series", grant))
            for weight, grant in zip(weights, reversed(members), strict=True)
        ]
    count = math.prod(shape)
    parts = ((slice(0, count - quieter), 1.0), (slice(count - quieter, count), 0.5**0.5))
    released = [
        noisy(total, part, [(bound * share * weight, key) for weight, key in sources], plan.std, number)
        for number, (part, share) in enumerate(parts)
        if part.stop > part.start
    ]
    out = torch.cat(released).view(shape).to(torch.float32)
    bill.journal.keep(out)
    bill.release()
    return out


def finite_rows(rows: Tensor) -> Tensor:
    """Feature rows in float64 on the CPU; a row with a non-finite feature becomes zero."""
    flat = rows.detach().to("cpu", torch.float64).flatten(1)
    finite = torch.isfinite(flat).all(1, keepdim=True)
    return torch.where(finite, flat, torch.zeros_like(flat))


def clip_weights(norms: Tensor, clip: float) -> Tensor:
    """Factors that scale contributions of the given norms to at most `clip`; 0 for a norm that is not finite.

    The factor (1 − `SLACK`) keeps the bound after every rounding that follows.
    """
    weights = torch.where(norms > clip, clip / norms, 1.0) * (1 - SLACK)
    return torch.where(torch.isfinite(norms), weights, torch.zeros_like(norms))
