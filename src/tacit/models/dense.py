"""Fully connected networks. They read records of any shape, flattened, unless they say otherwise."""

import math
from collections.abc import Sequence

from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.models.parts import Activation, dimensions, head, whole, widths, zeroed


class Rescaled(nn.Module):
    """Each record by itself, by a fixed public rule: minus its own mean, or of one length, or both.

    All gradients of the first layer are as long as the record that they come from. If records are equally long, none
    loses more to clipping than others; if they have no common mean, no share of the clip is spent on it.
    """

    def __init__(self, *, centred: bool, length: float | None) -> None:
        super().__init__()
        self.centred, self.length = centred, length

    def forward(self, x: Tensor) -> Tensor:
        rows = x - x.mean(1, keepdim=True) if self.centred else x
        return rows if self.length is None else self.length * nn.functional.normalize(rows, dim=1)

    def extra_repr(self) -> str:
        return f"centred={self.centred}, length={self.length}"


def mlp(
    shape: Sequence[int],
    classes: int,
    *,
    hidden: Sequence[int] = (256, 256),
    activation: Activation = "relu",
    centred: bool = False,
    length: float | None = None,
) -> nn.Module:
    """Hidden layers of the given widths. 784-256-256-10, as in A-GEM and Desai 2021, has 269,322 parameters.

    Args:
        shape: Shape of one record.
        classes: Number of outputs.
        hidden: Width of each hidden layer.
        activation: Activation after each hidden layer.
        centred: Subtract from each record its own mean.
        length: Scale each record to this Euclidean norm. None: leave it as it is.

    Returns:
        The network.

    Raises:
        ConfigError: A width or the length is impossible.
    """
    inputs = math.prod(whole(f"each number of the shape {tuple(shape)}", size) for size in shape)
    return nn.Sequential(
        nn.Flatten(), *rescaled(centred, length), *head(inputs, widths("hidden", hidden), classes, activation)
    )


def rescaled(centred: bool, length: float | None) -> list[nn.Module]:
    """The layer `Rescaled`; none if there is nothing to do."""
    if length is not None and not 0 < length < math.inf:
        raise ConfigError(f"length must be a number > 0, or null to leave records as they are, got {length}; try 8")
    return [Rescaled(centred=centred, length=length)] if centred or length is not None else []


def linear(shape: Sequence[int], classes: int, *, zero: bool = False) -> nn.Module:
    """Multinomial logistic regression, as it is trained on the features of a frozen backbone.

    Args:
        shape: Shape of one record.
        classes: Number of outputs.
        zero: Whether weights start at zero, so that the first gradient is that of the class means and the start does
            not depend on chance.

    Returns:
        The network.
    """
    made = mlp(shape, classes, hidden=())
    return zeroed(made) if zero else made


def tabular_mlp(
    shape: Sequence[int], classes: int, *, hidden: Sequence[int] = (128, 64), activation: Activation = "tanh"
) -> nn.Module:
    """For rows of columns: small, because noise grows with every parameter, and bounded by tanh.

    Columns should be scaled by public constants beforehand: the network computes no statistics of the batch.

    Args:
        shape: Shape of one row: (columns,).
        classes: Number of outputs.
        hidden: Width of each hidden layer.
        activation: Activation after each hidden layer.

    Returns:
        The network.

    Raises:
        ConfigError: The shape or a width is not valid.
    """
    return mlp(dimensions("tabular_mlp", shape, "rows of columns", 1), classes, hidden=hidden, activation=activation)
