"""Noise after the first layer (PixelDP, Lecuyer et al. 2019): scores whose expectation a small change hardly moves.

Bound: two records within `radius` in the layer's norm are within `radius` in L2 where the noise is added, whatever
was trained: the first layer is divided by a bound of its reach in every pass (Δ_{p,2} ≤ 1 by construction). Noise of
standard deviation σ = √(2 ln(1.25/δ_r))·Δ_{p,2}·radius/ε_r is drawn afresh for every record at every evaluation, so the
expected scores are (ε_r, δ_r)-stable, from which `robustness.certified_accuracy` derives certificates. It says nothing
about the privacy of training records: that is the vault's.

Training: the noise is independent of all data, so the clipped gradients of the records have the sensitivity that they
have without it. The vault seeds torch with a secret of the step (`isolation.dice`), so a step that is
redone after a crash is the same. The bound is a constant to the gradient: a step may grow the weights, and the next
pass scales them back. In evaluation mode a pass answers with the logarithm of the mean probability over `draws`.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.models.convolutional import cnn, cnn_patches
from tacit.models.dense import mlp, tabular_mlp
from tacit.models.lipschitz import Norm, check_layer, known_norm, operator_bound
from tacit.models.parts import construct, whole
from tacit.models.residual import reduced_resnet18, resnet18_lai

Wrapped = Literal["mlp", "tabular_mlp", "cnn", "cnn_patches", "reduced_resnet18", "resnet18_lai"]
WRAPPED: tuple[str, ...] = get_args(Wrapped)
BASES: Mapping[str, Callable[..., nn.Module]] = {
    make.__name__: make for make in (mlp, tabular_mlp, cnn, cnn_patches, reduced_resnet18, resnet18_lai)
}
"""Networks that support the noise layer, by name."""
SHAPERS = (nn.Flatten, nn.Unflatten, nn.Identity)
"""Layers that only reshape their input."""
LEAST = 1e-6
"""Weights with a smaller reach are not scaled up further."""


class Randomised(nn.Module):
    """A network whose answer is the mean of evaluations with fresh Gaussian noise of standard deviation `std`."""

    random_in_eval = True

    def __init__(self, *, norm: Norm, draws: int) -> None:
        super().__init__()
        self.norm, self.draws = known_norm(norm), whole("draws", draws)

    @property
    @abstractmethod
    def std(self) -> float:
        """σ, where a change of a record of length 1 in `norm` has at most length 1 in L2 where the noise is added."""

    @abstractmethod
    def evaluations(self, x: Tensor, number: int) -> Iterator[Tensor]:
        """Yields logits `number` times, each with fresh noise."""

    def answer(self, x: Tensor) -> Tensor:
        """The logarithm of the mean probability over `draws` evaluations."""
        chances = [logits.log_softmax(1) for logits in self.evaluations(x, self.draws)]
        return torch.stack(chances).logsumexp(0) - math.log(self.draws)


class Noisy(Randomised):
    """A network with noise after its first layer."""

    def __init__(
        self, network: nn.Sequential, *, norm: Norm, radius: float, epsilon: float, delta: float, draws: int
    ) -> None:
        super().__init__(norm=norm, draws=draws)
        self.radius, self.epsilon, self.delta = radius, epsilon, delta
        for name, value, most in (("radius", radius, math.inf), ("delta", delta, 1.0)):
            if not 0 < value < most:
                raise ConfigError(f"{name} of the noise layer must be between 0 and {most:g}, got {value}")
        if not 0 < epsilon <= 1:
            raise ConfigError(
                f"epsilon of the noise layer must be > 0 and at most 1, where its formula holds, got {epsilon}; a "
                "smaller radius gives less noise"
            )
        layers = list(network)
        place = next((i for i, layer in enumerate(layers) if not isinstance(layer, SHAPERS)), None)
        if place is None:
            raise ConfigError("a network without layers has no place for noise; give one with a first layer")
        check_layer(layers[place])
        self.before, self.first = nn.Sequential(*layers[:place]), layers[place]
        self.rest = nn.Sequential(*layers[place + 1 :])

    @property
    def std(self) -> float:
        """σ, where the first layer has Δ_{p,2} ≤ 1."""
        return gaussian(self.epsilon, self.delta) * self.radius

    def hidden(self, x: Tensor) -> Tensor:
        """What the noise is added to: within ‖x − x'‖_p of each other for two records."""
        shaped = self.before(x)
        check_layer(self.first)  # a low-rank change beside it would not be covered by the bound
        assert isinstance(self.first, nn.Linear | nn.Conv2d)
        out: Tensor = self.first(shaped)
        return out / operator_bound(self.first, self.norm, shaped, out).clamp(min=LEAST)

    def evaluations(self, x: Tensor, number: int) -> Iterator[Tensor]:
        hidden = self.hidden(x)
        for _ in range(number):
            yield self.rest(hidden + self.std * torch.randn_like(hidden))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return next(self.evaluations(x, 1))
        return self.answer(x)


def gaussian(epsilon: float, delta: float) -> float:
    """Standard deviation over sensitivity of the Gaussian mechanism, √(2 ln(1.25/δ))/ε (Dwork & Roth, Theorem A.1)."""
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def noisy(
    shape: Sequence[int],
    classes: int,
    *,
    wraps: Wrapped = "mlp",
    options: dict[str, Any] | None = None,
    norm: Norm = "l2",
    radius: float = 0.1,
    epsilon: float = 1.0,
    delta: float = 0.05,
    draws: int = 8,
) -> nn.Module:
    """The network `wraps` with noise after its first layer; constants as in PixelDP.

    Args:
        shape: Shape of one record.
        classes: Number of outputs.
        wraps: Name of the network, one of `BASES`.
        options: Options of that network.
        norm: Norm of a change of a record: "l1", "l2" or "linf".
        radius: Norm of the change that the noise is made for.
        epsilon: ε_r, the stability of the expected scores, > 0 and at most 1.
        delta: δ_r, likewise, between 0 and 1.
        draws: Number of evaluations whose probabilities an answer is the mean of.

    Returns:
        The network.

    Raises:
        ConfigError: The network does not support the noise layer, or a value is out of range.
    """
    if wraps not in WRAPPED:
        raise ConfigError(f"noise goes into one of {', '.join(WRAPPED)}, got {wraps!r}")
    made = construct(BASES, wraps, shape, classes, options or {})
    assert isinstance(made, nn.Sequential)
    return Noisy(made, norm=norm, radius=radius, epsilon=epsilon, delta=delta, draws=draws)
