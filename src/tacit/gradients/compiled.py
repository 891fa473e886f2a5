"""Loops over arrays on the CPU, compiled by numba, and GPU kernels, compiled by torch; both at their first call.

One compiled loop replaces five to ten passes of numpy or torch over the same numbers, and releases the interpreter's
lock, so that a second thread can draw noise. Results are those of IEEE arithmetic, operation by operation, unless a
loop states otherwise.
"""

from collections.abc import Callable
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def compiled(*freedoms: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function of numbers and numpy arrays. The machine code is kept beside the source for later processes.

    Indices must lie within their arrays: nothing is checked. Constants must be those of the same file: whether the kept
    code is still right is seen by that file alone. `freedoms` are those of LLVM's arithmetic that the result
    can stand: "reassoc" adds up in any order, "contract" multiplies and adds with one rounding."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = _compile(function, freedoms)(*args, **kwargs)
            return result

        return call

    return decorate


@cache
def _compile(function: Callable[..., Any], freedoms: tuple[str, ...]) -> Any:
    import numba  # takes half a second: not before a loop is needed

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(freedoms)}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # there is no folder where the machine code could be kept
        return numba.njit(function, **options)


@cache
def can_fuse() -> bool:
    """Whether torch can compile GPU kernels: it uses Triton, which comes with its CUDA builds."""
    return torch.cuda.is_available() and find_spec("triton") is not None


def fused(function: Callable[P, R], *, any_size: bool) -> Callable[P, R]:
    """The function in as few GPU kernels as can be: compiled for any size, or faster but compiled again for each size.

    Without a GPU it is the function itself.
    """
    return _torch_compiled(function, any_size) if can_fuse() else function


@cache
def _torch_compiled(function: Callable[P, R], any_size: bool) -> Callable[P, R]:
    return torch.compile(function, dynamic=any_size)
