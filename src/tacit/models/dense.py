"""Fully connected networks. They read records of any shape, flattened, unless they say otherwise."""

import math
from collections.abc import Sequence

from torch import nn

from tacit.models.parts import Activation, dimensions, head, whole, widths, zeroed


def mlp(
    shape: Sequence[int], classes: int, *, hidden: Sequence[int] = (256, 256), activation: Activation = "relu"
) -> nn.Module:
    """Hidden layers of the given widths. 784-256-256-10, as in A-GEM and Desai 2021, has 269,322 parameters."""
    inputs = math.prod(whole(f"each number of the shape {tuple(shape)}", size) for size in shape)
    return nn.Sequential(nn.Flatten(), *head(inputs, widths("hidden", hidden), classes, activation))


def linear(shape: Sequence[int], classes: int, *, zero: bool = False) -> nn.Module:
    """Multinomial logistic regression; what one trains on the features of a frozen backbone.

    `zero`: weights start at zero, so that the first gradient is that of the class means and no chance is in the start.
    """
    made = mlp(shape, classes, hidden=())
    return zeroed(made) if zero else made


def tabular_mlp(
    shape: Sequence[int], classes: int, *, hidden: Sequence[int] = (128, 64), activation: Activation = "tanh"
) -> nn.Module:
    """For rows of columns: small, because noise grows with every parameter, and bounded by tanh.

    Columns should be scaled by public constants beforehand; there is no statistic of the batch in here.
    """
    return mlp(dimensions("tabular_mlp", shape, "rows of columns", 1), classes, hidden=hidden, activation=activation)
