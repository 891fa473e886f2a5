"""Callbacks: observers that are called while a learner learns, such as a progress bar.

A callback receives public values only (frozen facts of the task, the number of the step, the certificate), and torch's
random state and gradient mode are restored after every call, so that it cannot change what is learned. It may raise an
exception to stop a run between two steps; the run can be resumed as after a crash.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from tacit.certificate.certificate import Certificate
from tacit.data.stream import TaskInfo


@dataclass(frozen=True, kw_only=True)
class Step:
    """The position of a learner within a task: reported before each step, and once after the last.

    Attributes:
        task: The task that is being learned.
        step: The number of the next step, from 0; equal to `of` after the last one.
        of: The number of steps.
        before: Whether the step belongs to training that precedes the task's own steps.
    """

    task: TaskInfo
    step: int
    of: int
    before: bool = False


class Callback:
    """Observes a learner; subclass it and override the methods of interest. By default they do nothing.

    Set `learner.callback` before `partial_fit`, or pass `callback=` to `tacit.run`.
    """

    def on_task_start(self, task: TaskInfo) -> None:
        """Called before the records of a task are admitted."""

    def on_step(self, step: Step) -> None:
        """Called before each step of a task, and once after the last."""

    def on_task_end(self, task: TaskInfo, certificate: Certificate) -> None:
        """Called once the release of a task is saved and its charges are marked as released."""


class Callbacks(Callback):
    """Several callbacks, called in their order.

    Args:
        callbacks: The callbacks.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = tuple(callbacks)

    def on_task_start(self, task: TaskInfo) -> None:
        for callback in self._callbacks:
            callback.on_task_start(task)

    def on_step(self, step: Step) -> None:
        for callback in self._callbacks:
            callback.on_step(step)

    def on_task_end(self, task: TaskInfo, certificate: Certificate) -> None:
        for callback in self._callbacks:
            callback.on_task_end(task, certificate)


@contextmanager
def forked_random_state(device: str) -> Iterator[None]:
    """Restores the state of torch's generators on exit, for the CPU and for this device."""
    where = torch.device(device)
    with torch.random.fork_rng(devices=[where.index or 0] if where.type == "cuda" else []):
        yield


@contextmanager
def calling_back(device: str) -> Iterator[None]:
    """The context in which callbacks are called: random state and gradient mode are restored on exit."""
    with forked_random_state(device), torch.no_grad():
        yield
