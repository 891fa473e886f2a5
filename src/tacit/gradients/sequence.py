"""Rows of a weight that is applied at many places of one example: a linear layer on tokens, a convolution.

Row i is b[i] a[i]ᵀ, a sum over T places of outer products, with a[i] of (K, T) and b[i] of (O, T).
Its squared norm comes from two Gram matrices, T²(K + O) operations, or from the row itself, T·K·O operations:
the cheaper one is taken. Rows are formed a few examples at a time and are kept only when they are small.
"""

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from tacit.gradients.rows import Rows, Units, gram_product, masked, squares, wide, with_rounding

# By whether it is a GPU, which wants few large calls.
CHUNK = {False: 1 << 21, True: 1 << 27}  # numbers formed at a time: about a cache; half a gigabyte
KEPT = {False: 1 << 24, True: 1 << 28}  # numbers kept at most for one parameter


class Places(Rows):
    """Rows b[i] a[i]ᵀ over places; b is (B, O, T). Subclasses say what a is."""

    gram_gain = 1  # how much cheaper, in operations, the Gram matrices must be

    def __init__(self, b: Tensor, width: int) -> None:
        self.b, self.width = b, width
        self.count, self.outputs, self.places = b.shape
        self._kept: list[Tensor] = []

    @abstractmethod
    def columns(self, part: slice | Tensor) -> Tensor:
        """a of the examples of `part`, (n, K, T)."""

    @abstractmethod
    def _sum(self, weight: Tensor, out: Tensor, add: bool) -> None:
        """The weighted sum from the factors."""

    def form(self, part: slice) -> Tensor:
        """The rows of `part`, (n, …); a subclass may choose the layout, which `trim` undoes."""
        return torch.bmm(self.b[part], self.columns(part).mT)

    def trim(self, total: Tensor, shape: torch.Size) -> Tensor:
        """A sum of formed rows in the shape of the parameter."""
        return total.view(shape)

    def dense(self) -> Tensor:
        parts = Places._parts(self, self.width * (self.places + self.outputs))
        return torch.cat([torch.bmm(self.b[part], self.columns(part).mT) for part in parts])

    def squared_norms(self, units: Units | None) -> Tensor:
        if units is not None:
            return self._unit_norms(units)
        if self.places * (self.width + self.outputs) * self.gram_gain < self.width * self.outputs:
            norms = [self._gram(part) for part in self._parts(self.places * (self.width + 2 * self.places))]
        else:
            norms = [squares(rows) for rows in self._formed()]
        return norms[0] if len(norms) == 1 else torch.cat(norms)

    def weighted_sum(self, weight: Tensor, out: Tensor, add: bool) -> None:
        if not self._kept:
            return self._sum(weight, out, add)
        parts = zip(torch.split(weight, [len(rows) for rows in self._kept]), self._kept, strict=True)
        total = self._kept[0].new_zeros(self._kept[0][0].numel())
        for some, rows in parts:
            total.addmv_(rows.view(len(rows), -1).t(), some)
        found = self.trim(total, out.shape)
        if add:
            out.add_(found)
        else:
            out.copy_(found)

    def _gram(self, part: slice) -> Tensor:
        a, b = self.columns(part), self.b[part]
        lengths = torch.linalg.vector_norm(a, dim=1).mul_(torch.linalg.vector_norm(b, dim=1)).sum(1)
        return with_rounding(gram_product(a, b).sum((1, 2)), lengths)

    def _formed(self) -> Iterator[Tensor]:
        """The rows, a few examples at a time; kept for the sum if they are small."""
        keep = self.count * self.outputs * self.width <= KEPT[self.b.is_cuda]
        for part in self._parts(self.width * (self.places + self.outputs)):
            rows = self.form(part)
            if keep:
                self._kept.append(rows)
            yield rows

    def _parts(self, each: int) -> list[slice]:
        """The examples, a few at a time, when one needs `each` numbers."""
        step = max(1, CHUNK[self.b.is_cuda] // each)
        return [slice(i, min(i + step, self.count)) for i in range(0, self.count, step)]

    def _unit_norms(self, units: Units) -> Tensor:
        if self.count * self.outputs * self.width <= KEPT[self.b.is_cuda]:
            return squares(units.add_up(self.dense()))
        # One unit at a time, so that never more than one gradient of this parameter exists.
        sizes = torch.bincount(units.index, minlength=units.count).tolist()
        members = torch.split(units.index.argsort(stable=True), sizes)
        norms = self.b.new_zeros(units.count)
        for unit, some in enumerate(members):
            if some.numel():
                b, a = self.b[some].transpose(0, 1).flatten(1), self.columns(some).transpose(0, 1).flatten(1)
                norms[unit] = squares((b @ a.t()).unsqueeze(0))[0]
        return norms


class Tokens(Places):
    """The weight of a linear layer on inputs (B, T, K), outputs (B, T, O)."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.tokens = wide(a), wide(b)
        super().__init__(self.tokens.mT, a.shape[2])

    def columns(self, part: slice | Tensor) -> Tensor:
        return self.a[part].mT

    def _sum(self, weight: Tensor, out: Tensor, add: bool) -> None:
        b = self.tokens * weight.view(-1, 1, 1)
        torch.addmm(out, b.flatten(0, 1).t(), self.a.flatten(0, 1), beta=float(add), out=out)

    def keep(self, fine: Tensor) -> Rows:
        return Tokens(masked(self.a, fine), masked(self.tokens, fine))
