"""What a person sees while a run works: a live line for each seed on a terminal, plain lines elsewhere, or nothing."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from tacit.experiment.events import Said, Tell
from tacit.words import counted

NOT_PRIVATE = "not private"


@contextmanager
def display(console: Console, *, quiet: bool) -> Iterator[Tell]:
    """The function to tell a run's story to."""
    if quiet:
        yield lambda said: None
    elif not console.is_terminal:
        yield lambda said: _line(console, said)
    else:
        with Live(console) as live:
            yield live.tell


class Live:
    """One bar for each seed: task, step, steps a second, time left, ε committed; and one for features being made.

    The bar of a stream without end is that of its task, with what was found after the one before."""

    _fields = ("task", "step", "speed", "left", "epsilon", "found")

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            *(TextColumn(f"{{task.fields[{name}]}}") for name in self._fields),
            console=console,
        )
        self._bars: dict[int | str, TaskID] = {}
        self._paces: dict[int | str, Pace] = {}

    def __enter__(self) -> "Live":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, said: Said) -> None:
        if said.kind == "notice":
            self._progress.console.print(said.name)
            return
        if said.kind == "features":
            self._features(said)
            return
        bar, pace = self._bar(said.seed, f"seed {said.seed}")
        if not said.tasks and said.kind == "task":
            self._progress.update(bar, found=found_last(said))
        if said.kind == "done":
            self._progress.update(bar, total=1, completed=1, task="done", step="", speed="", left="")
        if said.kind != "step" or not said.of:
            return
        done, total = said.task * said.of + said.step, said.tasks * said.of
        speed, endless = pace.at(done), not said.tasks
        self._progress.update(
            bar,
            total=said.of if endless else total,
            completed=said.step if endless else done,
            task=task_of(said),
            step=f"step {said.step}/{said.of}",
            speed=f"{speed:.0f} steps/s" if speed else "",
            left=f"{_time((total - done) / speed)} left" if speed and not endless else "",
            epsilon=f"[bold red]{NOT_PRIVATE}[/]" if said.epsilon == math.inf else epsilon_committed(said.epsilon),
        )

    def _features(self, said: Said) -> None:
        bar, pace = self._bar(said.name, f"features of {said.name}")
        speed = 0.0 if said.step == 0 else pace.at(said.step)
        self._progress.update(
            bar,
            total=said.of,
            completed=said.step,
            step=f"record {said.step}/{said.of}",
            speed=f"{speed:.0f} records/s" if speed else "",
            left=f"{_time((said.of - said.step) / speed)} left" if speed else "",
        )

    def _bar(self, key: int | str, name: str) -> "tuple[TaskID, Pace]":
        if key not in self._bars:
            self._paces[key] = Pace()
            empty = dict.fromkeys(self._fields, "")
            self._bars[key] = self._progress.add_task(name, total=None, **empty)  # type: ignore[arg-type]
        return self._bars[key], self._paces[key]


class Pace:
    """Steps a second, since the first one that was seen."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def at(self, done: int) -> float:
        now = time.monotonic()
        if self._first is None:
            self._first = (now, done)
        passed = now - self._first[0]
        return (done - self._first[1]) / passed if passed > 0 else 0.0


def epsilon_committed(epsilon: float | None) -> str:
    if epsilon is None:
        return ""
    return NOT_PRIVATE if math.isinf(epsilon) else f"ε committed {epsilon:.3g}"


def task_of(said: Said) -> str:
    return f"task {said.task + 1}/{said.tasks}" if said.tasks else f"task {said.task + 1}"


def found_last(said: Said) -> str:
    """What was found after a task of a stream without end."""
    accuracy = [] if said.accuracy is None else [f"accuracy on the last tasks {said.accuracy:.1%}"]
    reads = [] if said.read is None else [f"{said.read:,.0f} reads"]
    remembered = [] if said.remembered is None else [f"{said.remembered:,.0f} records remembered"]
    return ", ".join(accuracy + reads + remembered)


def _line(console: Console, said: Said) -> None:
    if said.kind == "notice":
        console.print(said.name)
    elif said.kind == "features" and said.step == 0:
        console.print(f"making features of {said.name}, {said.of} records")
    elif said.kind == "begin":
        after = f", going on after task {said.task}" if said.task else ""
        what = counted(said.tasks, "task") if said.tasks else "learning from a stream without end"
        console.print(f"seed {said.seed}: {what}{after}")
    elif said.kind == "task":
        accuracy = "" if said.accuracy is None else f", accuracy on tasks so far {said.accuracy:.1%}"
        named = f"{task_of(said)} {said.name} released{accuracy}"
        line = Text(f"seed {said.seed}: {named if said.tasks else f'{said.name} released, {found_last(said)}'}")
        if epsilon := epsilon_committed(said.epsilon):
            line.append(", ").append(epsilon, style="bold red" if epsilon == NOT_PRIVATE else "")
        console.print(line)


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
