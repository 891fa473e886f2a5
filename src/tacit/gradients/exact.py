"""Sums of clipped vectors that do not depend on the order in which they are added.

Formal guarantees
  * Every unit adds whole multiples of one public power of two (`step`), chosen from the unit alone. The multiples are
    added without rounding, so a total is the same whatever the order, the batch and the number of threads, and a unit
    that is added or removed changes it by exactly what that unit adds.
  * Rounding to a multiple makes a vector longer by at most `step`·√d/2, that is by 2⁻³⁹·√d of the clip; the slack of
    the clip weights covers it (`SLACK`).
Conditions: a unit adds at most the clip, in Euclidean norm; at most 2²⁵ units are added to one total.

How: multiples are float64 numbers without a fraction. A total may add 2¹⁴ units before it could reach 2⁵³, where
float64 stops counting; it is then moved to 64-bit integers.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

FACTOR_BITS = 19
"""Bits of each of two factors whose products are added (the two vectors of an outer product)."""
BITS = 2 * FACTOR_BITS
"""The clip is 2³⁸ steps, or a little less."""
ROOM = 1 << (52 - BITS)
"""So many units fit in float64."""
SLACK = 2.0**-19
"""Weights are rounded down by this share: more than all roundings on the way from a norm to a multiple can add, for up
to 2³² parameters."""


def step_for(clip: float) -> float:
    """The public power of two of which all contributions are multiples."""
    return math.ldexp(1.0, math.ceil(math.log2(clip)) - BITS)


def round_(t: Tensor) -> Tensor:
    """To whole numbers, in place. torch's own rounding wakes all threads on the CPU, however short the tensor is."""
    if t.is_cuda:
        return t.round_()
    np.rint(t.numpy(), out=t.numpy())
    return t


class ExactSum:
    """A total of clipped gradients, in steps of a public power of two."""

    def __init__(self, size: int, clip: float, device: torch.device | str = "cpu") -> None:
        self.step = step_for(clip)
        self.flat = torch.zeros(size, dtype=torch.float64, device=device)
        """What was added last, in steps: whole numbers."""
        self._moved: Tensor | None = None
        self._rest: Tensor | None = None
        self._used = 0

    def views(self, shapes: Sequence[torch.Size]) -> list[Tensor]:
        """The parts of `flat` with these shapes, in their order."""
        parts = torch.split(self.flat, [math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def reserve(self, units: int) -> None:
        """Make sure that so many more units can be added without rounding."""
        if units > ROOM:
            raise ValueError(f"at most {ROOM} units can be added at a time, got {units}")
        self._used += units
        if self._used > ROOM:
            moved = self.flat.to(torch.int64)
            self._moved = moved if self._moved is None else self._moved.add_(moved)
            self.flat.zero_()
            self._used = units

    def clear(self) -> "ExactSum":
        self.flat.zero_()
        self._moved, self._used = None, 0
        return self

    def rearrange(self, places: Tensor) -> None:
        """Keep these coordinates, in this order."""
        self.flat = self.flat[places]
        self._moved = None if self._moved is None else self._moved[places]

    def parts(self, grid: float, some: slice | Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Some coordinates of the total over `grid` (a power of two): whole parts (in `out`, if it is given) and
        fractions in [0, 1), both exact. The fractions are valid until the next call."""
        ratio = self.step / grid
        chosen = self.flat[some]
        if self._rest is None or len(self._rest) < len(chosen):
            self._rest = torch.empty_like(chosen)
        rest, whole = self._rest[: len(chosen)], torch.empty_like(chosen) if out is None else out
        if self._moved is None:
            torch.mul(chosen, ratio, out=rest)
            if rest.is_cuda:
                torch.floor(rest, out=whole)
            else:
                np.floor(rest.numpy(), out=whole.numpy())  # as in `round_`
            return whole, rest.sub_(whole)
        total = self._moved[some] + chosen.to(torch.int64)
        shift = round(-math.log2(ratio))
        if shift <= 0:
            return whole.copy_(total).mul_(ratio), rest.zero_()
        above = torch.bitwise_right_shift(total, shift)
        rest.copy_(total - torch.bitwise_left_shift(above, shift)).mul_(ratio)
        return whole.copy_(above), rest

    def values(self) -> Tensor:
        """The total in float64, correctly rounded."""
        whole = self.flat if self._moved is None else (self._moved + self.flat.to(torch.int64)).double()
        return whole * self.step
