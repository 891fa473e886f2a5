"""The releases of a run under attack: accuracy on the public test sets after each task, as they are and changed.

Guarantee: nothing is charged. An attack reads labelled records and tells how the model errs on them, so it is run on
public test sets only; a stream without one is refused. Settings and plans are those of the run. Of a stream without
end, whose old releases are gone, the last one is attacked, on the test sets of the last tasks.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.data.stream import Stream, TaskInfo
from tacit.errors import ConfigError
from tacit.experiment.attack_found import CERTIFIED, CLEAN, Found, Measured
from tacit.experiment.config import Config
from tacit.experiment.endless_config import Endless
from tacit.experiment.endless_folder import EndlessFolder, is_endless
from tacit.experiment.evaluation import PublicTests
from tacit.experiment.events import Stop
from tacit.experiment.folder import RunFolder, SeedFolder, read_json, write_json
from tacit.experiment.labels import declare
from tacit.experiment.loading import for_seed
from tacit.experiment.runner import features_at, nobody
from tacit.experiment.seed import planned
from tacit.experiment.streams import open_stream
from tacit.learners import opened as from_release
from tacit.learners.learner import Learner
from tacit.learners.release import Release
from tacit.models.noisy import Noisy
from tacit.plugins import only_code
from tacit.privacy.still import is_random
from tacit.robustness.attacks import Attack, attack, flat
from tacit.robustness.certified import certify, why_not

KEPT = "attacks.json"
"""In the folder of a seed: what was done to its releases, and what was found."""
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


def attack_run(
    folder: Path,
    asked: Asked,
    tell: Callable[[str], None] = lambda said: None,
    *,
    keep: bool = False,
    allow_code: Collection[str] | None = (),
) -> Found:
    """Attack every release of a run, of all its seeds. `keep`: what is found of a seed stays in its folder, and is not
    looked for again. `allow_code`: SHA-256 of the Python files of the run (a method, a backbone) that are run; None:
    the run is the caller's own, and all of them are."""
    with nullcontext() if allow_code is None else only_code(allow_code):
        return _attack_run(folder, asked, tell, keep)


def _attack_run(folder: Path, asked: Asked, tell: Callable[[str], None], keep: bool) -> Found:
    place = EndlessFolder(path=folder) if is_endless(folder) else RunFolder(path=folder)
    if not place.has_run:
        raise ConfigError(f"{folder} holds no run; give the folder that `tacit run` made")
    config = place.config()
    return Found.together([_attack_seed(for_seed(config, s), place.seed(s), asked, tell, keep) for s in config.seeds])


def kept(folder: Path, asked: Asked) -> Found | None:
    """What was kept of a run by these attacks; None where a seed is missing."""
    place = RunFolder(path=folder)
    found = [_kept(place.seed(seed), asked) for seed in place.config().seeds] if place.has_run else [None]
    whole = [one for one in found if one is not None]
    return Found.together(whole) if len(whole) == len(found) else None


def _kept(folder: SeedFolder, asked: Asked) -> Found | None:
    path = folder.path / KEPT
    told = read_json(path) if path.exists() else {}
    return Found.of(told["found"]) if told.get("asked") == _plain(asked) else None


def _plain(asked: Asked) -> Any:
    """As JSON reads it back."""
    return json.loads(json.dumps(asdict(asked)))


def _attack_seed(config: Config, folder: SeedFolder, asked: Asked, tell: Callable[[str], None], keep: bool) -> Found:
    if keep and (before := _kept(folder, asked)) is not None:
        return before
    seed, measured = (_Last if isinstance(config, Endless) else _Seed)(config, folder, asked), list[Measured]()
    for number in seed.released:
        tell(f"seed {folder.seed}: release {number + 1} of {seed.tasks.stop}")
        measured += seed.after(number)
    found = Found(
        measured=tuple(measured),
        tasks=tuple(seed.info(number).name for number in seed.tasks),
        first=seed.tasks.start,
        seeds=(folder.seed,),
        columns=(CLEAN, *(one.kind for one in seed.attacks), *([CERTIFIED] if seed.certifies else [])),
        attacks=seed.attacks,
        answer_draws=max((one.draws for one in seed.learner.model_.modules() if isinstance(one, Noisy)), default=1),
        flat=seed.flat(),
        no_certificate=seed.reason,
    )
    if keep:
        write_json(folder.path / KEPT, {"asked": _plain(asked), "found": found.plain()})
    return found


class _Seed:
    """One seed: its learner, its test rows, and what is done to them."""

    def __init__(self, config: Config, folder: SeedFolder, asked: Asked) -> None:
        self.folder, self.asked = folder, asked
        stream = opened(config, folder)
        self.tasks = self._tasks(config, stream)
        self.learner = self._learner(config, stream)
        declared = declare(stream, config.data, folder.seed)
        self.tests = PublicTests(declared, config.budget.make(stream.info.unit))
        self.rows = {number: self._rows(number) for number in self.tasks}
        noisy = is_random(self.learner.model_)
        draws = asked.draws or (NOISY_DRAWS if noisy else 1)
        span = asked.range or _span([x for x, _ in self.rows.values()])
        self.attacks = tuple(replace(one, draws=draws, range=span) for one in asked.attacks)
        self.reason = self._why_not() if asked.certificates else "certificates were not asked for"
        self.certifies = self.reason is None and bool(self.attacks)

    def _tasks(self, config: Config, stream: Stream) -> range:
        """Those whose test sets are read."""
        return range(releases(self.folder, stream))

    def _learner(self, config: Config, stream: Stream) -> Learner:
        return planned(config, self.folder, stream)

    @property
    def released(self) -> range:
        """The tasks whose releases are attacked."""
        return self.tasks

    def info(self, number: int) -> TaskInfo:
        found = self.tests.info.task(number)
        assert found is not None  # it was learnt
        return found

    def _why_not(self) -> str | None:
        """Why there is no certificate after the last task, when most has been learnt."""
        self._take(self.tasks[-1])
        reasons = (why_not(self.learner, self.tests.asked(task)) for task in self.tasks)
        return next((reason for reason in reasons if reason is not None), None)

    def flat(self) -> float:
        """The share of all rows that the last release answers rightly and that have no gradient to follow."""
        right = [self._flat(task) for task in self.tasks]
        return float(torch.cat(right).double().mean())

    def _flat(self, task: int) -> Tensor:
        x, y = self.rows[task]
        told, draws = self.tests.asked(task), self.attacks[0].draws if self.attacks else 1
        with self.learner.public_dice(1):
            right = self.learner.scores(x, told).argmax(1).cpu() == y
        return right & flat(self.learner, x, y, told, draws=draws)

    def after(self, number: int) -> Iterator[Measured]:
        """What the release after a task makes of the tasks so far."""
        self._take(number)
        for task in range(self.tasks.start, number + 1):
            for name, accuracy in self._on(task):
                places = {"seed": self.folder.seed, "after_task": number, "on_task": task}
                yield Measured(**places, attack=name, accuracy=accuracy)

    def _take(self, number: int) -> None:
        """Answer by the release after a task."""
        info = self.info(number)
        release = Release.load(self.folder.release(number, info.name))
        planned_for = self.learner.stream_
        if replace(release.info, features=release.info.features or planned_for.features) != planned_for:
            raise ConfigError(
                f"the data or settings of {self.folder.path} are not those that {info.name!r} was learnt with; put "
                "them back"
            )
        self.learner.restore(release.tensors, release.tasks)

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


class _Last(_Seed):
    """A stream without end: its last release, on the test sets of the last tasks."""

    def _tasks(self, config: Config, stream: Stream) -> range:
        place = EndlessFolder(path=self.folder.path)
        if not place.learnt:
            raise _no_release(self.folder)
        assert isinstance(config, Endless)
        return range(max(0, place.learnt - config.window), place.learnt)

    def _learner(self, config: Config, stream: Stream) -> Learner:
        return from_release(EndlessFolder(path=self.folder.path).last, device=config.device)

    @property
    def released(self) -> range:
        return self.tasks[-1:]

    def _take(self, number: int) -> None:
        """The learner is that of the last release."""
        return


def opened(config: Config, folder: SeedFolder) -> Stream:
    """The stream of a seed, if it can be attacked."""
    stream = open_stream(config.data, folder.seed, features_at(config, folder, nobody, Stop()))
    if any(task.test is None for task in ([stream.task(0)] if stream.info.endless else stream)):
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
        raise _no_release(folder)
    return count


def _no_release(folder: SeedFolder) -> ConfigError:
    return ConfigError(f"{folder.path} has no release yet; go on with the run by --resume, then attack it")


def _span(sets: Sequence[Tensor]) -> tuple[float, float] | None:
    """From the smallest to the largest number: the sets are public. None where all are the same."""
    low, high = min(float(one.min()) for one in sets), max(float(one.max()) for one in sets)
    return (low, high) if low < high else None
