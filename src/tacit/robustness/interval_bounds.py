"""Bounds of a network's outputs over a box of records, in float64 with the error of every rounding.

Formal guarantees
  * For every record in the box, exact arithmetic on the network's weights is within `radius` of `centre`: what float64
    rounds away is added to the radius.
  * The network as deployed (float32, sums in any order) is within `error` of exact arithmetic, by the standard model of
    rounding: a sum of n products is wrong by at most γ_n = n·u/(1 − n·u) of the sum of their absolute values.

Conditions: a convolution is computed with at most `CONVOLUTION` times the error of a plain sum (Winograd's algorithms
have more than the plain one); TF32 is taken into account where torch is set to use it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.gradients.interval_layers import IntervalConv2d, IntervalLinear, WorstCase, differences
from tacit.models.interval import MONOTONE, SHAPERS, Interval, Scaled

DOUBLE, SINGLE, TF32 = 2.0**-53, 2.0**-24, 2.0**-11
TINY = 2.0**-100
"""More than what underflows in float32 in one sum."""
CONVOLUTION = 32
LINEAR = (nn.Linear, IntervalLinear, WorstCase)
CONVOLUTIONS = (nn.Conv2d, IntervalConv2d)
PAIRS = 1 << 24
"""Numbers held at a time for differences of rows of the last layer."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds on the activations of one layer, for every record of a box; float64."""

    centre: Tensor
    radius: Tensor
    error: Tensor
    """The largest difference of the deployed network from exact arithmetic in this layer."""

    @classmethod
    def of(cls, low: Tensor, high: Tensor) -> "Bounds":
        """A box of records, given by float64 ends."""
        centre, radius = (high + low) / 2, (high - low) / 2
        return cls(centre=centre, radius=radius + 4 * DOUBLE * (centre.abs() + radius), error=torch.zeros_like(centre))

    @property
    def largest(self) -> Tensor:
        """An upper bound of the absolute values, deployed or exact."""
        return (self.centre.abs() + self.radius + self.error) * (1 + 8 * DOUBLE)


def plain_layers(model: nn.Module) -> list[nn.Module] | str:
    """The layers of a network in their order, or the reason why there are no interval bounds for it."""
    if isinstance(model, Interval):
        model = model.layers
    if not isinstance(model, nn.Sequential):
        return f"its network is a {type(model).__name__}, which is no sequence of layers (model: {{network: interval}})"
    layers: list[nn.Module] = []
    for layer in model:
        inner = plain_layers(layer) if isinstance(layer, nn.Sequential) else [layer]
        if isinstance(inner, str):
            return inner
        layers += inner
    for layer in layers:
        known = type(layer) in (*LINEAR, *CONVOLUTIONS, *SHAPERS, *MONOTONE, Scaled)
        if isinstance(layer, nn.Conv2d):
            known = known and layer.groups == 1 and layer.padding_mode == "zeros"
        if not known or "forward" in vars(layer):
            return f"there are no interval bounds through its {type(layer).__name__}"
    if not layers or type(layers[-1]) not in LINEAR:
        return "its last layer is not linear, and interval bounds are of logits"
    return layers


def above(layers: Sequence[nn.Module], low: Tensor, high: Tensor, label: Tensor) -> Tensor:
    """Upper bounds of the deployed logits minus that of the label: (records, labels), 0 at the label itself.

    Args:
        layers: The layers of the network, as `plain_layers` returns them.
        low: The lower ends of the boxes, one for each record, float64.
        high: Their upper ends.
        label: The index of a label for each record.

    Returns:
        The bounds, float64.
    """
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    step = max(1, PAIRS // (last.out_features * last.in_features))
    parts = []
    with torch.no_grad():
        for start in range(0, len(label), step):
            some = slice(start, start + step)
            bounds = Bounds.of(low[some], high[some])
            for layer in layers[:-1]:
                bounds = after(layer, bounds)
            parts.append(_margins(last, bounds, label[some]))
    return torch.cat(parts) if parts else low.new_zeros(0, last.out_features)


def after(layer: nn.Module, bounds: Bounds) -> Bounds:
    """The bounds after one layer."""
    if isinstance(layer, SHAPERS):
        return Bounds(centre=layer(bounds.centre), radius=layer(bounds.radius), error=layer(bounds.error))
    if isinstance(layer, Scaled):
        size = abs(layer.scale)
        largest = bounds.largest + abs(layer.centre)
        return Bounds(
            centre=layer(bounds.centre),
            radius=bounds.radius * size + 8 * DOUBLE * size * largest,
            error=(bounds.error * (1 + 8 * DOUBLE) + 4 * SINGLE * largest) * size,
        )
    if isinstance(layer, nn.Linear | nn.Conv2d):
        return _linear(layer, bounds)
    return _monotone(layer, bounds)


def rounding(layer: nn.Linear | nn.Conv2d) -> tuple[float, float]:
    """γ of the layer's sums in float64, and as they are computed when it is deployed."""
    count, convolution = layer.weight[0].numel() + 4, isinstance(layer, nn.Conv2d)
    single = count * SINGLE / (1 - count * SINGLE) + tf32(layer.weight.is_cuda, convolution)
    return 2 * count * DOUBLE, single * (CONVOLUTION if convolution else 1)


def tf32(cuda: bool, convolution: bool = False) -> float:
    """What products of numbers that are first rounded to TF32 add to γ, where torch is set to use it."""
    reduced = torch.backends.cudnn.allow_tf32 if convolution else torch.backends.cuda.matmul.allow_tf32
    return 3 * TF32 if cuda and reduced else 0.0


def _linear(layer: nn.Linear | nn.Conv2d, bounds: Bounds) -> Bounds:
    weight = layer.weight.detach().to(bounds.centre)
    bias = None if layer.bias is None else layer.bias.detach().to(weight)

    def apply(x: Tensor, of: Tensor, plus: Tensor | None) -> Tensor:
        found: Tensor = layer._conv_forward(x, of, plus) if isinstance(layer, nn.Conv2d) else F.linear(x, of, plus)
        return found

    wide, size = weight.abs(), None if bias is None else bias.abs()
    double, single = rounding(layer)
    largest = apply(bounds.largest, wide, size)
    return Bounds(
        centre=apply(bounds.centre, weight, bias),
        radius=apply(bounds.radius, wide, None) * (1 + double) + double * largest,
        error=(apply(bounds.error, wide, None) + single * largest) * (1 + 2 * double) + TINY,
    )


def _monotone(layer: nn.Module, bounds: Bounds) -> Bounds:
    low, high = layer(bounds.centre - bounds.radius), layer(bounds.centre + bounds.radius)
    found = Bounds.of(low, high)
    slack = 8 * DOUBLE * (1 + found.centre.abs() + found.radius)
    if isinstance(layer, nn.ReLU | nn.MaxPool2d):
        own = layer(bounds.error)
    elif isinstance(layer, nn.Tanh):
        own = bounds.error + 8 * SINGLE
    else:
        own = layer(bounds.error) + 64 * SINGLE * layer(bounds.largest)
    return Bounds(centre=found.centre, radius=found.radius + slack, error=own)


def _margins(layer: nn.Linear, bounds: Bounds, label: Tensor) -> Tensor:
    """Upper bounds of deployed logits minus that of the label, from the differences of the rows of the weight."""
    weight = layer.weight.detach().to(bounds.centre)
    bias = torch.zeros_like(weight[:, 0]) if layer.bias is None else layer.bias.detach().to(weight)
    logits = _linear(layer, bounds)  # for its error
    own = differences(weight)[label]
    double, _ = rounding(layer)
    centre = torch.einsum("bkh,bh->bk", own, bounds.centre) + bias - bias[label, None]
    wide = weight.abs()
    largest = F.linear(bounds.largest, wide, bias.abs())
    slack = 2 * double * (largest + largest.gather(1, label[:, None]))
    reach = torch.einsum("bkh,bh->bk", own.abs(), bounds.radius) * (1 + double) + slack
    found = centre + reach + (logits.error + logits.error.gather(1, label[:, None])) * (1 + 8 * DOUBLE)
    return found.scatter(1, label[:, None], 0.0)
