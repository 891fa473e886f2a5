"""Why a record must not enter a memory because another one left: the replacement cascade, audited.

Hassanpour et al. 2022 keep a privacy budget for each record: a record leaves the memory when its budget is spent, and
the next one of the stream takes its place. No record overspends. But with one record more at the start, every later
record comes into the memory one turn later: after that record is long gone, the two runs still differ in every output.
Bookkeeping by record does not bound what a record does to the *membership of others*, and ε grows without end.

The control: each record is in or out by a tag of its own and a public threshold, and stays for a public time. One
record more then changes the outputs that it takes part in, and no others.

Everything here is a simulation on made-up gradients of ±C. The attacker knows all of them and both worlds, looks at the
noisy outputs, and says which world it is; the lower bound on ε holds with confidence 95 %. Evidence, not proof: it can
refute a bound, as it does here, and cannot confirm one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tacit.errors import PlanError
from tacit.privacy import accounting, events

Array = NDArray[np.float64]

USES = {2.0: 60, 4.0: 200, 8.0: 500}
"""Noise multiplier → how often the memory is used."""
CLAIMED = {2.0: 0.41, 4.0: 0.19, 8.0: 0.12}
"""The budget of each record in the paper, which its bookkeeping keeps: (sigma 2, 4, 8), learners of 9 tasks."""
DELTA = 1e-5
CONFIDENCE = 0.95
_SOME = 256  # runs drawn at a time


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the attacker found about one rule at one noise."""

    rule: str
    noise: float
    uses: int
    claimed: float | None
    """ε that the paper's bookkeeping shows for each record."""
    exact: float
    """ε of this pair of worlds, at δ."""
    certified: float | None
    """ε that holds for all pairs of worlds; None where none does."""
    at_least: float
    """What the audit shows: ε is not below it."""

    @property
    def refuted(self) -> bool:
        """Whether the audit is above the number that the rule comes with."""
        said = self.certified if self.claimed is None else self.claimed
        return said is not None and self.at_least > said


def unsafe_replacement(stream: Sequence[float], capacity: int, each: int, uses: int) -> Array:
    """The published rule, NOT PRIVATE: the sums that a memory gives in `uses` turns. A record leaves after `each` uses,
    and the next one of the stream takes its place."""
    coming = iter(stream)
    memory = [[next(coming), 0] for _ in range(capacity)]
    sums = np.empty(uses)
    for turn in range(uses):
        sums[turn] = sum(gradient for gradient, _ in memory)
        for place, (gradient, used) in enumerate(memory):
            memory[place] = [gradient, used + 1] if used + 1 < each else [next(coming), 0]
    return sums


def by_tag(stream: Sequence[float], tags: Sequence[float], threshold: float, each: int, uses: int) -> Array:
    """The valid rule: record i comes in turn i, is in the memory for `each` turns if its own tag is below a public
    threshold, and leaves then, whatever the others do."""
    sums = np.zeros(uses)
    for turn, (gradient, tag) in enumerate(zip(stream[:uses], tags[:uses], strict=True)):
        if tag < threshold:
            sums[turn : turn + each] += gradient
    return sums


def enters(margins: Sequence[float]) -> NDArray[np.bool_]:
    """Efficient memory as published (Eq. 6): a record enters if its margin reaches the sigmoid of the batch's mean."""
    mean = float(np.mean(margins))
    return np.asarray(margins) >= 1 / (1 + math.exp(-mean))


def counterexample() -> tuple[int, int, int]:
    """Of how many records how many enter without and with one record more, whose margin is 1."""
    margin = 0.65905  # just above the fixed point of the sigmoid
    others = [margin] * 9
    return len(others), int(enters(others).sum()), int(enters([*others, 1.0])[: len(others)].sum())


MOST_RUNS, MOST_USES = 10_000_000, 100_000
"""More take days and show nothing new."""


def audit(
    *, noises: Sequence[float] = tuple(USES), uses: int | None = None, runs: int = 20_000, seed: int = 0
) -> list[Finding]:
    """Both rules at every noise. `runs`: simulated runs in each of the two worlds; half of them choose a threshold."""
    if not 100 <= runs <= MOST_RUNS:
        raise PlanError(f"runs must be from 100 to {MOST_RUNS:,}, got {runs}; fewer show nothing")
    if uses is not None and not 1 <= uses <= MOST_USES:
        raise PlanError(f"uses must be from 1 to {MOST_USES:,}, got {uses}")
    if seed < 0:
        raise PlanError(f"seed must be a whole number ≥ 0, got {seed}")
    rng = np.random.default_rng(seed)
    return [
        one for noise in noises for turns in [uses or USES.get(noise, 500)] for one in _both(noise, turns, runs, rng)
    ]


def most(runs: int) -> float:
    """The largest lower bound that so many runs can show: all hits and no false alarm."""
    return _ratio(runs - runs // 2, 0, runs - runs // 2)


def _both(noise: float, uses: int, runs: int, rng: np.random.Generator) -> list[Finding]:
    others = [-1.0 if place % 2 == 0 else 1.0 for place in range(uses + 1)]
    tags = rng.random(uses + 1)
    once = accounting.epsilon(events.gaussian(noise), DELTA)
    worlds = {
        "replacement": [unsafe_replacement(stream, 1, 1, uses) for stream in ([1.0, *others], others)],
        # The record in question comes first and its tag lets it in: the worst for it. Nobody else's turn changes.
        "tag and schedule": [
            by_tag([first, *others], [0.0, *tags], 0.5, 1, uses)
            for first in (1.0, 0.0)  # without it, its turn is empty
        ],
    }
    found = []
    for rule, (there, gone) in worlds.items():
        published = rule == "replacement"
        found.append(
            Finding(
                rule=rule,
                noise=noise,
                uses=uses,
                claimed=CLAIMED.get(noise) if published else None,
                exact=_exact(there - gone, noise),
                certified=None if published else once,
                at_least=_lower_bound(there, gone, noise, runs, rng),
            )
        )
    return found


def _exact(difference: Array, noise: float) -> float:
    """Gaussian outputs with known means are one Gaussian mechanism."""
    shift = float(np.linalg.norm(difference))
    return accounting.epsilon(events.gaussian(noise / shift), DELTA) if shift else 0.0


def _lower_bound(there: Array, gone: Array, noise: float, runs: int, rng: np.random.Generator) -> float:
    """log((hits − δ) / false alarms) by Clopper–Pearson, at the threshold that is best on the first half of the runs.

    Both directions are tried: which of two worlds is "there" is the attacker's choice."""
    direction = there - gone
    scores = {
        which: np.concatenate(
            [
                (means + noise * rng.standard_normal((min(_SOME, runs - start), len(means)))) @ direction
                for start in range(0, runs, _SOME)
            ]
        )
        for which, means in (("there", there), ("gone", gone))
    }
    half = runs // 2
    cuts = np.quantile(np.concatenate([scores["there"][:half], scores["gone"][:half]]), np.linspace(0, 1, 401))
    best, found = -math.inf, 0.0
    for one, other, sign in (("there", "gone", 1.0), ("gone", "there", -1.0)):
        for cut in sign * cuts:
            hits, alarms = (int((sign * scores[which][:half] > cut).sum()) for which in (one, other))
            guess = _ratio(hits, alarms, half)
            if guess > best:
                tested = [int((sign * scores[which][half:] > cut).sum()) for which in (one, other)]
                best, found = guess, _ratio(tested[0], tested[1], runs - half)
    return max(0.0, found)


def _ratio(hits: int, alarms: int, draws: int) -> float:
    error = (1 - CONFIDENCE) / 2
    low = float(stats.beta.ppf(error, hits, draws - hits + 1)) if hits else 0.0
    high = float(stats.beta.ppf(1 - error, alarms + 1, draws - alarms)) if alarms < draws else 1.0
    return math.log((low - DELTA) / high) if low > DELTA else -math.inf
