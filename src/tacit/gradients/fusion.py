"""Several tensor operations in one GPU kernel, where torch can compile them; the same operations otherwise."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


@cache
def can_fuse() -> bool:
    """Triton is what torch compiles GPU kernels with; it comes with torch's CUDA builds."""
    return torch.cuda.is_available() and find_spec("triton") is not None


@cache
def _compiled(function: Callable[P, R], any_size: bool) -> Callable[P, R]:
    return torch.compile(function, dynamic=any_size)


def fused(function: Callable[P, R], *, any_size: bool) -> Callable[P, R]:
    """The function in as few kernels as can be, compiled on first use: for any size, or faster for each size anew."""
    return _compiled(function, any_size) if can_fuse() else function
