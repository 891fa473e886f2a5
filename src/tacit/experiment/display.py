"""Shows the progress of a run: a live bar for each seed on a terminal, plain lines elsewhere, or nothing."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from tacit.experiment.progress import Event, OnEvent, ignore
from tacit.words import accuracy_percent, counted

NOT_PRIVATE = "not private"


@contextmanager
def display(console: Console, *, quiet: bool) -> Iterator[OnEvent]:
    """Gives the function that receives the events of a run and shows them."""
    if quiet:
        yield ignore
    elif not console.is_terminal:
        yield lambda event: _print_line(console, event)
    else:
        columns = (TextColumn(f"{{task.fields[{name}]}}") for name in Bars.FIELDS)
        with Progress(TextColumn("{task.description}"), BarColumn(bar_width=16), *columns, console=console) as progress:
            yield Bars(progress).show


class Bars:
    """One bar for each seed: task, step, steps per second, time left, ε committed; and one for each set of features.

    The bar of an endless stream is that of the current task, with the results after the task before."""

    FIELDS = ("task", "step", "speed", "left", "epsilon", "results")

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[int | str, TaskID] = {}
        self._first: dict[int | str, tuple[float, int]] = {}

    def show(self, event: Event) -> None:
        if event.kind == "notice":
            self._progress.console.print(event.name)
        elif event.kind == "features":
            bar = self._bar(event.name, f"features of {event.name}")
            self._update(event.name, bar, event.step, event.of, "records")
            self._progress.update(bar, step=f"record {event.step}/{event.of}")
        else:
            self._show_seed(event, self._bar(event.seed, f"seed {event.seed}"))

    def _show_seed(self, event: Event, bar: TaskID) -> None:
        if not event.tasks and event.kind == "task":
            self._progress.update(bar, results=_results(event))
        elif event.kind == "done":
            self._progress.update(bar, total=1, completed=1, task="done", step="", speed="", left="")
        elif event.kind == "step" and event.of:
            done = event.task * event.of + event.step
            self._update(event.seed, bar, done, event.tasks * event.of, "steps")
            if not event.tasks:
                self._progress.update(bar, total=event.of, completed=event.step, left="")
            epsilon = _epsilon(event)
            self._progress.update(
                bar,
                task=_task(event),
                step=f"step {event.step}/{event.of}",
                epsilon=f"[bold red]{epsilon}[/]" if epsilon == NOT_PRIVATE else epsilon,
            )

    def _update(self, key: int | str, bar: TaskID, done: int, total: int, unit: str) -> None:
        """Show how much is done, and the speed since the first event."""
        now = time.monotonic()
        begun, before = self._first.setdefault(key, (now, done))
        speed = (done - before) / (now - begun) if now > begun else 0.0
        shown, left = (f"{speed:.0f} {unit}/s", f"{_time((total - done) / speed)} left") if speed else ("", "")
        self._progress.update(bar, total=total, completed=done, speed=shown, left=left)

    def _bar(self, key: int | str, name: str) -> TaskID:
        if key not in self._bars:
            empty = dict.fromkeys(self.FIELDS, "")
            self._bars[key] = self._progress.add_task(name, total=None, **empty)  # type: ignore[arg-type]
        return self._bars[key]


def _epsilon(event: Event) -> str:
    if event.epsilon is None:
        return ""
    return NOT_PRIVATE if math.isinf(event.epsilon) else f"ε committed {event.epsilon:.3g}"


def _task(event: Event) -> str:
    return f"task {event.task + 1}/{event.tasks}" if event.tasks else f"task {event.task + 1}"


def _results(event: Event) -> str:
    """The results after a task of an endless stream."""
    accuracy = [] if event.accuracy is None else [f"accuracy on the last tasks {accuracy_percent(event.accuracy)}"]
    reads = [] if event.read is None else [f"{event.read:,.0f} reads"]
    remembered = [] if event.remembered is None else [f"{event.remembered:,.0f} records remembered"]
    return ", ".join(accuracy + reads + remembered)


def _print_line(console: Console, event: Event) -> None:
    if event.kind == "notice":
        console.print(event.name)
    elif event.kind == "features" and event.step == 0:
        console.print(f"making features of {event.name}, {event.of} records")
    elif event.kind == "begin":
        after = f", going on after task {event.task}" if event.task else ""
        what = counted(event.tasks, "task") if event.tasks else "learning from an endless stream"
        console.print(f"seed {event.seed}: {what}{after}")
    elif event.kind == "task":
        accuracy = "" if event.accuracy is None else f", accuracy on tasks so far {accuracy_percent(event.accuracy)}"
        named = f"{_task(event)} {event.name} released{accuracy}"
        line = Text(f"seed {event.seed}: {named if event.tasks else f'{event.name} released, {_results(event)}'}")
        if epsilon := _epsilon(event):
            line.append(", ").append(epsilon, style="bold red" if epsilon == NOT_PRIVATE else "")
        console.print(line)


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
