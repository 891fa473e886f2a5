"""Residual networks with GroupNorm: BatchNorm would mix the examples of a batch."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models.parts import dimensions, head, smallest, whole, widths


class Basic(nn.Module):
    """A basic residual block: two 3×3 convolutions, and a 1×1 one on the way around where the size changes."""

    def __init__(self, before: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.GroupNorm(groups, width)
        self.c2, self.n2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.GroupNorm(groups, width)
        self.skip: nn.Module = nn.Identity()
        if before != width or stride != 1:
            self.skip = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.GroupNorm(groups, width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.n2(self.c2(functional.relu(self.n1(self.c1(x)))))
        return functional.relu(h + self.skip(x))


def reduced_resnet18(shape: Sequence[int], classes: int, *, features: Sequence[int] = (20, 40, 80, 160)) -> nn.Module:
    """ResNet-18 with a third of the features (Lopez-Paz & Ranzato 2017), as A-GEM and Desai 2021 use it.

    3×3 stem, no max-pool, two basic blocks for each of the four widths, 4×4 average pool, linear. Groups of 5 features.

    Args:
        shape: Shape of one image: (channels, height, width).
        classes: Number of outputs.
        features: The four widths, multiples of 5.

    Returns:
        The network.

    Raises:
        ConfigError: A width is not valid, or the images have fewer than 25 pixels a side.
    """
    channels, height, width = dimensions("reduced_resnet18", shape, "images of (channels, height, width)", 3)
    smallest("reduced_resnet18", min(height, width), 25, "pixels a side (4 must be left for the last pool)")
    sizes = widths("features", features, 4)
    odd = [size for size in sizes if size % 5]
    if odd:
        raise ConfigError(f"each of features must be a multiple of 5 (the size of a group), got {odd[0]}")
    groups = [size // 5 for size in sizes]
    layers: list[nn.Module] = [
        nn.Conv2d(channels, sizes[0], 3, 1, 1, bias=False),
        nn.GroupNorm(groups[0], sizes[0]),
        nn.ReLU(),
        *_stages(sizes[0], sizes, groups),
    ]
    places = (-(-height // 8) // 4) * (-(-width // 8) // 4)  # halved three times, rounded up; then pooled
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), *head(sizes[-1] * places, (), classes))


def resnet18_lai(
    shape: Sequence[int],
    classes: int,
    *,
    features: Sequence[int] = (64, 64, 128, 128, 160),
    hidden: int = 256,
    groups: int = 16,
) -> nn.Module:
    """The CIFAR network of Phan 2019 and Lai 2022: features 64-64-128-128-160, kernels 4-3-3-3-3, FC 256.

    The papers give no more. Read here as a 4×4 stem that halves the image, then four stages of two basic blocks, each
    but the first halving again, the mean over what is left, and one hidden layer of 256.

    Args:
        shape: Shape of one image: (channels, height, width).
        classes: Number of outputs.
        features: Widths of the stem and of the four stages, multiples of `groups`.
        hidden: Width of the hidden layer.
        groups: Number of groups of each GroupNorm.

    Returns:
        The network.

    Raises:
        ConfigError: A width is not valid, or the images have fewer than 8 pixels a side.
    """
    channels, height, width = dimensions("resnet18_lai", shape, "images of (channels, height, width)", 3)
    smallest("resnet18_lai", min(height, width), 8, "pixels a side")
    stem, *sizes = widths("features", features, 5)
    odd = [size for size in (stem, *sizes) if size % whole("groups", groups)]
    if odd:
        raise ConfigError(f"each of features must be a multiple of groups = {groups}, got {odd[0]}")
    return nn.Sequential(
        nn.Conv2d(channels, stem, 4, 2, 1, bias=False),
        nn.GroupNorm(groups, stem),
        nn.ReLU(),
        *_stages(stem, sizes, [groups] * 4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        *head(sizes[-1], [whole("hidden", hidden)], classes),
    )


def _stages(before: int, sizes: Sequence[int], groups: Sequence[int]) -> list[nn.Module]:
    """Two basic blocks for each width; every stage but the first halves the image."""
    blocks: list[nn.Module] = []
    for stage, (size, count) in enumerate(zip(sizes, groups, strict=True)):
        blocks += [Basic(before, size, 1 if stage == 0 else 2, count), Basic(size, size, 1, count)]
        before = size
    return blocks
