"""Interval bound propagation in the loss of every example (Gowal et al. 2019; Mirman et al. 2018).

In training a network passes on, beside each record, a box that contains every record within `radius` (L∞) and the
public range of features. At the end it knows, for each label y, an upper bound over the box of all logits minus that
of y. The loss of an example is (1 − κ)·loss(logits) + κ·loss(bounds of its label); κ and the radius grow from 0 to
`weight` and `radius` over the share `ramp` of a task's steps. It is one loss of one example, so its gradient is clipped
once and the privacy of training records is what it is without bounds. Outside training the network is the plain one.

Certificates are `robustness.intervals`, which computes bounds anew, in float64 with the error of every rounding.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.gradients.interval_layers import CENTRE, RADIUS, IntervalConv2d, IntervalLinear, WorstCase
from tacit.models.convolutional import cnn, cnn_patches, cnn_strided
from tacit.models.dense import linear, mlp, tabular_mlp
from tacit.models.parts import construct

Wrapped = Literal["mlp", "linear", "tabular_mlp", "cnn", "cnn_patches", "cnn_strided"]
WRAPPED: tuple[str, ...] = get_args(Wrapped)
BASES: Mapping[str, Callable[..., nn.Module]] = {
    make.__name__: make for make in (mlp, linear, tabular_mlp, cnn, cnn_patches, cnn_strided)
}
"""Networks that support bounds, by name."""
SHAPERS = (nn.Flatten, nn.Identity)
"""Layers that only reshape a record."""
MONOTONE = (nn.ReLU, nn.Tanh, nn.MaxPool2d, nn.AvgPool2d)
"""Layers whose outputs never fall where inputs rise, so that they map the ends of a box to ends of a box."""


class Scaled(nn.Module):
    """(x − centre)·scale, with public constants."""

    def __init__(self, centre: float, scale: float) -> None:
        super().__init__()
        self.centre, self.scale = centre, scale

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.centre) * self.scale


Layer = IntervalLinear | IntervalConv2d | WorstCase
M = TypeVar("M", bound=nn.Module)
Loss = Callable[[Any, Tensor], Tensor]


class Interval(nn.Module):
    """A network whose outputs in training are logits, bounds of their differences over a box, and the weight κ."""

    def __init__(
        self,
        network: nn.Sequential,
        *,
        radius: float,
        weight: float,
        ramp: float,
        span: tuple[float, float] | None,
        scaled: Scaled | None = None,
    ) -> None:
        super().__init__()
        for name, value, most in (("weight", weight, 1.0), ("ramp", ramp, 1.0)):
            if not 0 <= value <= most:
                raise ConfigError(f"{name} of interval bounds must be from 0 to {most:g}, got {value}")
        if not 0 < radius < float("inf"):
            raise ConfigError(f"radius of interval bounds must be a number > 0, got {radius}")
        self.radius, self.weight, self.ramp, self.span = radius, weight, ramp, span
        self.progress = 1.0
        """The share of a task's steps that are taken, from which the radius and κ follow; a learner sets it."""
        layers = list(network)
        if not layers or not isinstance(layers[-1], nn.Linear):
            raise ConfigError("the last layer of a network with interval bounds must be a Linear; it makes the logits")
        made = [with_bounds(layer) for layer in layers[:-1]]
        self.layers = nn.Sequential(*([scaled] if scaled else []), *made, like(WorstCase, layers[-1]))

    def forward(self, x: Tensor) -> Any:
        if not self.training:
            return self.layers(x)
        reached = min(1.0, self.progress / self.ramp) if self.ramp else 1.0
        low, high = box(x, reached * self.radius, self.span)
        state = torch.stack([x, (high + low) / 2, (high - low) / 2], 1)
        for layer in self.layers:
            state = through(layer, state)
        return state[:, 0], state[:, 1:], state.new_full((len(x),), reached * self.weight)


def interval(
    shape: Sequence[int],
    classes: int,
    *,
    wraps: Wrapped = "mlp",
    options: dict[str, Any] | None = None,
    radius: float = 0.1,
    weight: float = 0.5,
    ramp: float = 0.5,
    range: Sequence[float] | None = (0.0, 1.0),
    centre: float = 0.0,
    scale: float = 1.0,
) -> nn.Module:
    """The network `wraps` with its worst case in the loss: every record within `radius` (L∞) of a training record.

    Args:
        shape: Shape of one record.
        classes: Number of outputs.
        wraps: Name of the network, one of `BASES`.
        options: Options of that network.
        radius: Radius of the box around a record, on the scale of the features.
        weight: κ, the weight of the loss of the worst case, from 0 to 1.
        ramp: Share of a task's steps over which the radius and κ grow from 0.
        range: Public range of features, which the box does not leave; None if there is none.
        centre: Public constant that is subtracted from features first.
        scale: Public constant by which features are multiplied then.

    Returns:
        The network. In training its output is for `worst_case`, otherwise it is the logits.

    Raises:
        ConfigError: There are no bounds for the network, or a value is out of range.
    """
    if wraps not in WRAPPED:
        raise ConfigError(f"interval bounds go through one of {', '.join(WRAPPED)}, got {wraps!r}")
    made = construct(BASES, wraps, shape, classes, options or {})
    assert isinstance(made, nn.Sequential)
    scaled = None if (centre, scale) == (0.0, 1.0) else Scaled(centre, scale)
    span = None if range is None else as_range(range)
    return Interval(made, radius=radius, weight=weight, ramp=ramp, span=span, scaled=scaled)


def as_range(values: Sequence[float]) -> tuple[float, float]:
    """A smaller and a larger number.

    Raises:
        ConfigError: They are not.
    """
    numbers = isinstance(values, Sequence) and all(isinstance(value, int | float) for value in values)
    if not numbers or len(values) != 2 or not values[0] < values[1]:
        raise ConfigError(f"range of interval bounds must be a smaller and a larger number, got {values!r}")
    return float(values[0]), float(values[1])


def with_bounds(layer: nn.Module) -> nn.Module:
    """The layer for records and boxes, with the same weights.

    Raises:
        ConfigError: There is no rule for this layer.
    """
    if type(layer) is nn.Linear:
        return like(IntervalLinear, layer)
    if type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros":
        return like(IntervalConv2d, layer)
    if isinstance(layer, SHAPERS) or type(layer) in MONOTONE or isinstance(layer, Scaled):
        return layer
    raise ConfigError(
        f"there are no interval bounds through this {type(layer).__name__}; use Linear, Conv2d without groups and with "
        "zeros around the picture, ReLU, Tanh, MaxPool2d, AvgPool2d and Flatten"
    )


def like(kind: type[M], layer: nn.Module) -> M:
    """A layer of another type with the same weights and settings."""
    made = kind.__new__(kind)
    made.__dict__.update(layer.__dict__)
    return made


def box(x: Tensor, radius: float, span: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """The lower and upper ends of all records within `radius` of x and within the range wherever x is."""
    if span is None:
        return x - radius, x + radius
    low = torch.maximum(x - radius, x.clamp(max=span[0]))
    return low, torch.minimum(x + radius, x.clamp(min=span[1]))


def through(layer: nn.Module, state: Tensor) -> Tensor:
    """Records and boxes (B, 3, …) after a layer."""
    if isinstance(layer, Layer):
        out: Tensor = layer(state)
        return out
    if isinstance(layer, Scaled):
        values = layer(state[:, :RADIUS])
        return torch.cat([values, state[:, RADIUS:] * abs(layer.scale)], 1)
    if isinstance(layer, nn.Flatten):
        return state.flatten(2)
    if isinstance(layer, nn.Identity):
        return state
    if type(layer) not in MONOTONE:
        raise ConfigError(f"there are no interval bounds through this {type(layer).__name__}")
    centre, radius = state[:, CENTRE], state[:, RADIUS]
    ends = torch.stack([state[:, 0], centre - radius, centre + radius], 1)
    moved = layer(ends.flatten(0, 1)).unflatten(0, ends.shape[:2])
    low, high = moved[:, 1], moved[:, 2]
    return torch.stack([moved[:, 0], (high + low) / 2, (high - low) / 2], 1)


def worst_case(output: Any, y: Tensor, loss: Loss) -> Tensor:
    """(1 − κ)·loss of the logits + κ·loss of the bounds for the example's label, which are 0 at the label itself."""
    found: Tensor
    logits, bounds, weight = output
    own = bounds.gather(1, y.view(-1, 1, 1).expand(-1, 1, bounds.shape[2])).squeeze(1)
    found = (1 - weight) * loss(logits, y) + weight * loss(own, y)
    return found


def robust_loss(model: nn.Module, loss: Loss) -> Loss:
    """The loss of a network with interval bounds; of other networks, the loss itself."""
    return partial(worst_case, loss=loss) if isinstance(model, Interval) else loss


def with_progress(model: nn.Module, steps: Iterator[int], number: int) -> Iterator[int]:
    """The steps of a task; before each, the progress of a network with interval bounds is set.

    Before and after the task it is 1, so that a grant that is requested again after a crash is the same."""
    if not isinstance(model, Interval):
        yield from steps
        return
    try:
        for step in steps:
            model.progress = step / number
            yield step
            model.progress = 1.0
    finally:
        model.progress = 1.0
