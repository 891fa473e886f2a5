"""Private tuning of a run by repeat-and-select, on the records of its first task (`Vault.umbrella`; rule: random search
only, a secret random number of trials, one charge, and only the best leaves).

Guarantee: all trials together, with the scores they are chosen by, cost the first task's records what the budget
allows. What leaves is the winner: its settings, its score and its release, which is the run's release after task 1. The
study is never resumed: what a crash interrupts stays charged. Later tasks use the settings, which are post-processing.
Conditions: every trial draws its settings independently from one distribution (`Space.draw`) and reads by the same
plan, so that only what changes no sampling rate, number of steps or noise multiplier can be tuned: learning rate,
clip, momentum, network. How long it takes tells the number of trials, so the folder is made `unseen`; the clock is a
secret too.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import ConfigError, LearnerError
from tacit.experiment import new_ledger
from tacit.experiment.arrival import write as write_arrivals
from tacit.experiment.checks import refuse_spent
from tacit.experiment.config import Config
from tacit.experiment.evaluation import PublicTests
from tacit.experiment.events import Said, Stop, Tell
from tacit.experiment.folder import RunFolder, refuse_full
from tacit.experiment.new_ledger import UnitCap
from tacit.experiment.runner import Streams, available_cores, check_ledger, features_at, point_to
from tacit.experiment.search import Found, planner, save, with_settings
from tacit.experiment.seed import SeedRun, new_learner, open_ledger
from tacit.experiment.space import Settings, Space
from tacit.experiment.streams import open_stream
from tacit.experiment.unseen import Unseen
from tacit.learners.asking import answer
from tacit.learners.learner import Learner, admit
from tacit.privacy import calibrate
from tacit.privacy.budget import Budget, Unit
from tacit.privacy.declared import Block
from tacit.privacy.events import to_json
from tacit.privacy.ledger import Ledger
from tacit.privacy.plan import Plan, SumPlan
from tacit.privacy.tuning import TuningPlan
from tacit.privacy.vault import Vault

SCORE_SHARE = 0.1
"""What a trial's score gets beside its gradients (in 1/σ²), where it is a noisy query on the task itself."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What every trial does, fixed before the first."""

    plan: TuningPlan
    noise: float
    """The noise multiplier of each trial's gradients."""
    score: SumPlan | None
    """The query that trials are chosen by; None: a public test set."""


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
    tell: Tell,
    stop: Stop,
) -> Found:
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
    unseen = Unseen(folder=folder)
    place = unseen.run
    at = features_at(config, place.seed(seed), tell, stop)
    opened = open_stream(config.data, seed, at) if stream is None else stream(seed)
    if opened.info.tasks_per_unit > 1:
        raise ConfigError(
            f"a {opened.info.unit} of {opened.info.name!r} may be in {opened.info.tasks_per_unit} tasks, and private "
            "tuning is for those that are in one; tune on public data"
        )
    book = check_ledger(config, opened.info, ledger)
    refuse_full(folder)
    cap = None
    if book is not None:
        refuse_spent(opened.info, book)
        cap = new_ledger.settled(book, opened.info, config.budget.make(opened.info.unit), unit_cap)
    with Ledger.throwaway() as nowhere:
        facts = SeedRun(config, place.seed(seed), opened, Vault(nowhere), tell, stop)
        settled = rehearsed(facts, space, trials=trials, shape=shape)
    with unseen.made(), place.seed(seed).held():
        if book is not None:
            new_ledger.make(book, cap)
        with (
            open_ledger(config, place.seed(seed), opened.info, book) as charged,
            Vault(charged, place.seed(seed).private / "store") as vault,
        ):
            return _Tuning(SeedRun(config, place.seed(seed), opened, vault, tell, stop), space, place, settled).go(book)


def rehearsed(run: SeedRun, space: Space, *, trials: float, shape: float) -> Trials:
    """The trials, from public facts: the most that each may spend, checked on made-up records before any charge."""
    config, budget, info, source = run.config, run.examiner.budget, run.labels.info, run.examiner.source
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
        """All noise so many times what one trial alone would need."""
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
    """A learner that reads otherwise than by its plan would be refused after the charge: find out before, on nobody."""
    task = info.tasks[0]
    facts = replace(info, name="rehearsal", public=True, unit="record", records_per_unit=1)
    nobody = (np.zeros((0, *info.shape), dtype=np.float32), np.asarray(task.labels)[:0])
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        block = admit(vault, nobody, facts, task, replace(budget, unit=Unit.RECORD))
        learner = new_learner(config, budget, config.seeds[0])
        learner.start(info)
        learner.fit(task, block, vault)
        reads = [read for grant in ledger.statement(block.stream_id).grants for read in grant.reads]
    if reads != [(block.id, to_json(settled.plan.reads[0].event))]:
        raise LearnerError(
            f"{config.learner.method} cuts a task's records or reads them in several ways, and a trial of private "
            "tuning pays for one plan of gradients on all of them; use NaiveDPSGD or PEFTEnsemble"
        )


class _Tuning:
    """One study: admit, try, release."""

    def __init__(self, run: SeedRun, space: Space, place: RunFolder, settled: Trials) -> None:
        self.run, self.space, self.place, self.settled = run, space, place, settled
        self.vault = run.vault

    def go(self, ledger: Path | None) -> Found:
        run, task = self.run, self.run.stream[0]
        said = f"tuning {self.space.keys} on {task.info.name}, under one charge of ε = {run.budget.epsilon:g}"
        run.tell(Said(kind="notice", name=said))
        admitted = admit(self.vault, task.records, run.stream.info, task.info, run.budget)
        asked, block = run.labels.cut(0, run.examiner.cut(0, admitted))
        winner = self.vault.umbrella([block], self.settled.plan, lambda rng: self._try(rng, asked, block))
        drawn, tensors = winner.result
        plan = self.settled.plan
        about = (
            f"{self.space.keys}: repeat-and-select on {task.info.name}, {plan.trials:g} random trials expected (shape "
            f"{plan.shape:g})"
        )
        settings = drawn | {"tuned.how": "private", "tuned.charged": True, "tuned.about": about}
        config = with_settings(run.config, settings | {"threads": run.config.threads or available_cores()})
        learner = self._learner(config)
        run.folder.note({"untrained": run.examiner.untrained(learner)})
        learner.restore(tensors, (asked,))
        self.place.lay_out(config)
        if not run.stream.info.public:  # the first call of the run that goes on: it speaks for all tasks in one file
            write_arrivals(self.place, [one.info.name for one in run.stream if one.arrived is None])
        if ledger is not None:
            point_to(ledger, self.place)
        release = learner.release(asked, block, self.vault)
        release.save(run.folder.release(0, task.info.name))  # last: with it the run can be taken up
        found = Found(settings=settings, score=winner.score, tried=(), config=config)
        save(found, self.place.path)
        return found

    def _try(
        self, rng: np.random.Generator, asked: TaskInfo, block: Block
    ) -> tuple[float, tuple[Settings, dict[str, Tensor]]]:
        settings = self.space.draw(rng)
        learner = self._learner(_trial(self.run.config, self.settled, settings))
        learner.fit(asked, block, self.vault)
        learner.tasks_ = (asked,)
        return self._score(learner, block), (settings, learner.tensors())

    def _score(self, learner: Learner, block: Block) -> float:
        if self.settled.score is None:
            return self.run.examiner.now(learner, 0) or 0.0
        task = self.run.stream.info.tasks[0] if self.run.stream.info.task_id == "given" else None
        return self.vault.accuracy(block, partial(answer, learner.scores, task, "trial"), self.settled.score)

    def _learner(self, config: Config) -> Learner:
        made = new_learner(config, self.run.examiner.budget, self.run.folder.seed)
        made.tuned_ = config.tuned.make()
        made.start(self.run.labels.info)
        return made
