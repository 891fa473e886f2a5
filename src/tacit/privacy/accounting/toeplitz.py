"""Noise correlated over tasks: the square-root factorisation of the prefix sum.

The sum of T independent noisy sums has noise that grows like √T. Write the prefix sum as A = C·C with C
lower-triangular Toeplitz, C[i,j] = f[i−j], where f are the coefficients of (1−x)^(−1/2). Releasing x_t + (C⁻¹z)_t with
z ~ N(0, s²) has the same privacy as releasing Cx + z, and the prefix sums contain only the noise (Cz)_t.

Formal guarantees: a unit in at most k of T tasks changes Cx by at most `sensitivity(T, k)` times its bound. With
s = noise · sensitivity, all its tasks together are one Gaussian mechanism with multiplier `noise`.

Conditions: the horizon T is public and is not exceeded, a task takes part once, and a unit is in at most k tasks. The
noise is not independent between tasks; everywhere else in tacit noise draws are independent.

If a unit is in one task only, later columns of C are shorter than the first, and later tasks would get more noise than
needed. C is then scaled to columns of equal length, C·diag(1/e) with e_j = ‖Ce_j‖/‖Ce_0‖ (`easing`): task t gets the
noise e_t·(C⁻¹z)_t, every unit changes its series by exactly ‖Ce_0‖, and the price is the same.

If the last release matters most, the earlier ones may be noisier (`early` = w, a share between 0 and 1): the rows of C
but the last are scaled by √w, and the last row is what then makes every column as long as before, ‖Ce_0‖
(`last_row`). A unit in one task changes Cx by exactly as much, so the price is the same.

Without a horizon (`horizon=None`, a stream of unknown length) C is the factor of `endless_factor`, whose columns all
have the same finite length: nothing is scaled, and nothing ends.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from tacit.errors import PlanError
from tacit.privacy.accounting import endless_factor


@lru_cache
def coefficients(horizon: int) -> tuple[float, ...]:
    """The columns of C: f[0] = 1, f[k] = f[k−1]·(2k−1)/(2k)."""
    return _products(horizon, 1)


@lru_cache
def inverse(horizon: int) -> tuple[float, ...]:
    """The columns of C⁻¹, the coefficients of (1−x)^(1/2): g[0] = 1, g[k] = g[k−1]·(2k−3)/(2k)."""
    return _products(horizon, 3)


def _products(horizon: int, odd: int) -> tuple[float, ...]:
    """∏ (2k − odd) / 2k over k = 1, …, n, for each n below the horizon."""
    return tuple(accumulate(range(1, horizon), lambda last, k: last * (2 * k - odd) / (2 * k), initial=1.0))


@lru_cache
def sensitivity(horizon: int | None, participations: int) -> float:
    """The largest ‖Σ_{j∈S} C e_j‖ over |S| ≤ k = participations, and at least √(k/j) times that of any j < k.

    All entries are positive and decrease with the gap and with the position, so the first columns are the worst. Under
    the second condition k equal charges cover the whole series, and j of them cover any j tasks.

    Raises:
        PlanError: `participations` is not between 1 and the horizon.
    """
    if participations < 1 or (horizon is not None and participations > horizon):
        most = "≥ 1" if horizon is None else f"between 1 and the horizon {horizon}"
        raise PlanError(
            f"participations must be {most}, got {participations}; it is the number of tasks one unit may be in"
        )
    k = participations
    return math.sqrt(max(k / j * first_columns(horizon, j) ** 2 for j in range(1, k + 1)))


@lru_cache
def first_columns(horizon: int | None, k: int) -> float:
    """‖C(e_0 + … + e_{k−1})‖; without a horizon an upper bound on it, whatever the number of tasks."""
    if horizon is None:
        return endless_factor.first_columns(k)
    sums = [0.0, *accumulate(coefficients(horizon))]
    return math.sqrt(sum((sums[row + 1] - sums[max(0, row + 1 - k)]) ** 2 for row in range(horizon)))


@lru_cache
def easing(horizon: int, participations: int) -> tuple[float, ...]:
    """The factors e_t by which the noise of each task may be scaled; all 1 if a unit may be in several tasks."""
    if participations > 1:
        return (1.0,) * horizon
    norms = [math.sqrt(sum(f * f for f in coefficients(horizon - t))) for t in range(horizon)]
    return tuple(norm / norms[0] for norm in norms)


def check_early(horizon: int | None, participations: int, early: float) -> None:
    """Refuses a share of the early releases that is not in (0, 1), or a series that it is not defined for.

    Raises:
        PlanError: The share is not valid, a unit may be in several tasks, or there is no last of several tasks.
    """
    if not 0 < early < 1:
        raise PlanError(f"early must be between 0 and 1, got {early}; 0.3 leaves most for the last release")
    if horizon is None or horizon == 1 or participations != 1:
        raise PlanError(
            f"early = {early:g} needs a series with a last task and units in one task each, got horizon {horizon} and "
            f"participations {participations}; leave early out"
        )


@lru_cache
def last_row(horizon: int, early: float) -> tuple[float, ...]:
    """The last row of C where the early releases have the share `early`: it gives all columns the length ‖Ce_0‖."""
    rows = mixing(horizon, horizon - 1, 1)
    length = math.fsum(f * f for f in coefficients(horizon))
    used = [early * math.fsum(row[j] ** 2 for row in rows) for j in range(horizon - 1)]
    return (*(math.sqrt(length - part) for part in used), math.sqrt(length))


def weights(horizon: int | None, position: int, participations: int, early: float | None = None) -> Sequence[float]:
    """The weights of z_t, z_{t−1}, …, z_0 in the noise of the task at position t."""
    if horizon is None:
        found: list[float] = endless_factor.inverse(position + 1).tolist()
        return found
    if early is not None and position == horizon - 1:
        return _last_weights(horizon, early)
    scale = easing(horizon, participations)[position] / (1.0 if early is None else math.sqrt(early))
    return [weight * scale for weight in inverse(horizon)[: position + 1]]


@lru_cache
def _last_weights(horizon: int, early: float) -> tuple[float, ...]:
    """The last row of C⁻¹, from its end: (1, −r·(the inverse of the rows above)) over the last entry of the row r."""
    *row, own = last_row(horizon, early)
    above = [weights(horizon, position, 1, early) for position in range(horizon - 1)]
    found = [math.fsum(row[j] * above[j][j - k] for j in range(k, horizon - 1)) for k in range(horizon - 1)]
    return (1 / own, *(-weight / own for weight in reversed(found)))


@lru_cache
def mixing(
    horizon: int | None, tasks: int, participations: int, early: float | None = None
) -> tuple[tuple[float, ...], ...]:
    """The first `tasks` rows and columns of the scaled C, which makes the noise of the releases so far white again."""
    if horizon is not None and early is not None:
        scale = math.sqrt(early)
        rows = [[scale * f for f in row] for row in mixing(horizon, tasks, participations)]
        ends = [*rows[:-1], last_row(horizon, early)] if tasks == horizon else rows
        return tuple(map(tuple, ends))
    f, e = endless_factor.data_factor(tasks).tolist(), (1.0,) * tasks
    if horizon is not None:
        f, e = coefficients(horizon), easing(horizon, participations)
    return tuple(tuple(f[i - j] / e[j] if i >= j else 0.0 for j in range(tasks)) for i in range(tasks))


@lru_cache
def total_noise(horizon: int | None, tasks: int, participations: int, early: float | None = None) -> float:
    """The standard deviation of the noise in the sum of the first `tasks` releases, for z of standard deviation 1."""
    if horizon is None:
        return math.hypot(*endless_factor.prefix_factor(tasks))
    noise = [weights(horizon, position, participations, early) for position in range(tasks)]
    return math.hypot(*(sum(noise[j][j - k] for j in range(k, tasks)) for k in range(tasks)))
