"""Trackers: services outside, such as MLflow, that a run is shown in. They read the run folder, never a record.

A tracker is sent the folder of a run after each task and at the end. Whatever goes wrong in it is one warning: the run
goes on, and what was charged is recorded in the ledger and not by a tracker. `tacit.report` has the trackers.
"""

import re
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from tacit.errors import TacitError
from tacit.experiment.progress import Event, OnEvent, ignore, notify

_LONGEST = 300
"""Characters of an error in a warning."""


@runtime_checkable
class Tracker(Protocol):
    """Shows runs elsewhere.

    Attributes:
        name: What `--track` calls it.
    """

    name: str

    def send(self, folder: Path, *, final: bool = True) -> None:
        """Send what is new in a folder. Sending it again changes nothing.

        Args:
            folder: The folder of a run, a sweep or an endless stream.
            final: Whether nothing more follows for now; figures and pages are sent then.
        """


class Careful:
    """A tracker whose failures are one warning and never an error.

    After a failure nothing is sent until the end, and after a failure there nothing more.

    Args:
        tracker: The tracker.
        warn: Receives the warning.
    """

    def __init__(self, tracker: Tracker, warn: Callable[[str], None]) -> None:
        self.name = tracker.name
        self._tracker, self._warn = tracker, warn
        self._failures, self._over = 0, False
        self._lock = threading.Lock()

    def send(self, folder: Path, *, final: bool = True) -> None:
        """Send what is new in a folder, if it can be sent; see `Tracker`."""
        with self._lock:
            if self._over or (self._failures and not final):
                return
            try:
                self._tracker.send(folder, final=final)
            except Exception as error:
                self._failures += 1
                self._over = final
                if self._failures == 1:
                    self._warn(
                        f"nothing more is sent to {self.name} for now ({reason(error)}); the run goes on, and `tacit "
                        f"track {folder} --to {self.name}` sends it later"
                    )


def careful(trackers: Sequence[Tracker], progress: OnEvent) -> "list[Careful]":
    """Trackers whose failures become notices; those that are careful already stay as they are."""

    def warn(sentence: str) -> None:
        if progress is ignore:
            warnings.warn(sentence, stacklevel=2)
        else:
            notify(progress, sentence)

    return [one if isinstance(one, Careful) else Careful(one, warn) for one in trackers]


def following(trackers: Sequence[Tracker], folder: Path, progress: OnEvent) -> OnEvent:
    """Events as before; after each task the trackers are sent the folder."""

    def report(event: Event) -> None:
        progress(event)
        if event.kind == "task":
            for tracker in trackers:
                tracker.send(folder, final=False)

    return report if trackers else progress


def send_all(trackers: Sequence[Tracker], folder: Path) -> None:
    """Send the whole folder to each tracker."""
    for tracker in trackers:
        tracker.send(folder)


def reason(error: Exception) -> str:
    """An error of a tracker on one line, without passwords in addresses."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    line = re.sub(r"//[^/@\s]*@", "//", line)
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return line if isinstance(error, TacitError) and line else f"{type(error).__name__}{f': {line}' if line else ''}"
