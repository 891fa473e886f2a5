"""`run(config, folder)`: learn a finite stream with every seed of a configuration, and summarise the results.

A run can be killed at any moment. `resume=True` then gives the same numbers as a run in one go and charges nothing
twice; so does a run that learns some tasks at a time (`until`). Where resuming happens: `FiniteLoop` restores the last
release of each seed, and `tacit.learners.base.task_loop` repeats an unfinished task with the same random bits.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tacit.data.stream import Stream, StreamInfo
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.config.loading import for_seed, load
from tacit.experiment.features.features import Place, published_notices
from tacit.experiment.files import write_json
from tacit.experiment.progress import Event, OnEvent, Stop, ignore, notify, stop_on_ctrl_c
from tacit.experiment.runs import charged_ledger, location, run_summary
from tacit.experiment.runs.arrival import arrivals, nothing_new
from tacit.experiment.runs.arrival import write as write_arrivals
from tacit.experiment.runs.charged_ledger import Cap, UnitCap
from tacit.experiment.runs.checks import corrected, refuse_spent
from tacit.experiment.runs.evaluation import query_notice
from tacit.experiment.runs.finite_and_endless import FiniteLoop
from tacit.experiment.runs.folder import RunFolder, SeedFolder
from tacit.experiment.runs.planning import SeedPlan
from tacit.experiment.runs.resolver import check_sources, make_budget, open_stream
from tacit.experiment.runs.run_summary import RunSummary
from tacit.experiment.runs.workers import run_workers
from tacit.learners.base.callbacks import Callback
from tacit.learners.base.task_loop import Clock
from tacit.privacy.vault import Vault
from tacit.words import nearest

Streams = Callable[[int], Stream]
"""Gives the stream of a seed."""


def run(
    config: Config | str | Path | Mapping[str, Any],
    folder: str | Path,
    *,
    ledger: str | Path | None = None,
    resume: bool = False,
    until: str | None = None,
    arrived: Sequence[str] = (),
    processes: int | None = None,
    separate: bool = False,
    stream: Streams | None = None,
    unit_cap: UnitCap = None,
    moved: bool = False,
    data: str | Path | None = None,
    progress: OnEvent | None = None,
    stop: Stop | None = None,
    callback: Callback | None = None,
) -> RunSummary:
    """Run all seeds of a configuration into a folder, or what is left of them.

    Args:
        config: A configuration, or the name of a preset, the path of a file, or plain values.
        folder: The run folder; it is made if it does not exist.
        ledger: The ledger that private data is charged to. It outlives the folder. Public data needs none.
        resume: Continue the run that is in the folder.
        until: The name of the last task to learn for now; a later call with `resume` continues with the data as they
            are then.
        arrived: Tasks of private data whose rows have arrived since the last call, where no file of their own shows it
            (see `arrival`).
        processes: How many seeds run at a time; by default as many as there are cores.
        separate: Run seeds in processes of their own even if it is one at a time.
        stream: Gives the stream of a seed, in place of the one that the configuration names. Seeds then run one after
            another in this process.
        unit_cap: For a new ledger, the ε that one unit may lose over all its streams, or "none"; by default the budget
            of this run.
        moved: With `resume`: the folder was moved, and its ledger and its data are where they were.
        data: With `resume`: where the declaration of the data is now.
        progress: Receives events, also from seeds in other processes.
        stop: Stops the run between two steps.
        callback: Is called as tasks and steps begin and end. Seeds then run one after another in this process.

    Returns:
        The summary of the run, as far as it has come.

    Raises:
        ConfigError: The configuration, the folder or the ledger cannot be used; nothing is charged.
        BudgetExceeded: The ledger has no room for the run.
        Stopped: A stop was requested; the run can be resumed.
    """
    config = config if isinstance(config, Config) else loaded(config)
    if config.kind != "run":
        raise ConfigError(f"{config.name} is of the kind {config.kind!r}: it has no end; use run_endless, or tacit run")
    for seed in config.seeds:
        for_seed(config, seed)  # a wrong setting of one seed is refused before the first begins
    run_folder, stop, progress = RunFolder(path=Path(folder)), stop or Stop(), progress or ignore
    if resume or moved or data is not None:
        location.reopen_memory(run_folder, moved=moved, ledger=ledger, data=data)
        config = location.with_data(config, data)
    cores = available_cores()
    at_once = 1 if stream is not None or callback is not None else max(1, min(processes or cores, len(config.seeds)))
    if stream is None and not run_folder.has_run:
        check_sources(config.data)
    first = _first_stream(config, stream)
    info = None if first is None else first.info
    goal = None if until is None else _goal(until, (first or open_stream(config.data, config.seeds[0])).info)
    book = charged_ledger.checked_ledger(
        config, info, run_folder.ledger().get("path") if ledger is None and resume else ledger
    )
    there: tuple[str, ...] | None = None
    cap: Cap | None = None
    if first is not None and book is not None:  # the data is private
        if not run_folder.finished and (resume or not run_folder.has_run):
            there = arrivals(first, run_folder, until=goal, arrived=arrived)
            goal = len(there) if goal is None and len(there) < len(first) else goal
        if not run_folder.has_run:
            refuse_spent(first.info, book)
    if run_folder.finished and arrived:
        raise ConfigError(
            f"--arrived {arrived[0]}: all tasks that {run_folder.path} was begun with are learned, so nothing was read "
            "or charged; declare all months that are to come before a run begins"
        )
    if first is not None and book is not None and (not run_folder.has_run or not book.exists()):
        cap = charged_ledger.cap_of_new(book, first.info, make_budget(config.budget, first.info.unit), unit_cap)
    if config.threads is None and not run_folder.has_run:
        config = config.model_copy(update={"threads": max(1, cores // at_once)})
    with run_folder.unless_refused(config.seeds):
        begun = run_folder.has_run
        if begun and resume and first is not None and book is not None:
            corrected(config, run_folder, first.info)
        config = run_folder.begin(config, resume=resume)
        if there is not None and not begun:
            write_arrivals(run_folder, there)
        learned = min(run_folder.seed(seed).tasks_learned for seed in config.seeds)
        if run_folder.finished or (goal is not None and learned >= goal):
            if until is None and goal is not None and first is not None:
                raise ConfigError(nothing_new(first.info, goal))
            if until is not None:
                notify(progress, f"{until} is learned already; nothing was read, learned or charged")
            return run_summary.read(config, run_folder)
        if first is not None and book is not None:
            charged_ledger.write_planned_ledger(book, run_folder)  # the process may be killed before the ledger is made
            write_arrivals(run_folder, there or ())
            measured = _check_workable(config, run_folder, first, book, cap, goal)
            charged_ledger.write_ledger_reference(book, run_folder, cap)
            notify(progress, *charged_ledger.notices(config, first.info, book, cap), *measured)
        if stream is None:
            notify(progress, *published_notices(config.data.sources, config.data.features))

        def report(event: Event) -> None:
            if event.kind == "task":
                run_summary.write_accuracy(config, run_folder)
            progress(event)

        with stop_on_ctrl_c(stop):
            if stream is None and callback is None and (at_once > 1 or separate):
                run_workers(
                    run_folder.path, config.seeds, ledger=book, goal=goal, threads=config.threads or 1,
                    processes=at_once, progress=report, stop=stop,
                )  # fmt: skip
            else:
                for seed in config.seeds:
                    run_seed(
                        run_folder.path, seed, ledger=book, goal=goal, progress=report, stop=stop, stream=stream,
                        callback=callback,
                    )  # fmt: skip
    write_json(run_folder.path / "ledger.json", _ledger_reference(config, run_folder, book))
    return run_summary.finish(config, run_folder)


def _check_workable(
    config: Config, run_folder: RunFolder, stream: Stream, ledger: Path, cap: Cap | None, goal: int | None
) -> list[str]:
    """Refuse a run on private data whose plans do not fit the ledger, or whose learner fails on synthetic records.

    Nothing is read or charged, and no ledger is made: a run that is refused leaves none. Returns how precisely accuracy
    will be measured, in words, where it is a charged query."""
    seed = config.seeds[0]
    with charged_ledger.preview(ledger, cap) as book, threads(config.threads or 1):
        plan = SeedPlan(for_seed(config, seed), run_folder.seed(seed), stream, Vault(book))
        plan.fit_budget()
        plan.rehearse(goal)
        return [] if (noise := plan.evaluation.noise) is None else [query_notice(noise)]


def loaded(what: str | Path | Mapping[str, Any]) -> Config:
    """The configuration of one run that a preset, a file or plain values give."""
    config = load(what)
    if not isinstance(config, Config):
        raise ConfigError(f"{what} is of the kind {config.kind!r} and not a single run; use the command that is for it")
    return config


def run_seed(
    path: Path,
    seed: int,
    *,
    ledger: Path | None,
    goal: int | None,
    progress: OnEvent,
    stop: Stop,
    stream: Streams | None = None,
    callback: Callback | None = None,
) -> None:
    """Run one seed of a run folder in this process: the whole stream or what is left of it, or up to `goal` tasks."""
    run_folder = RunFolder(path=path)
    folder = run_folder.seed(seed)
    if folder.finished:
        folder.clear()  # the process may have been killed before it
        return
    if goal is not None and folder.tasks_learned >= goal:
        return
    config = for_seed(run_folder.config(), seed)
    features = features_at(config, folder, progress, stop)
    opened = open_stream(config.data, seed, features) if stream is None else stream(seed)
    with folder.locked(), threads(config.threads or 1):
        if not folder.finished:
            with (
                charged_ledger.open_ledger(config, folder, opened.info, ledger) as book,
                Vault(book, folder.private / "store") as vault,
            ):
                clock, plan = Clock(), SeedPlan(config, folder, opened, vault)
                with clock.part("learn"):
                    plan.fit_budget()
                FiniteLoop(plan, progress, stop, callback, clock).run(goal)
        if folder.finished:
            folder.clear()


def features_at(config: Config, folder: SeedFolder, progress: OnEvent, stop: Stop) -> Place:
    """Where features are computed, and where those of private records are kept until their task is settled."""
    return Place(device=config.device, private=folder.features, progress=progress, stop=stop)


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _first_stream(config: Config, stream: Streams | None) -> Stream | None:
    """The stream of the first seed, if it may be private. Named data sets are public, and are opened by their seeds."""
    if stream is not None:
        return stream(config.seeds[0])
    return open_stream(config.data, config.seeds[0]) if config.data.scenario == "declared" else None


def _goal(until: str, info: StreamInfo) -> int:
    """The number of tasks up to the one of this name."""
    names = [task.name for task in info.tasks]
    if until not in names:
        raise ConfigError(f"the stream {info.name!r} has no task {until!r} to learn up to; {nearest(until, names)}")
    return names.index(until) + 1


def _ledger_reference(config: Config, run_folder: RunFolder, ledger: Path | None) -> dict[str, Any]:
    """`ledger.json`: the lasting ledger and its head, or the heads of the throw-away ledgers."""
    if ledger is not None:
        return charged_ledger.ledger_reference(ledger)
    heads = {str(seed): run_summary.SeedLog.read(run_folder.seed(seed)).end["ledger"] for seed in config.seeds}
    return {"kind": "throw-away, the data is declared public", "seeds": heads}


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Limits torch to `number` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
