"""Merging of released models without data. This is post-processing and has no privacy cost."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import torch
from torch import Tensor

State = Mapping[str, Tensor]


def closest(models: Sequence[State], start: State) -> tuple[int, int]:
    """Indices of the two models whose changes from their common initial weights have the largest cosine similarity."""
    changes = [torch.cat([(model[name] - start[name]).flatten() for name in start]) for model in models]
    unit = torch.nn.functional.normalize(torch.stack(changes), dim=1)
    similarity = unit @ unit.T
    return max(combinations(range(len(models)), 2), key=lambda pair: float(similarity[pair]))


def merged(first: State, second: State, weights: Sequence[float]) -> dict[str, Tensor]:
    """The weighted mean of two models with the same initial weights."""
    share = weights[0] / sum(weights)
    return {name: first[name].lerp(second[name], 1 - share) for name in first}
