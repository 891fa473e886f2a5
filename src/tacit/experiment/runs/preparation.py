"""What a run checks and writes before it learns: first it refuses what cannot work, then it begins its folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tacit.data.stream import Stream, StreamInfo
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.config.loading import for_seed
from tacit.experiment.process import threads
from tacit.experiment.progress import OnEvent, notify
from tacit.experiment.runs import charged_ledger
from tacit.experiment.runs.arrival import arrivals, nothing_new
from tacit.experiment.runs.arrival import write as write_arrivals
from tacit.experiment.runs.charged_ledger import Cap, UnitCap
from tacit.experiment.runs.checks import corrected, refuse_spent
from tacit.experiment.runs.evaluation import query_notice
from tacit.experiment.runs.folder import RunFolder
from tacit.experiment.runs.planning import SeedPlan
from tacit.experiment.runs.resolver import Streams, check_sources, make_budget, open_stream
from tacit.privacy.vault import Vault
from tacit.privacy.vault.sources.public_rows import refuse_unmatched
from tacit.words import nearest


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """A run that was checked and has not begun.

    Attributes:
        config: Its configuration.
        folder: Its folder.
        resume: Whether it continues the run in the folder.
        until: The name of the last task to learn for now, as the caller gave it.
        goal: The number of tasks to learn up to; None: all.
        stream: The stream of the first seed, if it may be private.
        ledger: The ledger that private data is charged to; None if the data is public.
        cap: The cap of a ledger that the run will make.
        arrived: The tasks of private data that have arrived; None if the run needs none.
        missing: Which declared labels no public row has, in words; empty if all occur.
    """

    config: Config
    folder: RunFolder
    resume: bool
    until: str | None
    goal: int | None
    stream: Stream | None
    ledger: Path | None
    cap: Cap | None
    arrived: tuple[str, ...] | None
    missing: str

    @classmethod
    def of(
        cls,
        config: Config,
        folder: RunFolder,
        *,
        ledger: str | Path | None,
        resume: bool,
        until: str | None,
        arrived: Sequence[str],
        streams: Streams | None,
        unit_cap: UnitCap,
    ) -> Self:
        """Check the arguments of `run`; nothing is written, read or charged.

        Raises:
            ConfigError: The data, a task's name or the ledger cannot be used.
        """
        if streams is None and not folder.has_run:
            check_sources(config.data)
        stream = _first_stream(config, streams)
        goal = None if until is None else _goal(until, (stream or open_stream(config.data, config.seeds[0])).info)
        book = charged_ledger.checked_ledger(
            config,
            None if stream is None else stream.info,
            folder.ledger().get("path") if ledger is None and resume else ledger,
        )
        there: tuple[str, ...] | None = None
        cap: Cap | None = None
        if stream is not None and book is not None:  # the data is private
            if resume and not folder.finished:
                charged_ledger.check_same(book, folder)
            if not folder.finished and (resume or not folder.has_run):
                there = arrivals(stream, folder, until=goal, arrived=arrived)
                goal = len(there) if goal is None and len(there) < len(stream) else goal
            if not folder.has_run:
                refuse_spent(stream.info, book)
        missing = ""
        if stream is not None and not folder.finished:
            learned = min(folder.seed(seed).released(stream.info.tasks) for seed in config.seeds)
            missing = refuse_unmatched(stream, goal, learned=learned)
        if folder.finished and arrived:
            raise ConfigError(
                f"--arrived {arrived[0]}: all tasks that {folder.path} was begun with are learned, so nothing was read "
                "or charged; declare all months that are to come before a run begins"
            )
        if stream is not None and book is not None and (not folder.has_run or not book.exists()):
            budget = make_budget(config.budget, stream.info.unit)
            cap = charged_ledger.cap_of_new(book, stream.info, budget, unit_cap)
        return cls(
            config=config, folder=folder, resume=resume, until=until, goal=goal, stream=stream, ledger=book, cap=cap,
            arrived=there, missing=missing,
        )  # fmt: skip

    def begin(self) -> Config:
        """Begin the run folder, or take up the run that is in it; returns the configuration of the run."""
        begun = self.folder.has_run
        if begun and self.resume and self.stream is not None and self.ledger is not None:
            corrected(self.config, self.folder, self.stream.info)
        config = self.folder.begin(self.config, resume=self.resume)
        if self.arrived is not None and not begun:
            write_arrivals(self.folder, self.arrived)
        return config

    def nothing_to_learn(self) -> bool:
        """Whether all tasks up to the goal are learned.

        Raises:
            ConfigError: No task has arrived since the last call.
        """
        learned = min(self.folder.seed(seed).tasks_learned for seed in self.config.seeds)
        if not self.folder.finished and (self.goal is None or learned < self.goal):
            return False
        if self.until is None and self.goal is not None and self.stream is not None:
            raise ConfigError(nothing_new(self.stream.info, self.goal))
        return True

    def connect_ledger(self, config: Config, progress: OnEvent) -> None:
        """Check that the plans of a run on private data fit its ledger, and record the ledger in the run folder."""
        if self.stream is None or self.ledger is None:
            return
        charged_ledger.write_planned_ledger(self.ledger, self.folder)  # the process may be killed before it is made
        write_arrivals(self.folder, self.arrived or ())
        measured = self._check_workable(config, self.stream, self.ledger)
        charged_ledger.write_ledger_reference(self.ledger, self.folder, self.cap)
        notify(progress, *charged_ledger.notices(config, self.stream.info, self.ledger, self.cap), *measured)

    def _check_workable(self, config: Config, stream: Stream, ledger: Path) -> list[str]:
        """Refuse a run on private data whose plans do not fit the ledger, or whose learner fails on synthetic records.

        Nothing is read or charged, and no ledger is made: a run that is refused leaves none. Returns how precisely
        accuracy will be measured, in words, where it is a charged query.
        """
        seed = config.seeds[0]
        with charged_ledger.preview(ledger, self.cap) as book, threads(config.threads or 1):
            plan = SeedPlan(for_seed(config, seed), self.folder.seed(seed), stream, Vault(book))
            plan.fit_budget()
            plan.rehearse(self.goal)
            return [] if (noise := plan.evaluation.noise) is None else [query_notice(noise)]


def _first_stream(config: Config, streams: Streams | None) -> Stream | None:
    """The stream of the first seed, if it may be private. Named data sets are public, and are opened by their seeds."""
    if streams is not None:
        return streams(config.seeds[0])
    return open_stream(config.data, config.seeds[0]) if config.data.scenario == "declared" else None


def _goal(until: str, info: StreamInfo) -> int:
    """The number of tasks up to the one of this name."""
    names = [task.name for task in info.tasks]
    if until not in names:
        raise ConfigError(f"the stream {info.name!r} has no task {until!r} to learn up to; {nearest(until, names)}")
    return names.index(until) + 1
