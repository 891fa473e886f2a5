"""Prefetching: computes the coins and noise of the next step on a second thread while this step is computed.

Formal guarantees
  * `take(step)` returns `work(step)`, whether it was prefetched or not.
  * Nothing is computed before the first `take`, which follows the charge.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Ahead(Generic[T]):
    """Computes `work(step)`, one step ahead if steps come in order."""

    def __init__(self, work: Callable[[int], T]) -> None:
        self._work = work
        self._next: tuple[int, Future[T]] | None = None

    def take(self, step: int, *, last: bool) -> T:
        """Returns `work(step)`; unless it is the last step, starts the work of the next one."""
        ahead, self._next = self._next, None
        done = None if ahead is None else ahead[1].result()  # waited for even if another step was prefetched
        out = done if ahead is not None and ahead[0] == step and done is not None else self._work(step)
        if not last:
            self._next = (step + 1, _second_thread(os.getpid()).submit(self._work, step + 1))
        return out


@cache
def _second_thread(process: int) -> ThreadPoolExecutor:
    """The thread of a process: threads do not survive a fork."""
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(1, thread_name_prefix="tacit", initializer=torch.set_num_threads, initargs=(1,))
    pool.submit(int).result()
    torch.set_num_threads(threads)  # the initializer acts per thread for OpenMP and globally for MKL
    return pool
