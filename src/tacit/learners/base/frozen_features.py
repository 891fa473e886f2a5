"""Frozen, L2-normalised features of records, for learners that train no network."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacit.models.backbones import Backbone
from tacit.models.backbones import backbone as find

ROWS = 256
"""Number of records per forward pass of a backbone, which bounds the memory of its activations."""


class UnitNorm(nn.Module):
    """Flattens and L2-normalises each record."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.normalize(x.flatten(1), dim=1)


class Spread(nn.Module):
    """What the mean and the spread of each feature follow from: (x, x², 1) of a row, of length at most 1. Features are
    expected in [−1, 1], by public constants, and cut there."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1).clamp(-1, 1)
        return torch.cat([rows, rows.square(), torch.ones_like(rows[:, :1])], 1) / math.sqrt(2 * rows.shape[1] + 1)


class Standard(nn.Module):
    """Standardises features and clips them to ±4. It is the clipped identity until `learn` is called."""

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


class RootAndOne(nn.Module):
    """What the mean of `Centred` follows from: (root, ¼), of norm 1, root the L2-normalised signed square root."""

    def __init__(self, backbone: Backbone | None) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor) -> Tensor:
        deep = x if self.backbone is None else torch.cat([self.backbone(rows) for rows in split(self, x)])
        rows = unit_root(deep.flatten(1))
        return torch.cat([rows, torch.full_like(rows[:, :1], 0.25)], 1) / math.sqrt(1 + 0.25**2)


class Centred(nn.Module):
    """Signed square roots of features (Tukey's power transform), L2-normalised, minus their mean: for features ≥ 0,
    which share a large mean. The mean is 0 until `learn` is called."""

    mean: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return unit_root(x.flatten(1)) - self.mean

    def learn(self, sums: Tensor, std: float) -> None:
        """From the noisy sum of `RootAndOne` over all units, each weighted in some way: the ratio to the last entry,
        shrunk by the share of its square that is noise (James–Stein)."""
        rows, count = sums[:-1], max(4 * float(sums[-1]), 16 * std)
        signal = 1 - len(rows) * std**2 / max(float(rows.square().sum()), 1e-30)
        self.mean.copy_(rows / count * max(0.0, signal))


def unit_root(rows: Tensor) -> Tensor:
    """The signed square root of each entry, L2-normalised."""
    return torch.nn.functional.normalize(rows.sign() * rows.abs().sqrt(), dim=1)


class FeatureMap(nn.Module):
    """L2-normalised features: of a frozen public backbone or, without one, of the record, optionally standardised or
    centred."""

    def __init__(self, backbone: Backbone | None, width: int) -> None:
        super().__init__()
        self.backbone, self.unit, self.width = backbone, UnitNorm(), width
        self.standard: Standard | Centred | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.backbone is None:
            found: Tensor = self.unit(x if self.standard is None else self.standard(x))
            return found
        deep = (self.backbone(rows) for rows in split(self, x))
        return torch.cat([self.unit(rows if self.standard is None else self.standard(rows)) for rows in deep])


def feature_map(backbone: str | nn.Module | None, shape: Sequence[int]) -> FeatureMap:
    """The feature map of a backbone (by name or as a module) or, with None, of records that are features already."""
    if backbone is None:
        return FeatureMap(None, math.prod(shape)).eval()
    made = find(backbone, shape=shape)
    made.check(shape)
    return FeatureMap(made, made.width).eval()


def split(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """Split rows into forward passes: one for all rows, or small batches if the model has a backbone."""
    deep = any(isinstance(module, Backbone) for module in model.modules())
    parts: Sequence[Tensor] = torch.split(x, ROWS if deep else max(1, len(x)))
    return parts
