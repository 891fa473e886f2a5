"""Frozen features of records, of unit length: what learners look at that train no network."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacit.models.backbones import Backbone
from tacit.models.backbones import backbone as find

ROWS = 256
"""So many records go through a backbone at a time: pictures grow on their way through it."""


class UnitNorm(nn.Module):
    """Rows as vectors of length 1."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.normalize(x.flatten(1), dim=1)


class Spread(nn.Module):
    """What the mean and the spread of each feature follow from: (x, x², 1) of a row, of length at most 1. Features are
    expected in [−1, 1], by public constants, and cut there."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1).clamp(-1, 1)
        return torch.cat([rows, rows.square(), torch.ones_like(rows[:, :1])], 1) / math.sqrt(2 * rows.shape[1] + 1)


class Standard(nn.Module):
    """Rows less their mean, over their spread, cut at ±4. As they are, until both are known."""

    mean: Tensor
    spread: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return ((x.flatten(1) - self.mean) / self.spread).clamp(-4, 4)

    def learn(self, sums: Tensor, std: float) -> None:
        """From the noisy sum of `Spread` over all units, each weighted in some way: ratios to the last entry."""
        width, count = len(self.mean), max(float(sums[-1]), 4 * std)
        first, second = sums[:width] / count, sums[width : 2 * width] / count
        self.mean.copy_(first)
        self.spread.copy_((second - first.square()).clamp(min=max(1e-4, 2 * std / count)).sqrt())


class FeatureMap(nn.Module):
    """Records as unit features: through a frozen public backbone or, without one, as they are or `standard`."""

    def __init__(self, backbone: Backbone | None, width: int) -> None:
        super().__init__()
        self.backbone, self.unit, self.width = backbone, UnitNorm(), width
        self.standard: Standard | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.backbone is None:
            found: Tensor = self.unit(x if self.standard is None else self.standard(x))
            return found
        return torch.cat([self.unit(self.backbone(rows)) for rows in split(self, x)])


def feature_map(backbone: str | nn.Module | None, shape: Sequence[int]) -> FeatureMap:
    """For records of this shape: by a backbone's name, by a module of one's own, or (None) of what is features."""
    if backbone is None:
        return FeatureMap(None, math.prod(shape)).eval()
    made = find(backbone, shape=shape)
    made.check(shape)
    return FeatureMap(made, made.width).eval()


def split(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """The rows that go through a model together: all of them, a few where it has a backbone."""
    deep = any(isinstance(module, Backbone) for module in model.modules())
    parts: Sequence[Tensor] = torch.split(x, ROWS if deep else max(1, len(x)))
    return parts
