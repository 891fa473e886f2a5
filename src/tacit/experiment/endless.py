"""`run_endless(config, folder)`: a stream without end, task after task, for as long as it is let.

Guarantee: killed at any moment, the next call goes on where it was and charges nothing twice; what it keeps, in memory
and on disk, does not grow with the number of tasks (but for the ledger, which forgets nothing); ε is that of one task's
plan for ever, since no unit comes back more often than declared. When nothing more may be spent it says so, keeps the
last release, and charges nothing; where the learner's own settings end it, no further task is admitted, and all records
that it holds are retired.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.data.stream import Stream, StreamInfo
from tacit.errors import BudgetExceeded, ConfigError, PolicyError
from tacit.experiment import new_ledger, run_place
from tacit.experiment.checks import check_facts, refuse_spent
from tacit.experiment.clock import Clock
from tacit.experiment.consumption import consumed
from tacit.experiment.endless_config import Endless
from tacit.experiment.endless_folder import EndlessFolder
from tacit.experiment.evaluation import Examiner, NoTests, PublicTests
from tacit.experiment.events import Said, Stop, Tell, ctrl_c
from tacit.experiment.held import Held
from tacit.experiment.loading import load
from tacit.experiment.new_ledger import UnitCap
from tacit.experiment.runner import (
    Streams,
    available_cores,
    charged_to,
    check_ledger,
    features_at,
    nobody,
    point_to,
    threads,
)
from tacit.experiment.seed import BETWEEN_S, new_learner, open_ledger
from tacit.experiment.streams import check_sources, open_stream
from tacit.learners.core import Step
from tacit.learners.learner import Learner, admit
from tacit.learners.rehearse import rehearse
from tacit.learners.release import Release
from tacit.privacy.budget import Budget
from tacit.privacy.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a stream without end stands."""

    folder: Path
    learnt: int
    """Tasks so far."""
    epsilon: float | None
    """Certified for one unit over the whole stream; None: no finite one, or nothing is learnt yet."""
    accuracy: float | None
    """Mean over the public test sets of the last tasks."""
    ended: str | None
    """Why nothing more can be learnt; None: it can go on."""

    @property
    def release(self) -> Path:
        """The last release: `tacit.learners.opened(release)` answers from it."""
        return self.folder / "releases" / "last"


def run_endless(
    config: Endless | str | Path | Mapping[str, Any],
    folder: str | Path,
    *,
    ledger: str | Path | None = None,
    resume: bool = False,
    tasks: int | None = None,
    stream: Streams | None = None,
    unit_cap: UnitCap = None,
    moved: bool = False,
    data: str | Path | None = None,
    tell: Tell | None = None,
    stop: Stop | None = None,
) -> Standing:
    """Learn task after task into the folder: up to so many tasks in all, or until it is stopped or may spend no more.

    `stream`: an endless stream of your own for a seed, in place of the one that the configuration names. `unit_cap`,
    `moved`, `data`: as for `run`."""
    config = config if isinstance(config, Endless) else _loaded(config)
    place, stop, said = EndlessFolder(path=Path(folder)), stop or Stop(), tell or nobody
    if resume or moved or data is not None:
        run_place.take_up(place, moved=moved, ledger=ledger, data=data)
        config = Endless.of(run_place.with_data(config, data).plain())
    seed = config.seeds[0]
    if stream is None and not place.has_run:
        check_sources(config.data)
    features = features_at(config, place.seed(seed), said, stop)
    opened = open_stream(config.data, seed, features) if stream is None else stream(seed)
    info = _endless(opened.info)
    book = check_ledger(config, info, place.ledger().get("path") if ledger is None and resume else ledger)
    if book is not None and not place.has_run:
        refuse_spent(info, book)
    if config.threads is None and not place.has_run:
        config = config.model_copy(update={"threads": available_cores()})
    budget = config.budget.make(info.unit)
    learner = new_learner(config, budget, seed)
    learner.tuned_ = config.tuned.make()
    learner.start(info)  # what is impossible is said before a folder is made
    Held(opened).check(learner)
    tests = _tests(config, opened, budget)
    if book is not None:
        rehearse(learner.rehearsal, info)
    cap = None
    if book is not None and (not place.has_run or not book.exists()):
        cap = new_ledger.settled(book, info, budget, unit_cap)
    begun = place.begin(config, resume=resume)
    assert isinstance(begun, Endless)
    with place.seed(seed).held(), threads(begun.threads or 1), ctrl_c(stop):
        if book is not None:
            point_to(book, place, cap)
            for sentence in (charged_to(begun, info, book), new_ledger.told(book, cap)):
                if sentence is not None:
                    said(Said(kind="notice", name=sentence))
        with (
            open_ledger(begun, place.seed(seed), info, book) as kept,
            Vault(kept, place.seed(seed).private / "store") as vault,
        ):
            return EndlessRun(begun, place, opened, learner, tests, vault, said, stop).go(tasks)


class EndlessRun:
    """The state of a stream without end while it runs. All of it is of constant size."""

    def __init__(
        self,
        config: Endless,
        place: EndlessFolder,
        stream: Stream,
        learner: Learner,
        tests: Examiner,
        vault: Vault,
        tell: Tell,
        stop: Stop,
    ) -> None:
        self.config, self.place, self.stream, self.learner = config, place, stream, learner
        self.tests, self.vault, self.tell, self.stop = tests, vault, tell, stop
        self.seed, self.budget = place.seed(config.seeds[0]), learner.budget
        self.clock = Clock()
        self.epsilon: float | None = None
        self.accuracy: float | None = None
        self._told = 0.0

    def go(self, goal: int | None) -> Standing:
        self.learner.watch = self._watch  # type: ignore[method-assign]
        state = self.place.state()
        ended: str | None = state.get("ended")
        done = self._restore(int(state.get("settled", 0)))
        if self.learner.over(done) is not None:
            ended = self._end(done)
        elif ended is None or state["head"] != self.vault.ledger.head.hash:  # otherwise the answer is as it was
            self._say("begin", task=done)
            ended = self._learn_on(done, goal)
        if ended is not None:
            self._say("notice", name=f"{ended}; the last release is {self.place.last}")
        learnt = self.learner.learnt
        certified = self.learner.certificate_.claims.certified.epsilon if learnt else None
        return Standing(folder=self.place.path, learnt=learnt, epsilon=certified, accuracy=self.accuracy, ended=ended)

    def _learn_on(self, done: int, goal: int | None) -> str | None:
        """Task after task; why it ended, if it did not reach the goal."""
        while self.learner.over(done) is None:
            if goal is not None and done >= goal:
                return None
            self.stop.check()
            try:
                self._task(done)
            except (BudgetExceeded, PolicyError) as refused:
                if done == 0:  # there is nothing to keep
                    raise
                ended = f"nothing more may be spent, so the stream ends after task {done}: {refused}"
                self._write_state(done, ended)
                return ended
            done += 1
        return self._end(done)

    def _end(self, done: int) -> str:
        """The learner's last task is learnt: nothing reads what is held again. As often as kills make it necessary."""
        self.learner.let_go(self.vault)
        ended = f"the stream ends after task {done}: {self.learner.over(done)}"
        self._write_state(done, ended)
        return ended

    def _restore(self, settled: int) -> int:
        """Go on from the last release; how many tasks it has learnt."""
        done = self.place.learnt
        if done:
            last = Release.load(self.place.last)
            check_facts(last, self.stream.info)
            # After the last task of all, records are let go: there may be none left to take up.
            over = self.learner.over(done) is not None
            self.learner.restore(last.tensors, last.tasks, None if over else self.vault)
            self.learner.certificate_ = last.certificate
            state = self.place.state()
            self.epsilon, self.accuracy = state.get("epsilon"), state.get("accuracy")
            if settled < done:  # a kill came between the release and what follows it
                self.vault.settle(self.vault.find(self.stream.info.name, last.task.name))
                self._settle(done - 1)
        return done

    def _task(self, number: int) -> None:
        """One task, from its records to its release. What is billed stays resumable until the release is kept."""
        task = self.stream.task(number)
        with self.vault.until_saved():
            with self.clock.part("admit"):
                like = self.learner.like(task.info)
                block = admit(self.vault, task.records, self.stream.info, task.info, self.budget, like=like)
                if self.learner.wants_shown:
                    self.tests.show(self.learner, number)
            # Noise layers outside the vault draw the same when a task is learnt again.
            with self.clock.part("learn"), self.learner.public_dice(number):
                release = self.learner.learn(task.info, block, self.vault)
            place = self.seed.release(number, task.info.name)
            release.save(place)
            self.place.publish(place)
        self._settle(number)

    def _settle(self, number: int) -> None:
        """What follows a release, as often as kills make it necessary: records that are never read again go, accuracy
        is measured, and old releases are deleted."""
        task = self.learner.tasks_[-1]
        block = self.vault.find(self.stream.info.name, task.name)
        self.learner.saved(block, self.vault)
        self.epsilon = self.vault.ledger.epsilon(block.stream_id)
        with self.clock.part("evaluate"):
            found = self.tests.after(self.learner, number)
        known = [one for one in found if one is not None]
        self.accuracy = math.fsum(known) / len(known) if known else None
        expected = self.learner.consumption(task)
        reads = None if expected is None else expected.trained + expected.read
        remembered = None if expected is None else expected.held
        # Times follow the number of records: of private data they are not written down.
        times = {"seconds": self.clock.take()} if self.stream.info.public else {}
        self.place.note(
            {"task": number, "name": task.name, "accuracy": found, "epsilon": _finite(self.epsilon),
             **consumed(self.learner, task), **times}
        )  # fmt: skip
        self._write_state(number + 1, None)
        self.place.forget(number + 1, self.config.keep)
        self._say("task", task=number, name=task.name, accuracy=self.accuracy, read=reads, remembered=remembered)

    def _write_state(self, settled: int, ended: str | None) -> None:
        self.place.write_state(
            {"settled": settled, "epsilon": _finite(self.epsilon), "accuracy": self.accuracy, "ended": ended,
             "head": self.vault.ledger.head.hash}
        )  # fmt: skip

    def _watch(self, step: Step) -> None:
        """Called by the learner before each step; it changes nothing there."""
        self.stop.check()
        now = time.monotonic()
        if step.step == 0 or now - self._told >= BETWEEN_S:
            self._told = now
            self._say("step", task=step.task.number, name=step.task.name, step=step.step, of=step.of)

    def _say(self, kind: Any, **said: Any) -> None:
        self.tell(Said(kind=kind, seed=self.seed.seed, epsilon=self.epsilon, **said))


class LastTasks(PublicTests):
    """The public test sets of the last tasks, which are all that is kept."""

    def __init__(self, stream: Stream, budget: Budget, window: int) -> None:
        super().__init__(stream, budget)
        self._window = window

    def after(self, learner: Learner, number: int) -> list[float | None]:
        first = max(0, number + 1 - self._window)
        self._kept = {one: kept for one, kept in self._kept.items() if one >= first}
        return [self.now(learner, one) for one in range(first, number + 1)]


def _tests(config: Endless, stream: Stream, budget: Budget) -> Examiner:
    """The way of asking after each task."""
    tested = stream.task(0).test is not None
    if config.evaluation.test == "public" and not tested:
        raise ConfigError(
            f"evaluation.test = 'public' needs public test sets and {stream.info.name!r} has none; use 'none'"
        )
    if not tested or config.evaluation.test == "none":
        return NoTests(stream.info, budget)
    return LastTasks(stream, budget, config.window)


def _endless(info: StreamInfo) -> StreamInfo:
    if not info.endless:
        raise ConfigError(
            f"the stream {info.name!r} has an end, after {len(info.tasks)} tasks; use kind: run, or a scenario without "
            "one (data.scenario = 'drifting')"
        )
    return info


def _loaded(what: str | Path | Mapping[str, Any]) -> Endless:
    found = load(what)
    if not isinstance(found, Endless):
        raise ConfigError(f"{what} is of the kind {found.kind!r} and has an end; use the command that is for it")
    return found


def _finite(epsilon: float | None) -> float | None:
    """As JSON can hold it; without privacy there is no number."""
    return None if epsilon is None or math.isinf(epsilon) else epsilon
