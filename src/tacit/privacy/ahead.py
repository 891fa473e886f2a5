"""Work of the next step that depends on keys alone, done on a second thread while this step is computed.

Guarantee: `take(step)` is `work(step)`, done ahead or not; nothing is done before the first `take`, which
comes after the charge. Noise and coins of a step cost almost nothing this way (README, the benches).
"""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Ahead(Generic[T]):
    """`work(step)` for steps that mostly come in turn."""

    def __init__(self, work: Callable[[int], T]) -> None:
        self._work = work
        self._next: tuple[int, Future[T]] | None = None

    def take(self, step: int, *, last: bool) -> T:
        """The work of `step`; unless it is the last one, that of the next step is begun."""
        ahead, self._next = self._next, None
        done = None if ahead is None else ahead[1].result()  # also waited for when it is not the one that is wanted
        out = done if ahead is not None and ahead[0] == step and done is not None else self._work(step)
        if not last:
            self._next = (step + 1, _second_thread(os.getpid()).submit(self._work, step + 1))
        return out


@cache
def _second_thread(process: int) -> ThreadPoolExecutor:
    """One for each process: threads do not survive a fork."""
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(1, thread_name_prefix="tacit", initializer=torch.set_num_threads, initargs=(1,))
    pool.submit(int).result()
    torch.set_num_threads(threads)  # the call above is per thread for OpenMP and global for MKL: put it back
    return pool
