"""An auto-encoder under a classifier: the network of Phan et al. 2019 and Lai et al. 2022 (its Fig. 1).

The auto-encoder is tied: it encodes and decodes by the same θ₁. The classifier reads the hidden layer, and its last
layer has no bias, as printed. `Convolutional` has the batch-norm of the authors' code, which mixes the examples of a
batch: it can be trained by methods without privacy only.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models.parts import whole


class Dense(nn.Module):
    """h = θ₁ᵀx, x̃ = θ₁h. As many hidden units as inputs (`units=None`) have the records' own shape."""

    def __init__(self, shape: Sequence[int], units: int | None) -> None:
        super().__init__()
        self.shape, inputs = tuple(shape), math.prod(shape)
        self.hidden_shape = self.shape if units is None else (whole("hidden", units),)
        self.weight = nn.Parameter(torch.empty(inputs, math.prod(self.hidden_shape)))
        nn.init.uniform_(self.weight, -(inputs**-0.5), inputs**-0.5)

    @property
    def sensitivity(self) -> float:
        """Δ_R = d(|h₁| + 2), as stated. With inputs in [−1, 1] it is more."""
        inputs, units = self.weight.shape
        return inputs * (units + 2.0)

    def norm(self) -> float:
        """The largest 1-norm of a column of θ₁: of what one hidden unit reads."""
        return float(self.weight.detach().abs().sum(0).max())

    def encode(self, x: Tensor) -> Tensor:
        return (x.flatten(1) @ self.weight).view(-1, *self.hidden_shape)

    def decode(self, h: Tensor) -> Tensor:
        return (h.flatten(1) @ self.weight.T).view(-1, *self.shape)


class Convolutional(nn.Module):
    """As in the authors' code: a convolution that moves by two pixels, and the batch-norm of what it finds; at test,
    too, by the statistics of the rows that are asked about together."""

    def __init__(self, shape: Sequence[int], features: int, kernel: int) -> None:
        super().__init__()
        if len(shape) not in (2, 3):
            raise ConfigError(
                f"the auto-encoder of the authors' code reads pictures or windows, got records of shape "
                f"{tuple(shape)}; use variant='text'"
            )
        self.shape = tuple(shape)
        channels, *sides = shape if len(shape) == 3 else (1, *shape)
        self._pad = (whole("kernel", kernel) - 1) // 2
        places = [(side + 2 * self._pad - kernel) // 2 + 1 for side in sides]
        if min(places) < 1:
            raise ConfigError(
                f"a kernel of {kernel} is too large for records of shape {tuple(shape)}; use a smaller one"
            )
        self._picture = (channels, *sides)
        self._rest = [side - ((n - 1) * 2 - 2 * self._pad + kernel) for side, n in zip(sides, places, strict=True)]
        self.hidden_shape = (whole("features", features), *places)
        self.weight = nn.Parameter(torch.empty(features, channels, kernel, kernel))
        nn.init.uniform_(self.weight, -((channels * kernel**2) ** -0.5), (channels * kernel**2) ** -0.5)
        self.normal = nn.BatchNorm2d(features, affine=False, track_running_stats=False)

    @property
    def sensitivity(self) -> float:
        """Δ_R = (places + 2) · kernel²: (14² + 2) · 25 for MNIST."""
        return float((math.prod(self.hidden_shape[1:]) + 2) * math.prod(self.weight.shape[2:]))

    def norm(self) -> float:
        """The largest 1-norm of a filter."""
        return float(self.weight.detach().abs().flatten(1).sum(1).max())

    def encode(self, x: Tensor) -> Tensor:
        found = functional.conv2d(x.view(-1, *self._picture), self.weight, stride=2, padding=self._pad)
        normal: Tensor = self.normal(found)
        return normal

    def decode(self, h: Tensor) -> Tensor:
        found = functional.conv_transpose2d(h, self.weight, stride=2, padding=self._pad, output_padding=self._rest)
        return found.view(-1, *self.shape)


class Stacked(nn.Module):
    """θ₁ is the auto-encoder, θ₂ the classifier: `body` up to the last hidden layer, `head` its W."""

    def __init__(self, encoder: Dense | Convolutional, classifier: nn.Module) -> None:
        super().__init__()
        if not isinstance(classifier, nn.Sequential) or not isinstance(classifier[-1], nn.Linear):
            raise ConfigError(
                f"the classifier must be an nn.Sequential that ends in nn.Linear, got {type(classifier).__name__}; "
                "mlp, cnn_patches, har_cnn and resnet18_lai are"
            )
        self.encoder, self.body = encoder, classifier[:-1]
        last = classifier[-1]
        self.head = nn.Linear(last.in_features, last.out_features, bias=False)
        self.head.weight.data.copy_(last.weight.data)

    def hidden(self, x: Tensor) -> Tensor:
        """h₁, clipped to [−1, 1]."""
        return self.encoder.encode(x).clamp(-1, 1)

    def classify(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(hidden))
        return scores

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.hidden(x))
