"""Noise correlated over tasks: the square-root factorisation of the prefix sum.

Releasing one noisy sum per task and adding them up piles up noise like √T. Write the prefix sum as A = C·C with
C lower-triangular Toeplitz, C[i,j] = f[i−j], f = coefficients of (1−x)^(−1/2). Releasing x_t + (C⁻¹z)_t with
z ~ N(0, s²) has the same privacy as releasing Cx + z, and its prefix sums carry only (Cz)_t.

Guarantee: a unit in at most k of T tasks moves Cx by at most `sensitivity(T, k)` times its bound, so
s = noise · sensitivity gives one Gaussian mechanism of multiplier `noise` for all its tasks together. The noise is
then not independent between tasks: the one exception to rule 10, valid up to the public horizon T and no further.

Where a unit is in one task only, later columns of C are shorter than the first, so later tasks would get more noise
than their guarantee needs. C is then scaled to columns of one length, C·diag(1/e) with e_j = ‖Ce_j‖/‖Ce_0‖
(`easing`): task t carries e_t·(C⁻¹z)_t, every unit moves its series by ‖Ce_0‖ exactly, and the price is the same.
"""

import math
from functools import lru_cache

from tacit.errors import PlanError


@lru_cache
def coefficients(horizon: int) -> tuple[float, ...]:
    """f[0] = 1, f[k] = f[k−1]·(2k−1)/(2k): the columns of C."""
    f = [1.0]
    for k in range(1, horizon):
        f.append(f[-1] * (2 * k - 1) / (2 * k))
    return tuple(f)


@lru_cache
def inverse(horizon: int) -> tuple[float, ...]:
    """g[0] = 1, g[k] = g[k−1]·(2k−3)/(2k): the columns of C⁻¹, coefficients of (1−x)^(1/2)."""
    g = [1.0]
    for k in range(1, horizon):
        g.append(g[-1] * (2 * k - 3) / (2 * k))
    return tuple(g)


@lru_cache
def sensitivity(horizon: int, participations: int) -> float:
    """The largest ‖Σ_{j∈S} C e_j‖ over |S| ≤ k = participations, never below √(k/j) times that of any j < k.

    All entries are positive and fall with the gap and with the position, so the first columns are the worst. The
    second condition makes k equal charges cover the whole *and* each of its parts: j of them cover j tasks.
    """
    if not 1 <= participations <= horizon:
        raise PlanError(
            f"participations must be between 1 and the horizon {horizon}, got {participations}; "
            "it is the number of tasks one unit may be in"
        )
    k = participations
    return math.sqrt(max(k / j * first_columns(horizon, j) ** 2 for j in range(1, k + 1)))


@lru_cache
def first_columns(horizon: int, k: int) -> float:
    """‖C(e_0 + … + e_{k−1})‖."""
    sums = [0.0]
    for value in coefficients(horizon):
        sums.append(sums[-1] + value)
    return math.sqrt(sum((sums[row + 1] - sums[max(0, row + 1 - k)]) ** 2 for row in range(horizon)))


@lru_cache
def easing(horizon: int, participations: int) -> tuple[float, ...]:
    """e_t: by how much the noise of each task may be scaled. All 1 where a unit may be in several tasks."""
    if participations > 1:
        return (1.0,) * horizon
    norms = [math.sqrt(sum(f * f for f in coefficients(horizon - t))) for t in range(horizon)]
    return tuple(norm / norms[0] for norm in norms)


@lru_cache
def mixing(horizon: int, tasks: int, participations: int) -> tuple[tuple[float, ...], ...]:
    """The first `tasks` rows and columns of the scaled C: times the releases so far, their noise is white again."""
    f, e = coefficients(horizon), easing(horizon, participations)
    return tuple(tuple(f[i - j] / e[j] if i >= j else 0.0 for j in range(tasks)) for i in range(tasks))


@lru_cache
def total_noise(horizon: int, tasks: int, participations: int) -> float:
    """Standard deviation of the noise in the sum of the first `tasks` releases, for z of standard deviation 1."""
    g, e = inverse(horizon), easing(horizon, participations)
    return math.sqrt(sum(sum(e[j] * g[j - k] for j in range(k, tasks)) ** 2 for k in range(tasks)))
