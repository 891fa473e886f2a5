"""The callback by which a loop reports its progress and is stopped between two steps."""

import time
from collections.abc import Callable
from typing import Any

from tacit.experiment.progress import Event, OnEvent, Stop
from tacit.learners.base.callbacks import Callback, Step

STEP_INTERVAL_S = 0.1
"""Steps are reported at most once in this time."""


class Reporter(Callback):
    """Reports the steps of a loop.

    Args:
        progress: Receives the events.
        stop: Checked before every step.
        seed: The random seed of the loop.
        tasks: How many tasks are to be learned; 0 for an endless stream.
        before_step: Called before every step, before it is reported.
    """

    def __init__(
        self,
        progress: OnEvent,
        stop: Stop,
        *,
        seed: int,
        tasks: int = 0,
        before_step: Callable[[Step], None] | None = None,
    ) -> None:
        self.progress, self._stop, self._seed, self._before_step = progress, stop, seed, before_step
        self._reported = 0.0
        self.tasks = tasks
        self.epsilon: float | None = None
        """The privacy loss of one unit so far, from the ledger."""

    def on_step(self, step: Step) -> None:
        self._stop.check()
        if self._before_step is not None:
            self._before_step(step)
        now = time.monotonic()
        if step.step in (0, 1) or now - self._reported >= STEP_INTERVAL_S:
            self._reported = now
            self.report("step", task=step.task.number, name=step.task.name, step=step.step, of=step.of)

    def report(self, kind: Any, **values: Any) -> None:
        """Report an event of this seed."""
        self.progress(Event(kind=kind, seed=self._seed, tasks=self.tasks, epsilon=self.epsilon, **values))
