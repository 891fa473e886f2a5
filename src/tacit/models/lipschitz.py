"""The sensitivity of a first layer: an upper bound of ‖W‖_{p,2} = max ‖Wv‖₂ over ‖v‖_p ≤ 1.

Bound: at least the true value, for p = 1, 2 and ∞ (exact for a dense layer with p = 1 or 2; for p = ∞ the exact
value is hard to compute). A convolution with strides is a plain one on as many channels more (polyphase); with zeros
around the record it is a part of one on a torus, whose norm is that of its largest Fourier coefficient (Sedghi et al.
2019). Rounding is covered by `SLACK`.
"""

import math
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError

Norm = Literal["l1", "l2", "linf"]
NORMS: tuple[str, ...] = get_args(Norm)
ORDER = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
SLACK = 1 + 1e-4


def known_norm(norm: str) -> Norm:
    """One of the norms, or the sentence that says which there are."""
    if norm not in NORMS:
        raise ConfigError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")
    return cast(Norm, norm)


def ball(norm: Norm, radius: float) -> str:
    """A ball in words, such as L∞ 0.1."""
    return f"{norm.upper().replace('LINF', 'L∞')} {radius:g}"


def within(norm: Norm, other: Norm, size: int) -> float:
    """The smallest c such that every vector of `size` numbers in the unit ball of one norm is within c in the other."""
    return math.pow(size, max(0.0, 1 / ORDER[other] - 1 / ORDER[norm]))


def check_layer(layer: nn.Module) -> None:
    """Raise if the layer has no known bound."""
    known = isinstance(layer, nn.Linear)
    if isinstance(layer, nn.Conv2d):
        known = layer.groups == 1 and layer.padding_mode == "zeros" and set(layer.dilation) == {1}
    if not known:
        raise ConfigError(
            f"the reach of this {type(layer).__name__} is not known; the first layer must be a Linear, or a Conv2d "
            "without groups and dilation and with zeros around the picture"
        )


def operator_bound(layer: nn.Linear | nn.Conv2d, norm: Norm, x: Tensor, out: Tensor) -> Tensor:
    """The bound for a layer as it is now, as a constant: no gradient passes. `x`, `out`: what went in and came out."""
    weight = layer.weight.detach()
    if isinstance(layer, nn.Conv2d):
        found = _convolution(
            weight, (layer.stride[0], layer.stride[1]), norm, x[0].numel(), (out.shape[2], out.shape[3])
        )
    elif norm == "l1":
        found = weight.norm(dim=0).max()
    elif norm == "l2":
        found = _largest(weight)
    else:
        rows = weight.abs().sum(1).norm()
        found = torch.minimum(rows, math.sqrt(weight.shape[1]) * _largest(weight))
    return SLACK * found


def _convolution(weight: Tensor, stride: tuple[int, int], norm: Norm, inputs: int, places: tuple[int, int]) -> Tensor:
    phases = _polyphase(weight, stride)
    if norm == "l1":
        return phases.square().sum((0, 2, 3)).sqrt().max()
    # As many places as the outputs reach: nothing wraps around among them.
    torus = [place + reach - 1 for place, reach in zip(places, phases.shape[2:], strict=True)]
    waves = torch.fft.rfft2(phases, s=torus).permute(2, 3, 0, 1)
    spectral = _largest(waves)
    if norm == "l2":
        return spectral
    rows = math.sqrt(math.prod(places)) * weight.abs().sum((1, 2, 3)).norm()
    return torch.minimum(rows, math.sqrt(inputs) * spectral)


def _polyphase(weight: Tensor, stride: tuple[int, int]) -> Tensor:
    """The kernel of the same layer with stride 1, on pictures whose pixels are dealt out to channels in turn."""
    outputs, channels, height, width = weight.shape
    high, wide = stride
    padded = nn.functional.pad(weight, (0, -width % wide, 0, -height % high))
    cut = padded.view(outputs, channels, padded.shape[2] // high, high, padded.shape[3] // wide, wide)
    return cut.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


def _largest(matrices: Tensor) -> Tensor:
    """The largest singular value of any of them."""
    adjoint = matrices.transpose(-1, -2).conj()
    small = matrices @ adjoint if matrices.shape[-2] <= matrices.shape[-1] else adjoint @ matrices
    squares: Tensor = torch.linalg.eigvalsh(small)[..., -1]
    return squares.clamp(min=0).max().sqrt()
