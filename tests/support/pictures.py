"""Digits as pictures, and tiny backbones of random weights: what learners on pretrained networks are tested with."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo

SHAPE = (1, 8, 8)


class TinyConv(nn.Module):
    """64 features of a picture: a random convolution, a normalisation that can be adapted, four places."""

    width = 64

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.convolution = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x: Tensor) -> Tensor:
        maps = torch.nn.functional.relu(self.norm(self.convolution(x)))
        return torch.nn.functional.adaptive_avg_pool2d(maps, 2).flatten(1)


def digits_facts(tasks: int = 2, **said: Any) -> StreamInfo:
    """Two digits of its own for each task."""
    own = (TaskInfo(name=f"t{n}", number=n, labels=(2 * n, 2 * n + 1), size=300) for n in range(tasks))
    return StreamInfo(name="digits", shape=SHAPE, tasks=tuple(own), public=True, **said)


def digits(task: int, *, test: bool = False) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The pictures of a task; every sixth one is for tests."""
    x, y = load_digits(return_X_y=True)
    keep = (y // 2 == task) & ((np.arange(len(y)) % 6 == 0) == test)
    return (x[keep] / 16).reshape(-1, *SHAPE).astype(np.float32), y[keep].astype(np.int64)
