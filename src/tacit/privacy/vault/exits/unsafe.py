"""The raw exits behind `vault.unsafe`: NOT PRIVATE. For baselines, broken mechanisms and attacks on them.

Formal guarantees: none for what is released here. That it is exposed is on disk before a record is read. An exit is
refused unless the block is declared public or the ledger's policy allows unsafe exits. Every certificate of the stream
from then on has no finite ε and gives the reason.

The functional mechanism of Phan et al. 2019 and Lai et al. 2022, as published, is one of them. χ₁, χ₂ and χ₃ are
Laplace vectors drawn once for a whole stream, and all its records share them: x̄_r = x_r + χ₁/λ for every record of
every task. The difference of two perturbed records is the difference of the records, so no (ε, δ < 1) holds at any
scale of the noise. The draws come from the ledger's identity key and the stream's name: they are the same in every task
and after a resume, and independent of public seeds.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.data.stream import Label
from tacit.errors import PlanError, VaultError
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.storage.values import FROM_DATA, SHARED_NOISE
from tacit.privacy.randomness.cipher import words
from tacit.privacy.vault.intake.admission import Admission
from tacit.privacy.vault.intake.batches import targets
from tacit.privacy.vault.intake.blocks import Block
from tacit.privacy.vault.intake.records import Records


@dataclass(frozen=True, kw_only=True)
class FunctionalPlan:
    """Scales and shapes of the three noise vectors of the functional mechanism.

    Attributes:
        epsilon1: ε₁ of the auto-encoder, as the papers use it: χ₁ and χ₂ have the scale Δ_R/ε₁.
        epsilon2: ε₂ of the output layer: χ₃ has the scale Δ_L/ε₂.
        batch: λ, by which the noise is divided.
        delta_r: The sensitivity Δ_R that the papers state.
        delta_l: The sensitivity Δ_L that the papers state.
        input: Shape of χ₁.
        hidden: Shape of χ₂.
        output: Shape of χ₃.
        low: Public lower bound of the features, which are mapped to [−1, 1] and clipped there.
        high: Public upper bound of the features.
    """

    epsilon1: float
    epsilon2: float
    batch: float
    delta_r: float
    delta_l: float
    input: tuple[int, ...]
    hidden: tuple[int, ...]
    output: tuple[int, ...]
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        for name in ("epsilon1", "epsilon2", "batch", "delta_r", "delta_l"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise PlanError(f"{name} must be a number > 0, got {value}")
        if not -math.inf < self.low < self.high < math.inf:
            raise PlanError(f"low must be below high, both finite, got {self.low} and {self.high}")

    def scaled(self, x: Tensor) -> Tensor:
        """Features in [−1, 1], by public constants."""
        return ((x - self.low) * (2 / (self.high - self.low)) - 1).clamp(-1, 1)


@dataclass(frozen=True, kw_only=True)
class Perturbed:
    """Records under noise that all of them share, and the noise itself.

    Attributes:
        x: x̄ = x + χ₁/λ, which protects nothing.
        y: Label positions, as they are.
        input: χ₁/λ, which the published prediction adds to test inputs too.
        hidden: 2χ₂/λ.
        output: χ₃/λ.
    """

    x: Tensor
    y: Tensor
    input: Tensor
    hidden: Tensor
    output: Tensor


class UnsafeExits:
    """`vault.unsafe`: exits without a privacy guarantee."""

    def __init__(self, admission: Admission, ledger: Ledger) -> None:
        self._admission, self._ledger = admission, ledger

    def records(self, block: Block, why: str) -> tuple[Tensor, Tensor]:
        """Releases the raw records of a block: NOT PRIVATE.

        Args:
            block: A block of public data, or any block if the ledger's policy allows unsafe exits.
            why: The reason, which every certificate of the stream states from then on.

        Returns:
            Features and label positions.

        Raises:
            PolicyError: If the block is private and the policy does not allow unsafe exits.
            VaultError: If the block's records are not held.
        """
        if why in (FROM_DATA, SHARED_NOISE):
            raise VaultError(f"{why!r} is the reason of another exit; say in your own words why raw records leave")
        records = self._exposed(block, why)
        return records.features(torch.arange(len(records.rows))), targets(block, records)

    def labels(self, block: Block) -> tuple[Label, ...]:
        """Releases the labels that occur in a block: NOT PRIVATE, since a single record can add one.

        Args:
            block: A block of public data, or any block if the ledger's policy allows unsafe exits.

        Returns:
            The labels, sorted.

        Raises:
            PolicyError: If the block is private and the policy does not allow unsafe exits.
            VaultError: If the block's records are not held.
        """
        return tuple(sorted(set(self._exposed(block, FROM_DATA).y.tolist())))

    def perturbed(self, block: Block, plan: FunctionalPlan, *, dtype: torch.dtype = torch.float32) -> Perturbed:
        """Releases all records under one noise draw that the whole stream shares: NOT PRIVATE.

        Args:
            block: A block of public data, or any block if the ledger's policy allows unsafe exits.
            plan: Scales and shapes of the noise.
            dtype: Floating-point type of the result.

        Returns:
            All records of the block with the shared noise added.

        Raises:
            PolicyError: If the block is private and the policy does not allow unsafe exits.
            VaultError: If the block's records are not held.
        """
        records = self._exposed(block, SHARED_NOISE)
        x = records.features(torch.arange(len(records.rows)))
        keys = self._ledger.keys
        key = keys.subkey(keys.identity_key, "functional mechanism", block.stream)
        over_r, over_l = plan.delta_r / plan.epsilon1 / plan.batch, plan.delta_l / plan.epsilon2 / plan.batch
        scales = ((plan.input, over_r), (plan.hidden, 2 * over_r), (plan.output, over_l))
        input, hidden, output = (
            (laplace(shape, key, number) * scale).to(dtype) for number, (shape, scale) in enumerate(scales)
        )
        return Perturbed(
            x=plan.scaled(x.to(dtype)) + input, y=targets(block, records), input=input, hidden=hidden, output=output
        )

    def _exposed(self, block: Block, why: str) -> Records:
        """The records of a block, after the exposure is durable in the ledger."""
        if not block.public:
            self._ledger.policy.require("allow_unsafe", what=f"an unsafe exit for the records of {block} ({why})")
        self._ledger.expose(block.id, why)
        return self._admission.records(block)


def laplace(shape: tuple[int, ...], key: bytes, counter: int) -> Tensor:
    """Independent Laplace variables of scale 1, in float64; a function of the key and the counter."""
    n = math.prod(shape)
    bits = words(key, counter, 2 * n).to(torch.int64)
    high, low = bits[:n] & 0x7FFFFFFF, bits[n:] & 0x7FFFFFFF
    uniform = (high + (low + 1) * 2.0**-31) * 2.0**-31  # in (0, 1], 62 bits, so that the tail is not cut
    return (-uniform.log() * torch.where(bits[:n] < 0, -1.0, 1.0).double()).view(shape)
