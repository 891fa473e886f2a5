"""Events that report the progress of a run, and a flag that stops it. Events hold public or charged values."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from tacit.errors import TacitError


class Stopped(TacitError):
    """The run was asked to stop; it stopped between two steps and can be resumed."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event of a run.

    Attributes:
        kind: "notice": a sentence for the user. "features": records of a public set that are through the backbone.
            "begin": a seed starts or resumes. "step": the next step of a task. "task": a task is released. "done": all
            tasks are.
        seed: The random seed.
        tasks: The number of tasks; 0 for an endless stream.
        task: The index of the task in the stream, from 0.
        name: The name of the task or of the public set, or the sentence of a notice.
        step: The number of the next step, or of records that are done.
        of: The number of steps or records.
        epsilon: What one unit may have lost so far, from the ledger; infinite without privacy, None if unknown.
        accuracy: The mean over the tasks so far; for an endless stream, over the last tasks.
        read: Expected number of record reads in the task, from its public plan.
        remembered: Expected number of records that are kept for later tasks, from the public plan.
    """

    kind: Literal["notice", "features", "begin", "step", "task", "done"]
    seed: int = 0
    tasks: int = 0
    task: int = 0
    name: str = ""
    step: int = 0
    of: int = 0
    epsilon: float | None = None
    accuracy: float | None = None
    read: float | None = None
    remembered: float | None = None


OnEvent = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """Report nothing."""


def notify(progress: OnEvent, *sentences: str) -> None:
    """Report sentences for the user."""
    for sentence in sentences:
        progress(Event(kind="notice", name=sentence))


class Stop:
    """A flag by which a run is asked to stop between two steps."""

    def __init__(self) -> None:
        self._requested = threading.Event()

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    def request(self) -> None:
        self._requested.set()

    def check(self) -> None:
        """Raise `Stopped` if a stop was requested."""
        if self.requested:
            raise Stopped("the run was stopped between two steps and nothing is lost")


@contextmanager
def stop_on_ctrl_c(stop: Stop) -> Iterator[None]:
    """Ctrl-C requests a stop within it; a second one ends the process at once, as a kill does."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals, and passes the flag on
        return

    def request(_number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.request()

    before = signal.signal(signal.SIGINT, request)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
