"""An adversary against L2DP-ML as its authors' code runs it: tells two neighbouring data sets apart with certainty.

In `code` the noise does not cancel from every coefficient as in `text`: ReLU follows it and inputs are clipped. But
all records still share it. In D a batch is the same record λ times; in D' one of them is another. The records of D have
the same perturbed inputs and the same hidden layers whatever χ₁ and χ₂ are, so the last hidden layer is zero once it
is normalised over the batch, and no gradient passes it: a step leaves the classifier's body as it was. In D' it moves,
unless the noise clips all pixels in which the two records differ (each with a probability of about one half). So one
step's release tells D from D' with a total variation of nearly 1, at any ε that is claimed.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tacit.data.stream import StreamInfo
from tacit.errors import PlanError
from tacit.learners.base.task_loop import admit
from tacit.learners.published.l2dpml import L2DPML
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Vault

RUNS = 20
BATCH = 32
SHAPE = (1, 8, 8)
LR = 0.003
THRESHOLD = 1e-3
"""Of the learning rate; without a difference, rounding in float64 moves the body by about 1e-7 of it."""
CONFIDENCE = 0.95
DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Distinguished:
    """How often the adversary is right, over runs with noise of their own."""

    runs: int
    """The number of runs on each data set."""
    right: int
    """The runs on D' that it says are on D'."""
    wrong: int
    """The runs on D that it says are on D'."""

    @property
    def at_least(self) -> float:
        """The lower bound on ε at δ from these runs, by Clopper and Pearson; more runs can show more."""
        tail = (1 - CONFIDENCE) / 2
        hit = float(stats.beta.ppf(tail, self.right, self.runs - self.right + 1)) if self.right else 0.0
        miss = (
            float(stats.beta.ppf(1 - tail, self.wrong + 1, self.runs - self.wrong)) if self.wrong < self.runs else 1.0
        )
        return max(0.0, math.log((hit - DELTA) / miss)) if hit > DELTA else 0.0


def distinguish(*, epsilon: float, runs: int = RUNS) -> Distinguished:
    """Train one step on each of the two data sets, again and again, and decide by the released parameters alone.

    Raises:
        PlanError: `runs` is below 1.
    """
    if runs < 1:
        raise PlanError(f"runs must be at least 1, got {runs}")
    right, wrong = (sum(moved(epsilon, other) for _ in range(runs)) for other in (True, False))
    return Distinguished(runs=runs, right=right, wrong=wrong)


def moved(epsilon: float, other: bool) -> bool:
    """Whether one step moves the classifier's body, with one record that differs or none."""
    x, y = np.zeros((BATCH, *SHAPE), dtype=np.float32), np.zeros(BATCH, dtype=np.int64)
    if other:
        x[0], y[0] = 1.0, 1
    info = StreamInfo.uniform("two", labels=(0, 1), shape=SHAPE, size=BATCH, tasks=1, public=True)
    budget = Budget(epsilon=epsilon, delta=DELTA)
    learner = L2DPML(
        budget=budget, variant="code", features=4, kernel=3, network="cnn_patches", batch=None, lr=LR, double=True
    )
    learner.start(info)
    before = [parameter.detach().clone() for parameter in learner.stacked.body.parameters()]
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        learner.learn(info.tasks[0], admit(vault, (x, y), info, info.tasks[0], budget), vault)
    after = learner.stacked.body.parameters()
    largest = max(float((new.detach() - old).abs().max()) for new, old in zip(after, before, strict=True))
    return largest > THRESHOLD * LR  # Adam's first step is lr · g / (|g| + 1e-8)
