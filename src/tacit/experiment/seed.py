"""One seed of a run: task after task, learn, release, ask.

Guarantee: a kill at any moment loses time only. Releases are the checkpoints; within a task the vault finds its
unfinished grants by their pins, replays the same coins and noise, and bills nothing twice. Records are admitted to the
vault and let go of after their task.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from tacit import models
from tacit.data.stream import Stream, StreamInfo, TaskInfo
from tacit.errors import ConfigError
from tacit.experiment.config import Config
from tacit.experiment.evaluation import Examiner, examiner, mean_of_learnt
from tacit.experiment.events import Said, Stop, Tell
from tacit.experiment.folder import SeedFolder
from tacit.learners import find
from tacit.learners.core import Step
from tacit.learners.learner import Learner, admit
from tacit.learners.release import Release
from tacit.privacy.budget import Budget
from tacit.privacy.keys import KeyRing
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Vault

BETWEEN_S = 0.1
"""Steps are told at most so often."""


def run_seed(
    config: Config, folder: SeedFolder, stream: Stream, *, ledger: Path | None, tell: Tell, stop: Stop
) -> None:
    """Learn the whole stream, or what is left of it."""
    with folder.held():
        if folder.finished:
            folder.clear()  # a kill may have come before it
            return
        with open_ledger(config, folder, stream.info, ledger) as book:
            SeedRun(config, folder, stream, Vault(book, folder.private / "store"), tell, stop).go()
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
    network = partial(_network, config.model.network, config.model.options)
    return make(budget=budget, network=network, seed=seed, device=config.device, **config.learner.options)


def _network(name: str, options: dict[str, Any], info: StreamInfo) -> nn.Module:
    return models.build(name, info.shape, len(info.labels), **options)


class SeedRun:
    """The state of one seed while it runs."""

    def __init__(
        self, config: Config, folder: SeedFolder, stream: Stream, vault: Vault, tell: Tell, stop: Stop
    ) -> None:
        self.config, self.folder, self.stream, self.vault = config, folder, stream, vault
        self.tell, self.stop = tell, stop
        self.budget = config.budget.make(stream.info.unit)
        self.examiner: Examiner = examiner(config.evaluation, stream, vault, self.budget)
        self.learner = new_learner(config, self.examiner.budget, folder.seed)
        self.clock = Clock()
        self.curve: list[float | None] = []
        self.epsilon: float | None = None
        self._told = 0.0

    def go(self) -> None:
        with self.clock.part("learn"):  # plans and their noise are found here
            self.learner.start(self.examiner.info)
        self.learner.watch = self._watch  # type: ignore[method-assign]
        done = self._restore()
        self._say("begin", task=done)
        settled = {note["task"] for note in self.folder.notes() if note.get("settled")}
        for number in range(len(self.stream)):
            if number not in settled:
                self.stop.check()
                self._task(number, released=number < done)
        claimed = self.learner.claimed()
        said = None if claimed is None else {
            "per_task": claimed.per_task, "total": claimed.total, "delta": claimed.delta
        }  # fmt: skip
        head = self.vault.ledger.head
        self.folder.note(
            {
                "finished": True,
                "claimed": said,
                "claim": self.learner.claim,
                "private": self.learner.private,
                "sequential": self.learner.sequential,
                "accuracy_from": self.examiner.source,
                "accuracy_noise": self.examiner.noise,
                "task_id": self.stream.info.task_id,
                "tasks": [task.name for task in self.stream.info.tasks],
                "ledger": {"id": self.vault.ledger.id, "head": {"seq": head.seq, "hash": head.hash}},
            }
        )
        self._say("done", task=len(self.stream))

    def _restore(self) -> int:
        """Go on from the last whole release; how many there are."""
        tasks = self.examiner.info.tasks
        done = 0
        while done < len(tasks) and (self._place(tasks[done]) / "release.json").exists():
            done += 1
        if done:
            last = Release.load(self._place(tasks[done - 1]))
            self.learner.restore(last.tensors, tasks[:done], self.vault, part=self.examiner.part)
            self.examiner.reopen(done)
        elif not any("untrained" in note for note in self.folder.notes()):
            with self.clock.part("evaluate"):
                self.folder.note({"untrained": self.examiner.untrained(self.learner)})
        return done

    def _task(self, number: int, *, released: bool) -> None:
        """One task, from its records to its line in the log. What is billed stays resumable until all is saved."""
        info = self.examiner.info.tasks[number]
        known = [note["accuracy"] for note in self.folder.notes() if note.get("task") == number and "accuracy" in note]
        with self.vault.until_saved():
            if not released:
                self._learn(number, info)
            with self.clock.part("evaluate"):  # what was asked and noted before a kill is not asked again
                accuracies = known[0] if known else self.examiner.after(self.learner, number)
            # Times follow the number of records: of private data they are not written down.
            times = {"seconds": self.clock.take()} if self.stream.info.public else {}
            self.folder.note({"task": number, "accuracy": accuracies, **times})
        self._settle(info, released=released)
        self.folder.note({"task": number, "settled": True})
        self._say("task", task=number, name=info.name, accuracy=mean_of_learnt(accuracies, number))

    def _settle(self, info: TaskInfo, *, released: bool) -> None:
        """Nothing of a saved task stays open; the certificate of private data also counts its last queries."""
        block = self.vault.find(self.stream.info.name, info.name)
        if released:
            self.vault.settle(block)
        if not self.stream.info.public:
            self.learner.certify(block, self.vault).save(self._place(info) / "certificate.json")

    def _learn(self, number: int, info: TaskInfo) -> None:
        task = self.stream[number]
        with self.clock.part("admit"):
            admitted = admit(self.vault, task.records(), self.stream.info, task.info, self.budget)
            block = self.examiner.cut(number, admitted)
        self.curve, self._stream_id = [], block.stream_id
        with self.clock.part("learn"):
            release = self.learner.learn(info, block, self.vault)
        self.folder.note({"task": number, "curve": self.curve})
        release.save(self._place(info))
        self.epsilon = self.vault.ledger.epsilon(block.stream_id)

    def _watch(self, step: Step) -> None:
        """Called by the learner before each step; it changes nothing there."""
        self.stop.check()
        if step.step == len(self.curve) <= self.config.lca:
            with self.clock.part("evaluate"):
                self.curve.append(self.examiner.now(self.learner, step.task.number))
        now = time.monotonic()
        if step.step == 1:
            self.epsilon = self.vault.ledger.epsilon(self._stream_id)
        if step.step in (0, 1) or now - self._told >= BETWEEN_S:
            self._told = now
            self._say("step", task=step.task.number, name=step.task.name, step=step.step, of=step.of)

    def _say(self, kind: Any, **said: Any) -> None:
        self.tell(Said(kind=kind, seed=self.folder.seed, tasks=len(self.stream), epsilon=self.epsilon, **said))

    def _place(self, info: TaskInfo) -> Path:
        return self.folder.release(info.number, info.name)


class Clock:
    """Seconds by part; a part inside another one is taken out of it."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._spent: dict[str, float] = {}
        self._open: list[str] = ["rest"]

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def take(self) -> dict[str, float]:
        """What was spent since the last call."""
        self._turn()
        spent, self._spent = self._spent, {}
        return {name: round(seconds, 6) for name, seconds in spent.items()}

    def _turn(self) -> None:
        now = time.perf_counter()
        self._spent[self._open[-1]] = self._spent.get(self._open[-1], 0.0) + now - self._since
        self._since = now
