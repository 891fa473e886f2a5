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
in one of about 250,000 coordinates.

γ is the power of two in (2⁻²¹, 2⁻²⁰] of the noise's standard deviation: rounding takes a millionth of the noise.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import torch
from torch import Tensor

from tacit.privacy.noise import ERROR, MORE, NoiseAhead, Normals

FINENESS = 20
"""log₂ of the noise's standard deviation over γ, rounded down."""

_AT_A_TIME = 1 << 15
Term = tuple[float, Normals]
"""A weight, in steps of the grid, and the normals it multiplies."""


def grid_for(std: float) -> float:
    """γ: the public power of two on whose multiples a release with this noise lies."""
    return math.ldexp(1.0, math.floor(math.log2(std)) - FINENESS)


class Exact(Protocol):
    """A sum that is known exactly."""

    def parts(self, grid: float, some: slice) -> tuple[Tensor, Tensor]:
        """Some coordinates of the sum over `grid`: whole parts and fractions in [0, 1), both exact, in float64."""


class ExactNumbers:
    """A few exact sums, as whole multiples of a power of two."""

    def __init__(self, multiples: Sequence[int], step: float) -> None:
        self.multiples, self.step = multiples, step

    def parts(self, grid: float, some: slice) -> tuple[Tensor, Tensor]:
        values = [multiple * Fraction(self.step) / Fraction(grid) for multiple in self.multiples[some]]
        whole = [math.floor(value) for value in values]
        rest = [float(value - part) for value, part in zip(values, whole, strict=True)]
        return torch.tensor(whole, dtype=torch.float64), torch.tensor(rest, dtype=torch.float64)


class GridNoise:
    """Noise of one standard deviation for a sum that is released step by step; the next step's is drawn meanwhile."""

    def __init__(self, count: int, key: bytes, std: float, device: torch.device) -> None:
        self.grid = grid_for(std)
        self._scale = std / self.grid
        self._ahead = NoiseAhead(count, key, self._scale, device)

    def released(self, total: Exact, step: int, *, last: bool = True) -> Tensor:
        """The total plus the noise of `step`, on the grid, in float64; overwritten by the next call but one.

        Unless it is the last, the noise of the next step is begun."""
        noise = self._ahead.take(step, last=last)
        return released(total, self.grid, noise, [(self._scale, self._ahead.normals(step))])


def combined(terms: Sequence[Term]) -> Tensor:
    """Σ weight · normals in float64, on the CPU."""
    total = torch.zeros(terms[0][1].count, dtype=torch.float64)
    held = torch.empty_like(total)
    for weight, normals in terms:
        total += normals.fill_(held, weight)
    return total


def released(total: Exact, grid: float, noise: Tensor, terms: Sequence[Term], first: int = 0) -> Tensor:
    """The coordinates of `total` from `first` on, plus noise, rounded to the grid, right in every coordinate; float64.

    `noise` is Σ weight · normals of `terms` in steps of the grid, as far as float64 knows it. It is overwritten with
    what is released, a part at a time that stays in the cache.
    """
    at_a_time = len(noise) if noise.is_cuda else _AT_A_TIME
    for start in range(0, len(noise), at_a_time):
        part = noise[start : start + at_a_time]
        whole, fraction = total.parts(grid, slice(first + start, first + start + len(part)))
        nearest = part.add_(fraction).round()
        off = part.sub_(nearest).abs_()
        clear = 0.5 - _doubt(terms)
        if float(off.max()) >= clear:
            for place in torch.nonzero(off >= clear).view(-1).tolist():
                nearest[place] = _settled(Fraction(float(fraction[place])), start + place, terms)
        torch.mul(nearest.add_(whole), grid, out=part)
    return noise


def _doubt(terms: Sequence[Term]) -> float:
    """How far fraction + noise may be from the truth: the error of the normals, and that of adding them in float64."""
    size = sum(abs(weight) for weight, _ in terms)
    return size * ERROR + (8 + len(terms)) * 2.0**-53 * (16 * size + 1)


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
