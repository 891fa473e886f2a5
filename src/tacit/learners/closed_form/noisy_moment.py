"""A noisy second moment Σφφᵀ, and what is known of its noise: what classifiers made of released sums share."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A noisy Σφφᵀ."""

    value: Tensor
    """(features, features), float32."""
    std: float
    """Of the noise on its diagonal; off it 1/√2 of that."""
    records: float
    """Nominal number of units in it."""

    @property
    def edge(self) -> float:
        """Largest eigenvalue of the noise (semicircle law)."""
        return self.std * math.sqrt(2 * len(self.value))

    @property
    def least(self) -> float:
        """The smallest λ: what few records leave unknown even without noise."""
        width = len(self.value)
        return self.records / width * max(0.01, 0.3 * min(1.0, width / self.records))


def eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Computed in float32: the noise is much larger than its rounding, and it takes half the time."""
    values, basis = torch.linalg.eigh(matrix.float())
    return values.double(), basis.double()


def symmetric(width: int, generator: torch.Generator) -> Tensor:
    """Symmetric noise as the vault adds it: variance 1 on the diagonal and ½ off it."""
    drawn = torch.randn(width, width, generator=generator).triu()
    return (drawn + drawn.T) / math.sqrt(2) - torch.diag(torch.diagonal(drawn)) * (math.sqrt(2) - 1)


def centred(rows: Tensor) -> Tensor:
    """The rows minus their mean."""
    return rows - rows.mean(0)


def packed(matrix: Tensor) -> Tensor:
    """The upper triangle of a symmetric matrix, as one row."""
    row, column = torch.triu_indices(*matrix.shape)
    return matrix[row, column]


def unpacked(upper: Tensor, width: int) -> Tensor:
    """The symmetric matrix of this upper triangle."""
    row, column = torch.triu_indices(width, width)
    out = torch.empty(width, width, dtype=upper.dtype)
    out[row, column] = out[column, row] = upper
    return out
