"""Audit of batch clipping: why the clip has to be on each record, and not on the gradient of a batch.

Desai et al. 2021 (their code) and Hassanpour et al. 2022 (Algorithm 2) clip the gradient of a whole batch to C and add
noise for a sensitivity of C. But a record with a long gradient turns the batch's mean gradient around, and what the
clip leaves of it is as long as before: −C becomes +C, a change of 2C, and of 2C√n where each of n tensors is clipped.

The worst case is simulated: all records but one have the gradient −1, and that one has a gradient as long as all others
together, twice. The attacker sees every noisy gradient and knows all else (a white box), and scores a run by its exact
likelihood ratio. The gradients are clipped by the functions that the learners use (`PublishedDPCL`,
`PublishedRobustDPCL`). The control clips each record and sums, as the vault does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit.audit.membership import DELTA, Array, lower_bound
from tacit.audit.replacement_cascade import CLAIMED
from tacit.errors import PlanError
from tacit.learners.base.gradient import Gradient
from tacit.learners.published.clipped_batch import clipped_as_one, clipped_by_tensor
from tacit.privacy.accounting import epsilon, events

RECORDS = 10
"""Records in a batch, besides the one that is attacked."""
TENSORS = 6
"""Parameter tensors of the papers' MLP with two hidden layers."""
CLIP = 0.1
MOST_RUNS = 10_000_000

Clip = Callable[[Sequence[Gradient]], Gradient]
"""From the gradients of a batch's records to what is released of them before noise is added."""


def each_record(records: Sequence[Gradient]) -> Gradient:
    """The sum of gradients that are clipped one by one: what is accounted for."""
    clipped = [clipped_as_one(record, CLIP) for record in records]
    return {name: torch.stack([one[name] for one in clipped]).sum(0) for name in clipped[0]}


def whole_batch(records: Sequence[Gradient]) -> Gradient:
    """The clipped mean gradient (Hassanpour et al. 2022, Algorithm 2, line 12)."""
    return clipped_as_one(_mean(records), CLIP)


def tensor_by_tensor(records: Sequence[Gradient]) -> Gradient:
    """The mean gradient with each tensor clipped (the code of Desai et al. 2021)."""
    return clipped_by_tensor(_mean(records), CLIP)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of a paper, and how often one record meets it."""

    name: str
    clip: Clip
    noise: float
    """The standard deviation of the noise, over the clip."""
    rate: float = 1.0
    """How likely the record is in a step's batch, by a secret coin; 1 where the order of records is known."""
    steps: int = 1
    stated: float | None = None
    """ε as the paper has it. None: of Poisson-sampled steps with this noise multiplier, as an accountant has it."""


RULES = (
    Rule(name="each record clipped", clip=each_record, noise=2.0, rate=0.3, steps=30),
    Rule(name="batch clipped", clip=whole_batch, noise=2.0, rate=0.3, steps=30),
    Rule(name="each record clipped", clip=each_record, noise=1.0, rate=0.1, steps=20),
    Rule(name="batch clipped", clip=whole_batch, noise=1.0, rate=0.1, steps=20),
    Rule(name="Desai 2021, code of Table 1", clip=tensor_by_tensor, noise=CLIP, stated=0.85 + 1.47),
    Rule(name="Desai 2021, corrected in 2022", clip=tensor_by_tensor, noise=1.0, stated=0.85 + 1.47),
    *(
        Rule(name="Hassanpour 2022, Algorithm 2", clip=whole_batch, noise=noise, stated=stated)
        for noise, stated in CLAIMED.items()
    ),
)


@dataclass(frozen=True, kw_only=True)
class ClippingResult:
    """The result of the attack on one rule."""

    rule: str
    noise: float
    """The standard deviation of the noise, over the clip."""
    multiplier: float
    """The standard deviation of the noise, over what the record changes: the true noise multiplier."""
    rate: float
    steps: int
    stated: float
    """ε as the paper or its accountant has it."""
    exact: float
    """ε of this pair of worlds."""
    at_least: float
    """The lower bound on ε from the attack."""

    @property
    def refuted(self) -> bool:
        """Whether the lower bound exceeds the stated ε."""
        return self.at_least > self.stated


def audit(*, rules: Sequence[Rule] = RULES, runs: int = 20_000, seed: int = 0) -> list[ClippingResult]:
    """Attack every rule.

    Args:
        rules: The rules.
        runs: The simulated runs in each of the two worlds; half of them select the threshold.
        seed: The random seed of the simulated noise.

    Raises:
        PlanError: An argument is out of range.
    """
    if not 100 <= runs <= MOST_RUNS:
        raise PlanError(f"runs must be from 100 to {MOST_RUNS:,}, got {runs}; fewer show nothing")
    if seed < 0:
        raise PlanError(f"seed must be a whole number ≥ 0, got {seed}")
    rng = np.random.default_rng(seed)
    return [_attacked(rule, runs, rng) for rule in rules]


def _attacked(rule: Rule, runs: int, rng: np.random.Generator) -> ClippingResult:
    shift = change(rule.clip) / (rule.noise * CLIP)
    there, gone = (_scores(shift if world else 0.0, shift, rule, runs, rng) for world in (True, False))
    accounted = events.poisson_gaussian(rate=rule.rate, noise=rule.noise, steps=rule.steps)
    exact = events.poisson_gaussian(rate=rule.rate, noise=1 / shift, steps=rule.steps)
    return ClippingResult(
        rule=rule.name,
        noise=rule.noise,
        multiplier=1 / shift,
        rate=rule.rate,
        steps=rule.steps,
        stated=epsilon.epsilon(accounted, DELTA) if rule.stated is None else rule.stated,
        exact=epsilon.epsilon(exact, DELTA),
        at_least=lower_bound(there, gone),
    )


def change(clip: Clip) -> float:
    """How far the worst record moves what is released: the distance of the two batches before noise."""
    others = [_record(-1.0)] * RECORDS
    there, gone = clip([*others, _record(2.0 * RECORDS)]), clip(others)
    return float(sum((there[name] - gone[name]).square().sum() for name in gone) ** 0.5)


def _scores(mean: float, shift: float, rule: Rule, runs: int, rng: np.random.Generator) -> Array:
    """The logarithm of the likelihood ratio of each run, from its noisy gradients along the record's change.

    Where the record is in the batch of a step, which a coin decides, they are `mean` away, in standard deviations."""
    seen = rng.standard_normal((runs, rule.steps)) + mean * (rng.random((runs, rule.steps)) < rule.rate)
    with np.errstate(divide="ignore"):
        ratios = np.logaddexp(np.log(1 - rule.rate), np.log(rule.rate) + shift * seen - shift**2 / 2)
    return np.asarray(ratios.sum(1))


def _record(value: float) -> dict[str, Tensor]:
    return {str(number): torch.tensor([value], dtype=torch.float64) for number in range(TENSORS)}


def _mean(records: Sequence[Gradient]) -> Gradient:
    return {name: torch.stack([record[name] for record in records]).mean(0) for name in records[0]}
