"""The functional mechanism of Phan et al. 2019 and Lai et al. 2022, as published: NOT PRIVATE.

Guarantee: none. χ₁, χ₂ and χ₃ are Laplace vectors drawn ONCE for a whole stream, and all of its records share them:
x̄_r = x_r + χ₁/λ for every record of every task. The difference of two perturbed records is the difference of the
records, so no (ε, δ < 1) holds, whatever the scale of the noise. It is here to be measured and attacked.

The draws come from the ledger's identity key and the name of the stream: never from a public seed, the same in every
task and after a resume.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import PlanError
from tacit.privacy.cipher import words
from tacit.privacy.keys import KeyRing

SHARED_NOISE = "all of them under one draw of noise, the functional mechanism as published"
"""Why a block is exposed whose records left under noise that they share."""


@dataclass(frozen=True, kw_only=True)
class FunctionalPlan:
    """The scale and the shape of the three noises. ε₁ and ε₂ are what the papers put into their formula."""

    epsilon1: float
    """Of the auto-encoder: χ₁ and χ₂ have the scale Δ_R/ε₁."""
    epsilon2: float
    """Of the output layer: χ₃ has the scale Δ_L/ε₂."""
    batch: float
    """λ, by which the noises are divided."""
    delta_r: float
    delta_l: float
    """Sensitivities as the papers state them."""
    input: tuple[int, ...]
    hidden: tuple[int, ...]
    output: tuple[int, ...]
    """Shapes of χ₁, χ₂ and χ₃."""
    low: float = 0.0
    high: float = 1.0
    """Public bounds of the features: they are mapped to [−1, 1] by these, and clipped there."""

    def __post_init__(self) -> None:
        for name in ("epsilon1", "epsilon2", "batch", "delta_r", "delta_l"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise PlanError(f"{name} must be a number > 0, got {value}")
        if not -math.inf < self.low < self.high < math.inf:
            raise PlanError(f"low must be below high, both finite, got {self.low} and {self.high}")

    def scaled(self, x: Tensor) -> Tensor:
        """Features as the mechanism reads them: in [−1, 1], by public constants."""
        return ((x - self.low) * (2 / (self.high - self.low)) - 1).clamp(-1, 1)


@dataclass(frozen=True, kw_only=True)
class Perturbed:
    """What leaves the vault: records under the noise that all of them share, and the noise itself."""

    x: Tensor
    """x̄ = x + χ₁/λ. It protects nothing."""
    y: Tensor
    """Labels as they are: places in the label set."""
    input: Tensor
    """χ₁/λ, which the published prediction adds to test inputs too."""
    hidden: Tensor
    """2χ₂/λ."""
    output: Tensor
    """χ₃/λ."""


def perturbed(x: Tensor, y: Tensor, plan: FunctionalPlan, keys: KeyRing, stream: str, dtype: torch.dtype) -> Perturbed:
    """The mechanism on all records of a block."""
    key = keys.subkey(keys.identity_key, "functional mechanism", stream)
    over_r, over_l = plan.delta_r / plan.epsilon1 / plan.batch, plan.delta_l / plan.epsilon2 / plan.batch
    input, hidden, output = (
        (laplace(shape, key, place) * scale).to(dtype)
        for place, (shape, scale) in enumerate(((plan.input, over_r), (plan.hidden, 2 * over_r), (plan.output, over_l)))
    )
    return Perturbed(x=plan.scaled(x.to(dtype)) + input, y=y, input=input, hidden=hidden, output=output)


def laplace(shape: tuple[int, ...], key: bytes, counter: int) -> Tensor:
    """Independent Laplace variables of scale 1, in float64; the same for the same key and counter."""
    n = math.prod(shape)
    bits = words(key, counter, 2 * n).to(torch.int64)
    high, low = bits[:n] & 0x7FFFFFFF, bits[n:] & 0x7FFFFFFF
    uniform = (high + (low + 1) * 2.0**-31) * 2.0**-31  # in (0, 1], 62 bits: the tail is not cut
    return (-uniform.log() * torch.where(bits[:n] < 0, -1.0, 1.0).double()).view(shape)
