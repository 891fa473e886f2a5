"""What a pretrained backbone does to a picture before it looks at it: size, channels, mean and standard deviation.

Each record is prepared by itself, with public constants; nothing is measured on the batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models.parts import whole

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's pixels, channel by channel."""
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
"""What Vision Transformers of Google are trained with: pixels from −1 to 1."""

Constants = tuple[Sequence[float], Sequence[float]]


class Preprocess(nn.Module):
    """Pictures (n, 1 or 3, height, width) of numbers in [0, 1] to (n, 3, size, size), normalised.

    Bicubic: plain where a picture grows, smoothed beforehand (antialias) where a side shrinks, cut to [0, 1] again. A
    grey channel is repeated.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, size: int, constants: Constants) -> None:
        super().__init__()
        self.size = whole("size", size)
        for name, values in zip(("mean", "std"), constants, strict=True):
            self.register_buffer(name, torch.tensor(list(values)).view(1, 3, 1, 1), persistent=False)

    @property
    def key(self) -> str:
        """All that decides what comes out."""
        numbers = ",".join(f"{value:g}" for value in (*self.mean.flatten().tolist(), *self.std.flatten().tolist()))
        return f"bicubic {self.size} {numbers}"

    def check(self, name: str, shape: Sequence[int]) -> None:
        """Refuse records that are no pictures."""
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise ConfigError(
                f"{name} reads pictures of shape (1 or 3, height, width), got records of shape {tuple(shape)}; bring "
                "features of your own, or a module that reads such records (file.py:Class)"
            )

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] == 1:
            x = x.expand(-1, 3, -1, -1)
        if tuple(x.shape[2:]) != (self.size, self.size):
            shrinks = max(x.shape[2:]) > self.size
            size = (self.size, self.size)
            x = functional.interpolate(x, size, mode="bicubic", align_corners=False, antialias=shrinks).clamp(0, 1)
        return (x - self.mean) / self.std
