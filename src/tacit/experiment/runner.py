"""`run(config, folder)`: every seed of a configuration, each task learnt, released and asked about; then the summary.

Guarantee: `resume=True` after a kill at any moment gives the same numbers as a run that was never killed, and charges
nothing twice. Private data is charged to the ledger that is given, which outlives the folder; public data to one that
is thrown away.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tacit.data.stream import Stream, StreamInfo
from tacit.errors import ConfigError
from tacit.experiment import summary
from tacit.experiment.config import Config
from tacit.experiment.events import Said, Stop, Tell, ctrl_c
from tacit.experiment.folder import RunFolder, write_json
from tacit.experiment.loading import load
from tacit.experiment.seed import needed_ledger, run_seed
from tacit.experiment.streams import open_stream
from tacit.experiment.summary import Summary
from tacit.experiment.workers import run_workers
from tacit.privacy.ledger import Ledger

Streams = Callable[[int], Stream]
"""The stream of a seed."""


def run(
    config: Config | str | Path | Mapping[str, Any],
    folder: str | Path,
    *,
    ledger: str | Path | None = None,
    resume: bool = False,
    processes: int | None = None,
    apart: bool = False,
    stream: Streams | None = None,
    tell: Tell | None = None,
    stop: Stop | None = None,
) -> Summary:
    """Run all seeds into the folder, or what is left of them.

    `config`: a configuration, or what names one (a preset, a file, plain values). `processes`: how many seeds at a time
    (default: as many as there are cores). `apart`: in processes of their own even if it is one at a time. `stream`: a
    stream of your own for each seed, in place of the one that the configuration names; seeds then run one after another
    in this process.
    """
    config = config if isinstance(config, Config) else loaded(config)
    place, stop, said = RunFolder(path=Path(folder)), stop or Stop(), tell or nobody
    cores = available_cores()
    at_once = 1 if stream is not None else max(1, min(processes or cores, len(config.seeds)))
    info = _declared_info(config, stream)
    book = _check_ledger(config, info, place.ledger() if ledger is None and resume else ledger)
    if info is not None and book is not None and not place.has_run:
        _refuse_spent(info, book)
    if config.threads is None and not place.has_run:
        config = config.model_copy(update={"threads": max(1, cores // at_once)})
    config = place.begin(config, resume=resume)
    if place.finished:
        return summary.read(config, place)
    if book is not None:
        write_json(place.path / "ledger.json", {"kind": "kept", "path": str(book)})  # what --resume charges to
    if info is not None and book is not None:
        write_json(place.path / "ledger.json", _kept(book))
        said(Said(kind="notice", name=_charged_to(config, info, book)))

    def hear(line: Said) -> None:
        if line.kind == "task":
            summary.write_accuracy(config, place)
        said(line)

    with ctrl_c(stop):
        if stream is None and (at_once > 1 or apart):
            threads = config.threads or 1
            run_workers(place.path, config.seeds, ledger=book, threads=threads, processes=at_once, tell=hear, stop=stop)
        else:
            for seed in config.seeds:
                one_seed(place.path, seed, ledger=book, tell=hear, stop=stop, stream=stream)
    write_json(place.path / "ledger.json", _pointer(config, place, book))
    return summary.finish(config, place)


def loaded(what: str | Path | Mapping[str, Any]) -> Config:
    """The configuration of one run that is named so."""
    found = load(what)
    if not isinstance(found, Config):
        raise ConfigError(f"{what} is of the kind {found.kind!r} and not a single run; use the command that is for it")
    return found


def one_seed(
    folder: Path, seed: int, *, ledger: Path | None, tell: Tell, stop: Stop, stream: Streams | None = None
) -> None:
    """One seed of a run whose folder is laid out, in this process."""
    place = RunFolder(path=folder)
    if place.seed(seed).finished:
        place.seed(seed).clear()
        return
    config = place.config()
    opened = open_stream(config.data, seed) if stream is None else stream(seed)
    with _threads(config.threads or 1):
        run_seed(config, place.seed(seed), opened, ledger=ledger, tell=tell, stop=stop)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _declared_info(config: Config, stream: Streams | None) -> StreamInfo | None:
    """The facts of a stream that may be private; named data sets are public, and are opened where they are used."""
    if stream is None and config.data.scenario != "declared":
        return None
    opened = open_stream(config.data, config.seeds[0]) if stream is None else stream(config.seeds[0])
    return opened.info


def _check_ledger(config: Config, info: StreamInfo | None, ledger: str | Path | None) -> Path | None:
    """Where the charges go: a lasting ledger for private data, checked before a folder is made."""
    if info is None or info.public:
        return None
    config.budget.make(info.unit)
    if config.repeatable_noise:
        raise ConfigError(
            "repeatable_noise = true makes noise that anyone can recompute, and this stream is private; set it to false"
        )
    if len(config.seeds) > 1:
        raise ConfigError(
            f"seeds = {list(config.seeds)}: the stream {info.name!r} is private, and each seed would charge its people "
            "anew for what the first already took; use one seed"
        )
    return needed_ledger(info, None if ledger is None else Path(ledger)).absolute()


def _refuse_spent(info: StreamInfo, ledger: Path) -> None:
    """Records that were learnt from are not learnt from again: said before a folder is made."""
    if not ledger.exists():
        return
    with Ledger(ledger) as book:
        known = {terms.name: number for number, terms in book.streams()}
        if info.name not in known:
            return
        found = book.statement(known[info.name])
    tasks = {block.row.id: block.row.task for block in found.blocks}
    read = {tasks[block] for grant in found.grants if grant.state != "VOID" for block, _ in grant.reads}
    spent = next((task.name for task in info.tasks if task.name in read), None)
    if spent is not None:
        raise ConfigError(
            f"task {spent!r} of {info.name!r} was learnt from already, and {ledger} says what its people have lost; "
            "use what that run released, go on with it by --resume, or declare new records as new tasks"
        )


def _charged_to(config: Config, info: StreamInfo, ledger: Path) -> str:
    return (
        f"this run is charged to {ledger} as stream {info.name!r}, {config.budget.make(info.unit)}; keep that file, "
        "its .keys and its .anchor. What is charged stays charged: --resume costs nothing more, a new run on the same "
        "records is charged anew or refused"
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
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def nobody(_said: Said) -> None:
    """Tell nobody."""
