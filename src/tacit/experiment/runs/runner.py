"""`run(config, folder)`: learn a finite stream with every seed of a configuration, and summarise the results.

A run can be killed at any moment. `resume=True` then gives the same numbers as a run in one go and charges nothing
twice; so does a run that learns some tasks at a time (`until`). Where resuming happens: `FiniteLoop` restores the last
release of each seed, and `tacit.learners.base.task_loop` repeats an unfinished task with the same random bits.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.config.loading import for_seed, load_as
from tacit.experiment.features.features import published_notices
from tacit.experiment.files import write_json
from tacit.experiment.process import available_cores, threads
from tacit.experiment.progress import Event, OnEvent, Stop, ignore, notify, stop_on_ctrl_c
from tacit.experiment.runs import charged_ledger, location, run_summary
from tacit.experiment.runs.charged_ledger import UnitCap
from tacit.experiment.runs.finite_and_endless import FiniteLoop
from tacit.experiment.runs.folder import RunFolder
from tacit.experiment.runs.planning import SeedPlan
from tacit.experiment.runs.preparation import Preparation
from tacit.experiment.runs.resolver import Streams, features_at, open_stream
from tacit.experiment.runs.run_summary import RunSummary
from tacit.experiment.runs.workers import run_workers
from tacit.experiment.trackers import Tracker, careful, following, send_all
from tacit.learners.base.callbacks import Callback
from tacit.learners.base.task_loop import Clock
from tacit.privacy.vault import Vault


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
    trackers: Sequence[Tracker] = (),
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
        trackers: Are sent the run after each task and at the end, such as `tacit.report.MLflow()`. One that fails is a
            notice, not an error.

    Returns:
        The summary of the run, as far as it has come.

    Raises:
        ConfigError: The configuration, the folder or the ledger cannot be used; nothing is charged.
        BudgetExceeded: The ledger has no room for the run.
        Stopped: A stop was requested; the run can be resumed.
    """
    config = config if isinstance(config, Config) else load_as(Config, config)
    if config.kind != "run":
        raise ConfigError(f"{config.name} is of the kind {config.kind!r}: it has no end; use run_endless, or tacit run")
    for seed in config.seeds:
        for_seed(config, seed)  # a wrong setting of one seed is refused before the first begins
    run_folder, stop, progress = RunFolder(path=Path(folder)), stop or Stop(), progress or ignore
    sent = careful(trackers, progress)
    if resume or moved or data is not None:
        location.check_location(run_folder, moved=moved, ledger=ledger, data=data)
        config = location.with_data(config, data)
    cores = available_cores()
    at_once = 1 if stream is not None or callback is not None else max(1, min(processes or cores, len(config.seeds)))
    if config.threads is None and not run_folder.has_run:
        config = config.model_copy(update={"threads": max(1, cores // at_once)})
    prepared = Preparation.of(
        config, run_folder, ledger=ledger, resume=resume, until=until, arrived=arrived, streams=stream,
        unit_cap=unit_cap,
    )  # fmt: skip
    with run_folder.unless_refused(config.seeds):
        config = prepared.begin()
        if prepared.nothing_to_learn():
            if until is not None:
                notify(progress, f"{until} is learned already; nothing was read, learned or charged")
            send_all(sent, run_folder.path)
            return run_summary.read(config, run_folder)
        prepared.connect_ledger(config, progress)
        if prepared.missing:
            notify(progress, prepared.missing)
        if stream is None:
            notify(progress, *published_notices(config.data.sources, config.data.features))

        def report(event: Event) -> None:
            if event.kind == "task":
                run_summary.write_accuracy(config, run_folder)
            follow(event)

        follow = following(sent, run_folder.path, progress)
        with stop_on_ctrl_c(stop):
            if stream is None and callback is None and (at_once > 1 or separate):
                run_workers(
                    run_folder.path, config.seeds, ledger=prepared.ledger, goal=prepared.goal,
                    threads=config.threads or 1, processes=at_once, progress=report, stop=stop,
                )  # fmt: skip
            else:
                for seed in config.seeds:
                    run_seed(
                        run_folder.path, seed, ledger=prepared.ledger, goal=prepared.goal, progress=report, stop=stop,
                        stream=stream, callback=callback,
                    )  # fmt: skip
    write_json(run_folder.path / "ledger.json", _ledger_reference(config, run_folder, prepared.ledger))
    found = run_summary.finish(config, run_folder)
    send_all(sent, run_folder.path)
    return found


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


def _ledger_reference(config: Config, run_folder: RunFolder, ledger: Path | None) -> dict[str, Any]:
    """`ledger.json`: the lasting ledger and its head, or the heads of the throw-away ledgers."""
    if ledger is not None:
        return charged_ledger.ledger_reference(ledger)
    heads = {str(seed): run_summary.SeedLog.read(run_folder.seed(seed)).end["ledger"] for seed in config.seeds}
    return {"kind": "throw-away, the data is declared public", "seeds": heads}
