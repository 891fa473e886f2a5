"""Sums leave the vault on a public grid: the exact sum plus real noise, correctly rounded to whole multiples of γ.

Formal guarantees
  * What leaves is round((S + N)/γ)·γ, where S is the exact sum of what the units contribute and N is Gaussian noise, a
    vector of real numbers (`noise.py`). Rounding does not look at the data, so it is post-processing of the Gaussian
    mechanism: its event holds as it stands, and nothing is added for floating point. In particular no low-order digit
    shows the sum modulo the noise's own rounding (Mironov 2012).
  * The rounding is right: where float64 cannot tell on which side of a boundary the real number lies, further digits of
    the noise are drawn until it is clear.
  * With noise that is correlated over tasks, N is a fixed combination of several vectors of normals, and the same holds
    for the whole series.
Conditions: S is exact (`gradients/exact.py`, `exits.py`), γ is public. How long the rounding takes depends on the noise
in one of some ten million coordinates.

γ is the power of two in (2⁻⁹, 2⁻⁸] of the noise's standard deviation. Rounding to it is as if the variance of the noise
were larger by about a millionth.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.gradients.compiled import compiled
from tacit.privacy.noise import ERROR, MORE, NoiseAhead, Normals

FINENESS = 8
"""log₂ of the noise's standard deviation over γ, rounded down."""

Term = tuple[float, Normals]
"""A weight, in steps of the grid, and the normals it multiplies."""


def grid_for(std: float) -> float:
    """γ: the public power of two on whose multiples a release with this noise lies."""
    return math.ldexp(1.0, math.floor(math.log2(std)) - FINENESS)


class Exact(Protocol):
    """A sum that is known exactly."""

    def over(self, grid: float, some: slice) -> tuple[Tensor, float, Tensor | None]:
        """Some coordinates of the sum over `grid`, as base · ratio + fraction: the product is exact in float64, and the
        fraction, if there is one, is in [0, 1)."""


class ExactNumbers:
    """A few exact sums, as whole multiples of a power of two."""

    def __init__(self, multiples: Sequence[int], step: float) -> None:
        self.multiples, self.step = multiples, step

    def over(self, grid: float, some: slice) -> tuple[Tensor, float, Tensor | None]:
        values = [multiple * Fraction(self.step) / Fraction(grid) for multiple in self.multiples[some]]
        whole = [math.floor(value) for value in values]
        rest = [float(value - part) for value, part in zip(values, whole, strict=True)]
        return torch.tensor(whole, dtype=torch.float64), 1.0, torch.tensor(rest, dtype=torch.float64)


class GridNoise:
    """Noise of one standard deviation for a sum that is released step by step; the next step's is drawn meanwhile."""

    def __init__(self, count: int, key: bytes, std: float, device: torch.device) -> None:
        self.grid = grid_for(std)
        self._scale = std / self.grid
        self._ahead = NoiseAhead(count, key, self._scale, device)

    def released(
        self, total: Exact, step: int, *, over: float = 1.0, dtype: torch.dtype = torch.float64, last: bool = True
    ) -> Tensor:
        """The total plus the noise of `step`, on the grid, over a public number.

        Unless it is the last step, the noise of the next one is begun."""
        noise, terms = self._ahead.take(step, last=last), [(self._scale, self._ahead.normals(step))]
        return released(total, self.grid, noise, terms, over=over, dtype=dtype)


def noisy(total: Exact, part: slice, sources: Sequence[tuple[float, bytes]], std: float, number: int = 0) -> Tensor:
    """Part of a total plus Σ weight · std · (the normals of a key), on the grid of the first of them; on the CPU.

    `number`: of the part; each has normals of its own."""
    grid = grid_for(sources[0][0] * std)
    terms = [(weight * std / grid, Normals(key, number, part.stop - part.start)) for weight, key in sources]
    return released(total, grid, combined(terms), terms, part.start)


def combined(terms: Sequence[Term]) -> Tensor:
    """Σ weight · normals, on the CPU."""
    total = torch.zeros(terms[0][1].count, dtype=torch.float64)
    room = torch.empty_like(total)
    for weight, normals in terms:
        total += normals.fill_(room, weight)
    return total


def released(
    total: Exact,
    grid: float,
    noise: Tensor,
    terms: Sequence[Term],
    first: int = 0,
    *,
    over: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """The coordinates of `total` from `first` on, plus noise, rounded to the grid, right in every coordinate, over a
    public number.

    `noise` is Σ weight · normals of `terms` in steps of the grid, as far as `Normals.fill_` knows it.
    """
    base, ratio, fraction = total.over(grid, slice(first, first + len(noise)))
    assert base.shape == noise.shape and (fraction is None or fraction.shape == noise.shape)
    clear = 0.5 - _doubt(terms)
    out = torch.empty(len(noise), dtype=dtype, device=noise.device)
    for place in _rounded(base, ratio, fraction, noise, clear, grid / over, out):
        exact = Fraction(float(base[place])) * Fraction(ratio)
        if fraction is not None:
            exact += Fraction(float(fraction[place]))
        out[place] = _settled(exact, place, terms) * (grid / over)
    return out


def _rounded(
    base: Tensor, ratio: float, fraction: Tensor | None, noise: Tensor, clear: float, unit: float, out: Tensor
) -> list[int]:
    """Make `out` round(base · ratio + fraction + noise) · unit. Returns the places where the sum may be on the other
    side of a boundary: it is not within `clear` of a whole number."""
    if not out.is_cuda:
        part, doubt = None if fraction is None else fraction.numpy(), np.empty(len(out), dtype=np.bool_)
        unclear = _round(base.numpy(), ratio, part, noise.numpy(), clear, unit, out.numpy(), doubt)
        return np.flatnonzero(doubt).tolist() if unclear else []
    scaled = base * ratio
    floor = scaled.floor()
    near = scaled.sub_(floor).add_(noise)
    if fraction is not None:
        near += fraction
    nearest = near.round()
    out.copy_((floor + nearest) * unit)
    return torch.nonzero(~(near.sub_(nearest).abs_() < clear)).view(-1).tolist()


@compiled()
def _round(
    base: NDArray[np.float64],
    ratio: float,
    fraction: NDArray[np.float64] | None,
    noise: NDArray[np.float64],
    clear: float,
    unit: float,
    out: NDArray[Any],
    doubt: NDArray[np.bool_],
) -> int:
    """Fill in `out`, and `doubt` where it may be wrong. Returns at how many places."""
    unclear = 0
    for i in range(len(out)):
        scaled = base[i] * ratio
        floor = np.floor(scaled)
        near = (scaled - floor) + noise[i] if fraction is None else (scaled - floor) + fraction[i] + noise[i]
        nearest = np.rint(near)
        out[i] = (floor + nearest) * unit
        doubt[i] = not abs(near - nearest) < clear
        unclear += doubt[i]
    return unclear


def _doubt(terms: Sequence[Term]) -> float:
    """How far fraction + noise may be from the truth: the error of the normals, and that of adding them up."""
    size = sum(abs(weight) for weight, _ in terms)
    return size * ERROR + (len(terms) + 2) * 2.0**-52 * (16 * size + 1)


def _settled(fraction: Fraction, place: int, terms: Sequence[Term]) -> int:
    """round(fraction + noise) at one place, from as many digits as it takes."""
    for digits in range(128, 32 * MORE, 64):
        low = high = fraction
        for weight, normals in terms:
            ends = [Fraction(weight) * end for end in normals.bounds(place, digits)]
            low, high = low + min(ends), high + max(ends)
        if math.floor(low + Fraction(1, 2)) == math.floor(high + Fraction(1, 2)):
            break
    return math.floor(low + Fraction(1, 2))  # after 500 digits a coordinate is undecided once in 2⁴⁷⁰
