"""Per-example gradients of one parameter, in the cheapest representation.

`Rows` represents a matrix whose row i is the gradient of one unit: of example i's loss, or of a group of examples. The
matrix itself is not needed: clipping needs the norms of its rows, and the release needs one weighted sum of them.

Formal guarantees
  * `squared_norms` is never below the true squared norm of what `add_to` adds for a weight of one: norms are enlarged
    by the largest rounding error.
  * `add_to` adds whole multiples of the total's step, for each row a function of that row and its weight alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.gradients.compiled import compiled
from tacit.gradients.exact import ROOM, ExactSum

BLOCK = 512
"""Squares that a GPU adds up in the precision of the rows; blocks of them are added in float64."""
AT_A_TIME = 1 << 13
"""Rows of factors in one product."""
_WIDTH = 256
"""Coordinates that are added up at a time, over all rows: they stay in the registers and the nearest cache."""


@dataclass(frozen=True, kw_only=True)
class Units:
    """Which unit each example belongs to: `index[i]` in 0..count-1. Rows of a unit are added before the clip."""

    index: Tensor
    count: int

    def add_up(self, rows: Tensor) -> Tensor:
        """(B, …) to (count, …), the sum over the examples of each unit."""
        return rows.new_zeros((self.count, *rows.shape[1:])).index_add_(0, self.index, rows)

    def members(self) -> list[Tensor]:
        """The examples of each unit."""
        sizes = torch.bincount(self.index, minlength=self.count).tolist()
        return list(torch.split(self.index.argsort(stable=True), sizes))


class Rows(ABC):
    """The gradients of one parameter, a row for each unit."""

    @property
    def rounding(self) -> float:
        """The share of the clip by which `add_to` may lengthen a row; the clip weights are lowered by as much."""
        return 0.0

    @abstractmethod
    def dense(self) -> Tensor:
        """The gradients themselves, (units, *shape of the parameter). Only for small or shared parameters."""

    @abstractmethod
    def by_unit(self, units: Units) -> "Rows":
        """The rows of groups of examples: the sums of their members' rows."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """‖row‖² of every unit in float64, rounded up."""

    def plain_squares(self) -> Tensor:
        """‖row‖² without what covers the rounding of sums, to compare with autograd."""
        return self.squared_norms()

    @abstractmethod
    def add_to(self, total: ExactSum, view: Tensor, weight: Tensor) -> None:
        """Add the sum over units of weight·row to `view`, the parameter's part of `total`. `weight` is float64, and
        weight·‖row‖ at most the clip that `total` was made for."""

    @abstractmethod
    def keep(self, fine: Tensor) -> "Rows":
        """The same rows with exact zeros where `fine` is False, in every factor: 0·NaN is NaN."""


class Dense(Rows):
    """Rows that are held as they are, (B, *shape)."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = wide(rows)
        self._squares: Tensor | None = None

    def dense(self) -> Tensor:
        return self.rows

    def by_unit(self, units: Units) -> Rows:
        return Dense(units.add_up(self.rows))

    def squared_norms(self) -> Tensor:
        if self._squares is None:
            self._squares = squares(self.rows)
        return self._squares

    def add_to(self, total: ExactSum, view: Tensor, weight: Tensor) -> None:
        add_rounded(total, view.view(-1), self.rows.reshape(len(self.rows), -1), weight)

    def keep(self, fine: Tensor) -> Rows:
        return Dense(masked(self.rows, fine))


class Indexed(Rows):
    """Row u is Σ b[i, t] written at line index[i, t] of a table, over the tokens of its examples: an embedding.

    A negative index is skipped. Tokens of a unit that share a line are added before they are squared.
    """

    def __init__(self, index: Tensor, b: Tensor, lines: int, units: Units | None = None) -> None:
        self.index, self.b, self.lines, self.units = index.flatten(1), wide(b).flatten(1, -2), lines, units
        if self.b.shape[1] != self.index.shape[1]:
            self.b = self.b.reshape(*self.index.shape, -1)
        self._used: tuple[Tensor, Tensor, Tensor] | None = None

    def dense(self) -> Tensor:
        count = self._count()
        table = self.b.new_zeros((count, self.lines, self.b.shape[-1]))
        unit, line, sums = self._lines()
        table[unit, line] = sums
        return table

    def by_unit(self, units: Units) -> Rows:
        return Indexed(self.index, self.b, self.lines, units)

    def squared_norms(self) -> Tensor:
        unit, _, sums = self._lines()
        each = squares(sums)
        return each.new_zeros(self._count()).index_add_(0, unit, each)

    def add_to(self, total: ExactSum, view: Tensor, weight: Tensor) -> None:
        unit, line, sums = self._lines()
        for start in range(0, self._count(), ROOM):
            mine = (unit >= start) & (unit < start + ROOM)
            total.reserve(min(ROOM, self._count() - start))
            scaled = sums[mine].double() * (weight[unit[mine]] / total.step).unsqueeze(1)
            view.index_add_(0, line[mine], scaled.round_())

    def keep(self, fine: Tensor) -> Rows:
        by_example = fine if self.units is None else fine[self.units.index]
        kept = Indexed(self.index, masked(self.b, by_example), self.lines, self.units)
        if self._used is not None:  # what was measured, not a second sum: on a GPU it may differ
            unit, line, sums = self._used
            kept._used = unit, line, masked(sums, fine[unit])
        return kept

    def _count(self) -> int:
        return self.index.shape[0] if self.units is None else self.units.count

    def _lines(self) -> tuple[Tensor, Tensor, Tensor]:
        """One entry for each (unit, line) that occurs: the unit, the line, the sum over the unit's tokens there."""
        if self._used is None:
            examples = torch.arange(self.index.shape[0], device=self.index.device)
            unit = examples if self.units is None else self.units.index
            there = self.index >= 0
            keys = (unit.unsqueeze(1) * self.lines + self.index)[there]
            used, place = torch.unique(keys, return_inverse=True)
            sums = self.b.new_zeros((used.shape[0], self.b.shape[-1])).index_add_(0, place, self.b[there])
            self._used = used // self.lines, used % self.lines, sums
        return self._used


def add_rounded(total: ExactSum, out: Tensor, rows: Tensor, weight: Tensor) -> None:
    """Add Σ weight·row to `out` (d,), each row rounded to the total's step. `rows` is (n, d), any n."""
    assert rows.shape == (len(weight), len(out))
    factor = weight / total.step
    for part in _chunks(len(rows), rows.shape[1], rows.is_cuda):
        total.reserve(part.stop - part.start)
        if rows.is_cuda:
            out.add_((rows[part] * factor[part].unsqueeze(1)).round_().sum(0))
        else:
            _add_rows(rows[part].numpy(), factor[part].numpy(), out.numpy())


def _chunks(count: int, width: int, cuda: bool) -> Iterator[slice]:
    most = min(ROOM, max(1, (1 << 27) // max(1, width))) if cuda else ROOM
    for start in range(0, count, most):
        yield slice(start, min(count, start + most))


def wide(t: Tensor) -> Tensor:
    """Half-precision numbers as float32; float32 and float64 as they are."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def masked(t: Tensor, fine: Tensor) -> Tensor:
    """`t` with zeros in the rows that are not fine."""
    return torch.where(fine.view(-1, *(1,) * (t.dim() - 1)), t, torch.zeros((), dtype=t.dtype, device=t.device))


def squares(t: Tensor) -> Tensor:
    """Sum of squares of every row in float64, at least the true value, however long the row is.

    n products and n additions lose at most (n + 2)·eps of the sum, whatever their order. On the CPU they are done in
    float64; on a GPU in the precision of the rows within a block of 512 numbers, and the blocks are added in float64.
    What underflows is counted as the smallest normal number.
    """
    flat = t if t.dim() == 2 else t.reshape(t.shape[0], -1)
    width = flat.shape[1]
    if not flat.is_cuda:
        norms = torch.empty(len(flat), dtype=torch.float64)
        _squares(flat.numpy(), 1 + 2 * (width + 8) * 2.0**-52, width * torch.finfo(t.dtype).tiny, norms.numpy())
        return norms
    if width <= BLOCK:
        norms = torch.linalg.vector_norm(flat, dim=1).double().square_()
    else:
        whole = width - width % BLOCK
        blocks = torch.linalg.vector_norm(flat[:, :whole].view(len(flat), whole // BLOCK, BLOCK), dim=2)
        norms = blocks.double().square_().sum(1)
        if whole < width:
            norms += torch.linalg.vector_norm(flat[:, whole:], dim=1).double().square_()
    enlarged, least = _rounding(width, t.dtype)
    out: Tensor = norms * enlarged + least
    return out


@cache
def _rounding(width: int, dtype: torch.dtype) -> tuple[float, float]:
    """How much a GPU's sum of squares is enlarged, and what is added for underflow."""
    info = torch.finfo(dtype)
    blocks = -(-width // BLOCK)
    return 1 + 2 * (min(width, BLOCK) + 8) * info.eps + (blocks + 8) * 2.0**-52, width * info.tiny


@compiled("reassoc", "contract")
def _squares(rows: NDArray[Any], enlarged: float, least: float, out: NDArray[np.float64]) -> None:
    for i in range(len(rows)):
        row, total = rows[i], 0.0
        for j in range(len(row)):
            value = np.float64(row[j])
            total += value * value
        out[i] = total * enlarged + least


@compiled()
def _add_rows(rows: NDArray[Any], factor: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    for start in range(0, len(out), _WIDTH):
        some = out[start : min(start + _WIDTH, len(out))]
        for i in range(len(rows)):
            row, scale = rows[i, start : start + len(some)], factor[i]
            for j in range(len(some)):
                some[j] += np.rint(np.float64(row[j]) * scale)
