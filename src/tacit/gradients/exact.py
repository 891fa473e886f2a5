"""Exact sums of clipped vectors, independent of the order in which they are added.

Formal guarantees
  * Every unit adds whole multiples of one public power of two (`step`), chosen from the unit alone. The multiples are
    added without rounding, so a total is the same whatever the order, the batch and the number of threads, and a unit
    that is added or removed changes it by exactly what that unit adds.
  * Rounding to a multiple makes a vector longer by at most `step`·√d/2, that is by 2⁻³⁸·√d of the clip; the slack of
    the clip weights covers it (`SLACK`).

Conditions: a unit adds at most the clip, in Euclidean norm; at most 2²⁴ units are added to one total.

Multiples are whole numbers in float64. A total can add 2¹⁴ units before it could reach 2⁵³, the largest range of exact
integers; it is then moved to 64-bit integers.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

FACTOR_BITS = 19
"""Bits of each of two factors whose products are added (the two vectors of an outer product)."""
BITS = 2 * FACTOR_BITS
"""The clip is 2³⁸ steps, or a little less."""
ROOM = 1 << (52 - BITS)
"""So many units fit in float64."""
MOST = 1 << (62 - BITS)
"""So many fit in 64-bit integers."""
SLACK = 2.0**-19
"""Weights are rounded down by this share: more than all roundings on the way from a norm to a multiple can add, for up
to 2³² parameters."""


def step_for(clip: float) -> float:
    """The public power of two of which all contributions are multiples."""
    return math.ldexp(1.0, math.ceil(math.log2(clip)) - BITS)


class ExactSum:
    """A total of clipped gradients, in steps of a public power of two."""

    def __init__(self, size: int, clip: float, device: torch.device | str = "cpu") -> None:
        self.step = step_for(clip)
        self.flat = torch.zeros(size, dtype=torch.float64, device=device)
        """What was added last, in steps: whole numbers."""
        self._moved: Tensor | None = None
        self._used = self._units = 0

    def views(self, shapes: Sequence[torch.Size]) -> list[Tensor]:
        """The parts of `flat` with these shapes, in their order."""
        parts = torch.split(self.flat, [math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def reserve(self, units: int, *, room: int = 1) -> None:
        """Makes room for `units` more units, which are then added without rounding.

        `room` bounds the norms of the parts of a unit that are added one after the other, summed, in clipping norms;
        the sum of these parts has at most one clipping norm."""
        self._units += units
        if units * room > ROOM or self._units > MOST:
            raise ValueError(f"at most {ROOM} units can be added at a time, and {MOST} in all")
        self._used += units * room
        if self._used > ROOM:
            moved = self.flat.to(torch.int64)
            self._moved = moved if self._moved is None else self._moved.add_(moved)
            self.flat.zero_()
            self._used = units * room

    def clear(self) -> "ExactSum":
        self.flat.zero_()
        self._moved, self._used, self._units = None, 0, 0
        return self

    def rearrange(self, places: Tensor) -> None:
        """Keep these coordinates, in this order."""
        self.flat = self.flat[places]
        self._moved = None if self._moved is None else self._moved[places]

    def over(self, grid: float, some: slice) -> tuple[Tensor, float, Tensor | None]:
        """Some coordinates of the total over `grid` (a power of two), as base · ratio + fraction. The product is exact
        in float64, the fraction is in [0, 1); where there is none, the product has it."""
        ratio = self.step / grid
        if self._moved is None:
            return self.flat[some], ratio, None
        total = self._moved[some] + self.flat[some].to(torch.int64)
        shift = round(-math.log2(ratio))
        if shift <= 0:
            return total.double(), ratio, None
        above = torch.bitwise_right_shift(total, shift)
        return above.double(), 1.0, (total - torch.bitwise_left_shift(above, shift)).double().mul_(ratio)

    def values(self) -> Tensor:
        """The total in float64, correctly rounded."""
        whole = self.flat if self._moved is None else (self._moved + self.flat.to(torch.int64)).double()
        return whole * self.step
