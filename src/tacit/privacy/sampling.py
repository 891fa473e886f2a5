"""Who takes part: secret Poisson coins, and coins for splits.

Guarantee: every unit is drawn independently with a probability that is at most the declared rate (the rate is
rounded down to a multiple of 2⁻³²), by coins that never leave the vault. A known sampler seed would remove the
amplification by sampling, so there is no way to set one.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.privacy.cipher import encrypted, words


def poisson(key: bytes, step: int, units: int, rate: float) -> Tensor:
    """The positions of the units drawn at `step`; possibly none."""
    if rate >= 1.0:
        return torch.arange(units)
    threshold = int(rate * 2.0**32) - (1 << 31)  # words are signed: [−2³¹, 2³¹)
    return torch.from_numpy(np.flatnonzero(words(key, step, units).numpy() < threshold))


def coins(names: NDArray[np.uint64], key: bytes, rates: list[float]) -> NDArray[np.int64]:
    """One secret coin per unit, by its keyed name alone: which part of a split it goes to (the same on every run).

    Part i is drawn with probability rates[i]; the last part takes what is left by rounding.
    """
    uniform = uniforms(names, key)
    edges = np.cumsum(np.asarray(rates, dtype=np.float64))[:-1]
    return np.searchsorted(edges, uniform, side="right").astype(np.int64)


def uniforms(names: NDArray[np.uint64], key: bytes) -> NDArray[np.float64]:
    """A uniform number for each unit: AES of its keyed name."""
    if names.size == 0:
        return np.empty(0)
    blocks = np.zeros((names.size, 2), dtype=np.uint64)
    blocks[:, 0] = names
    bits = np.frombuffer(encrypted(key, blocks.tobytes()), dtype=np.uint64).reshape(-1, 2)[:, 0]
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
