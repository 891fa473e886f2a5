"""Sampling: secret Poisson coins of a step, and keyed coins for splits.

Formal guarantees
  * Every unit is sampled independently, with a probability of at most the declared rate (the rate is rounded down to a
    multiple of 2⁻³²).
  * The coins never leave the vault. Known coins would remove the privacy amplification by sampling, so there is no seed
    to set.
  * The part of a split that a unit goes to depends on the unit's own keyed name alone.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.privacy.randomness.cipher import encrypted, words


def poisson(key: bytes, step: int, units: int, rate: float) -> Tensor:
    """The positions of the units that are sampled at `step`; possibly none."""
    if rate >= 1.0:
        return torch.arange(units)
    threshold = int(rate * 2.0**32) - (1 << 31)  # words are signed: [−2³¹, 2³¹)
    return torch.from_numpy(np.flatnonzero(words(key, step, units).numpy() < threshold))


def coins(names: NDArray[np.uint64], key: bytes, rates: list[float]) -> NDArray[np.int64]:
    """The part of a split that each unit goes to, by a keyed coin of its own.

    Part i has probability rates[i]; the last part takes what rounding leaves.
    """
    uniform = uniforms(names, key)
    edges = np.cumsum(np.asarray(rates, dtype=np.float64))[:-1]
    return np.searchsorted(edges, uniform, side="right").astype(np.int64)


def uniforms(names: NDArray[np.uint64], key: bytes) -> NDArray[np.float64]:
    """A uniform number in [0, 1) for each unit: AES of its keyed name."""
    if names.size == 0:
        return np.empty(0)
    blocks = np.zeros((names.size, 2), dtype=np.uint64)
    blocks[:, 0] = names
    bits = np.frombuffer(encrypted(key, blocks.tobytes()), dtype=np.uint64).reshape(-1, 2)[:, 0]
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
