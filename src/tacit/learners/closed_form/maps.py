"""The feature maps of `LifelongDP`: public or released maps from records to L2-normalised features.

Random ReLU features are relu(uW) minus their public mean, L2-normalised, where u is the record with an appended
constant (which preserves its norm), L2-normalised, and W is drawn from the learner's public seed. A record may first be
mapped to its spectrum (sensor windows: invariant to shifts of the window) or through an encoder.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from tacit.errors import LearnerError
from tacit.learners.base.frozen_features import FeatureMap, UnitNorm, feature_map
from tacit.words import close

BESIDE = 0.5
"""The constant appended to a record."""
NAMES = ("relu", "fourier", "spectrum", "encoder")


class Spectrum(nn.Module):
    """Windows (time, axes): the mean of each axis, and how much the axes and their length swing in bands of frequency,
    which are as wide as a quarter of where they begin."""

    def __init__(self, time: int, axes: int) -> None:
        super().__init__()
        self.edges = [0]
        while self.edges[-1] < time // 2:
            self.edges.append(min(time // 2, max(self.edges[-1] + 1, round(1.25 * self.edges[-1]))))
        self.size = axes + (axes + 1) * (len(self.edges) - 1)

    def forward(self, x: Tensor) -> Tensor:
        moving = torch.cat([x, x.square().sum(2, keepdim=True).sqrt()], 2)
        waves = torch.fft.rfft(moving - moving.mean(1, keepdim=True), dim=1).abs()[:, 1:] / math.sqrt(x.shape[1])
        bands = [waves[:, first:last].square().sum(1).sqrt() for first, last in pairwise(self.edges)]
        return torch.cat([x.mean(1), *bands], 1)


class Encoder(nn.Module):
    """The linear auto-encoder x̃ = θθᵀx with θᵀθ = I, seen from its middle. θ is 0 until it is `trained`."""

    theta: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.unit = UnitNorm()
        self.register_buffer("theta", torch.zeros(size, width))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.unit(x) @ self.theta
        return found

    def trained(self, total: Tensor, moment: Tensor) -> None:
        """Minimise R̃(θ) = Σ (½ − x)ᵀθθᵀx, which is tr θᵀ(½1sᵀ − C)θ: its minimum is where these coefficients are
        smallest. `total`: s = Σx, `moment`: C = Σxxᵀ, both noisy."""
        half = torch.outer(torch.full_like(total, 0.5), total)
        values, basis = torch.linalg.eigh(moment - (half + half.T) / 2)
        self.theta.copy_(basis[:, values.argsort(descending=True)[: self.theta.shape[1]]])


class RandomFeatures(nn.Module):
    """L2-normalised random features of the output of `first`."""

    weights: Tensor
    offsets: Tensor

    def __init__(self, first: nn.Module, size: int, width: int, kind: str, seed: int) -> None:
        super().__init__()
        self.first, self.unit, self.width, self.kind = first, UnitNorm(), width, kind
        coins = torch.Generator().manual_seed(seed)
        self.register_buffer("weights", torch.randn(size + 1, width, generator=coins))
        self.register_buffer("offsets", 2 * math.pi * torch.rand(width, generator=coins))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.first(x).flatten(1)
        rows = self.unit(torch.cat([rows, torch.full_like(rows[:, :1], BESIDE)], 1)) @ self.weights
        found = (rows + self.offsets).cos() if self.kind == "fourier" else rows.relu() - 1 / math.sqrt(2 * math.pi)
        unit: Tensor = self.unit(found)
        return unit


def build_map(
    features: str | nn.Module | None, shape: Sequence[int], *, width: int, encoder_width: int, seed: int
) -> RandomFeatures | FeatureMap:
    """The map for one of `NAMES`, or for a public backbone (its name, or a module that returns features)."""
    if features not in NAMES:
        if isinstance(features, str) and (meant := close(features, NAMES)):
            raise LearnerError(f"features = {features!r} is none of {', '.join(NAMES)}; did you mean {meant[0]}?")
        return feature_map(features, shape)
    size = math.prod(shape)
    first: nn.Module = nn.Identity()
    if features == "spectrum":
        if len(shape) != 2:
            raise LearnerError(
                f"features='spectrum' looks at windows of (time, axes), and records have the shape {tuple(shape)}; "
                "use features='relu'"
            )
        if shape[0] < shape[1]:
            raise LearnerError(
                f"features='spectrum' looks at windows of (time, axes), and {tuple(shape)} has fewer times than axes; "
                "store windows with time first, or use features='relu'"
            )
        first = Spectrum(*shape)
        size = first.size
    if features == "encoder":
        first, size = Encoder(size, min(encoder_width, size)), min(encoder_width, size)
    kind = "fourier" if features == "fourier" else "relu"
    return RandomFeatures(first, size, width, kind, seed).eval()
