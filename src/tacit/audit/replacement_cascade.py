"""Audit of the replacement cascade: why a record must not enter a memory because another one left.

Hassanpour et al. 2022 keep a privacy budget for each record: a record leaves the memory when its budget is spent, and
the next record of the stream replaces it. No record overspends. But with one more record at the start, every later
record enters the memory one turn later, so the two runs differ in every output long after that record left.
Accounting per record does not bound a record's effect on the *membership of others*, and ε grows without bound.

The control: a keyed hash of each record and a public threshold decide whether it enters, and it stays for a public
time. One more record then changes only the outputs that it takes part in.

This is a simulation on gradients of ±C. The attacker knows them and both worlds, and decides from the noisy outputs
which world it is in. The lower bound on ε has 95 % confidence. It can refute a bound, as it does here, and cannot prove
one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tacit.audit.membership import DELTA, Array, lower_bound
from tacit.errors import PlanError
from tacit.learners.published.published_robust_dpcl import enters
from tacit.privacy.accounting import epsilon, events

USES = {2.0: 60, 4.0: 200, 8.0: 500}
"""The number of uses of the memory, by noise multiplier."""
CLAIMED = {2.0: 0.41, 4.0: 0.19, 8.0: 0.12}
"""The ε that the paper's accounting gives each record, by noise multiplier, for learners of 9 tasks."""
_BATCH = 256  # runs per batch


@dataclass(frozen=True, kw_only=True)
class CascadeResult:
    """The result of the attack on one rule at one noise multiplier."""

    rule: str
    noise: float
    uses: int
    claimed: float | None
    """The ε that the paper's accounting gives each record."""
    exact: float
    """The ε of this pair of worlds, at δ."""
    certified: float | None
    """The ε that holds for all pairs of worlds; None if there is none."""
    at_least: float
    """The lower bound on ε from the attack."""

    @property
    def refuted(self) -> bool:
        """Whether the lower bound exceeds the claimed or certified ε."""
        stated = self.certified if self.claimed is None else self.claimed
        return stated is not None and self.at_least > stated


def unsafe_replacement(stream: Sequence[float], capacity: int, each: int, uses: int) -> Array:
    """The sums of a memory under the published rule, which is NOT PRIVATE: a record leaves after `each` uses, and the
    next record of the stream replaces it."""
    coming = iter(stream)
    memory = [[next(coming), 0] for _ in range(capacity)]
    sums = np.empty(uses)
    for turn in range(uses):
        sums[turn] = sum(gradient for gradient, _ in memory)
        for slot, (gradient, used) in enumerate(memory):
            memory[slot] = [gradient, used + 1] if used + 1 < each else [next(coming), 0]
    return sums


def by_tag(stream: Sequence[float], tags: Sequence[float], threshold: float, each: int, uses: int) -> Array:
    """The sums of a memory under the valid rule: record i arrives in turn i and stays for `each` turns if its own tag
    is below a public threshold."""
    sums = np.zeros(uses)
    for turn, (gradient, tag) in enumerate(zip(stream[:uses], tags[:uses], strict=True)):
        if tag < threshold:
            sums[turn : turn + each] += gradient
    return sums


def counterexample() -> tuple[int, int, int]:
    """The number of records, and how many of them enter without and with one more record of margin 1 (Eq. 6)."""
    others = torch.full((9,), 0.65905, dtype=torch.float64)  # just above the fixed point of the sigmoid
    beside = torch.cat([others, torch.ones(1, dtype=torch.float64)])
    return len(others), int(enters(others).sum()), int(enters(beside)[: len(others)].sum())


MOST_RUNS, MOST_USES = 10_000_000, 100_000
"""Larger audits would take days and show nothing new."""


def audit(
    *, noises: Sequence[float] = tuple(USES), uses: int | None = None, runs: int = 20_000, seed: int = 0
) -> list[CascadeResult]:
    """Attack both rules at every noise multiplier.

    Args:
        noises: The noise multipliers.
        uses: The number of uses of the memory; by default `USES`.
        runs: The simulated runs in each of the two worlds; half of them select the threshold.
        seed: The random seed.

    Raises:
        PlanError: An argument is out of range.
    """
    if not 100 <= runs <= MOST_RUNS:
        raise PlanError(f"runs must be from 100 to {MOST_RUNS:,}, got {runs}; fewer show nothing")
    if uses is not None and not 1 <= uses <= MOST_USES:
        raise PlanError(f"uses must be from 1 to {MOST_USES:,}, got {uses}")
    if seed < 0:
        raise PlanError(f"seed must be a whole number ≥ 0, got {seed}")
    rng = np.random.default_rng(seed)
    return [result for noise in noises for result in _both(noise, uses or USES.get(noise, 500), runs, rng)]


def _both(noise: float, uses: int, runs: int, rng: np.random.Generator) -> list[CascadeResult]:
    others = [-1.0 if turn % 2 == 0 else 1.0 for turn in range(uses + 1)]
    tags = rng.random(uses + 1)
    once = epsilon.epsilon(events.gaussian(noise), DELTA)
    worlds = {
        "replacement": [unsafe_replacement(stream, 1, 1, uses) for stream in ([1.0, *others], others)],
        # The record comes first and its tag admits it, which is its worst case. The other records' turns do not change.
        "tag and schedule": [
            by_tag([first, *others], [0.0, *tags], 0.5, 1, uses)
            for first in (1.0, 0.0)  # without it, its turn is empty
        ],
    }
    results = []
    for rule, (there, gone) in worlds.items():
        published = rule == "replacement"
        results.append(
            CascadeResult(
                rule=rule,
                noise=noise,
                uses=uses,
                claimed=CLAIMED.get(noise) if published else None,
                exact=_exact(there - gone, noise),
                certified=None if published else once,
                at_least=_lower_bound(there, gone, noise, runs, rng),
            )
        )
    return results


def _exact(difference: Array, noise: float) -> float:
    """The exact ε: Gaussian outputs with known means are one Gaussian mechanism."""
    shift = float(np.linalg.norm(difference))
    return epsilon.epsilon(events.gaussian(noise / shift), DELTA) if shift else 0.0


def _lower_bound(there: Array, gone: Array, noise: float, runs: int, rng: np.random.Generator) -> float:
    """The lower bound on ε from simulated runs of the two worlds."""
    direction = there - gone
    scores = (
        np.concatenate(
            [
                (means + noise * rng.standard_normal((min(_BATCH, runs - start), len(means)))) @ direction
                for start in range(0, runs, _BATCH)
            ]
        )
        for means in (there, gone)
    )
    return lower_bound(*scores)
