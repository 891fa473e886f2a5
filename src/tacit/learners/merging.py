"""Merging released models without data: post-processing, so it costs nothing."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import torch
from torch import Tensor

State = Mapping[str, Tensor]


def closest(models: Sequence[State], start: State) -> tuple[int, int]:
    """The two models whose changes from their common start point most in the same direction."""
    changes = [torch.cat([(one[name] - start[name]).flatten() for name in start]) for one in models]
    unit = torch.nn.functional.normalize(torch.stack(changes), dim=1)
    alike = unit @ unit.T
    return max(combinations(range(len(models)), 2), key=lambda pair: float(alike[pair]))


def merged(one: State, other: State, weights: Sequence[float]) -> dict[str, Tensor]:
    """The weighted mean of two models that began at the same point."""
    share = weights[0] / sum(weights)
    return {name: one[name].lerp(other[name], 1 - share) for name in one}
