"""`run(config, folder)`: every seed of a configuration, each task learnt, released and asked about; then the summary.

Guarantee: `resume=True` after a kill at any moment, or after a call that ended with `until`, gives the same numbers as
a run in one go, and charges nothing twice. A task's records are read when it is learnt, and not again. Private data is
charged to the ledger that is given, which outlives the folder; public data to one that is thrown away.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tacit.data.stream import Stream, StreamInfo
from tacit.errors import ConfigError
from tacit.experiment import new_ledger, run_place, summary
from tacit.experiment.arrival import arrivals, nothing_new
from tacit.experiment.arrival import write as write_arrivals
from tacit.experiment.checks import refuse_spent
from tacit.experiment.config import Config
from tacit.experiment.correction import corrected
from tacit.experiment.events import Said, Stop, Tell, ctrl_c
from tacit.experiment.features import Place, notice
from tacit.experiment.folder import RunFolder, SeedFolder, write_json
from tacit.experiment.loading import for_seed, load
from tacit.experiment.new_ledger import UnitCap
from tacit.experiment.seed import needed_ledger, refuse_unworkable, run_seed
from tacit.experiment.streams import check_sources, open_stream
from tacit.experiment.summary import Summary
from tacit.experiment.workers import run_workers
from tacit.learners import find
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.terms import Head
from tacit.words import nearest

Streams = Callable[[int], Stream]
"""The stream of a seed."""


def run(
    config: Config | str | Path | Mapping[str, Any],
    folder: str | Path,
    *,
    ledger: str | Path | None = None,
    resume: bool = False,
    until: str | None = None,
    arrived: Sequence[str] = (),
    processes: int | None = None,
    apart: bool = False,
    stream: Streams | None = None,
    unit_cap: UnitCap = None,
    moved: bool = False,
    data: str | Path | None = None,
    tell: Tell | None = None,
    stop: Stop | None = None,
) -> Summary:
    """Run all seeds into the folder, or what is left of them.

    `config`: a configuration, or what names one (a preset, a file, plain values). `until`: the name of the last task to
    learn for now; a later call with `resume` goes on, from the data as they are then. `arrived`: tasks of private data
    whose rows have arrived since the last call, where no file of their own says so (see `arrival`). `processes`:
    how many seeds at a time (default: as many as there are cores). `apart`: in processes of their own even if it is one
    at a time. `stream`: a stream of your own for each seed, in place of the one that the configuration names; seeds
    then run one after another in this process. `unit_cap`: of a ledger that is made, the ε that one unit may lose over
    all streams together, or "none"; otherwise the budget of this run. With `resume`, `moved`: the folder was moved on
    purpose, and its ledger and its data are where they were; `data`: where the declaration of its data lies now.
    """
    config = config if isinstance(config, Config) else loaded(config)
    if config.kind != "run":
        raise ConfigError(f"{config.name} is of the kind {config.kind!r}: it has no end; use run_endless, or tacit run")
    for seed in config.seeds:
        for_seed(config, seed)  # a wrong setting of one seed is said before the first begins
    place, stop, said = RunFolder(path=Path(folder)), stop or Stop(), tell or nobody
    if resume or moved or data is not None:
        run_place.take_up(place, moved=moved, ledger=ledger, data=data)
        config = run_place.with_data(config, data)
    cores = available_cores()
    at_once = 1 if stream is not None else max(1, min(processes or cores, len(config.seeds)))
    if stream is None and not place.has_run:
        check_sources(config.data)
    info = _declared_info(config, stream)
    goal = None if until is None else _goal(until, info or open_stream(config.data, config.seeds[0]).info)
    book = check_ledger(config, info, place.ledger().get("path") if ledger is None and resume else ledger)
    there: tuple[str, ...] | None = None
    if book is not None and not place.finished and (resume or not place.has_run):
        there = arrivals(_first_stream(config, stream), place, until=goal, arrived=arrived)
        goal = len(there) if goal is None and info is not None and len(there) < len(info.tasks) else goal
    if info is not None and book is not None and not place.has_run:
        refuse_spent(info, book)
    if place.finished and arrived:
        raise ConfigError(
            f"--arrived {arrived[0]}: all tasks that {place.path} was begun with are learnt, so nothing was read or "
            "charged; declare all months that are to come before a run begins"
        )
    cap = None
    if info is not None and book is not None and (not place.has_run or not book.exists()):
        cap = new_ledger.settled(book, info, config.budget.make(info.unit), unit_cap)
    if config.threads is None and not place.has_run:
        config = config.model_copy(update={"threads": max(1, cores // at_once)})
    with place.unless_refused(config.seeds):
        begun = place.has_run
        if begun and resume and info is not None and book is not None:
            corrected(config, place, info)
        config = place.begin(config, resume=resume)
        if there is not None and not begun:
            write_arrivals(place, there)
        if place.finished or (goal is not None and min(place.seed(seed).learnt for seed in config.seeds) >= goal):
            if until is None and goal is not None and info is not None:
                raise ConfigError(nothing_new(info, goal))
            if until is not None:
                said(Said(kind="notice", name=f"{until} is learnt already; nothing was read, learnt or charged"))
            return summary.read(config, place)
        if info is not None and book is not None:
            point_ahead(book, place)  # a kill may come before the ledger is made
            write_arrivals(place, there or ())
            _refuse_unworkable(config, place, stream, book, cap, goal)
            point_to(book, place, cap)
            for sentence in (charged_to(config, info, book), new_ledger.told(book, cap)):
                if sentence is not None:
                    said(Said(kind="notice", name=sentence))
        for sentence in () if stream is not None else notice(config.data.source, config.data.features):
            said(Said(kind="notice", name=sentence))
        with ctrl_c(stop):
            _seeds(config, place, stream, book, goal, apart=apart, at_once=at_once, tell=said, stop=stop)
    write_json(place.path / "ledger.json", _pointer(config, place, book))
    return summary.finish(config, place)


def _seeds(
    config: Config,
    place: RunFolder,
    stream: Streams | None,
    ledger: Path | None,
    goal: int | None,
    *,
    apart: bool,
    at_once: int,
    tell: Tell,
    stop: Stop,
) -> None:
    """All seeds, several at a time or one after another."""

    def hear(line: Said) -> None:
        if line.kind == "task":
            summary.write_accuracy(config, place)
        tell(line)

    if stream is None and (at_once > 1 or apart):
        threads = config.threads or 1
        run_workers(
            place.path, config.seeds, ledger=ledger, goal=goal, threads=threads, processes=at_once, tell=hear, stop=stop
        )
    else:
        for seed in config.seeds:
            one_seed(place.path, seed, ledger=ledger, goal=goal, tell=hear, stop=stop, stream=stream)


def _refuse_unworkable(
    config: Config, place: RunFolder, stream: Streams | None, ledger: Path, cap: new_ledger.Cap | None, goal: int | None
) -> None:
    """Plan and rehearse a run on private data before its ledger is made: one that is refused leaves none."""
    seed = config.seeds[0]
    opened = _first_stream(config, stream)
    with new_ledger.as_made(ledger, cap) as book, threads(config.threads or 1):
        refuse_unworkable(for_seed(config, seed), place.seed(seed), opened, book, goal)


def loaded(what: str | Path | Mapping[str, Any]) -> Config:
    """The configuration of one run that is named so."""
    found = load(what)
    if not isinstance(found, Config):
        raise ConfigError(f"{what} is of the kind {found.kind!r} and not a single run; use the command that is for it")
    return found


def one_seed(
    folder: Path,
    seed: int,
    *,
    ledger: Path | None,
    goal: int | None,
    tell: Tell,
    stop: Stop,
    stream: Streams | None = None,
) -> None:
    """One seed of a run whose folder is laid out, in this process; with a goal, up to so many tasks."""
    place = RunFolder(path=folder)
    if place.seed(seed).finished:
        place.seed(seed).clear()
        return
    if goal is not None and place.seed(seed).learnt >= goal:
        return
    config = for_seed(place.config(), seed)
    opened = (
        open_stream(config.data, seed, features_at(config, place.seed(seed), tell, stop))
        if stream is None
        else stream(seed)
    )
    with threads(config.threads or 1):
        run_seed(config, place.seed(seed), opened, ledger=ledger, tell=tell, stop=stop, goal=goal)


def features_at(config: Config, folder: SeedFolder, tell: Tell, stop: Stop) -> Place:
    """Where features are made, and where those of private records are kept until their task is settled."""
    return Place(device=config.device, private=folder.features, tell=tell, stop=stop)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _declared_info(config: Config, stream: Streams | None) -> StreamInfo | None:
    """The facts of a stream that may be private; named data sets are public, and are opened where they are used."""
    if stream is None and config.data.scenario != "declared":
        return None
    return _first_stream(config, stream).info


def _first_stream(config: Config, stream: Streams | None) -> Stream:
    return open_stream(config.data, config.seeds[0]) if stream is None else stream(config.seeds[0])


def _goal(until: str, info: StreamInfo) -> int:
    """How many tasks there are up to the one of this name."""
    names = [task.name for task in info.tasks]
    if until not in names:
        raise ConfigError(f"the stream {info.name!r} has no task {until!r} to learn up to; {nearest(until, names)}")
    return names.index(until) + 1


def check_ledger(config: Config, info: StreamInfo | None, ledger: str | Path | None) -> Path | None:
    """Where the charges go: a lasting ledger for private data, checked before a folder is made."""
    if info is None or info.public:
        return None
    config.budget.make(info.unit).check_units(info.units, repr(info.name))
    if config.repeatable_noise:
        raise ConfigError(
            "repeatable_noise = true makes noise that anyone can recompute, and this stream is private; set it to false"
        )
    if not find(config.learner.method).private and not _allows_unsafe(ledger):
        raise ConfigError(
            f"{config.learner.method} is not private, and the stream {info.name!r} is; use another learner, or adopt a "
            "policy with allow_unsafe = true for its ledger (tacit policy adopt)"
        )
    if len(config.seeds) > 1:
        raise ConfigError(
            f"seeds = {list(config.seeds)}: the stream {info.name!r} is private, and each seed would charge its people "
            "anew for what the first already took; use one seed"
        )
    return needed_ledger(info, None if ledger is None else Path(ledger)).absolute()


def _allows_unsafe(ledger: str | Path | None) -> bool:
    """Whether the ledger's owner lets records out without protection."""
    if ledger is None or not Path(ledger).exists():
        return False
    with Ledger(ledger) as book:
        return book.policy.allow_unsafe


def point_ahead(ledger: Path, place: RunFolder) -> None:
    """Write down which ledger a run that has none yet will charge to. A run goes on with the ledger that it was begun
    with, wherever that lies by now: another one knows nothing of what was charged."""
    begun = place.ledger()
    if "id" not in begun:
        if begun.get("path") != str(ledger):
            write_json(place.path / "ledger.json", {"kind": "kept", "path": str(ledger)})
    elif not ledger.exists():
        raise ConfigError(f"the ledger of {place.path} is not at {ledger}; say by --ledger where it is now")
    else:
        _check_begun(ledger, begun, place)


def point_to(ledger: Path, place: RunFolder, cap: new_ledger.Cap | None = None) -> None:
    """Write down what --resume charges to; a ledger that is not there yet is made."""
    point_ahead(ledger, place)  # before it is made: a kill may come in between
    if "id" not in place.ledger():
        new_ledger.make(ledger, cap)
    write_json(place.path / "ledger.json", _kept(ledger))


def _check_begun(ledger: Path, begun: Mapping[str, Any], place: RunFolder) -> None:
    """Refuse a ledger that is not the run's own, or an older copy of it."""
    with Ledger(ledger) as book:
        own, known = book.id == begun["id"], book.contains(Head(**begun["head"]))
    if not own:
        raise ConfigError(
            f"{ledger} is not the ledger that {place.path} was begun with ({begun['path']}); go on with that one, it "
            "knows what was charged"
        )
    if not known:
        raise ConfigError(
            f"{ledger} is older than {place.path}: it lacks charges that this run made; restore the newest copy of the "
            "ledger, its .keys and its .anchor"
        )


def charged_to(config: Config, info: StreamInfo, ledger: Path) -> str:
    return (
        f"this run is charged to {ledger} as stream {info.name!r}, {config.budget.make(info.unit)}; keep that file, "
        "its .keys and its .anchor. What is charged stays charged: --resume charges nothing twice, a new run on the "
        "same records is charged anew or refused"
    )


def _pointer(config: Config, place: RunFolder, ledger: Path | None) -> dict[str, Any]:
    """Where the charges are: the lasting ledger and its head, or the heads of the ledgers that were thrown away."""
    if ledger is not None:
        return _kept(ledger)
    heads = {str(seed): summary.SeedLog.read(place.seed(seed)).end["ledger"] for seed in config.seeds}
    return {"kind": "throw-away, the data is declared public", "seeds": heads}


def _kept(ledger: Path) -> dict[str, Any]:
    with Ledger(ledger) as book:
        head = book.head
        return {"kind": "kept", "path": str(ledger), "id": book.id, "head": {"seq": head.seq, "hash": head.hash}}


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Within it, torch uses so many."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def nobody(_said: Said) -> None:
    """Tell nobody."""
