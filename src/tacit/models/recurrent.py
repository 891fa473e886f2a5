"""Recurrent networks for sensor windows (time, axes)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacit.models.parts import dimensions, head, smallest, whole


def bilstm(shape: Sequence[int], classes: int, *, features: int = 64, hidden: int = 128) -> nn.Module:
    """A bidirectional LSTM: what both directions have at their ends, then one hidden layer (a baseline of Lai 2022).

    The paper gives no sizes. Its gradients are clipped by the generic rule, one example at a time, which is slow.

    Args:
        shape: Shape of one window: (time, axes).
        classes: Number of outputs.
        features: Size of the state of each direction.
        hidden: Width of the hidden layer.

    Returns:
        The network.

    Raises:
        ConfigError: The shape or a size is not valid.
    """
    length, axes = dimensions("bilstm", shape, "sensor windows of (time, axes)", 2)
    smallest("bilstm", length, 1, "samples a window")
    width = whole("features", features)
    return nn.Sequential(Ends(axes, width), *head(2 * width, [whole("hidden", hidden)], classes))


class Ends(nn.Module):
    """The last states of both directions of an LSTM."""

    def __init__(self, axes: int, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(axes, width, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        every = self.lstm(x)[0]
        forth, back = every.chunk(2, dim=-1)
        return torch.cat([forth[:, -1], back[:, 0]], dim=-1)
