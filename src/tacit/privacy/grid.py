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
in one of some hundred coordinates.

γ is the power of two in (2⁻⁹, 2⁻⁸] of the noise's standard deviation. Rounding to it is as if the variance of the noise
were larger by about a millionth.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from tacit.gradients.exact import round_
from tacit.privacy.noise import CLOSE, MORE, NoiseAhead, Normals

FINENESS = 8
"""log₂ of the noise's standard deviation over γ, rounded down."""

_AT_A_TIME = 1 << 15
Term = tuple[float, Normals]
"""A weight, in steps of the grid, and the normals it multiplies."""


def grid_for(std: float) -> float:
    """γ: the public power of two on whose multiples a release with this noise lies."""
    return math.ldexp(1.0, math.floor(math.log2(std)) - FINENESS)


class Exact(Protocol):
    """A sum that is known exactly."""

    def parts(self, grid: float, some: slice | Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Some coordinates of the sum over `grid`: whole parts (in `out`, if it is given) and fractions in [0, 1), both
        exact, in float64. The fractions are valid until the next call."""


class ExactNumbers:
    """A few exact sums, as whole multiples of a power of two."""

    def __init__(self, multiples: Sequence[int], step: float) -> None:
        self.multiples, self.step = multiples, step

    def parts(self, grid: float, some: slice | Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        chosen = self.multiples[some] if isinstance(some, slice) else [self.multiples[place] for place in some.tolist()]
        values = [multiple * Fraction(self.step) / Fraction(grid) for multiple in chosen]
        whole = [math.floor(value) for value in values]
        rest = [float(value - part) for value, part in zip(values, whole, strict=True)]
        found = torch.tensor(whole, dtype=torch.float64)
        return found if out is None else out.copy_(found), torch.tensor(rest, dtype=torch.float64)


class GridNoise:
    """Noise of one standard deviation for a sum that is released step by step; the next step's is drawn meanwhile."""

    def __init__(self, count: int, key: bytes, std: float, device: torch.device) -> None:
        self.grid = grid_for(std)
        self._scale = std / self.grid
        self._ahead = NoiseAhead(count, key, self._scale, device)
        self._out = torch.empty(count, dtype=torch.float64, device=device)

    def released(self, total: Exact, step: int, *, last: bool = True) -> Tensor:
        """The total plus the noise of `step`, on the grid, in float64; valid until the next call.

        Unless it is the last, the noise of the next step is begun."""
        noise = self._ahead.take(step, last=last)
        return released(total, self.grid, noise, [(self._scale, self._ahead.normals(step))], out=self._out)


def noisy(total: Exact, part: slice, sources: Sequence[tuple[float, bytes]], std: float, number: int = 0) -> Tensor:
    """Part of a total plus Σ weight · std · (the normals of a key), on the grid of the first of them; on the CPU.

    `number`: of the part; each has normals of its own."""
    grid = grid_for(sources[0][0] * std)
    terms = [(weight * std / grid, Normals(key, number, part.stop - part.start)) for weight, key in sources]
    return released(total, grid, combined(terms), terms, part.start)


def combined(terms: Sequence[Term]) -> Tensor:
    """Σ weight · normals, on the CPU."""
    if len(terms) == 1:
        weight, normals = terms[0]
        return normals.fill_(torch.empty(normals.count, dtype=normals.dtype), weight)
    total = torch.zeros(terms[0][1].count, dtype=torch.float64)
    for weight, normals in terms:
        total += normals.fill_(torch.empty(normals.count, dtype=normals.dtype), weight)
    return total


def released(
    total: Exact, grid: float, noise: Tensor, terms: Sequence[Term], first: int = 0, out: Tensor | None = None
) -> Tensor:
    """The coordinates of `total` from `first` on, plus noise, rounded to the grid, right in every coordinate; float64.

    `noise` is Σ weight · normals of `terms` in steps of the grid, as far as `Normals.fill_` knows it; it is changed.
    One part at a time is worked on, which stays in the cache.
    """
    out = torch.empty(len(noise), dtype=torch.float64, device=noise.device) if out is None else out
    at_a_time = max(1, len(noise)) if noise.is_cuda else _AT_A_TIME
    clear = 0.5 - _doubt(terms, noise.dtype)
    doubtful: list[Tensor] = []
    held = torch.empty(min(at_a_time, len(noise)), dtype=noise.dtype, device=noise.device)
    for start in range(0, len(noise), at_a_time):
        # Memory that is used again, and one type in each operation: both cost more than the arithmetic.
        part, room = noise[start : start + at_a_time], out[start : start + at_a_time]
        near = held[: len(part)]
        fraction = total.parts(grid, slice(first + start, first + start + len(part)), room)[1]
        part += near.copy_(fraction)
        round_(near.copy_(part))
        room += fraction.copy_(near)
        off = part.sub_(near).abs_()
        if float(off.amax()) >= clear:
            doubtful.append(_where(off, clear) + start)
    if doubtful:
        places = torch.cat(doubtful)
        whole, fraction = total.parts(grid, places + first)
        out[places] = whole + _closer(fraction, places, terms).to(out)
    return out.mul_(grid)


def _where(off: Tensor, clear: float) -> Tensor:
    if off.is_cuda:
        return torch.nonzero(off >= clear).view(-1)
    return torch.from_numpy(np.flatnonzero(off.numpy() >= clear))  # five times as fast as torch's


def _doubt(terms: Sequence[Term], dtype: torch.dtype) -> float:
    """How far fraction + noise may be from the truth: the error of the normals, and that of adding them up."""
    size = sum(abs(weight) for weight, _ in terms)
    error = sum(abs(weight) * normals.error for weight, normals in terms)
    return error + len(terms) * torch.finfo(dtype).eps * (8 * size + 1)


def _closer(fraction: Tensor, places: Tensor, terms: Sequence[Term]) -> Tensor:
    """round(fraction + noise) at some places, from more digits, and from as many as it takes where these do not do."""
    near = fraction.cpu() + sum(weight * normals.closer(places) for weight, normals in terms)
    size = sum(abs(weight) for weight, _ in terms)
    doubt = size * CLOSE + (8 + len(terms)) * 2.0**-52 * (16 * size + 1)
    nearest = near.round()
    for number in torch.nonzero((near - nearest).abs() >= 0.5 - doubt).view(-1).tolist():
        nearest[number] = _settled(Fraction(float(fraction[number])), int(places[number]), terms)
    return nearest


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
