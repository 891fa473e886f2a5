"""How a loop reports its progress, is stopped between two steps, and reports errors of a user's own learner."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tacit.data.stream import TaskInfo
from tacit.errors import LearnerError, TacitError, is_out_of_memory
from tacit.experiment.progress import Event, OnEvent, Stop
from tacit.learners.base.callbacks import Callback, Step
from tacit.learners.base.learner import Learner
from tacit.learners.base.task_loop import TaskLoop
from tacit.plugins import is_own, raised_by

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


@contextmanager
def naming_own_learner(method: str, learner: object, place: Callable[[], str], *, quoted: bool) -> Iterator[None]:
    """An error of the code of a user's own learner becomes one sentence that names the learner and the place.

    Args:
        method: The learner by the name that the user gave.
        learner: The learner.
        place: Gives the place in words, and what to do; it is called after an error.
        quoted: Whether the message of the error is shown. It may quote records.

    Raises:
        LearnerError: An error that is none of tacit's was raised while code of the learner's class was running. Its
            cause is that error.
    """
    try:
        yield
    except TacitError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or not raised_by(error, learner):
            raise
        line = str(error).strip().partition("\n")[0] if quoted else ""
        name = Path(method).name if is_own(method) else method
        said = f"{type(error).__name__}{f' ({line})' if line else ''}"
        raise LearnerError(f"learner {name} raised {said} {place()}") from error


def starting(method: str, learner: Learner) -> AbstractContextManager[None]:
    """`naming_own_learner` while a learner is started and plans from public facts."""
    place = "while it was started, before any record was read; fix it and repeat the command"
    return naming_own_learner(method, learner, lambda: place, quoted=True)


@contextmanager
def learning(loop: TaskLoop, method: str, task: TaskInfo, callback: Callback | None) -> Iterator[None]:
    """`naming_own_learner` while a loop learns a task. Errors of a user's callback are passed on as they are."""

    def place() -> str:
        charged = loop.vault.ledger.grant_states(loop.facts.name, task.name)
        when = "" if loop.facts.public else " (after its charge)" if charged else " (before its charge)"
        look = "" if loop.facts.public else " (with TACIT_TRACEBACK=1 it shows where, which may quote records)"
        return f"in task {task.name!r}{when}; fix it and continue with --resume{look}"

    try:
        with naming_own_learner(method, loop.learner, place, quoted=loop.facts.public):
            yield
    except LearnerError as error:
        if callback is not None and error.__cause__ is not None and raised_by(error.__cause__, callback):
            raise error.__cause__ from None
        raise
