"""Rows of a weight that multiplies its inputs: a linear layer that is applied once, or at many places of one unit.

`Outer` is a linear layer applied once to an example. `Tokens` is a linear layer on tokens, and `Joined` any linear
layer where several examples are one unit.

Formal guarantees
  * In `Places`, row i is b[i] a[i]ᵀ, a sum over T places of outer products, with a[i] of (K, T) and b[i] of (O, T). The
    places may cancel: tokens with +v and −v have long factors and a short row, so nothing but the row itself says how
    long it is. Rows are therefore formed, a few units at a time, and the row that is measured is the row that is added.
    They are kept between the two when they are small; otherwise they are formed twice, and one that came out longer is
    shortened.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.gradients.compiled import compiled
from tacit.gradients.exact import FACTOR_BITS, ExactSum
from tacit.gradients.rows import AT_A_TIME, Dense, Rows, Units, add_rounded, masked, squares, wide

# By whether it is a GPU, which wants few large calls.
CHUNK = {False: 1 << 21, True: 1 << 27}  # numbers formed at a time: about a cache; half a gigabyte
KEPT = {False: 1 << 26, True: 1 << 28}  # numbers kept at most for one parameter


class Outer(Rows):
    """Row i is the outer product b[i] a[i]ᵀ: the weight of a linear layer on inputs (B, K), outputs (B, O).

    ‖b aᵀ‖ = ‖a‖·‖b‖. In the sum, a over (a power of two above ‖a‖) and b times that power and the weight are cut to 19
    bits, towards zero: an outer product of shorter factors is shorter, and products of 19 bits are added exactly.
    """

    def __init__(self, a: Tensor, b: Dense) -> None:
        self.a, self.right = wide(a), b  # b is also the gradient of the bias: its norms are computed once
        self.b = b.rows
        self._squares: Tensor | None = None

    def dense(self) -> Tensor:
        return self.b.unsqueeze(2) * self.a.unsqueeze(1)

    def by_unit(self, units: Units) -> Rows:
        return Tokens(self.a.unsqueeze(1), self.b.unsqueeze(1)).by_unit(units)

    def squared_norms(self) -> Tensor:
        if self._squares is None:
            self._squares = squares(self.a)
        return self._squares * self.right.squared_norms() + torch.finfo(torch.float64).tiny  # the product may underflow

    def add_to(self, total: ExactSum, view: Tensor, weight: Tensor) -> None:
        assert self._squares is not None, "norms come before sums"
        left, right = balanced(self._squares, weight / total.step)
        for start in range(0, len(self.a), AT_A_TIME):
            part = slice(start, start + AT_A_TIME)
            a, b = cut(self.a[part], left[part]), cut(self.b[part], right[part])
            total.reserve(len(a))
            torch.addmm(view, b.t(), a, out=view)

    def keep(self, fine: Tensor) -> Rows:
        kept = Outer(masked(self.a, fine), Dense(masked(self.b, fine)))
        kept._squares = None if self._squares is None else torch.where(fine, self._squares, 0.0)
        return kept


class Places(Rows):
    """Rows b[i] a[i]ᵀ over places; b is (B, O, T). Subclasses say what a is."""

    def __init__(self, b: Tensor, width: int, count: int | None = None) -> None:
        self.b, self.width = b, width
        self.count = len(b) if count is None else count
        self.outputs, self.places = b.shape[1:]
        self._kept: list[Tensor] = []
        self._squares: Tensor | None = None

    @abstractmethod
    def columns(self, part: slice | Tensor) -> Tensor:
        """a of the examples of `part`, (n, K, T)."""

    def form(self, part: slice) -> Tensor:
        """The rows of `part`, (n, …); a subclass may choose the layout, which `trim` undoes."""
        return torch.bmm(self.b[part], self.columns(part).mT)

    def trim(self, rows: Tensor, shape: torch.Size) -> Tensor:
        """Formed rows, (n, …), in the shape of the parameter, (n, *shape)."""
        return rows.view(len(rows), *shape)

    def dense(self) -> Tensor:
        shape = torch.Size((self.outputs, self.width))
        return torch.cat([self.trim(rows, shape) for rows in self._formed(keep=False)])

    def by_unit(self, units: Units) -> Rows:
        return Joined(self, units)

    def squared_norms(self) -> Tensor:
        if self._squares is None:
            keep = self.count * self.outputs * self.width <= KEPT[self.b.is_cuda]
            norms = [squares(rows.flatten(1)) for rows in self._formed(keep=keep)]
            self._squares = norms[0] if len(norms) == 1 else torch.cat(norms)
        return self._squares

    def add_to(self, total: ExactSum, view: Tensor, weight: Tensor) -> None:
        assert self._squares is not None, "norms come before sums"
        start = 0
        for rows in self._kept or self._formed(keep=False):
            part = slice(start, start + len(rows))
            start += len(rows)
            mine = weight[part]
            if not self._kept:  # formed a second time: never longer than what was measured
                ratio = (self._squares[part] / squares(rows.flatten(1))).sqrt_()
                mine = mine * ratio.nan_to_num_(nan=0.0).clamp_(max=1)
            add_rounded(total, view.view(-1), self.trim(rows, view.shape).reshape(len(rows), -1), mine)

    def keep(self, fine: Tensor) -> Rows:
        kept = self._masked(fine)
        if self._squares is not None:
            kept._squares = torch.where(fine, self._squares, 0.0)
            parts = torch.split(fine, [len(rows) for rows in self._kept]) if self._kept else ()
            kept._kept = [masked(rows, some) for rows, some in zip(self._kept, parts, strict=True)]
        return kept

    @abstractmethod
    def _masked(self, fine: Tensor) -> "Places":
        """The same with zeros in the factors of units that are not fine."""

    def _formed(self, *, keep: bool) -> Iterator[Tensor]:
        """The rows, a few units at a time; kept for the sum if they are small."""
        for part in self._parts(self.width * (self.places + self.outputs)):
            rows = self.form(part)
            if keep:
                self._kept.append(rows)
            yield rows

    def _parts(self, each: int) -> list[slice]:
        """The units, a few at a time, when one needs `each` numbers."""
        step = max(1, CHUNK[self.b.is_cuda] // each)
        return [slice(i, min(i + step, self.count)) for i in range(0, self.count, step)]


class Tokens(Places):
    """The weight of a linear layer on inputs (B, T, K), outputs (B, T, O)."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.tokens = wide(a), wide(b)
        super().__init__(self.tokens.mT, a.shape[2])

    def columns(self, part: slice | Tensor) -> Tensor:
        return self.a[part].mT

    def _masked(self, fine: Tensor) -> Places:
        return Tokens(masked(self.a, fine), masked(self.tokens, fine))


class Joined(Places):
    """Units of several examples: all places of all their examples are places of the unit."""

    def __init__(self, each: Places, units: Units) -> None:
        self.each, self.units = each, units
        self._members = units.members()
        super().__init__(each.b, each.width, units.count)

    def columns(self, part: slice | Tensor) -> Tensor:
        return self.each.columns(part)

    def form(self, part: slice) -> Tensor:
        return torch.stack([self._one(some) for some in self._members[part]])

    def by_unit(self, units: Units) -> Rows:
        raise NotImplementedError("rows are joined once")

    def _masked(self, fine: Tensor) -> Places:
        return Joined(self.each._masked(fine[self.units.index]), self.units)

    def _one(self, some: Tensor) -> Tensor:
        """The row of the unit that has these examples; zeros if there are none."""
        return self.b[some].transpose(0, 1).flatten(1) @ self.columns(some).transpose(0, 1).flatten(1).t()


def balanced(squared: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Scales of the two factors of an outer product: 2¹⁹ over a power of two above the first one's norm, and the weight
    over the first scale."""
    if squared.is_cuda:
        exponent = torch.frexp(squared.sqrt()).exponent.clamp(-900, 900)
        left = torch.ldexp(torch.ones_like(squared), FACTOR_BITS - exponent)
    else:
        left = torch.empty_like(squared)
        _scale(squared.numpy(), FACTOR_BITS, left.numpy())
    return left, weight / left


def cut(factors: Tensor, scale: Tensor) -> Tensor:
    """scale·factor in float64, cut towards zero to whole numbers; a scale for each row."""
    if factors.is_cuda:
        return (factors * scale.unsqueeze(1)).trunc_()
    out = torch.empty(factors.shape, dtype=torch.float64)
    _cut(factors.numpy(), scale.numpy(), out.numpy())
    return out


@compiled()
def _scale(squared: NDArray[np.float64], bits: int, out: NDArray[np.float64]) -> None:
    for i in range(len(squared)):
        exponent = math.frexp(math.sqrt(squared[i]))[1] if squared[i] < math.inf else 1024
        out[i] = math.ldexp(1.0, bits - min(max(exponent, -900), 900))


@compiled()
def _cut(rows: NDArray[Any], factor: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    for i in range(len(rows)):
        row, scale, to = rows[i], factor[i], out[i]
        for j in range(len(row)):
            to[j] = np.trunc(np.float64(row[j]) * scale)
