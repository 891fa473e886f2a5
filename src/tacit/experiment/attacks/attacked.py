"""Attacks on the releases of a run: accuracy on the public test sets after each task, on clean and on attacked rows.

Nothing is charged. An attack reads labelled records and shows how the model errs on them, so that it runs on public
test sets only; a stream without one is refused. Settings and plans are those of the run. For an endless stream, whose
old releases are deleted, the last release is attacked on the test sets of the last tasks.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.data.stream import Stream, TaskInfo
from tacit.errors import ConfigError
from tacit.experiment.attacks.results import CERTIFIED, CLEAN, AttackResults, Measurement
from tacit.experiment.config.attack_section import AttackSection
from tacit.experiment.config.config import Config
from tacit.experiment.config.endless_config import Endless
from tacit.experiment.config.loading import for_seed
from tacit.experiment.files import read_json, write_json
from tacit.experiment.progress import Stop, ignore
from tacit.experiment.runs.endless_folder import EndlessFolder, is_endless
from tacit.experiment.runs.evaluation import PublicTests
from tacit.experiment.runs.folder import RunFolder, SeedFolder
from tacit.experiment.runs.planning import planned_learner
from tacit.experiment.runs.resolver import declare, features_at, make_budget, open_stream
from tacit.learners import load_learner
from tacit.learners.base.learner import Learner
from tacit.learners.base.release import Release
from tacit.models.noisy import Randomised
from tacit.plugins import only_code
from tacit.privacy.vault.intake.isolation import is_random
from tacit.robustness.attacks import attack, flat
from tacit.robustness.certified_ball import CertifiedBall

KEPT = "attacks.json"
"""In the folder of a seed: the attacks on its releases and their results."""
NOISY_DRAWS = 8
"""The default number of draws that a gradient is averaged over, for networks with a noise layer."""


def attack_run(
    folder: Path,
    section: AttackSection,
    notify: Callable[[str], None] = lambda line: None,
    *,
    keep: bool = False,
    allow_code: Collection[str] | None = (),
) -> AttackResults:
    """Attack every release of a run, of all its seeds.

    Args:
        folder: The run folder.
        section: The attacks.
        notify: Receives sentences about the progress.
        keep: Save the results of each seed to its folder, and reuse them.
        allow_code: The SHA-256 of Python files of the run (a method, a backbone) that may be executed; None: all, since
            the run is the caller's own.
    """
    with nullcontext() if allow_code is None else only_code(allow_code):
        run_folder = EndlessFolder(path=folder) if is_endless(folder) else RunFolder(path=folder)
        if not run_folder.has_run:
            raise ConfigError(f"{folder} has no run; pass the folder that `tacit run` made")
        config = run_folder.config()
        return AttackResults.merged(
            [_attack_seed(for_seed(config, s), run_folder.seed(s), section, notify, keep) for s in config.seeds]
        )


def kept(folder: Path, section: AttackSection) -> AttackResults | None:
    """The saved results of these attacks on a run; None if those of a seed are missing."""
    run_folder = RunFolder(path=folder)
    if not run_folder.has_run:
        return None
    seeds = run_folder.config().seeds
    results = [saved for seed in seeds if (saved := _kept(run_folder.seed(seed), section)) is not None]
    return AttackResults.merged(results) if len(results) == len(seeds) else None


def _kept(folder: SeedFolder, section: AttackSection) -> AttackResults | None:
    path = folder.path / KEPT
    saved = read_json(path) if path.exists() else {}
    return AttackResults.of(saved["found"]) if saved.get("asked") == _plain(section) else None


def _plain(section: AttackSection) -> Any:
    """The attacks as JSON reads them back."""
    plan = section.model_dump(include={"draws", "range", "rows", "certificates"})
    # Left out where they are not set, so that earlier results stay those of the same attacks.
    plan |= section.model_dump(
        include={"bound", "votes", "error", "certified_norm", "certified_radius"}, exclude_defaults=True
    )
    return json.loads(json.dumps(plan | {"attacks": [asdict(attack) for attack in section.attacks()]}))


def _attack_seed(
    config: Config, folder: SeedFolder, section: AttackSection, notify: Callable[[str], None], keep: bool
) -> AttackResults:
    if keep and (before := _kept(folder, section)) is not None:
        return before
    seed = (_LastRelease if isinstance(config, Endless) else _AllReleases)(config, folder, section)
    measured: list[Measurement] = []
    for number in seed.released:
        notify(f"seed {folder.seed}: release {number + 1} of {seed.tasks.stop}")
        measured += seed.after(number)
    layers = [module for module in seed.learner.model_.modules() if isinstance(module, Randomised)]
    results = AttackResults(
        measured=tuple(measured),
        tasks=tuple(seed.info(number).name for number in seed.tasks),
        first=seed.tasks.start,
        seeds=(folder.seed,),
        columns=(CLEAN, *(attack.kind for attack in seed.attacks), *([CERTIFIED] if seed.certified else [])),
        attacks=seed.attacks,
        answer_draws=max((layer.draws for layer in layers), default=1),
        flat=seed.flat(),
        no_certificate=seed.reason,
        certified=seed.certified,
        largest_radius=seed.largest_radius(),
    )
    if keep:
        write_json(folder.path / KEPT, {"asked": _plain(section), "found": asdict(results)})
    return results


class _AllReleases:
    """The releases of one seed: its learner, its test rows and the attacks on them."""

    def __init__(self, config: Config, folder: SeedFolder, section: AttackSection) -> None:
        self.folder, self.section = folder, section
        stream = open_stream(config.data, folder.seed, features_at(config, folder, ignore, Stop()))
        if any(task.test is None for task in ([stream.task(0)] if stream.info.endless else stream)):
            raise ConfigError(
                f"the stream {stream.info.name!r} has no public test set, and an attack reports uncharged predictions "
                "on labelled records, so they must be public; declare a public test file"
            )
        self.tasks = self._tasks(config, stream)
        self.learner = self._learner(config, stream)
        declared = declare(stream, config.data, folder.seed)
        self.tests = PublicTests(declared, make_budget(config.budget, stream.info.unit))
        self.rows = {number: self._rows(number) for number in self.tasks}
        draws = section.draws or (NOISY_DRAWS if is_random(self.learner.model_) else 1)
        span = section.range or _span([x for x, _ in self.rows.values()])
        self.attacks = tuple(replace(planned, draws=draws, range=span) for planned in section.attacks())
        asked = section.certified()
        self.reason = "certificates were not asked for" if asked is None else self._why_not(asked)
        if asked is not None and self.reason is None:
            asked = asked.resolved(self.learner, self.tests.asked(self.tasks[-1]))
            # Draws do not need the range, and results of earlier versions have none.
            asked = replace(asked, range=span) if asked.bound == "ibp" else asked
        self.certified = asked if self.reason is None else None

    def _tasks(self, config: Config, stream: Stream) -> range:
        """The tasks whose test sets are read."""
        return range(self._at_least_one(self.folder.released(stream.info.tasks)))

    def _at_least_one(self, released: int) -> int:
        if not released:
            raise ConfigError(f"{self.folder.path} has no release yet; continue the run with --resume, then attack it")
        return released

    def _learner(self, config: Config, stream: Stream) -> Learner:
        return planned_learner(config, self.folder, stream)

    @property
    def released(self) -> range:
        """The tasks whose releases are attacked."""
        return self.tasks

    def info(self, number: int) -> TaskInfo:
        task = self.tests.info.task(number)
        assert task is not None  # it was learned
        return task

    def _why_not(self, ball: CertifiedBall) -> str | None:
        """Why there is no certificate after the last task, when most has been learned."""
        self._restore(self.tasks[-1])
        reasons = (ball.why_not(self.learner, self.tests.asked(task)) for task in self.tasks)
        return next((reason for reason in reasons if reason is not None), None)

    def largest_radius(self) -> float | None:
        """An upper bound of every certified radius of the last release, over the tasks; None without certificates."""
        if (ball := self.certified) is None:
            return None
        asked = dict.fromkeys(self.tests.asked(task) for task in self.tasks)
        each = [ball.largest_radius(self.learner, task) for task in asked]
        return max((one for one in each if one is not None), default=None)

    def flat(self) -> float:
        """The share of all rows that the last release classifies correctly and that have no gradient to follow."""
        return float(torch.cat([self._flat(task) for task in self.tasks]).double().mean())

    def _flat(self, task: int) -> Tensor:
        x, y = self.rows[task]
        given, draws = self.tests.asked(task), self.attacks[0].draws if self.attacks else 1
        with self.learner.seeded_randomness(1):
            correct = self.learner.scores(x, given).argmax(1).cpu() == y
        return correct & flat(self.learner, x, y, given, draws=draws)

    def after(self, number: int) -> Iterator[Measurement]:
        """The accuracies of the release after a task, on the tasks so far."""
        self._restore(number)
        for task in range(self.tasks.start, number + 1):
            for name, accuracy in self._on(task):
                yield Measurement(
                    seed=self.folder.seed, after_task=number, on_task=task, attack=name, accuracy=accuracy
                )

    def _restore(self, number: int) -> None:
        """Load the release after a task into the learner."""
        info = self.info(number)
        release = Release.load(self.folder.release(number, info.name))
        planned_for = self.learner.stream_
        if replace(release.info, features=release.info.features or planned_for.features) != planned_for:
            raise ConfigError(
                f"the data or settings of {self.folder.path} are not those that {info.name!r} was learned with; put "
                "them back"
            )
        self.learner.restore(release.tensors, release.tasks)

    def _on(self, task: int) -> Iterator[tuple[str, float]]:
        x, y = self.rows[task]
        given = self.tests.asked(task)
        yield CLEAN, self._accuracy(x, y, task)
        for planned in self.attacks:
            yield planned.kind, self._accuracy(attack(self.learner, x, y, planned, given), y, task)
        if (ball := self.certified) is not None:
            yield CERTIFIED, ball.certify(self.learner, x, given).accuracy(y, ball.radius)

    def _accuracy(self, x: Tensor, y: Tensor, task: int) -> float:
        # Another random stream than that of the attacks: what fools one draw of noise has to fool others.
        with self.learner.seeded_randomness(1):
            return self.tests.accuracy(self.learner, x, y, task)

    def _rows(self, number: int) -> tuple[Tensor, Tensor]:
        x, y = self.tests.examples(self.learner, number)
        if not len(y):
            raise ConfigError(f"the test set of task {number + 1} is empty; there is nothing to attack")
        generator = torch.Generator().manual_seed(number)
        some = torch.randperm(len(y), generator=generator)[: self.section.rows].sort().values
        return x[some], y[some]


class _LastRelease(_AllReleases):
    """An endless stream: its last release, on the test sets of the last tasks."""

    def _tasks(self, config: Config, stream: Stream) -> range:
        assert isinstance(config, Endless)
        learned = self._at_least_one(EndlessFolder(path=self.folder.path).tasks_learned)
        return range(max(0, learned - config.window), learned)

    def _learner(self, config: Config, stream: Stream) -> Learner:
        return load_learner(EndlessFolder(path=self.folder.path).last, device=config.device)

    @property
    def released(self) -> range:
        return self.tasks[-1:]

    def _restore(self, number: int) -> None:
        """The learner is that of the last release already."""


def _span(sets: Sequence[Tensor]) -> tuple[float, float] | None:
    """From the smallest to the largest number: the sets are public. None where all are the same."""
    low, high = min(float(x.min()) for x in sets), max(float(x.max()) for x in sets)
    return (low, high) if low < high else None
