"""Release on a public grid: the exact sum plus real-valued noise, correctly rounded to whole multiples of γ.

Formal guarantees
  * What is released is round((S + N)/γ)·γ, where S is the exact sum of the units' contributions and N a real vector of
    Gaussian noise (`noise.py`). The rounding is post-processing of the Gaussian mechanism, so its event holds
    as it stands, and nothing is added for floating point. In particular no low-order digit reveals the sum modulo the
    rounding of the noise (Mironov 2012).
  * The rounding is correct: where float64 cannot decide on which side of a boundary the real number lies, further
    digits of the noise are drawn.
  * For noise that is correlated over tasks, N is a fixed combination of several vectors of normals, and the same holds
    for the whole series.

Conditions: S is exact (`gradients/exact.py`), and γ is public. The running time depends on the noise in about one of
ten million coordinates.

γ is the power of two in (2⁻⁹, 2⁻⁸] of the noise's standard deviation. Rounding to it adds about a millionth to the
variance of the noise.
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
from tacit.privacy.randomness.noise import ERROR, MORE, NoiseAhead, Normals

FINENESS = 8
"""log₂ of the noise's standard deviation over γ, rounded down."""

Term = tuple[float, Normals]
"""A weight, in steps of the grid, and the normals it multiplies."""


def grid_for(std: float) -> float:
    """The public grid γ of a release with noise of this standard deviation."""
    return math.ldexp(1.0, math.floor(math.log2(std)) - FINENESS)


class Exact(Protocol):
    """A sum that is known exactly."""

    def over(self, grid: float, some: slice) -> tuple[Tensor, float, Tensor | None]:
        """Some coordinates of the sum divided by `grid`, as base · ratio + fraction.

        The product is exact in float64, and the fraction, if there is one, is in [0, 1).
        """


class ExactNumbers:
    """Exact sums as whole multiples of a power of two."""

    def __init__(self, multiples: Sequence[int], step: float) -> None:
        self.multiples, self.step = multiples, step

    def over(self, grid: float, some: slice) -> tuple[Tensor, float, Tensor | None]:
        values = [multiple * Fraction(self.step) / Fraction(grid) for multiple in self.multiples[some]]
        whole = [math.floor(value) for value in values]
        rest = [float(value - part) for value, part in zip(values, whole, strict=True)]
        return torch.tensor(whole, dtype=torch.float64), 1.0, torch.tensor(rest, dtype=torch.float64)


class GridNoise:
    """The noise of a sum that is released step by step; the noise of the next step is prefetched."""

    def __init__(self, count: int, key: bytes, std: float, device: torch.device) -> None:
        self.grid = grid_for(std)
        self._scale = std / self.grid
        self._ahead = NoiseAhead(count, key, self._scale, device)

    def released(
        self, total: Exact, step: int, *, over: float = 1.0, dtype: torch.dtype = torch.float64, last: bool = True
    ) -> Tensor:
        """The total plus the noise of `step`, rounded to the grid.

        Args:
            total: The exact sum.
            step: The number of the step, which selects the noise.
            over: A public divisor.
            dtype: The type of the result.
            last: Whether no further step follows; otherwise its noise is prefetched.
        """
        noise, terms = self._ahead.take(step, last=last), [(self._scale, self._ahead.normals(step))]
        return released(total, self.grid, noise, terms, over=over, dtype=dtype)


def noisy(total: Exact, part: slice, sources: Sequence[tuple[float, bytes]], std: float, number: int = 0) -> Tensor:
    """Some coordinates of a total plus noise, rounded to the grid, on the CPU.

    Args:
        total: The exact sum.
        part: The coordinates.
        sources: Weights and keys of independent standard normals; the noise is Σ weight · std · normals. The first one
            determines the grid.
        std: The standard deviation of the noise for weight 1.
        number: The number of the part; each part has normals of its own.
    """
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
    """The coordinates of `total` from `first` on plus noise, rounded correctly to the grid.

    Args:
        total: The exact sum.
        grid: The grid γ.
        noise: Σ weight · normals of `terms` in steps of the grid, as accurate as `Normals.fill_`.
        terms: Weights and normals, for further digits.
        first: The first coordinate.
        over: A public divisor.
        dtype: The type of the result.
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
    """Sets `out` to round(base · ratio + fraction + noise) · unit.

    Returns:
        The positions where the rounding is not certain: the sum is not within `clear` of a whole number.
    """
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
    """Fills in `out`, and in `doubt` where it may be wrong. Returns the number of such positions."""
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
    """A bound on the error of fraction + noise: the error of the normals, and that of adding them up."""
    size = sum(abs(weight) for weight, _ in terms)
    return size * ERROR + (len(terms) + 2) * 2.0**-52 * (16 * size + 1)


def _settled(fraction: Fraction, place: int, terms: Sequence[Term]) -> int:
    """round(fraction + noise) at one position, from as many digits as necessary."""
    for digits in range(128, 32 * MORE, 64):
        low = high = fraction
        for weight, normals in terms:
            ends = [Fraction(weight) * end for end in normals.bounds(place, digits)]
            low, high = low + min(ends), high + max(ends)
        if math.floor(low + Fraction(1, 2)) == math.floor(high + Fraction(1, 2)):
            break
    return math.floor(low + Fraction(1, 2))  # after 500 digits a coordinate is undecided once in 2⁴⁷⁰
