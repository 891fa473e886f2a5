"""Randomised smoothing (Cohen et al. 2019): Gaussian noise on the record, in training and in every answer.

Bound: the mean score over all noise changes little where the record changes little in L2, whatever was trained, so
that a certificate follows from draws (`robustness.certified_accuracy`, bound="smoothing"). It says nothing about the
privacy of training records: that is the vault's.

Training (Wu et al. 2023, DP-CERT): each record is seen as `copies` noisy copies. Its loss is their mean, and the
gradient of the mean is clipped once, so that copies cost no privacy. As in `models.noisy`, the vault draws the noise
from a secret seed of the step.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.gradients.interval_layers import CopiesConv2d, CopiesLinear
from tacit.models.interval import BASES, MONOTONE, SHAPERS, WRAPPED, Wrapped, like
from tacit.models.noisy import Randomised
from tacit.models.parts import construct, whole

Loss = Callable[[Any, Tensor], Tensor]


class Smoothed(Randomised):
    """A network that reads records with Gaussian noise of standard deviation `std` on every feature."""

    def __init__(self, network: nn.Sequential, *, std: float, copies: int, draws: int) -> None:
        super().__init__(norm="l2", draws=draws)
        if not 0 < std < float("inf"):
            raise ConfigError(f"std of the smoothing noise must be a number > 0, got {std}")
        self.noise, self.copies = std, whole("copies", copies)
        self.layers = nn.Sequential(*(for_copies(layer) for layer in network))

    @property
    def std(self) -> float:
        return self.noise

    def evaluations(self, x: Tensor, number: int) -> Iterator[Tensor]:
        for _ in range(number):
            yield self.layers(x + self.noise * torch.randn_like(x))

    def forward(self, x: Tensor) -> Tensor:
        """In training, the logits of each copy: (records, copies, labels)."""
        if not self.training:
            return self.answer(x)
        state = x.unsqueeze(1).expand(-1, self.copies, *x.shape[1:])
        state = state + self.noise * torch.randn_like(state)
        for layer in self.layers:
            state = each_copy(layer, state)
        return state


def smoothed(
    shape: Sequence[int],
    classes: int,
    *,
    wraps: Wrapped = "mlp",
    options: dict[str, Any] | None = None,
    std: float = 0.25,
    copies: int = 4,
    draws: int = 32,
) -> nn.Module:
    """The network `wraps` with Gaussian noise on its inputs.

    Args:
        shape: Shape of one record.
        classes: Number of outputs.
        wraps: Name of the network, one of `BASES`.
        options: Options of that network.
        std: Standard deviation of the noise; certified L2 radii are in proportion to it.
        copies: Number of noisy copies of a record in one gradient.
        draws: Number of evaluations whose probabilities an answer is the mean of.

    Returns:
        The network.

    Raises:
        ConfigError: The network does not support noisy inputs, or a value is out of range.
    """
    if wraps not in WRAPPED:
        raise ConfigError(f"smoothing noise goes into one of {', '.join(WRAPPED)}, got {wraps!r}")
    made = construct(BASES, wraps, shape, classes, options or {})
    assert isinstance(made, nn.Sequential)
    return Smoothed(made, std=std, copies=copies, draws=draws)


def for_copies(layer: nn.Module) -> nn.Module:
    """The layer for copies of records, with the same weights.

    Raises:
        ConfigError: There is no rule for this layer.
    """
    if type(layer) is nn.Linear:
        return like(CopiesLinear, layer)
    if type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros":
        return like(CopiesConv2d, layer)
    if isinstance(layer, SHAPERS) or type(layer) in MONOTONE:
        return layer
    raise ConfigError(f"noisy copies do not go through this {type(layer).__name__}; use the layers of mlp and cnn")


def each_copy(layer: nn.Module, state: Tensor) -> Tensor:
    """Copies of records (B, T, …) after a layer."""
    if isinstance(layer, nn.Flatten):
        return state.flatten(2)
    if isinstance(layer, CopiesLinear | CopiesConv2d | nn.Identity):
        out: Tensor = layer(state)
        return out
    moved: Tensor = layer(state.flatten(0, 1))
    return moved.view(*state.shape[:2], *moved.shape[1:])


def mean_over_copies(output: Tensor, y: Tensor, loss: Loss) -> Tensor:
    """The mean of the losses of an example's copies."""
    each = loss(output.flatten(0, 1), y.repeat_interleave(output.shape[1]))
    return each.view(output.shape[:2]).mean(1)


def smoothed_loss(model: nn.Module, loss: Loss) -> Loss:
    """The loss of a network that reads noisy copies; of other networks, the loss itself."""
    return partial(mean_over_copies, loss=loss) if isinstance(model, Smoothed) else loss
