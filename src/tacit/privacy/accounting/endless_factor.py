"""Noise correlated over a stream of unknown length: a factorisation of the prefix sum whose columns have finite length.

The square-root factorisation (`toeplitz`) needs a horizon T, because the squares of its coefficients add up to about
ln(T)/π. Here, with L(x) = ln(1/(1−x))/x and γ = `EXPONENT`, the factor that the data meets is R with the generating
function r(x) = (1−x)^(−1/2) · L(x)^(−γ), and the prefix sum is A = B·R with b(x) = (1−x)^(−1/2) · L(x)^γ (after
Jacobsen & Fawaz 2025). Σ r_n² is finite for γ > ½: it has one value for streams of any length, which is the
sensitivity. The prefix sums contain the noise Bz, whose variance grows like (ln t)^(1 + 2γ).

Formal guarantees
  * `square` is an upper bound on Σ_n r_n², and `first_columns(k)` one on ‖R(e_0 + … + e_{k−1})‖, for infinitely many
    rows.
  * No k columns have a longer sum than the first k.

Why. By Parseval Σ r_n² = (1/π) ∫_0^π |r(e^{iθ})|² dθ with |1 − e^{iθ}| = 2 sin(θ/2) and |ln(1/(1 − e^{iθ}))|² =
ln²(2 sin(θ/2)) + ((π−θ)/2)². For θ ≤ π/3 substitute u = −ln(2 sin(θ/2)): (1/π) ∫_0^∞ Q(u)^(−γ)/cos(θ/2) du with
Q = u² + ((π−θ)/2)². There the integrand decreases in u, so left Riemann sums are upper bounds; the integral beyond U
is at most U^(1−2γ)/((2γ−1) cos(θ(U)/2)). For θ ≥ π/3 the factor 1/(2 sin(θ/2)) decreases and Q(θ)^(−γ) increases, so
their values at the ends of a cell bound the product.

r_n is positive and does not increase. For n ≥ 1, r_n = (1/π) ∫_1^∞ Im r(s + i0) s^(−n−1) ds, and the argument of
r(s + i0), which is π/2 − γ·atan2(π, −ln(s−1)), decreases in s from π/2 to π/2 − γπ > −π/2. So the density of s^(−n−1)
changes its sign once, from + to −. Then r_n stays positive once it is, and so does r_n − r_{n+1}, whose density is the
same times 1 − 1/s. Both are positive at n = 0 and n = 1, which `square` checks. Therefore the inner product of two
columns decreases with their distance, adjacent columns are the worst, and the tail of an inner product is at most that
of Σ r_n².
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

EXPONENT = 0.7
"""γ. A larger one makes later releases noisier, and the first ones less noisy."""
ROWS = 4096
"""Rows whose inner products are added up exactly; the rest is bounded."""
CELLS, FAR = 200_000, 1e6
"""Cells of the Riemann sums, and U."""
ROUNDING = 1 + 1e-9
"""More than all errors of floating point in what is computed here."""

Series = NDArray[np.float64]


def data_factor(length: int) -> Series:
    """r_n: the first column of R."""
    return _generated(-0.5, -EXPONENT, length)


def inverse(length: int) -> Series:
    """The first column of R⁻¹, by which the noise is multiplied."""
    return _generated(0.5, EXPONENT, length)


def prefix_factor(length: int) -> Series:
    """b_n: the first column of B, the noise in prefix sums."""
    return _generated(-0.5, EXPONENT, length)


@lru_cache
def first_columns(k: int) -> float:
    """An upper bound on ‖R(e_0 + … + e_{k−1})‖ with infinitely many rows."""
    r = data_factor(ROWS + k)
    rest = square() - float(r[:ROWS] @ r[:ROWS])
    total = k * square()
    for distance in range(1, k):
        total += 2 * (k - distance) * (float(r[:ROWS] @ r[distance : ROWS + distance]) + rest)
    return math.sqrt(total) * ROUNDING


@lru_cache
def square() -> float:
    """An upper bound on Σ r_n²."""
    first, second, third = data_factor(3)
    assert 0.5 < EXPONENT < 1 and first > second > third > 0  # then the sequence is positive and does not increase
    near = np.linspace(math.pi / 3, math.pi, CELLS + 1)
    bent = _bracket(np.log(2 * np.sin(near / 2)), near)
    whole = float((bent[1:] / (2 * np.sin(near[:-1] / 2))).sum()) * (2 * math.pi / 3) / CELLS
    u = np.concatenate([[0.0], np.geomspace(1e-5, FAR, CELLS)])
    theta = 2 * np.arcsin(np.exp(-u) / 2)
    values = _bracket(u, theta) / np.cos(theta / 2)
    whole += float((values[:-1] * np.diff(u)).sum())
    whole += FAR ** (1 - 2 * EXPONENT) / (2 * EXPONENT - 1) / math.cos(float(theta[-1]) / 2)
    return float(whole / math.pi * ROUNDING)


def _bracket(log: Series, theta: Series) -> Series:
    """Q^(−γ)."""
    out: Series = (log**2 + ((math.pi - theta) / 2) ** 2) ** -EXPONENT
    return out


def _generated(power: float, log_power: float, length: int) -> Series:
    """Coefficients of (1−x)^power · L(x)^log_power."""
    size = 64
    while size < length:
        size *= 2
    return _coefficients(power, log_power, size)[:length]


@lru_cache(maxsize=8)
def _coefficients(power: float, log_power: float, size: int) -> Series:
    steps = np.arange(1, size)
    binomial = np.cumprod(np.concatenate([[1.0], (steps - 1 - power) / steps]))
    log = 1 / (steps + 1)
    weighted = (log_power + 1) * steps * log
    back = np.ones(size)  # of L^g, last first, by Euler's recurrence n·f_n = Σ_k ((g + 1)·k − n)·L_k·f_{n−k}
    for n in range(1, size):
        known = back[size - n :]
        back[size - n - 1] = weighted[:n] @ known / n - log[:n] @ known
    found = np.convolve(binomial, back[::-1])[:size]
    found.flags.writeable = False
    return found
