"""The lower bound on ε that an attacker's scores show, in runs with and without one record. It proves no bound."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

DELTA = 1e-5
CONFIDENCE = 0.95


def lower_bound(with_record: Array, without_record: Array) -> float:
    """log((hits − δ) / false alarms) by Clopper–Pearson, at the threshold that is best on the first half of the runs.

    Both directions are tried, since the attacker may choose which world counts as a hit.

    Args:
        with_record: The attacker's scores of the runs with the record.
        without_record: The scores of as many runs without it.
    """
    scores = {"with": with_record, "without": without_record}
    half = len(with_record) // 2
    tail = np.geomspace(1 / half, 0.5, 200)  # the best threshold may be far out
    cuts = np.quantile(np.concatenate([with_record[:half], without_record[:half]]), np.concatenate([tail, 1 - tail]))
    best, found = -math.inf, 0.0
    for one, other, sign in (("with", "without", 1.0), ("without", "with", -1.0)):
        for cut in sign * cuts:
            hits, alarms = (int((sign * scores[which][:half] > cut).sum()) for which in (one, other))
            guess = _ratio(hits, alarms, half)
            if guess > best:
                tested = [int((sign * scores[which][half:] > cut).sum()) for which in (one, other)]
                best, found = guess, _ratio(tested[0], tested[1], len(with_record) - half)
    return max(0.0, found)


def most(runs: int) -> float:
    """The largest lower bound that this many runs can show: only hits and no false alarm."""
    return _ratio(runs - runs // 2, 0, runs - runs // 2)


def at_least(hits: int, draws: int, error: float) -> float:
    """The Clopper–Pearson lower confidence bound of a rate."""
    return float(stats.beta.ppf(error, hits, draws - hits + 1)) if hits else 0.0


def _ratio(hits: int, alarms: int, draws: int) -> float:
    error = (1 - CONFIDENCE) / 2
    low = at_least(hits, draws, error)
    high = float(stats.beta.ppf(1 - error, alarms + 1, draws - alarms)) if alarms < draws else 1.0
    return math.log((low - DELTA) / high) if low > DELTA else -math.inf
