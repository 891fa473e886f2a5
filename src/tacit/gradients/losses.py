"""Losses with one value for each example."""

import torch.nn.functional as F
from torch import Tensor


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """(B, classes) and (B,) to (B,); with more dimensions, (B, classes, …) and (B, …), the sum over each example."""
    losses = F.cross_entropy(output, y, reduction="none")
    return losses if losses.dim() == 1 else losses.flatten(1).sum(1)
