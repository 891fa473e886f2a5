"""Layers on records and boxes around them, or on copies of records, and per-example gradients of their weights.

A box is a centre and a radius for each coordinate (Gowal et al. 2019). A layer reads (B, 3, …): the record, the
centre, the radius. The weight W multiplies record and centre, and |W| the radius, in one call, so that one pair (input,
gradient of the output) holds everything that its gradient needs: with b the gradient of the output, dL/dW = Σ b aᵀ over
record and centre, plus sign(W) ∘ (b aᵀ) of the radius.
"""

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.gradients.convolution import weight_rows
from tacit.gradients.interval_rows import Added, Signed
from tacit.gradients.rows import Dense, Rows
from tacit.gradients.sequence import Places

RECORD, CENTRE, RADIUS = 0, 1, 2
"""Places of what a layer reads."""


class IntervalLinear(nn.Linear):
    """A linear layer on records (B, K), or on records and boxes (B, 3, K)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 3:
            return super().forward(input)
        values = F.linear(input[:, :RADIUS], self.weight, self.bias)
        radius = F.linear(input[:, RADIUS:], self.weight.abs())
        return torch.cat([values, radius], 1)


class IntervalConv2d(nn.Conv2d):
    """A convolution on records (B, C, H, W), or on records and boxes (B, 3, C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 5:
            return super().forward(input)
        values = self._conv_forward(input[:, :RADIUS].flatten(0, 1), self.weight, self.bias)
        radius = self._conv_forward(input[:, RADIUS], self.weight.abs(), None)
        return torch.cat([values.view(-1, RADIUS, *values.shape[1:]), radius.unsqueeze(1)], 1)


class WorstCase(nn.Linear):
    """The last layer. From records and boxes (B, 3, H) it makes (B, 1 + K, K): the logits of the record, and for each
    label y an upper bound, over the box, of the logits minus that of y. The bound is of the difference of two rows of
    the weight, which is tighter than the difference of two bounds."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 3:
            return super().forward(input)
        values = F.linear(input[:, :RADIUS], self.weight, self.bias)
        centre = values[:, CENTRE]
        reach = F.linear(input[:, RADIUS], differences(self.weight).abs().flatten(0, 1))
        above = centre.unsqueeze(1) - centre.unsqueeze(2) + reach.view(len(centre), len(self.weight), -1)
        return torch.cat([values[:, :1], above], 1)


class CopiesLinear(nn.Linear):
    """A linear layer on records (B, K), or on copies of each record (B, T, K)."""


class CopiesConv2d(nn.Conv2d):
    """A convolution on records (B, C, H, W), or on copies of each record (B, T, C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 5:
            return super().forward(input)
        out = super().forward(input.flatten(0, 1))
        return out.view(*input.shape[:2], *out.shape[1:])


def differences(weight: Tensor) -> Tensor:
    """(K, K, H): at [y, j], row j minus row y."""
    return weight.unsqueeze(0) - weight.unsqueeze(1)


def linear_rows(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    """The rule of `IntervalLinear`."""
    assert isinstance(layer, IntervalLinear)
    rows: dict[str, Rows] = {}
    if "weight" in wanted:
        rows["weight"] = Signed(a, b, layer.weight.detach().sign())
    if "bias" in wanted:
        rows["bias"] = Dense(b[:, :RADIUS].sum(1))
    return rows


def convolution_rows(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    """The rule of `IntervalConv2d`."""
    assert isinstance(layer, IntervalConv2d)
    rows: dict[str, Rows] = {}
    if "weight" in wanted:
        parts = [weight_rows(layer, a[:, place], b[:, place]) for place in (RECORD, CENTRE, RADIUS)]
        assert all(isinstance(part, Places) for part in parts), "groups are refused when the network is made"
        shape = layer.weight.shape
        rows["weight"] = Added(parts, [None, None, layer.weight.detach().sign()], shape)  # type: ignore[arg-type]
    if "bias" in wanted:
        rows["bias"] = Dense(b[:, :RADIUS].flatten(3).sum((1, 3)))
    return rows


def copies_linear_rows(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    """The rule of `CopiesLinear`."""
    found: dict[str, Rows] = {"weight": Signed(a, b)} if "weight" in wanted else {}
    return found | ({"bias": Dense(b.sum(1))} if "bias" in wanted else {})


def copies_convolution_rows(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    """The rule of `CopiesConv2d`."""
    assert isinstance(layer, CopiesConv2d)
    found: dict[str, Rows] = {}
    if "weight" in wanted:
        parts = [weight_rows(layer, a[:, place], b[:, place]) for place in range(a.shape[1])]
        found["weight"] = Added(parts, [None] * len(parts), layer.weight.shape)  # type: ignore[arg-type]
    return found | ({"bias": Dense(b.flatten(3).sum((1, 3)))} if "bias" in wanted else {})


def worst_case_rows(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    """The rule of `WorstCase`; with M the gradient of the bounds, row j of W gets (ΣM[·, j] − ΣM[j, ·]) of the centre
    and Σ (M[y, j] + M[j, y]) sign(W_j − W_y) of the radius."""
    assert isinstance(layer, WorstCase)
    bounds = b[:, 1:]
    centre = bounds.sum(1) - bounds.sum(2)
    rows: dict[str, Rows] = {}
    if "weight" in wanted:
        signs = differences(layer.weight.detach()).sign()  # [y, j]
        both = bounds + bounds.mT
        factor = torch.einsum("byj,yjh->bjh", both, signs)
        total = factor.mul_(a[:, RADIUS].unsqueeze(1))
        total += centre.unsqueeze(2) * a[:, CENTRE].unsqueeze(1)
        total += b[:, 0].unsqueeze(2) * a[:, RECORD].unsqueeze(1)
        rows["weight"] = Dense(total)
    if "bias" in wanted:
        rows["bias"] = Dense(b[:, 0] + centre)
    return rows
