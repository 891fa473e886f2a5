"""The scattering transform (Bruna & Mallat 2013): a fixed wavelet transform as a backbone; nothing in it was trained.

With Morlet wavelets ψ of J = 2 scales and 8 angles and a Gaussian window φ, each channel x of a picture gives 81 maps:
    S₀ = x ∗ φ                                  1
    S₁ = |x ∗ ψ_{j,θ}| ∗ φ                      2 · 8     j = 0, 1
    S₂ = ||x ∗ ψ_{0,θ}| ∗ ψ_{1,θ'}| ∗ φ         8 · 8
The filters are those of Mallat's group, also used by Tramèr & Boneh (2021) under DP-SGD: ψ_{j,θ} has the frequency
3π/4 · 2⁻ʲ, a standard deviation of 0.8 · 2ʲ pixels along its wave and twice that across, and mean 0; φ has 0.8 · 2ᴶ⁻¹.
Pictures are continued by reflection. Paths of scale 1 are evaluated at every second pixel. Each map is averaged over
the cells of a grid of at most 4 × 4; then the maps of a picture are normalised in groups of nine (27 groups for three
channels, as Tramèr & Boneh do), and the record is scaled to length 1.

`scattering-mirrored` is for pictures whose mirror image is as likely, such as photographs, and not for digits or text.
The mirror image of a picture has the mirrored path (θ becomes π − θ) at the mirrored place, up to half a pixel in paths
that are evaluated at every second one. The mean of both is as good for a linear classifier of such pictures, and has
half as many features: private sums of them have half the noise.

A record is treated by itself: nothing is measured on a batch, nothing is random, and there are no weights. The
arithmetic is float32 on every device, whatever autocast says.
"""

import math
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models.backbone_parts import MIRRORED, Parts
from tacit.models.parts import whole

SCALES, ANGLES, GRID = 2, 8, 4
MAPS = 1 + SCALES * ANGLES + ANGLES**2
"""Of each channel."""
GROUP = 9
"""Maps that are normalised together: S₀ with the finest S₁, then eight groups of the other 72."""
CELL = 2**SCALES
"""Pixels that a value of the window φ stands for, and the margin of a picture."""
SMALLEST = 2 * CELL
FREQUENCY, DEVIATION, STRETCH = 3 * math.pi / 4, 0.8, 2.0
ALIASES = 2
"""So many periods of the frequency plane are added up to each side; those beyond are below float32."""
LEAST_VARIANCE = 1e-5
"""Added to the variance of a group: a flat picture stays flat."""


class Scattering(nn.Module):
    """Pictures (n, channels, height, width) in [0, 1] to unit-norm features (n, width)."""

    wavelets: Tensor
    rows: Tensor
    columns: Tensor
    rows_at_every_second: Tensor
    columns_at_every_second: Tensor
    pairs: Tensor | None

    def __init__(self, channels: int, height: int, width: int, *, mirrored: bool = False) -> None:
        super().__init__()
        self.channels, self.margins = channels, (*_margins(width), *_margins(height))
        left, right, above, below = self.margins
        size = (above + height + below, left + width + right)
        filters = [
            torch.stack([morlet(*size, scale, angle * math.pi / ANGLES) for angle in range(ANGLES)])
            for scale in range(SCALES)
        ]
        self.register_buffer("wavelets", torch.stack(filters).float())
        for name, extent, before, full in (("rows", height, above, size[0]), ("columns", width, left, size[1])):
            self.register_buffer(name, window_means(extent, before, full, 1).float())
            self.register_buffer(f"{name}_at_every_second", window_means(extent, before, full, 2).float())
        pairs = mirror_pairs(len(self.rows), len(self.columns))
        self.register_buffer("pairs", pairs if mirrored else None)
        self.width = channels * (pairs.shape[1] if mirrored else MAPS * len(self.rows) * len(self.columns))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            maps = functional.group_norm(self.maps(x.float()), self.channels * MAPS // GROUP, eps=LEAST_VARIANCE)
            values = maps.view(len(x), self.channels, -1)
            return functional.normalize(self._symmetric(values).flatten(1), dim=1)

    def maps(self, x: Tensor) -> Tensor:
        """(n, channels · 81, grid, grid), channel by channel: S₀, S₁ by scale and angle, S₂ by both angles."""
        n, channels = x.shape[:2]
        padded = functional.pad(x, self.margins, mode="reflect").view(n * channels, 1, *self.wavelets.shape[2:])
        spectrum = torch.fft.fft2(padded)
        first = [modulus(spectrum, self.wavelets[0], 1), modulus(spectrum, self.wavelets[1], 2)]
        spectra = torch.fft.fft2(first[0]).unsqueeze(2)
        # One second angle at a time: what is computed at once stays in a core's cache.
        second = [self._coarse(modulus(spectra, wavelet, 2).flatten(1, 2)) for wavelet in self.wavelets[1]]
        maps = [self._fine(padded), self._fine(first[0]), self._coarse(first[1]), torch.stack(second, 2).flatten(1, 2)]
        return torch.cat(maps, 1).view(n, channels * MAPS, len(self.rows), len(self.columns))

    def _fine(self, maps: Tensor) -> Tensor:
        return self.rows.to(maps.dtype) @ (maps @ self.columns.T.to(maps.dtype))

    def _coarse(self, maps: Tensor) -> Tensor:
        return self.rows_at_every_second.to(maps.dtype) @ (maps @ self.columns_at_every_second.T.to(maps.dtype))

    def _symmetric(self, values: Tensor) -> Tensor:
        """The mean of values and their mirror images, in orthonormal coordinates; all values if not `mirrored`."""
        if self.pairs is None:
            return values
        one, other = self.pairs
        return (values[..., one] + values[..., other]) * torch.where(one == other, 0.5, 0.5**0.5)


def scattering(name: str, shape: Sequence[int] | None, size: int | None = None) -> Parts:
    """The transform of this name for pictures of this shape.

    Raises:
        ConfigError: The shape is not that of a picture, or is not given; or a size is.
    """
    if size is not None:
        raise ConfigError(f"{name} reads pictures of any size as they are, got size = {size}; leave size out")
    if shape is None:
        raise ConfigError(f"{name} needs the shape of a picture; give backbone(…, shape=(3, 32, 32))")
    if len(shape) != 3 or min(shape[1:]) < SMALLEST:
        raise ConfigError(
            f"{name} reads pictures of shape (channels, height, width) with at least {SMALLEST} × {SMALLEST} pixels, "
            f"got records of shape {tuple(shape)}; declare the shape of a picture, or leave {name} out"
        )
    channels, height, width = (whole(f"each number of the shape {tuple(shape)}", number) for number in shape)
    body = Scattering(channels, height, width, mirrored=name == MIRRORED)
    return Parts(body=body, prepare=None, width=body.width, source=f"{name} {channels} {height} {width} version 1")


def morlet(height: int, width: int, scale: int, angle: float) -> Tensor:
    """The spectrum of the periodic wavelet ψ_{scale,angle} on a picture of this size: real, 0 at frequency 0."""
    spread, frequency = DEVIATION * 2**scale, FREQUENCY / 2**scale
    down, right = (2 * math.pi * torch.fft.fftfreq(count, dtype=torch.float64) for count in (height, width))
    shifts = 2 * math.pi * torch.arange(-ALIASES, ALIASES + 1, dtype=torch.float64)
    vertical, horizontal = (down[:, None] + shifts)[:, None, :, None], (right[:, None] + shifts)[None, :, None, :]
    along = horizontal * math.cos(angle) + vertical * math.sin(angle)
    across = vertical * math.cos(angle) - horizontal * math.sin(angle)
    quiet = (-0.5 * (STRETCH * spread * across).square()).exp()
    wave: Tensor = (quiet * (-0.5 * (spread * (along - frequency)).square()).exp()).sum((2, 3))
    envelope: Tensor = (quiet * (-0.5 * (spread * along).square()).exp()).sum((2, 3))
    return wave - wave[0, 0] / envelope[0, 0] * envelope


def modulus(spectra: Tensor, wavelets: Tensor, step: int) -> Tensor:
    """|signal ∗ wavelet| at every `step`-th pixel, from spectra: folding a spectrum is sampling its signal."""
    product = spectra * wavelets.to(spectra.dtype)  # two complex factors are much quicker than a complex and a real one
    if step > 1:
        product = reduce(torch.add, product.chunk(step, -2))
        product = reduce(torch.add, product.chunk(step, -1)) / step**2
    found: Tensor = torch.fft.ifft2(product).abs()
    return found


def window_means(extent: int, before: int, full: int, step: int) -> Tensor:
    """Means over cells of a line ∗ φ, as a matrix (cells, full/step), from every `step`-th of its `full` values.

    The line has `extent` values of the picture after a margin of `before`; every row of the matrix adds up to 1.
    """
    spread = DEVIATION * 2 ** (SCALES - 1)
    distance = torch.arange(full)[:, None] - torch.arange(0, full, step)
    around = torch.remainder(distance + full // 2, full) - full // 2
    window = (-0.5 * (around.double() / spread).square()).exp()
    window = (window / window.sum(1, keepdim=True))[before : before + extent]
    cells = min(GRID, extent // CELL)
    return functional.adaptive_avg_pool1d(window.T[None], cells)[0].T


def mirror_pairs(rows: int, columns: int) -> Tensor:
    """Positions of a channel's values and of their mirror images, (2, pairs): each pair once, flattened as maps are."""
    places = torch.arange(MAPS * rows * columns).view(MAPS, rows, columns)
    angles = [-angle % ANGLES for angle in range(ANGLES)]
    first = [1 + ANGLES * scale + angle for scale in range(SCALES) for angle in angles]
    second = [1 + ANGLES * SCALES + ANGLES * angle + other for angle in angles for other in angles]
    images = places[[0, *first, *second]].flip(2)
    return torch.stack([places[places <= images], images[places <= images]])


def _margins(extent: int) -> tuple[int, int]:
    """Pixels that are reflected before and after a line: at least a cell, and a multiple of a cell in all."""
    return CELL, CELL + -extent % CELL
