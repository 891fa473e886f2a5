"""Private tuning of a run by repeat-and-select, on the records of its first task (`Vault.umbrella`).

A secret random number of trials is run, each with random settings, and only the best is released, under one charge.

Formal guarantees:
  * All trials together, with the scores by which they are chosen, cost the first task's records what the budget allows.
  * The best trial is released: its settings, its score and its release, which is the run's release after task 1. Later
    tasks use the settings, which is post-processing.
  * The study is never resumed: work that a crash interrupts stays charged.

Conditions:
  * Every trial draws its settings independently from one distribution (`Space.draw`) and reads by the same plan. Only
    settings that change no sampling rate, number of steps or noise multiplier can be tuned: learning rate, clipping
    norm, momentum, network.
  * The duration depends on the number of trials, so the run is made in a `HiddenFolder`; the clock is a secret too.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import ConfigError, LearnerError
from tacit.experiment.config.config import Config
from tacit.experiment.config.loading import with_settings
from tacit.experiment.process import available_cores
from tacit.experiment.progress import OnEvent, Stop, notify
from tacit.experiment.runs import charged_ledger
from tacit.experiment.runs.arrival import write as write_arrivals
from tacit.experiment.runs.charged_ledger import UnitCap, open_ledger
from tacit.experiment.runs.checks import refuse_spent
from tacit.experiment.runs.evaluation import PublicTests
from tacit.experiment.runs.finite_and_endless import FiniteLoop
from tacit.experiment.runs.folder import RunFolder, refuse_full
from tacit.experiment.runs.planning import SeedPlan
from tacit.experiment.runs.resolver import Streams, features_at, make_budget, make_learner, open_stream
from tacit.experiment.tuning.hidden_folder import HiddenFolder
from tacit.experiment.tuning.search import TuningResult, planner, save
from tacit.experiment.tuning.space import Settings, Space
from tacit.learners.base.inference import answer
from tacit.learners.base.learner import Learner
from tacit.learners.base.release import Release
from tacit.learners.base.task_loop import admit
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.budget import Budget, Unit
from tacit.privacy.accounting.events import to_json
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Block, Plan, SumPlan, TuningPlan, Vault

SCORE_SHARE = 0.1
"""The share of a trial's score beside its gradients (in 1/σ²), where it is a noisy query on the task itself."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What every trial does; it is fixed before the first."""

    plan: TuningPlan
    noise: float
    """The noise multiplier of each trial's gradients."""
    score: SumPlan | None
    """The query that scores a trial; None: a public test set."""


def tune_privately(
    config: Config,
    space: Space,
    folder: Path,
    *,
    trials: float,
    shape: float,
    ledger: str | Path | None,
    stream: Streams | None,
    unit_cap: UnitCap,
    progress: OnEvent,
    stop: Stop,
) -> TuningResult:
    """Begin a run in the folder with its first task tuned and released; `tacit run FOLDER --resume` learns the rest.

    `trials`: their expected number. `shape` of its distribution: 0 logarithmic, 1 geometric."""
    if not 0 <= shape < math.inf:
        raise ConfigError(
            f"shape = {shape} may draw no trial at all, or none exists; use 0 (logarithmic) or 1 (geometric)"
        )
    if len(config.seeds) != 1 or config.data.held or config.per_seed:
        raise ConfigError(
            "private tuning is of one run: it has one seed and no held tasks, got "
            f"seeds = {list(config.seeds)}, data.held = {config.data.held} and per_seed = {list(config.per_seed)}"
        )
    seed = config.seeds[0]
    unseen = HiddenFolder(folder=folder)
    place = unseen.run
    at = features_at(config, place.seed(seed), progress, stop)
    opened = open_stream(config.data, seed, at) if stream is None else stream(seed)
    if opened.info.tasks_per_unit > 1:
        raise ConfigError(
            f"a {opened.info.unit} of {opened.info.name!r} may be in {opened.info.tasks_per_unit} tasks, and private "
            "tuning is for those that are in one; tune on public data"
        )
    book = charged_ledger.checked_ledger(config, opened.info, ledger)
    refuse_full(folder)
    cap = None
    if book is not None:
        refuse_spent(opened.info, book)
        cap = charged_ledger.cap_of_new(book, opened.info, make_budget(config.budget, opened.info.unit), unit_cap)
    with Ledger.throwaway() as nowhere:
        settled = rehearsed(
            SeedPlan(config, place.seed(seed), opened, Vault(nowhere)), space, trials=trials, shape=shape
        )
    with unseen.made(), place.seed(seed).locked():
        if book is not None:
            charged_ledger.make(book, cap)
        with (
            open_ledger(config, place.seed(seed), opened.info, book) as charged,
            Vault(charged, place.seed(seed).private / "store") as vault,
        ):
            plan = SeedPlan(config, place.seed(seed), opened, vault)
            return _TuningLoop(plan, space, place, settled, book, progress, stop).tune()


def rehearsed(run: SeedPlan, space: Space, *, trials: float, shape: float) -> Trials:
    """Plan the trials from public facts, and check them on synthetic records before any charge."""
    config, budget, info, source = run.config, run.evaluation.budget, run.labels.info, run.evaluation.source
    for key in space.ranges:
        if not key.startswith(("learner.", "model.")) or key == "learner.noise":
            raise ConfigError(
                f"{key} cannot be tuned privately, since all trials have the same data, budget, noise and scores; tune "
                "keys of the learner and the model"
            )
    if source is None:
        raise ConfigError("private tuning needs scores; set evaluation.test to public, charged or auto")
    learner = planner(config, budget, info)
    if learner.noise is not None:
        raise ConfigError(
            f"learner.noise = {learner.noise} is set, and in private tuning the noise follows from the budget and the "
            "number of trials; leave it out"
        )
    task = info.tasks[0]

    gradients = learner.plan(task)
    query = None if source == PublicTests.source else SumPlan.for_budget(budget, share=SCORE_SHARE)

    def made(times: float) -> TuningPlan:
        """The plan in which all noise is `times` what one trial alone would need."""
        reads: list[Plan] = [replace(gradients, noise=times * gradients.noise)]
        reads += [] if query is None else [replace(query, noise=times * query.noise)]
        return TuningPlan(reads=reads, trials=trials, shape=shape)

    times = calibrate.noise_for(budget, lambda factor: made(factor).event)
    found = Trials(
        plan=made(times),
        noise=times * gradients.noise,
        score=None if query is None else replace(query, noise=times * query.noise),
    )
    _rehearse(_trial(config, found, {}), found, budget, info)
    for key, one in space.ranges.items():
        for end in one.ends:
            other = _trial(config, found, {key: end})
            if planner(other, budget, info).plan(task).event != found.plan.reads[0].event:
                raise ConfigError(
                    f"{key} changes what a trial reads, and all trials of private tuning read by one plan; tune lr, "
                    "clip or the network, and choose rate, steps and noise on public data"
                )
            _rehearse(other, found, budget, info)
    return found


def _trial(config: Config, settled: Trials, settings: Settings) -> Config:
    """The configuration of one trial."""
    return with_settings(config, settings | {"learner.noise": settled.noise})


def _rehearse(config: Config, settled: Trials, budget: Budget, info: StreamInfo) -> None:
    """Refuse a learner that reads otherwise than by its plan, found out on an empty task before anything is charged."""
    task = info.tasks[0]
    facts = replace(info, name="rehearsal", public=True, unit="record", records_per_unit=1)
    empty = (np.zeros((0, *info.shape), dtype=np.float32), np.asarray(task.labels)[:0])
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        block = admit(vault, empty, facts, task, replace(budget, unit=Unit.RECORD))
        learner = make_learner(config, budget, config.seeds[0])
        learner.start(info)
        learner.fit(task, block, vault)
        reads = [read for grant in ledger.statement(block.stream_id).grants for read in grant.reads]
    if reads != [(block.id, to_json(settled.plan.reads[0].event))]:
        raise LearnerError(
            f"{config.learner.method} cuts a task's records or reads them in several ways, and a trial of private "
            "tuning pays for one plan of gradients on all of them; use NaiveDPSGD or PEFTEnsemble"
        )


class _TuningLoop(FiniteLoop):
    """Learns the first task as the best of the trials, and writes the folder of a run that goes on from there."""

    def __init__(
        self,
        plan: SeedPlan,
        space: Space,
        run: RunFolder,
        settled: Trials,
        ledger: Path | None,
        progress: OnEvent,
        stop: Stop,
    ) -> None:
        super().__init__(plan, progress, stop)
        self.space, self.run_folder, self.settled, self.ledger = space, run, settled, ledger

    def tune(self) -> TuningResult:
        """Run the trials and release the best; returns what was found."""
        task = self.plan.stream[0]
        said = f"tuning {self.space.keys} on {task.info.name}, under one charge of ε = {self.plan.budget.epsilon:g}"
        notify(self.reporter.progress, said)
        self.learner.start(self.plan.labels.info)
        self.learn(task)
        return self.found

    def train(self, task: TaskInfo, block: Block) -> Release:
        winner = self.vault.umbrella([block], self.settled.plan, lambda rng: self.trial(rng, task, block))
        drawn, tensors = winner.result
        plan, before = self.settled.plan, self.plan.config
        about = (
            f"{self.space.keys}: repeat-and-select on {task.name}, {plan.trials:g} random trials expected (shape "
            f"{plan.shape:g})"
        )
        settings = drawn | {"tuned.how": "private", "tuned.charged": True, "tuned.about": about}
        config = with_settings(before, settings | {"threads": before.threads or available_cores()})
        self.learner = self._learner(config)
        self.folder.note({"untrained": self.evaluation.untrained(self.learner)})
        self.learner.restore(tensors, (task,))
        self.found = TuningResult(settings=settings, score=winner.score, tried=(), config=config)
        return self.learner.release(task, block, self.vault)

    def save(self, release: Release, block: Block) -> None:
        folder, stream = self.run_folder, self.plan.stream
        folder.lay_out(self.found.config)
        if not stream.info.public:  # as the first call of a run, it vouches for all tasks in one file
            write_arrivals(folder, [one.info.name for one in stream if one.arrived is None])
        if self.ledger is not None:
            charged_ledger.write_ledger_reference(self.ledger, folder)
        save(self.found, folder.path)
        release.save(self._release_path(release.task))  # last: with it the run can be resumed

    def evaluate(self, task: TaskInfo) -> None:
        """Nothing: the run measures accuracy when it is resumed."""

    def trial(
        self, rng: np.random.Generator, task: TaskInfo, block: Block
    ) -> tuple[float, tuple[Settings, dict[str, Tensor]]]:
        """Learn the task with settings drawn from `rng`; returns the score, and the settings and the state learned."""
        settings = self.space.draw(rng)
        learner = self._learner(_trial(self.plan.config, self.settled, settings))
        learner.fit(task, block, self.vault)
        learner.tasks_ = (task,)
        return self._score(learner, block), (settings, learner.tensors())

    def _score(self, learner: Learner, block: Block) -> float:
        if self.settled.score is None:
            return self.evaluation.now(learner, 0) or 0.0
        task = self.facts.tasks[0] if self.facts.task_id == "given" else None
        return self.vault.accuracy(block, partial(answer, learner.scores, task, "trial"), self.settled.score)

    def _learner(self, config: Config) -> Learner:
        made = make_learner(config, self.evaluation.budget, self.folder.seed)
        made.start(self.plan.labels.info)
        return made
