"""The releases of a run under attack: accuracy on the public test sets after each task, as they are and changed.

Guarantee: nothing is charged. An attack reads labelled records and tells how the model errs on them, so it is run on
public test sets only; a stream without one is refused. Settings and plans are those of the run.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit import metrics
from tacit.data.stream import Stream
from tacit.errors import ConfigError
from tacit.experiment.config import Config
from tacit.experiment.evaluation import PublicTests
from tacit.experiment.events import Stop
from tacit.experiment.folder import RunFolder, SeedFolder
from tacit.experiment.labels import declare
from tacit.experiment.loading import for_seed
from tacit.experiment.runner import features_at, nobody
from tacit.experiment.seed import planned
from tacit.experiment.streams import open_stream
from tacit.learners.learner import Learner
from tacit.learners.release import Release
from tacit.privacy.still import is_random
from tacit.robustness.attacks import Attack, attack
from tacit.robustness.certified import certify, why_not

CLEAN, CERTIFIED = "clean", "certified"
NOISY_DRAWS = 8
"""Evaluations that a gradient is the mean of, where answers are drawn at random and nothing is said."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is done to the releases of a run."""

    attacks: tuple[Attack, ...]
    """Of one norm and radius; `range` and `draws` are filled in where they are not said."""
    draws: int | None = None
    """None: 1, or 8 where there is a noise layer."""
    range: tuple[float, float] | None = None
    """None: from the smallest to the largest number in the public test sets."""
    rows: int | None = 500
    """Of each test set, by public coins. None: all."""
    certificates: int = 1000
    """Draws of a certificate. 0: none."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One accuracy."""

    seed: int
    after_task: int
    on_task: int
    attack: str
    """clean, certified, or the kind of attack."""
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Found:
    """All that was measured, and how."""

    measured: tuple[Measured, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    columns: tuple[str, ...]
    attacks: tuple[Attack, ...]
    """As they were run."""
    no_certificate: str | None
    """Why nothing is certified."""

    def matrix(self, seed: int, column: str) -> np.ndarray:
        """Accuracy after each task on each task, NaN where it was not measured."""
        found = np.full((len(self.tasks), len(self.tasks)), np.nan)
        for one in self.measured:
            if one.seed == seed and one.attack == column:
                found[one.after_task, one.on_task] = one.accuracy
        return found

    def average(self, column: str, after: int) -> metrics.Summary:
        """Mean over the tasks learnt by then, over seeds."""
        return metrics.summarise([float(self.matrix(seed, column)[after, : after + 1].mean()) for seed in self.seeds])

    def forgetting(self, column: str) -> metrics.Summary:
        return metrics.summarise([metrics.forgetting(self.matrix(seed, column)) for seed in self.seeds])

    def write(self, path: Path) -> None:
        """A line for every accuracy, tasks counted from 1."""
        norm, radius = (self.attacks[0].norm, self.attacks[0].radius) if self.attacks else ("", "")
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                lines = csv.writer(file, lineterminator="\n")
                lines.writerow(("seed", "after_task", "on_task", "attack", "norm", "radius", "accuracy"))
                for one in self.measured:
                    how = ("", "") if one.attack == CLEAN else (norm, radius)
                    places = (one.seed, one.after_task + 1, one.on_task + 1, one.attack)
                    lines.writerow((*places, *how, one.accuracy))
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def attack_run(folder: Path, asked: Asked, tell: Callable[[str], None] = lambda said: None) -> Found:
    """Attack every release of a run, of all its seeds."""
    place = RunFolder(path=folder)
    if not place.has_run:
        raise ConfigError(f"{folder} holds no run; give the folder that `tacit run` made")
    config = place.config()
    found = [_attack_seed(for_seed(config, seed), place.seed(seed), asked, tell) for seed in config.seeds]
    least = min(len(one.tasks) for one in found)  # seeds of a run that goes on may be at different tasks
    measured = (line for one in found for line in one.measured if line.after_task < least)
    return replace(found[0], measured=tuple(measured), seeds=config.seeds, tasks=found[0].tasks[:least])


def _attack_seed(config: Config, folder: SeedFolder, asked: Asked, tell: Callable[[str], None]) -> Found:
    seed, measured = _Seed(config, folder, asked), list[Measured]()
    for number in range(seed.learnt):
        tell(f"seed {folder.seed}: release {number + 1} of {seed.learnt}")
        measured += seed.after(number)
    return Found(
        measured=tuple(measured),
        tasks=tuple(task.name for task in seed.tests.info.tasks[: seed.learnt]),
        seeds=(folder.seed,),
        columns=(CLEAN, *(one.kind for one in seed.attacks), *([CERTIFIED] if seed.certifies else [])),
        attacks=seed.attacks,
        no_certificate=seed.reason,
    )


class _Seed:
    """One seed: its learner, its test rows, and what is done to them."""

    def __init__(self, config: Config, folder: SeedFolder, asked: Asked) -> None:
        self.folder, self.asked = folder, asked
        stream = opened(config, folder)
        self.learnt = releases(folder, stream)
        self.learner: Learner = planned(config, folder, stream)
        declared = declare(stream, config.data, folder.seed)
        self.tests = PublicTests(declared, config.budget.make(stream.info.unit))
        self.rows = [self._rows(number) for number in range(self.learnt)]
        noisy = is_random(self.learner.model_)
        draws = asked.draws or (NOISY_DRAWS if noisy else 1)
        span = asked.range or _span([x for x, _ in self.rows])
        self.attacks = tuple(replace(one, draws=draws, range=span) for one in asked.attacks)
        self.reason = why_not(self.learner) if asked.certificates else "certificates were not asked for"
        self.certifies = self.reason is None and bool(self.attacks)

    def after(self, number: int) -> Iterator[Measured]:
        """What the release after a task makes of the tasks so far."""
        info = self.tests.info.tasks[number]
        release = Release.load(self.folder.release(number, info.name))
        planned_for = self.learner.stream_
        if replace(release.info, features=release.info.features or planned_for.features) != planned_for:
            raise ConfigError(
                f"the data or settings of {self.folder.path} are not those that {info.name!r} was learnt with; put "
                "them back"
            )
        self.learner.restore(release.tensors, release.tasks)
        for task in range(number + 1):
            for name, accuracy in self._on(task):
                places = {"seed": self.folder.seed, "after_task": number, "on_task": task}
                yield Measured(**places, attack=name, accuracy=accuracy)

    def _on(self, task: int) -> Iterator[tuple[str, float]]:
        x, y = self.rows[task]
        told = self.tests.asked(task)
        yield CLEAN, self._accuracy(x, y, task)
        for one in self.attacks:
            yield one.kind, self._accuracy(attack(self.learner, x, y, one, told), y, task)
        if self.certifies:
            how = self.attacks[0]
            found = certify(self.learner, x, told, norm=how.norm, draws=self.asked.certificates)
            yield CERTIFIED, found.accuracy(y, how.radius)

    def _accuracy(self, x: Tensor, y: Tensor, task: int) -> float:
        # Another number than the attacks draw with: what fools one draw of noise has to fool others.
        with self.learner.public_dice(1):
            return self.tests.accuracy(self.learner, x, y, task)

    def _rows(self, number: int) -> tuple[Tensor, Tensor]:
        x, y = self.tests.examples(self.learner, number)
        if not len(y):
            raise ConfigError(f"the test set of task {number + 1} is empty; there is nothing to attack")
        coins = torch.Generator().manual_seed(number)
        some = torch.randperm(len(y), generator=coins)[: self.asked.rows].sort().values
        return x[some], y[some]


def opened(config: Config, folder: SeedFolder) -> Stream:
    """The stream of a seed, if it can be attacked."""
    stream = open_stream(config.data, folder.seed, features_at(config, folder, nobody, Stop()))
    if any(task.test is None for task in stream):
        raise ConfigError(
            f"the stream {stream.info.name!r} has no public test set, and an attack reads labelled records and tells "
            "what the model makes of them, which nobody is charged for; declare a public test file"
        )
    return stream


def releases(folder: SeedFolder, stream: Stream) -> int:
    """How many tasks of a seed are released."""
    count = 0
    while count < len(stream) and (folder.release(count, stream.info.tasks[count].name) / "release.json").exists():
        count += 1
    if not count:
        raise ConfigError(f"{folder.path} has no release yet; go on with the run by --resume, then attack it")
    return count


def _span(sets: Sequence[Tensor]) -> tuple[float, float] | None:
    """From the smallest to the largest number: the sets are public. None where all are the same."""
    low, high = min(float(one.min()) for one in sets), max(float(one.max()) for one in sets)
    return (low, high) if low < high else None
