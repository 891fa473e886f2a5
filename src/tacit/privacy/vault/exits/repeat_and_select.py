"""The exit `vault.umbrella`: private tuning by repeat-and-select (Liu & Talwar 2019; Papernot & Steinke 2022).

Mechanism: a trial is run a secret random number of times K, and only the best result is released.

Formal guarantees
  * All trials together cost each unit of the blocks the one charge `TuningPlan.event` (`RepeatAndSelect`), whatever K
    turns out to be.
  * A trial can read only what the plan names, each read once.

Conditions: trials are independent draws from one fixed distribution: their choices come from the generator they are
given (no model-based tuner, no pruning across trials). K and the losing trials stay secret.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from tacit.errors import PlanError, VaultError
from tacit.privacy.accounting import events
from tacit.privacy.ledger import Ticket
from tacit.privacy.randomness.cipher import words
from tacit.privacy.randomness.keys import SAMPLER, KeyRing
from tacit.privacy.vault.exits.access import Exit
from tacit.privacy.vault.exits.label_set import LabelPlan
from tacit.privacy.vault.exits.plans import GradientPlan, SumPlan
from tacit.privacy.vault.intake.blocks import Block, as_list
from tacit.privacy.vault.intake.fingerprint import fingerprint

_MAX_TRIALS = 1_000_000

Plan = GradientPlan | SumPlan | LabelPlan
"""What one trial can read."""


@dataclass(frozen=True, kw_only=True)
class TuningPlan:
    """What one trial reads from each block, and the distribution of the number of trials.

    Attributes:
        reads: The plans that one trial uses on each block, each once.
        trials: The expected number of trials, > 1.
        shape: The shape of the truncated negative binomial distribution of the number of trials: 0 is logarithmic, 1
            geometric, infinity Poisson (which may draw no trial).
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
        """What one trial may spend on each block."""
        return [plan.event for plan in self.reads]

    @property
    def event(self) -> dp_event.DpEvent:
        """What each block is charged, once."""
        return events.repeat_and_select(events.compose(self.events), self.trials, self.shape)

    def describe(self) -> dict[str, object]:
        """The plan as it is stored in ledgers.

        Returns:
            Plain JSON values.
        """
        reads = [plan.describe() for plan in self.reads]
        shape = "inf" if math.isinf(self.shape) else self.shape
        return {"plan": "tuning", "trials": self.trials, "shape": shape, "reads": reads}


@dataclass(frozen=True, kw_only=True)
class Winner:
    """The best trial.

    Attributes:
        score: Its score; None if no trial was drawn (Poisson).
        result: Its result; None likewise.
    """

    score: float | None
    result: Any


class TuningExit(Exit):
    """`vault.umbrella(blocks, plan, trial)`."""

    def __call__(
        self,
        blocks: Sequence[Block] | Block,
        plan: TuningPlan,
        trial: Callable[[np.random.Generator], tuple[float, Any]],
    ) -> Winner:
        """Runs `trial` a secret random number of times under one charge, and releases the best result only.

        Args:
            blocks: The blocks that trials may read.
            plan: What one trial reads, and the distribution of the number of trials.
            trial: Draws its hyper-parameters from the generator it gets, uses each read of the plan at most once on
                each block, and returns (score, result). The score comes from these reads or from public data.

        Returns:
            The result with the highest score, and nothing about the other trials.

        Raises:
            VaultError: If `trial` is not callable, or starts another tuning.
            BudgetExceeded: If the charge does not fit in a block's budget, or a trial reads more than the plan names.
        """
        blocks, biller = as_list(blocks), self._access.biller
        if not callable(trial):
            raise VaultError(f"trial must be a function of a generator, got {type(trial).__name__}")
        for block in blocks:
            self._access.records(block)
        fresh = int(np.random.SeedSequence().generate_state(1)[0])  # never resumed: the trials of a study are secret
        name = fingerprint(plan=plan.describe(), blocks=[block.id for block in blocks], fresh=fresh)
        bill = biller.bill("tuning", [(block, plan.event) for block in blocks], plan.describe(), name)
        bill.journal.begin()  # durable before a trial: no other tuning continues this charge with its noise
        allowance = {block.id: plan.events for block in blocks}
        best = Winner(score=None, result=None)
        for number in range(draw_trials(plan, self._access.ledger.keys, bill.ticket)):
            with biller.trial(bill.ticket, number, allowance):
                score, result = trial(np.random.default_rng())
            score = float(score) if score == score else -math.inf  # NaN never wins
            if best.score is None or score > best.score:
                best = Winner(score=score, result=result)
        bill.release()
        return best


def draw_trials(plan: TuningPlan, keys: KeyRing, ticket: Ticket) -> int:
    """The secret number of trials, by inverting its distribution function at a keyed uniform number."""
    key = keys.derive(SAMPLER, ticket.generation, ticket.grant, "K")
    low, high = (int(word) & 0xFFFFFFFF for word in words(key, 0, 2))
    target = (low * 2.0**32 + high + 0.5) * 2.0**-64
    below = 0.0
    for k, mass in enumerate(_masses(plan)):
        below += mass
        if target < below:
            return k
        if k >= _MAX_TRIALS:
            break
    return _MAX_TRIALS


def _masses(plan: TuningPlan) -> Iterator[float]:
    """The probabilities P(K = 0), P(K = 1), …"""
    if math.isinf(plan.shape):
        mass = math.exp(-plan.trials)
        for k in range(1, _MAX_TRIALS):
            yield mass
            mass *= plan.trials / k
        return
    gamma = rdp_privacy_accountant._gamma_truncated_negative_binomial(plan.shape, plan.trials)
    yield 0.0
    if plan.shape == 0:
        for k in range(1, _MAX_TRIALS):
            yield (1 - gamma) ** k / (k * math.log(1 / gamma))
        return
    mass = plan.shape * (1 - gamma) / (gamma**-plan.shape - 1)
    for k in range(1, _MAX_TRIALS):
        yield mass
        mass *= (1 - gamma) * (k + plan.shape) / (k + 1)
