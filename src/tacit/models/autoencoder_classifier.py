"""An auto-encoder under a classifier: the network of Phan et al. 2019 and Lai et al. 2022 (its Fig. 1).

The auto-encoder is tied: it encodes and decodes by the same θ₁. The classifier reads its hidden layer h̄; W is its
last layer. Layers are normalised over the batch that is predicted together, without learned scale or shift, in
training and at test. So rows of a batch are not independent of each other: only methods without privacy can train
these networks, and predictions need large batches. The last hidden layer h_π is normalised and clipped to [−1, 1],
which Δ_L = 2|h_π| needs.

* `Dense` is the text of the papers: h₁ is clipped to [−1, 1], noise is added. They do not say how units stay within the
  clip, nor how the classifier reads what lies under noise of hundreds of times its size. As in the authors' code, units
  are normalised here: before the clip, and again after the noise.
* `Convolutional` is the code of the authors (StoBatch), on which both papers build.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models.parts import ACTIVATIONS, whole

EPSILON = 1e-3
"""Added to variances, as in the authors' code."""
LIMIT = 10.0
"""Clip of the perturbed inputs in the authors' code."""


def normalised(x: Tensor) -> Tensor:
    """Zero mean and unit variance of each channel (of each unit, where the input has no spatial dimensions); this
    removes any component common to all rows."""
    if x.numel() <= x.shape[1]:  # of one value there is no variance
        return x - x
    return functional.batch_norm(x, None, None, training=True, eps=EPSILON)


class Dense(nn.Module):
    """h = clip(normalised(θ₁ᵀx̄)), h̄ = normalised(h + 2χ₂/λ), x̃ = θ₁h̄. As many units as inputs (`units=None`) have the
    records' own shape."""

    def __init__(self, shape: Sequence[int], units: int | None) -> None:
        super().__init__()
        self.shape, inputs = tuple(shape), math.prod(shape)
        self.noise_shape = self.hidden_shape = self.shape if units is None else (whole("hidden", units),)
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

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """h̄ of perturbed records."""
        h = normalised(x.flatten(1) @ self.weight).clamp(-1, 1).view(-1, *self.hidden_shape)
        h = h if noise is None else h + noise
        found: Tensor = normalised(h.flatten(1)).view(-1, *self.hidden_shape)
        return found

    def reconstruction(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """R̄ = Σ_r Σ_s (½ − x̄_rs) x̃_rs (Eq. 13), with the printed gradient Σ_r h̄_r(½ − x̄_rs): h̄ is held constant."""
        decoded: Tensor = self(x, noise).detach().flatten(1) @ self.weight.T
        return ((0.5 - x.flatten(1)) * decoded).sum()


class Convolutional(nn.Module):
    """A convolution that moves by two pixels, as in the authors' code.

    The classifier reads pool(normalised(ReLU(conv(x̄) + b + 2χ₂/λ))), with x̄ clipped to [−10, 10] and the mean of 2×2
    places; the auto-encoder h̄ = clip(normalised(ReLU(conv(x̄) + b))) + 2χ₂/λ. Both are normalised per channel.
    """

    def __init__(self, shape: Sequence[int], features: int, kernel: int) -> None:
        super().__init__()
        if len(shape) not in (2, 3):
            raise ConfigError(
                f"the auto-encoder of the authors' code reads pictures or windows, got records of shape "
                f"{tuple(shape)}; use variant='text'"
            )
        channels, *sides = shape if len(shape) == 3 else (1, *shape)
        self._pad = (whole("kernel", kernel) - 1) // 2
        places = [(side + 2 * self._pad - kernel) // 2 + 1 for side in sides]
        if min(places) < 2:
            raise ConfigError(
                f"a kernel of {kernel} is too large for records of shape {tuple(shape)}; use a smaller one"
            )
        self._picture = (channels, *sides)
        self.noise_shape = (whole("features", features), *places)
        self.hidden_shape = (features, *(n // 2 for n in places))
        self.weight = nn.Parameter(torch.empty(features, channels, kernel, kernel))
        nn.init.uniform_(self.weight, -((channels * kernel**2) ** -0.5), (channels * kernel**2) ** -0.5)
        self.bias = nn.Parameter(torch.full((features,), 1e-4))

    @property
    def sensitivity(self) -> float:
        """Δ_R = (places + 2) · kernel²: (14² + 2) · 25 for MNIST."""
        return float((math.prod(self.noise_shape[1:]) + 2) * math.prod(self.weight.shape[2:]))

    def norm(self) -> float:
        """The largest singular value of the filters."""
        return float(torch.linalg.matrix_norm(self.weight.detach().flatten(1), 2))

    def convolved(self, x: Tensor) -> Tensor:
        picture = x.view(-1, *self._picture)
        return functional.conv2d(picture, self.weight, self.bias, stride=2, padding=self._pad)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """What the classifier reads of perturbed records."""
        h = self.convolved(x.clamp(-LIMIT, LIMIT))
        h = h if noise is None else h + noise
        return functional.avg_pool2d(normalised(functional.relu(h)), 2)

    def reconstruction(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Σ |½x̃ − x̃x̄ + log 2|, of which the whole gradient is taken."""
        h = normalised(functional.relu(self.convolved(x))).clamp(-1, 1)
        decoded = functional.relu(self.decode(h if noise is None else h + noise))
        return (decoded * (0.5 - x.view(-1, *self._picture)) + math.log(2)).abs().sum()

    def decode(self, h: Tensor) -> Tensor:
        """A convolution by the same filters of h, enlarged twofold by repetition; in one step, by larger filters."""
        *_, height, width = self._picture
        size = self.weight.shape[-1]
        enlarged = functional.conv2d(
            self.weight.flip(2, 3).flatten(0, 1)[:, None], self.weight.new_ones(1, 1, 2, 2), padding=1
        ).view(*self.weight.shape[:2], size + 1, size + 1)
        found = functional.conv_transpose2d(h, enlarged, stride=2, padding=size - 1 - self._pad)
        short = (height - found.shape[2], width - found.shape[3])  # a side of odd length, or an even kernel
        return functional.pad(found, (0, short[1], 0, short[0]))


class Stacked(nn.Module):
    """θ₁ is the auto-encoder, θ₂ the classifier: `body` up to the last hidden layer, `head` its W.

    The last hidden layer has no activation but its normalisation and clip. In the text W has no bias.
    """

    def __init__(self, encoder: Dense | Convolutional, classifier: nn.Module) -> None:
        super().__init__()
        if not isinstance(classifier, nn.Sequential) or not isinstance(classifier[-1], nn.Linear):
            raise ConfigError(
                f"the classifier must be an nn.Sequential that ends in nn.Linear, got {type(classifier).__name__}; "
                "mlp, cnn_patches, har_cnn and resnet18_lai are"
            )
        layers = list(classifier.children())[:-1]
        if layers and isinstance(layers[-1], tuple(ACTIVATIONS.values())):
            layers.pop()
        self.encoder, self.body, last = encoder, nn.Sequential(*layers), classifier[-1]
        self.head = nn.Linear(last.in_features, last.out_features, bias=isinstance(encoder, Convolutional))
        self.head.weight.data.copy_(last.weight.data)

    def top(self, hidden: Tensor) -> Tensor:
        """h_π, in [−1, 1]."""
        return normalised(self.body(hidden).flatten(1)).clamp(-1, 1)

    def classify(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.head(self.top(hidden))
        return scores

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        return self.classify(self.encoder(x, noise))
