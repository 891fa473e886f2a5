"""Rows of a weight that is used several times by one example: on copies of a record, or also as |W| on a radius.

Formal guarantees
  * `Signed` measures rows by inner products of their factors, without forming them. What is added differs from what is
    measured by the cut of the factors to whole numbers. The cut of the inputs is covered by the norm, which is enlarged
    by 2⁻¹⁸·√K of the sum of the parts' norms; the cut of the gradients by `rounding`, a share of the clip by which the
    clip weights are lowered.
  * Parts may cancel. A row counts as at least an eighth of the sum of its parts' norms, so that every part of a clipped
    row is at most eight clips long, and the total reserves room for it.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.gradients.exact import ROOM, ExactSum
from tacit.gradients.rows import Rows, Units, masked, squares, wide
from tacit.gradients.sequence import Places, Tokens, balanced, cut

LONGEST = 8
"""The largest norm of a part of a row that is allowed for, relative to the norm of the row."""
SHARE = 2.0**-18
"""A factor of n numbers is changed by at most √n times this share of its length when it is cut to whole numbers."""
AT_A_TIME = {False: 256, True: 4096}
"""Rows of factors in one product, by whether it is a GPU; fewer where a total has less room."""


class Signed(Rows):
    """Row i is Σ b[i, t] a[i, t]ᵀ over all places t but the last, plus signs ∘ (b[i, T] a[i, T]ᵀ) of the last one.

    a is (B, T, K), b is (B, T, O), signs is (O, K) with entries −1, 0 and 1; None stands for ones. With S the signs,
    ‖row‖² = Σ (b_t·b_u)(a_t·a_u) + ‖b_T‖²‖a_T‖² + 2 Σ (b_t ∘ b_T)ᵀ S (a_t ∘ a_T); where a sign is 0, a little more.
    """

    def __init__(self, a: Tensor, b: Tensor, signs: Tensor | None = None) -> None:
        self.a, self.b, self.signs = wide(a), wide(b), signs
        self._double = None if signs is None else signs.double()
        self._lengths: Tensor | None = None
        self._squares: Tensor | None = None

    @property
    def rounding(self) -> float:
        return 1.01 * self.a.shape[1] * math.sqrt(self.b.shape[2]) * SHARE

    def dense(self) -> Tensor:
        return self._places().dense().view(len(self.a), self.b.shape[2], self.a.shape[2])

    def by_unit(self, units: Units) -> Rows:
        return self._places().by_unit(units)

    def squared_norms(self) -> Tensor:
        if self._squares is None:
            count, places, width = self.a.shape
            self._lengths = squares(self.a.reshape(-1, width)).view(count, places)
            gradients = squares(self.b.reshape(count * places, -1)).view(count, places)
            parts = (self._lengths * gradients).sqrt().sum(1)
            step = AT_A_TIME[self.a.is_cuda]
            measured = torch.cat([self._inner(slice(i, i + step)) for i in range(0, count, step)])
            lost = 8 * (width + self.b.shape[2] + 16) * 2.0**-52
            lengths = (measured.clamp(min=0) + lost * parts.square()).sqrt() + math.sqrt(width) * SHARE * parts
            tiny = torch.finfo(torch.float64).tiny
            self._squares = torch.maximum(lengths, parts / LONGEST).square() * (1 + 2.0**-48) + tiny
        return self._squares

    def plain_squares(self) -> Tensor:
        return self._inner(slice(None)).clamp(min=0)

    def add_to(self, total: ExactSum, view: Tensor, weight: Tensor) -> None:
        assert self._lengths is not None, "norms come before sums"
        last, room = self.a.shape[1] - 1, LONGEST * self.a.shape[1]
        factors = [balanced(self._lengths[:, t].contiguous(), weight / total.step) for t in range(last + 1)]
        step = min(AT_A_TIME[self.a.is_cuda], ROOM // room)
        for start in range(0, len(self.a), step):
            part = slice(start, start + step)
            total.reserve(len(self.a[part]), room=room)
            for t, (left, right) in enumerate(factors):
                a = cut(self.a[part, t].contiguous(), left[part])
                b = cut(self.b[part, t].contiguous(), right[part])
                if t < last or self._double is None:
                    torch.addmm(view, b.t(), a, out=view)
                else:
                    view.addcmul_(b.t() @ a, self._double)

    def keep(self, fine: Tensor) -> Rows:
        kept = Signed(masked(self.a, fine), masked(self.b, fine), self.signs)
        if self._squares is not None and self._lengths is not None:
            kept._squares = torch.where(fine, self._squares, 0.0)
            kept._lengths = masked(self._lengths, fine)
        return kept

    def _inner(self, part: slice) -> Tensor:
        """‖row‖² of some rows, in float64."""
        a, b = self.a[part].double(), self.b[part].double()
        if self._double is None:
            return (torch.bmm(a, a.mT) * torch.bmm(b, b.mT)).sum((1, 2))
        plain_a, plain_b, last_a, last_b = a[:, :-1], b[:, :-1], a[:, -1:], b[:, -1:]
        found = (torch.bmm(plain_a, plain_a.mT) * torch.bmm(plain_b, plain_b.mT)).sum((1, 2))
        found += last_a.square().sum((1, 2)) * last_b.square().sum((1, 2))
        crossed = (plain_b * last_b).flatten(0, 1) @ self._double
        return found.add_((crossed.view_as(plain_a) * (plain_a * last_a)).sum((1, 2)), alpha=2)

    def _places(self) -> "Added":
        """The same rows, as rows that are formed."""
        shape = torch.Size((self.b.shape[2], self.a.shape[2]))
        if self.signs is None:
            return Added([Tokens(self.a, self.b)], [None], shape)
        parts = [Tokens(self.a[:, :-1], self.b[:, :-1]), Tokens(self.a[:, -1:], self.b[:, -1:])]
        return Added(parts, [None, self.signs], shape)


class Added(Places):
    """Sums of rows of several uses of one weight, each times a factor of the weight's shape (None: 1)."""

    def __init__(self, parts: Sequence[Places], factors: Sequence[Tensor | None], shape: torch.Size) -> None:
        self.parts, self.factors, self.shape = tuple(parts), tuple(factors), shape
        super().__init__(parts[0].b, parts[0].width, parts[0].count)

    def columns(self, part: slice | Tensor) -> Tensor:
        raise NotImplementedError("the parts have columns")

    def form(self, part: slice) -> Tensor:
        total: Tensor | None = None
        for one, factor in zip(self.parts, self.factors, strict=True):
            rows = one.trim(one.form(part), self.shape)
            rows = rows if factor is None else rows * factor
            total = rows if total is None else total + rows
        assert total is not None
        return total

    def by_unit(self, units: Units) -> Rows:
        joined = [one.by_unit(units) for one in self.parts]
        assert all(isinstance(one, Places) for one in joined)
        return Added(joined, self.factors, self.shape)  # type: ignore[arg-type]

    def _masked(self, fine: Tensor) -> Places:
        return Added([one._masked(fine) for one in self.parts], self.factors, self.shape)
