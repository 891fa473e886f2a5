"""Convolutional networks without normalisation: images are (channels, height, width), sensor windows (time, axes)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models.parts import Activation, dimensions, head, smallest, whole, widths
from tacit.models.parts import activation as act

FEATURES = (32, 64, 96)
BINS = 10


def cnn(
    shape: Sequence[int],
    classes: int,
    *,
    features: Sequence[int] = FEATURES,
    hidden: int = 512,
    activation: Activation = "relu",
) -> nn.Module:
    """CNN 32-64-96: 5×5 convolutions, a 2×2 max-pool after each, one hidden layer of 512.

    Args:
        shape: Shape of one image: (channels, height, width).
        classes: Number of outputs.
        features: Number of features of each convolution.
        hidden: Width of the hidden layer.
        activation: Activation after each layer but the last.

    Returns:
        The network.

    Raises:
        ConfigError: A size is not valid, or the images are too small for the pools.
    """
    channels, height, width = dimensions("cnn", shape, "images of (channels, height, width)", 3)
    sizes = widths("features", features)
    smallest("cnn", min(height, width), 2 ** len(sizes), "pixels a side (a pool halves them after every convolution)")
    layers: list[nn.Module] = []
    for size in sizes:
        layers += [nn.Conv2d(channels, size, 5, padding=2), act(activation), nn.MaxPool2d(2)]
        channels, height, width = size, height // 2, width // 2
    inputs = channels * height * width
    return nn.Sequential(*layers, nn.Flatten(), *head(inputs, [whole("hidden", hidden)], classes, activation))


def cnn_patches(
    shape: Sequence[int],
    classes: int,
    *,
    features: Sequence[int] = FEATURES,
    hidden: int = 512,
    activation: Activation = "relu",
) -> nn.Module:
    """The MNIST network of Phan 2019 and Lai 2022: 32-64-96 features on 5×5 patches, one hidden layer of 512.

    The papers give no strides; here a patch moves by two pixels, as in the first layer of the authors' code, and
    there are no pools.

    Args:
        shape: Shape of one image: (channels, height, width).
        classes: Number of outputs.
        features: Number of features of each convolution.
        hidden: Width of the hidden layer.
        activation: Activation after each layer but the last.

    Returns:
        The network.

    Raises:
        ConfigError: The shape or a size is not valid.
    """
    channels, height, width = dimensions("cnn_patches", shape, "images of (channels, height, width)", 3)
    layers: list[nn.Module] = []
    for size in widths("features", features):
        layers += [nn.Conv2d(channels, size, 5, stride=2, padding=2), act(activation)]
        channels, height, width = size, (height + 1) // 2, (width + 1) // 2
    inputs = channels * height * width
    return nn.Sequential(*layers, nn.Flatten(), *head(inputs, [whole("hidden", hidden)], classes, activation))


def cnn_strided(shape: Sequence[int], classes: int, *, hidden: int = 32, activation: Activation = "tanh") -> nn.Module:
    """The MNIST network of Papernot et al. 2021 and of DP-CERT (Wu et al. 2023), with 26,010 parameters.

    16 features on 8×8 patches and 32 on 4×4, both with stride 2 and a max-pool of stride 1, one hidden layer of 32.

    Args:
        shape: Shape of one image: (channels, height, width).
        classes: Number of outputs.
        hidden: Width of the hidden layer.
        activation: Activation after each layer but the last.

    Returns:
        The network.

    Raises:
        ConfigError: The width is not valid, or the images have fewer than 16 pixels a side.
    """
    channels, height, width = dimensions("cnn_strided", shape, "images of (channels, height, width)", 3)
    smallest("cnn_strided", min(height, width), 16, "pixels a side")
    layers: list[nn.Module] = []
    for size, patch, padding in ((16, 8, 2), (32, 4, 0)):
        layers += [nn.Conv2d(channels, size, patch, stride=2, padding=padding), act(activation), nn.MaxPool2d(2, 1)]
        channels = size
        height, width = ((side + 2 * padding - patch) // 2 for side in (height, width))
    inputs = channels * height * width
    return nn.Sequential(*layers, nn.Flatten(), *head(inputs, [whole("hidden", hidden)], classes, activation))


def har_cnn(
    shape: Sequence[int],
    classes: int,
    *,
    features: Sequence[int] = FEATURES,
    hidden: int = 128,
    activation: Activation = "relu",
) -> nn.Module:
    """The activity network of Lai 2022: a window (100 × 3) as an image, 32-64-96 features on 2×2 patches, FC 128.

    The paper gives no pools; here time is halved after each convolution, and the axes stay as they are.

    Args:
        shape: Shape of one window: (time, axes).
        classes: Number of outputs.
        features: Number of features of each convolution.
        hidden: Width of the hidden layer.
        activation: Activation after each layer but the last.

    Returns:
        The network.

    Raises:
        ConfigError: A size is not valid, or the windows are too short for the pools.
    """
    length, axes = dimensions("har_cnn", shape, "sensor windows of (time, axes)", 2)
    sizes = widths("features", features)
    smallest("har_cnn", length, 2 ** len(sizes), "samples a window (a pool halves them after every convolution)")
    layers: list[nn.Module] = [nn.Unflatten(1, (1, length))]
    channels = 1
    for size in sizes:
        # An even patch cannot be centred: one line of zeros at the end keeps the size.
        layers += [nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(channels, size, 2), act(activation), nn.MaxPool2d((2, 1))]
        channels, length = size, length // 2
    inputs = channels * length * axes
    return nn.Sequential(*layers, nn.Flatten(), *head(inputs, [whole("hidden", hidden)], classes, activation))


def cnn1d(
    shape: Sequence[int],
    classes: int,
    *,
    features: Sequence[int] = FEATURES,
    hidden: int = 128,
    kernel: int = 5,
    activation: Activation = "relu",
) -> nn.Module:
    """For sensor windows: convolutions over time that read all axes at once, each followed by a max-pool of 2.

    Args:
        shape: Shape of one window: (time, axes).
        classes: Number of outputs.
        features: Number of features of each convolution.
        hidden: Width of the hidden layer.
        kernel: Number of samples that a convolution reads; odd.
        activation: Activation after each layer but the last.

    Returns:
        The network.

    Raises:
        ConfigError: A size is not valid, the kernel is even, or the windows are too short for the pools.
    """
    length, channels = dimensions("cnn1d", shape, "sensor windows of (time, axes)", 2)
    sizes = widths("features", features)
    smallest("cnn1d", length, 2 ** len(sizes), "samples a window (a pool halves them after every convolution)")
    reach = whole("kernel", kernel)
    if reach % 2 == 0:
        raise ConfigError(f"kernel must be odd, so that it has a middle, got {kernel}; use {kernel + 1}")
    layers: list[nn.Module] = [AxesFirst()]
    for size in sizes:
        layers += [nn.Conv1d(channels, size, reach, padding=reach // 2), act(activation), nn.MaxPool1d(2)]
        channels, length = size, length // 2
    inputs = channels * length
    return nn.Sequential(*layers, nn.Flatten(), *head(inputs, [whole("hidden", hidden)], classes, activation))


def cnn_ignatov(
    shape: Sequence[int],
    classes: int,
    *,
    features: int = 196,
    hidden: int = 1024,
    kernel: int = 12,
    statistics: bool = True,
) -> nn.Module:
    """The shallow activity network of Ignatov 2018, a baseline of Lai 2022 (CNN-Ig; featureless without `statistics`).

    One convolution over time, of the window less its mean, with 196 filters of 12 samples, a pool of 4, one hidden
    layer of 1,024; beside the pooled filters, statistics of the whole window (`Ignatov.described`). Two parts of the
    author's code are left out, because they read the whole training set or draw at random: statistics are on public
    scales, not standardised, and there is no dropout.

    Args:
        shape: Shape of one window: (time, axes).
        classes: Number of outputs.
        features: Number of filters.
        hidden: Width of the hidden layer.
        kernel: Number of samples that a filter reads.
        statistics: Whether the hidden layer also reads the statistics of the window.

    Returns:
        The network.

    Raises:
        ConfigError: A size is not valid, or the windows have fewer than 4 samples.
    """
    length, axes = dimensions("cnn_ignatov", shape, "sensor windows of (time, axes)", 2)
    smallest("cnn_ignatov", length, 4, "samples a window (its pool takes four at a time)")
    local = Ignatov(axes, whole("features", features), whole("kernel", kernel), bool(statistics))
    inputs = features * (length // 4) + (axes * (3 + BINS) + 1 if statistics else 0)
    return nn.Sequential(local, *head(inputs, [whole("hidden", hidden)], classes))


class Ignatov(nn.Module):
    """Pooled filters of a window, and its statistics."""

    def __init__(self, axes: int, features: int, kernel: int, statistics: bool) -> None:
        super().__init__()
        self.statistics = statistics
        self.pad = nn.ZeroPad1d(((kernel - 1) // 2, kernel // 2))
        self.conv = nn.Conv1d(axes, features, kernel)

    def forward(self, x: Tensor) -> Tensor:
        centred = (x - x.mean(1, keepdim=True)).transpose(1, 2)
        local = functional.max_pool1d(functional.relu(self.conv(self.pad(centred))), 4).flatten(1)
        return torch.cat([local, self.described(x)], 1) if self.statistics else local

    def described(self, x: Tensor) -> Tensor:
        """Of each axis the mean, the standard deviation, the mean absolute deviation and a histogram of ten bins
        between its extremes; and the mean length of the vector of axes: 40 numbers for three axes."""
        mean = x.mean(1)
        away = x - mean[:, None]
        low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
        bins = ((x - low) / (high - low).clamp_min(1e-9) * BINS).floor().clamp(0, BINS - 1)
        shares = torch.stack([(bins == number).to(x.dtype).mean(1) for number in range(BINS)], 2)
        spread = (away.square().mean(1) + 1e-12).sqrt()
        length = (x.square().sum(2) + 1e-12).sqrt().mean(1, keepdim=True)
        return torch.cat([mean, spread, away.abs().mean(1), length, shares.flatten(1)], 1)


class AxesFirst(nn.Module):
    """(batch, time, axes) to (batch, axes, time), as convolutions over time want it."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)
