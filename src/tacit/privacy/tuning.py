"""Private tuning by repeat-and-select (Liu & Talwar 2019; Papernot & Steinke 2022).

Guarantee: trials drawn independently from one fixed distribution, run a random number of times K, of which only the
best leaves, cost what `RepeatAndSelect` says, however large K turns out. Conditions (rule 13): a trial's choices come
from its own generator alone (no model-based tuner, no pruning across trials), K and the losers stay secret.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from tacit.errors import PlanError
from tacit.privacy import events
from tacit.privacy.cipher import words
from tacit.privacy.keys import SAMPLER, KeyRing
from tacit.privacy.ledger import Ticket
from tacit.privacy.plan import Plan

_MOST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class TuningPlan:
    """What one trial reads of each block, and how the number of trials is drawn: K with mean `trials`.

    `shape` of the truncated negative binomial: 0 logarithmic, 1 geometric, infinite Poisson (which may be 0).
    """

    reads: Sequence[Plan]
    trials: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        if not self.reads:
            raise PlanError("a tuning plan names what one trial reads; got no reads")
        if not (self.trials > 1 and math.isfinite(self.trials)):
            raise PlanError(f"trials must be a finite number > 1, got {self.trials}; it is their expected number")
        if self.shape < 0:
            raise PlanError(f"shape must be ≥ 0, got {self.shape}; 0 is logarithmic, 1 geometric, inf Poisson")

    @property
    def events(self) -> list[dp_event.DpEvent]:
        return [plan.event for plan in self.reads]

    @property
    def event(self) -> dp_event.DpEvent:
        return events.repeat_and_select(events.compose(self.events), self.trials, self.shape)

    def describe(self) -> dict[str, object]:
        reads = [plan.describe() for plan in self.reads]
        shape = "inf" if math.isinf(self.shape) else self.shape
        return {"plan": "tuning", "trials": self.trials, "shape": shape, "reads": reads}


@dataclass(frozen=True, kw_only=True)
class Winner:
    """The best trial; both None when no trial was drawn (Poisson)."""

    score: float | None
    result: Any


def draw_trials(plan: TuningPlan, keys: KeyRing, ticket: Ticket) -> int:
    """K, by a secret coin of the vault (inverse of the distribution function)."""
    low, high = (
        int(word) & 0xFFFFFFFF for word in words(keys.derive(SAMPLER, ticket.generation, ticket.grant, "K"), 0, 2)
    )
    target = (low * 2.0**32 + high + 0.5) * 2.0**-64
    below = 0.0
    for k, mass in enumerate(_masses(plan)):
        below += mass
        if target < below:
            return k
        if k >= _MOST:
            break
    return _MOST


def _masses(plan: TuningPlan) -> Any:
    """P(K = 0), P(K = 1), …"""
    if math.isinf(plan.shape):
        mass = math.exp(-plan.trials)
        for k in range(1, _MOST):
            yield mass
            mass *= plan.trials / k
        return
    gamma = rdp_privacy_accountant._gamma_truncated_negative_binomial(plan.shape, plan.trials)
    yield 0.0
    if plan.shape == 0:
        for k in range(1, _MOST):
            yield (1 - gamma) ** k / (k * math.log(1 / gamma))
        return
    mass = plan.shape * (1 - gamma) / (gamma**-plan.shape - 1)
    for k in range(1, _MOST):
        yield mass
        mass *= (1 - gamma) * (k + plan.shape) / (k + 1)
