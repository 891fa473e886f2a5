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


class FeatureMap(nn.Module):
    """Records as unit features: through a frozen public backbone or, without one, as they are."""

    def __init__(self, backbone: Backbone | None, width: int) -> None:
        super().__init__()
        self.backbone, self.unit, self.width = backbone, UnitNorm(), width

    def forward(self, x: Tensor) -> Tensor:
        if self.backbone is None:
            found: Tensor = self.unit(x)
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
