"""Shared parts of the networks: checks of options, activations, and fully connected layers."""

import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from torch import nn

from tacit.errors import ConfigError
from tacit.words import nearest

Activation = Literal["relu", "tanh"]
ACTIVATIONS: Mapping[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def activation(name: Activation) -> nn.Module:
    """A fresh activation. tanh is bounded, and often better where gradients are clipped (Papernot et al. 2021)."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ConfigError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]()


def whole(name: str, value: object, least: int = 1) -> int:
    """A whole number, or the sentence that says what was wrong with it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ConfigError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def widths(name: str, values: Sequence[int], count: int | None = None) -> tuple[int, ...]:
    """Whole numbers, one for each layer; `count` of them where the network has a fixed depth."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ConfigError(f"{name} must be a list of whole numbers, such as [256, 256], got {values!r}")
    if count is not None and len(values) != count:
        raise ConfigError(f"{name} must have {count} numbers, got {list(values)}")
    return tuple(whole(f"each of {name}", value) for value in values)


def dimensions(network: str, shape: Sequence[int], what: str, count: int) -> tuple[int, ...]:
    """The shape of one record, if it has as many dimensions as the network reads."""
    if len(shape) != count:
        raise ConfigError(
            f"{network} reads {what}, got records of shape {tuple(shape)}; use mlp, which reads any shape"
        )
    return tuple(whole(f"each number of the shape {tuple(shape)}", size) for size in shape)


def smallest(network: str, size: int, least: int, what: str) -> None:
    """Raise if records are too small for the network's pooling."""
    if size < least:
        raise ConfigError(f"{network} needs at least {least} {what}, got {size}; use mlp, which reads any shape")


def head(inputs: int, hidden: Sequence[int], classes: int, act: Activation = "relu") -> list[nn.Module]:
    """Fully connected layers with an activation after each but the last."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), activation(act)]
        inputs = width
    return [*layers, nn.Linear(inputs, whole("classes", classes))]


def zeroed(model: nn.Module) -> nn.Module:
    """The same layers with all parameters set to zero."""
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def construct(
    networks: Mapping[str, Callable[..., nn.Module]],
    name: str,
    shape: Sequence[int],
    classes: int,
    options: Mapping[str, Any],
) -> nn.Module:
    """Build one of `networks` by its name, for records of `shape`.

    Raises:
        ConfigError: The name or an option is unknown; the message names the nearest one that exists.
    """
    if name not in networks:
        raise ConfigError(f"there is no network {name!r}; {nearest(str(name), networks)}")
    make = networks[name]
    known = [key for key, value in inspect.signature(make).parameters.items() if value.kind is value.KEYWORD_ONLY]
    for key in options:
        if key not in known:
            raise ConfigError(f"{name} has no option {key!r}; {nearest(key, known)}")
    return make(shape, classes, **options)
