"""One seed of a run: task after task, learn, release, ask.

Guarantee: a kill at any moment loses time only. Releases are the checkpoints; within a task the vault finds its
unfinished grants by their pins, replays the same coins and noise, and bills nothing twice. Records are admitted to the
vault and let go of after their task.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.data.stream import Stream, StreamInfo, TaskInfo
from tacit.errors import ConfigError, TacitError
from tacit.experiment.checks import check_facts
from tacit.experiment.clock import Clock
from tacit.experiment.config import Config
from tacit.experiment.consumption import consumed
from tacit.experiment.evaluation import Examiner, examiner, mean_of_learnt
from tacit.experiment.events import Said, Stop, Stopped, Tell
from tacit.experiment.features import task_folder
from tacit.experiment.folder import SeedFolder, delete
from tacit.experiment.held import Held
from tacit.experiment.labels import DeclaredSets, declare, label_sets
from tacit.experiment.streams import caveats
from tacit.learners import find
from tacit.learners.core import Step
from tacit.learners.learner import Learner, admit
from tacit.learners.networks import NamedNetwork
from tacit.learners.rehearse import rehearse
from tacit.learners.release import Release, recertify
from tacit.privacy import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.keys import KeyRing
from tacit.privacy.ledger import Ledger, StreamTerms
from tacit.privacy.vault import Vault

BETWEEN_S = 0.1
"""Steps are told at most so often."""
SHARES = (1.0, 0.98, *(0.94**times for times in range(1, 20)))
"""Of ε, that plans are tried with in turn."""


def run_seed(
    config: Config,
    folder: SeedFolder,
    stream: Stream,
    *,
    ledger: Path | None,
    tell: Tell,
    stop: Stop,
    goal: int | None = None,
) -> None:
    """Learn the whole stream, or what is left of it; with a goal, so many of its tasks for now."""
    with folder.held():
        if folder.finished:
            folder.clear()  # a kill may have come before it
            return
        with (
            open_ledger(config, folder, stream.info, ledger) as book,
            Vault(book, folder.private / "store") as vault,
        ):
            SeedRun(config, folder, stream, vault, tell, stop).go(goal)
        if folder.finished:
            folder.clear()


def open_ledger(config: Config, folder: SeedFolder, info: StreamInfo, ledger: Path | None) -> Ledger:
    """The ledger of private data; for public data one of the run's own, thrown away when the seed is done."""
    if info.public:
        keys = KeyRing.for_tests(folder.seed) if config.repeatable_noise else None
        return Ledger(folder.private / "throwaway.ledger", keys=keys)
    return Ledger(needed_ledger(info, ledger))


def needed_ledger(info: StreamInfo, ledger: Path | None) -> Path:
    """Private data has a lasting ledger, or is not touched."""
    if ledger is None:
        raise ConfigError(
            f"the stream {info.name!r} is private, so its charges must outlast the run: give the ledger of the data by "
            "--ledger FILE or TACIT_LEDGER (a new file is made the first time; keep it)"
        )
    return ledger


def new_learner(config: Config, budget: Budget, seed: int) -> Learner:
    """The method of a configuration."""
    make: Callable[..., Learner] = find(config.learner.method)
    network = NamedNetwork(name=config.model.network, options=config.model.options)
    return make(budget=budget, network=network, seed=seed, device=config.device, **config.learner.options)


def planned(config: Config, folder: SeedFolder, stream: Stream) -> Learner:
    """The learner of a seed with the plans that it learns by, and nothing learnt: for its releases to be loaded into.
    Nothing is read or charged."""
    with Ledger.throwaway() as book:
        made = SeedRun(config, folder, stream, Vault(book), lambda said: None, Stop())
        made.plan()
    return made.learner


def refuse_unworkable(config: Config, folder: SeedFolder, stream: Stream, book: Ledger, goal: int | None) -> None:
    """Refuse a seed on private data whose plans do not fit the ledger, or whose learner fails on synthetic records.
    Nothing is read or charged, and nothing is written to the folder or the ledger."""
    made = SeedRun(config, folder, stream, Vault(book), lambda said: None, Stop())
    made.plan()
    made.rehearse(goal)


class SeedRun:
    """The state of one seed while it runs."""

    def __init__(
        self, config: Config, folder: SeedFolder, stream: Stream, vault: Vault, tell: Tell, stop: Stop
    ) -> None:
        self.config, self.folder, self.vault = config, folder, vault
        self.tell, self.stop = tell, stop
        self.stream = declare(stream, config.data, folder.seed)
        self.budget = config.budget.make(stream.info.unit)
        self.held = Held(stream)
        self._make(self.budget)
        self.clock = Clock()
        self.curve: list[float | None] = []
        self.epsilon: float | None = None
        self._told = 0.0
        self._goal = len(stream)

    def _make(self, planned: Budget) -> None:
        """What reads the records, all of it planned with this budget."""
        config = self.config
        self.examiner: Examiner = examiner(config.evaluation, self.stream, self.vault, planned)
        self.labels: DeclaredSets = label_sets(config.data, self.examiner.info, self.vault, planned)
        self.learner = new_learner(config, planned, self.folder.seed)
        self.learner.tuned_ = config.tuned.make()

    def plan(self) -> None:
        """Find the plans, and see that they fit together; nothing is charged before.

        A unit that recurs may be trained on in one task, kept as memory in a second, asked about in a third. Each plan
        fits as often as the unit recurs. A mixture can cost more than any of them alone, and where there are too many
        to price each, the ledger's bound on all is looser: all are then planned with less."""
        for share in SHARES:
            if share < 1:
                self._make(replace(self.budget, epsilon=share * self.budget.epsilon))
            self.learner.start(self.labels.info)
            self.examiner.check(self.learner)
            self.held.check(self.learner)
            lists = self.learner.charges() + self.labels.charges() + self.examiner.charges()
            info = self.stream.info
            alone = (times := info.tasks_per_unit) == 1 and self.budget.adjacency != "replace-one"
            if alone or not lists or calibrate.fits_mixed(lists, self.budget, times):
                terms = StreamTerms(name=info.name, budget=self.budget, tasks_per_unit=times, public=info.public)
                self.vault.ledger.check_room(terms, lists)
                return
        raise ConfigError(
            f"the plans for {self.stream.info.name!r} do not fit {self.budget} together for a {self.stream.info.unit} "
            f"in {times} tasks; use fewer steps, tasks of the same nominal size, or evaluation.test = 'none'"
        )

    def go(self, goal: int | None) -> None:
        with self.clock.part("learn"):  # plans and their noise are found here
            self.plan()
        self.learner.watch = self._watch  # type: ignore[method-assign]
        done = self._restore()
        self.held.hand_over(self.learner, self.vault, self.budget)
        self._goal = max(done, len(self.stream) if goal is None else goal)
        self._say("begin", task=done)
        settled = {note["task"] for note in self.folder.notes() if note.get("settled")}
        for number in range(self._goal):
            if number not in settled:
                self.stop.check()
                self._task(number, released=number < done)
        self._end()
        self._say("done", task=self._goal)

    def rehearse(self, goal: int | None) -> None:
        """See on synthetic records that the learner works, where private ones would be charged for; after `plan`."""
        left = self.labels.info.tasks[: len(self.stream) if goal is None else goal]
        if not self.stream.info.public and any(not (self._place(one) / "release.json").exists() for one in left):
            rehearse(self.learner.rehearsal, self.labels.info)

    def _end(self) -> None:
        """The line that says how far it came, and what the summary needs to know of the learner."""
        names = [task.name for task in self.stream.info.tasks]
        claimed = self.learner.claimed()
        said = None if claimed is None else {
            "per_task": claimed.per_task, "total": claimed.total, "delta": claimed.delta
        }  # fmt: skip
        head = self.vault.ledger.head
        self.folder.note(
            {
                "finished": self._goal == len(names),
                "claimed": said,
                "claim": self.learner.claim,
                "private": self.learner.private,
                "sequential": self.learner.sequential,
                "accuracy_from": self.examiner.source,
                "accuracy_noise": self.examiner.noise,
                "task_id": self.stream.info.task_id,
                "caveats": caveats(self.config.data),
                "learners": [list(own) for own in self.learner.groups()],
                "held": self.held.said(self.vault, self.folder.path),
                "tasks": names[: self._goal],
                "left": names[self._goal :],
                "ledger": {"id": self.vault.ledger.id, "head": {"seq": head.seq, "hash": head.hash}},
            }
        )

    def _restore(self) -> int:
        """Go on from the last whole release; how many there are."""
        tasks = self.labels.info.tasks
        done = 0
        while done < len(tasks) and (self._place(tasks[done]) / "release.json").exists():
            done += 1
        if done:
            last = Release.load(self._place(tasks[done - 1]))
            check_facts(last, self.labels.info)
            self.learner.restore(last.tensors, last.tasks, self.vault, part=self._part())
            self.examiner.reopen(done)
        elif not any("untrained" in note for note in self.folder.notes()):
            with self.clock.part("evaluate"):
                self.folder.note({"untrained": self.examiner.untrained(self.learner)})
        return done

    def _task(self, number: int, *, released: bool) -> None:
        """One task, from its records to its line in the log. What is billed stays resumable until all is saved."""
        info = self.labels.info.tasks[number]
        known = [note["accuracy"] for note in self.folder.notes() if note.get("task") == number and "accuracy" in note]
        with self.vault.corrected(), self.vault.until_saved():
            if not released:
                self._learn(number, info)
            with self.clock.part("evaluate"):  # what was asked and noted before a kill is not asked again
                accuracies = known[0] if known else self.examiner.after(self.learner, number)
            # Times follow the number of records: of private data they are not written down.
            times = {"seconds": self.clock.take()} if self.stream.info.public else {}
            self.folder.note({"task": number, "accuracy": accuracies, **consumed(self.learner, info), **times})
        self._settle(info, released=released)
        self.folder.note({"task": number, "settled": True})
        self._say("task", task=number, name=info.name, accuracy=mean_of_learnt(accuracies, number))

    def _settle(self, info: TaskInfo, *, released: bool) -> None:
        """Nothing of a saved task stays open; the certificate of private data also counts its last queries."""
        block = self.vault.find(self.stream.info.name, info.name)
        if released:
            self.vault.settle(block)
            self.held.settle(self.vault)
        self.learner.saved(self.vault.find(self.stream.info.name, info.name, self._part()), self.vault)
        if not self.stream.info.public:
            recertify(self._place(info), self.learner.certify(block, self.vault))
        self._forget_features(info)

    def _forget_features(self, info: TaskInfo) -> None:
        """What was made of a task's records is kept no longer than it is needed."""
        delete(task_folder(self.folder.features, info.name))

    def _learn(self, number: int, info: TaskInfo) -> None:
        try:
            self._learn_and_save(number, info)
        except Stopped:
            raise
        except TacitError:
            # What was charged for can be taken up, from the very same features.
            if not self.vault.ledger.states(self.stream.info.name, info.name):
                self._forget_features(info)
            raise

    def _learn_and_save(self, number: int, info: TaskInfo) -> None:
        task = self.stream[number]
        with self.clock.part("admit"):
            like = self.learner.like(info)
            admitted = admit(self.vault, task.records, self.stream.info, task.info, self.budget, like=like)
            if self.learner.wants_shown:
                self.examiner.show(self.learner, number)
            asked, block = self.labels.cut(number, self.examiner.cut(number, admitted))
        self.curve, self._stream_id = [], block.stream_id
        # Noise layers outside the vault (learners that are not private) draw the same when a task is learnt again.
        with self.clock.part("learn"), self.learner.public_dice(number):
            release = self.learner.learn(asked, block, self.vault)
        self.folder.note({"task": number, "curve": self.curve})
        release.save(self._place(info))
        self.epsilon = self.vault.ledger.epsilon(block.stream_id)

    def _watch(self, step: Step) -> None:
        """Called by the learner before each step; it changes nothing there."""
        self.stop.check()
        if not step.before and step.step == len(self.curve) <= self.config.lca:
            with self.clock.part("evaluate"):
                self.curve.append(self.examiner.now(self.learner, step.task.number))
        now = time.monotonic()
        if step.step == 1:
            self.epsilon = self.vault.ledger.epsilon(self._stream_id)
        if step.step in (0, 1) or now - self._told >= BETWEEN_S:
            self._told = now
            self._say("step", task=step.task.number, name=step.task.name, step=step.step, of=step.of)

    def _say(self, kind: Any, **said: Any) -> None:
        self.tell(Said(kind=kind, seed=self.folder.seed, tasks=self._goal, epsilon=self.epsilon, **said))

    def _part(self) -> str:
        """The part of a task's records that the learner gets: what is left after both cuts."""
        parts = [part for part in (self.examiner.part, self.labels.part) if part not in (None, "all")]
        return "/".join(map(str, parts)) or "all"

    def _place(self, info: TaskInfo) -> Path:
        return self.folder.release(info.number, info.name)
