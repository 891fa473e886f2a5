"""What a run tells while it works, and how it is asked to stop. Public and charged values only."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from tacit.errors import TacitError


class Stopped(TacitError):
    """A person asked a run to stop; it stopped between two steps and can go on."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """One line of a run's story."""

    kind: Literal["notice", "features", "begin", "step", "task", "done"]
    """notice: a sentence for the person. features: so many of a public set's records are through the backbone. begin: a
    seed starts or goes on. step: it is before this step. task: a task is released. done: all of them are."""
    seed: int = 0
    tasks: int = 0
    """How many there are; 0: the stream has no end."""
    task: int = 0
    """Place in the stream, from 0."""
    name: str = ""
    """Of the task, or of the public set; the sentence of a notice."""
    step: int = 0
    of: int = 0
    epsilon: float | None = None
    """What one unit may have lost by now, as the ledger has it; infinite without privacy, None when it is not known."""
    accuracy: float | None = None
    """Mean over the tasks learnt so far; on a stream without end, over the last of them."""
    read: float | None = None
    """How often a record was read in the task, all records together, as expected by its public plan."""
    remembered: float | None = None
    """Records that are kept for later tasks, as expected by the public plan."""


Tell = Callable[[Said], None]


class Stop:
    """A flag that says 'stop between two steps'."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def ask(self) -> None:
        self._asked.set()

    def check(self) -> None:
        """Stop here, if someone asked."""
        if self.asked:
            raise Stopped("the run was stopped between two steps and nothing is lost")


@contextmanager
def ctrl_c(stop: Stop) -> Iterator[None]:
    """Within it, Ctrl-C asks to stop; a second one ends the process at once, as after a kill."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals: whoever started this thread passes the flag
        return

    def heard(_number: int, _frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.ask()

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
