"""Per-example gradients of one parameter, kept in the form in which they cost least.

`Rows` stands for a matrix whose row i is the gradient of example i's loss. Nobody needs that matrix: the clip needs
the norms of its rows (or of sums of rows, when examples are grouped), the release needs one weighted sum of them.
Norms and sums are computed in float32 at least, whatever the dtype of the activations is.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Units:
    """Which unit each example belongs to: `index[i]` in 0..count-1. Rows of a unit are added before the clip."""

    index: Tensor
    count: int

    def add_up(self, rows: Tensor) -> Tensor:
        """(B, …) to (count, …), the sum over the examples of each unit."""
        return rows.new_zeros((self.count, *rows.shape[1:])).index_add_(0, self.index, rows)


class Rows(ABC):
    """The per-example gradients of one parameter."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The gradients themselves, (B, *shape of the parameter). Only for small or shared parameters."""

    @abstractmethod
    def squared_norms(self, units: Units | None) -> Tensor:
        """‖row‖² of every example, or ‖sum of the unit's rows‖² of every unit. Never rounded to less by underflow."""

    @abstractmethod
    def weighted_sum(self, weight: Tensor, out: Tensor, add: bool) -> None:
        """Write (or add) the sum over examples of weight·row into `out`, which has the shape of the parameter."""

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

    def squared_norms(self, units: Units | None) -> Tensor:
        if units is not None:
            return squares(units.add_up(self.rows))
        if self._squares is None:
            self._squares = squares(self.rows)
        return self._squares

    def weighted_sum(self, weight: Tensor, out: Tensor, add: bool) -> None:
        flat = out.view(-1)
        torch.addmv(flat, self.rows.reshape(len(self.rows), -1).t(), weight, beta=float(add), out=flat)

    def keep(self, fine: Tensor) -> Rows:
        return Dense(masked(self.rows, fine))


class Outer(Rows):
    """Row i is the outer product b[i] a[i]ᵀ: the weight of a linear layer on inputs (B, K), outputs (B, O).

    ‖b aᵀ‖ = ‖a‖·‖b‖; for a unit, ‖Σ b aᵀ‖² = Σ_ij (a_i·a_j)(b_i·b_j) over its pairs of examples.
    """

    def __init__(self, a: Tensor, b: Dense) -> None:
        self.a, self.right = wide(a), b  # b is also the gradient of the bias: its norms are computed once
        self.b = b.rows

    def dense(self) -> Tensor:
        return self.b.unsqueeze(2) * self.a.unsqueeze(1)

    def squared_norms(self, units: Units | None) -> Tensor:
        if units is None:
            return squares(self.a) * self.right.squared_norms(None)
        product = gram_product(self.a.t(), self.b.t())
        by_unit = units.add_up(units.add_up(product).t())
        length = units.add_up((squares(self.a) * squares(self.b)).sqrt())
        return with_rounding(by_unit.diagonal(), length)

    def weighted_sum(self, weight: Tensor, out: Tensor, add: bool) -> None:
        torch.addmm(out, (self.b * weight.unsqueeze(1)).t(), self.a, beta=float(add), out=out)

    def keep(self, fine: Tensor) -> Rows:
        return Outer(masked(self.a, fine), Dense(masked(self.b, fine)))


class Indexed(Rows):
    """Row i is Σ_t b[i, t] written at line index[i, t] of a table: an embedding. A negative index is skipped."""

    def __init__(self, index: Tensor, b: Tensor, lines: int) -> None:
        self.index, self.b, self.lines = index.flatten(1), wide(b).flatten(1, -2), lines
        if self.b.shape[1] != self.index.shape[1]:
            self.b = self.b.reshape(*self.index.shape, -1)

    def dense(self) -> Tensor:
        width = self.b.shape[-1]
        table = self.b.new_zeros((*self.index.shape[:1], self.lines + 1, width))
        table.scatter_add_(1, self._lines().unsqueeze(2).expand_as(self.b), self.b)
        return table[:, :-1]

    def squared_norms(self, units: Units | None) -> Tensor:
        count, size = (self.index.shape[0], None) if units is None else (units.count, units.index)
        unit = torch.arange(count, device=self.index.device) if size is None else size
        # One key for each (unit, line) that occurs: repeated tokens of a unit are added before they are squared.
        keys = unit.unsqueeze(1) * (self.lines + 1) + self._lines()
        used, place = torch.unique(keys.flatten(), return_inverse=True)
        lines = self.b.new_zeros((used.shape[0], self.b.shape[-1])).index_add_(0, place, self.b.flatten(0, 1))
        each = torch.where(used % (self.lines + 1) == self.lines, 0.0, squares(lines))
        return each.new_zeros(count).index_add_(0, used // (self.lines + 1), each)

    def weighted_sum(self, weight: Tensor, out: Tensor, add: bool) -> None:
        used = self.index >= 0
        if not add:
            out.zero_()
        out.index_add_(0, self.index[used], (self.b * weight.view(-1, 1, 1))[used])

    def keep(self, fine: Tensor) -> Rows:
        return Indexed(self.index, masked(self.b, fine), self.lines)

    def _lines(self) -> Tensor:
        return torch.where(self.index >= 0, self.index, self.lines)


def wide(t: Tensor) -> Tensor:
    """Half-precision numbers as float32; float32 and float64 as they are."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def masked(t: Tensor, fine: Tensor) -> Tensor:
    """`t` with zeros in the rows that are not fine."""
    return torch.where(fine.view(-1, *(1,) * (t.dim() - 1)), t, torch.zeros((), dtype=t.dtype, device=t.device))


def squares(t: Tensor) -> Tensor:
    """Sum of squares of every row, at least the true value: what underflows is counted as the smallest number."""
    flat = t if t.dim() == 2 else t.reshape(t.shape[0], -1)
    norm: Tensor = torch.linalg.vector_norm(flat, dim=1)
    return torch.addcmul(_least(flat.shape[1], t.dtype, t.device), norm, norm)


@cache
def _least(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(count * torch.finfo(dtype).tiny, dtype=dtype, device=device)


def gram_product(a: Tensor, b: Tensor) -> Tensor:
    """(…, K, T) and (…, O, T) to (aᵀa)∘(bᵀb), (…, T, T): inner products of the outer products of all pairs."""
    return torch.matmul(a.mT, a).mul_(torch.matmul(b.mT, b))


def with_rounding(squared: Tensor, length: Tensor) -> Tensor:
    """Add the rounding error of a Gram sum: terms that cancel could otherwise hide a long gradient.

    `length` is Σ_t ‖a_t‖‖b_t‖, the length the gradient would have if nothing cancelled.
    """
    return squared.clamp(min=0.0) + 16 * torch.finfo(squared.dtype).eps * length.square()
