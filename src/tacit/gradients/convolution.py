"""Rows of a convolution's weight: a linear layer on unfolded patches.

The way in which they are formed matters for speed only. On the CPU in float32, oneDNN computes the weight gradients of
a few examples in one call if each is a group of one wide convolution, which is faster than unfolding if there are many
positions; its fast kernels need channels in multiples of eight, so channels of zeros are added. Elsewhere patches are
unfolded and multiplied.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.gradients.rows import Dense, Rows, masked, wide
from tacit.gradients.sequence import Places

Pair = tuple[int, int]
GROUP = 8  # examples in one call, and channels in one block
FEW = 64  # places up to which unfolding is faster


@dataclass(frozen=True, kw_only=True)
class Window:
    """The geometry of a two-dimensional convolution with the same padding on both sides."""

    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: Pair

    def patches(self, x: Tensor) -> Tensor:
        """(n, C, H, W) to (n, C·kh·kw, places)."""
        (kh, kw), (sh, sw), (dh, dw), (top, left) = self.kernel, self.stride, self.dilation, self.padding
        if top or left:
            x = F.pad(x, (left, left, top, top))
        n, channels, height, width = x.shape
        places = ((height - dh * (kh - 1) - 1) // sh + 1, (width - dw * (kw - 1) - 1) // sw + 1)
        step = x.stride()
        # A view and one copy: F.unfold is slower on the CPU and launches one kernel for each example on a GPU.
        strides = (step[0], step[1], dh * step[2], dw * step[3], sh * step[2], sw * step[3])
        windows = x.as_strided((n, channels, kh, kw, *places), strides, x.storage_offset())
        return windows.reshape(n, channels * kh * kw, places[0] * places[1])

    def weight_gradient(self, x: Tensor, b: Tensor, groups: int = 1) -> Tensor:
        """Σ over the batch of the gradient of the weight, (O, C/groups, kh, kw)."""
        weight = x.new_empty((b.shape[1], x.shape[1] // groups, *self.kernel))  # only its shape is read
        found: Tensor = torch.ops.aten.convolution_backward(
            b, x, weight, None, self.stride, self.padding, self.dilation, False, (0, 0), groups, (False, True, False)
        )[1]
        return found


class Patches(Places):
    """The weight of a convolution with groups = 1: input `x` (B, C, H, W) and output gradient `b` (B, O, H', W')."""

    def __init__(self, x: Tensor, b: Tensor, window: Window) -> None:
        self.x, self.image, self.window = x, b, window
        super().__init__(b.flatten(2), x.shape[1] * window.kernel[0] * window.kernel[1])
        fast = x.device.type == "cpu" and x.dtype == torch.float32 and window.kernel != (1, 1)
        self._grouped = fast and self.places > FEW

    def columns(self, part: slice | Tensor) -> Tensor:
        return self.window.patches(self.x[part])

    def form(self, part: slice) -> Tensor:
        if not self._grouped:
            return super().form(part)
        x, b = _in_blocks(self.x[part]), _in_blocks(self.image[part])
        n = x.shape[0]
        rows = self.window.weight_gradient(x.flatten(0, 1).unsqueeze(0), b.flatten(0, 1).unsqueeze(0), groups=n)
        return rows.view(n, -1)

    def trim(self, rows: Tensor, shape: torch.Size) -> Tensor:
        if not self._grouped:
            return rows.view(len(rows), *shape)
        outputs, channels = self.image.shape[1], self.x.shape[1]
        blocks = rows.view(len(rows), _blocks(outputs), _blocks(channels), *self.window.kernel)
        return blocks[:, :outputs, :channels].reshape(len(rows), *shape)

    def _masked(self, fine: Tensor) -> Places:
        return Patches(masked(self.x, fine), masked(self.image, fine), self.window)

    def _parts(self, each: int) -> list[slice]:
        if not self._grouped:
            return super()._parts(each)
        return [slice(i, min(i + GROUP, self.count)) for i in range(0, self.count, GROUP)]


def weight_rows(conv: nn.Conv1d | nn.Conv2d, x: Tensor, b: Tensor) -> Rows:
    """The rows of the weight of `conv`, from its input and the gradient of its output."""
    x, b = wide(x), wide(b)
    if x.dim() == 3:  # one dimension is two with a height of one
        x, b = x.unsqueeze(2), b.unsqueeze(2)
    (top, bottom), (left, right) = _padding(conv)
    if top != bottom or left != right:
        x = F.pad(x, (left, right, top, bottom))
        top = left = 0
    window = Window(
        kernel=_pair(conv.kernel_size), stride=_pair(conv.stride), dilation=_pair(conv.dilation), padding=(top, left)
    )
    if conv.groups == 1:
        return Patches(x, b, window)
    n, outputs, places = b.shape[0], b.shape[1], b.shape[2] * b.shape[3]
    a = window.patches(x).view(n, conv.groups, -1, places)
    return Dense(torch.matmul(b.reshape(n, conv.groups, -1, places), a.mT).view(n, outputs, -1))


def _blocks(channels: int) -> int:
    return -(-channels // GROUP) * GROUP


def _in_blocks(x: Tensor) -> Tensor:
    """Channels of zeros up to a multiple of a block."""
    more = _blocks(x.shape[1]) - x.shape[1]
    return F.pad(x, (0, 0, 0, 0, 0, more)) if more else x


def _pair(value: tuple[int, ...]) -> Pair:
    return (1, value[0]) if len(value) == 1 else (value[0], value[1])


def _padding(conv: nn.Conv1d | nn.Conv2d) -> tuple[Pair, Pair]:
    """(top, bottom), (left, right). 'same' puts the odd one after, as torch does."""
    sides: list[Pair] = [(0, 0)] if len(conv.kernel_size) == 1 else []
    for axis, size in enumerate(conv.kernel_size):
        if isinstance(conv.padding, str):
            total = conv.dilation[axis] * (size - 1) if conv.padding == "same" else 0
            sides.append((total // 2, total - total // 2))
        else:
            sides.append((conv.padding[axis], conv.padding[axis]))
    return sides[0], sides[1]
