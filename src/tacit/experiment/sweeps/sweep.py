"""`sweep(plan, folder)`: one run for each cell of a grid, each in a folder of its own, and one table of them all.

A sweep can be ended and called again at any time: finished cells are kept, unfinished ones are resumed, failed ones are
tried again. A cell that fails does not stop the others. One that runs out of memory, or whose process is killed, is
resumed beside fewer others, at last alone (`side_by_side`). `cells.csv` is rewritten after every cell and says whether
each is done, failed or not run. `sweep.yaml` holds the plan, so that the folder alone is enough to continue. With a
section `attacks`, the releases of finished cells are then attacked (`attacked_cells`).
"""

import hashlib
import itertools
import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from tacit.errors import OUT_OF_MEMORY, ConfigError, TacitError, is_out_of_memory
from tacit.experiment.config.changes import override
from tacit.experiment.config.config import Config, Sweep
from tacit.experiment.config.loading import SWEEP, checked, plain
from tacit.experiment.files import write, write_csv
from tacit.experiment.process import available_cores
from tacit.experiment.progress import OnEvent, Stop, Stopped, ignore, notify, stop_on_ctrl_c
from tacit.experiment.runs.folder import RunFolder
from tacit.experiment.runs.record_counts import COLUMNS
from tacit.experiment.runs.resolver import check_sources, open_stream
from tacit.experiment.runs.runner import run
from tacit.experiment.sweeps.attacked_cells import attack_cells
from tacit.experiment.sweeps.cell import DONE, Cell
from tacit.experiment.sweeps.reference import reference
from tacit.experiment.sweeps.side_by_side import Slot, short_of_memory, side_by_side
from tacit.experiment.sweeps.significance import Compared, baselines
from tacit.experiment.trackers import Tracker, careful, send_all
from tacit.words import accuracy_percent

NOT_COMPARED = Compared(tasks=(math.nan,), seeds=math.nan)
FIGURES = ("average_accuracy", "forgetting", "worst_forgetting", "bwt", "fwt", "a_auc")


def sweep(
    plan: Sweep,
    folder: str | Path,
    *,
    ledger: str | Path | None = None,
    only: Sequence[str] = (),
    as_begun: bool = False,
    processes: int | None = None,
    limit_minutes: float | None = None,
    progress: OnEvent | None = None,
    stop: Stop | None = None,
    trackers: Sequence[Tracker] = (),
) -> list[Cell]:
    """Run the cells of a sweep that are not done.

    Args:
        plan: The base configuration and the changes of each cell.
        folder: The folder of the sweep; it is made if it does not exist.
        ledger: The ledger that private data is charged to.
        only: Patterns such as `*epsilon=0.5*`; cells whose name fits none of them are not run. Empty: all are run.
        as_begun: A cell that was begun on another device, or with other threads, goes on there instead of failing.
        processes: How many seeds run at a time, of as many cells as possible; by default as many as there are cores.
        limit_minutes: No cell is started after this time.
        progress: Receives events.
        stop: Stops the sweep between two steps.
        trackers: Are sent each run after each of its tasks, and all of them at the end; see `run`.

    Returns:
        The cells that fit, with their state.

    Raises:
        ConfigError: A cell is wrong, two cells are the same, none fits, or the sweep would charge private data many
            times.
        Exception: A cell failed for a reason that tacit does not know; it is raised after the other cells.
    """
    path, stop, report = Path(folder), stop or Stop(), progress or ignore
    sent = careful(trackers, report)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file, and a sweep needs a folder; pass an empty or new one with --out")
    cells = cells_of(plan, path)
    chosen = fitting(cells, only)
    if plan.reference is not None:
        reference(plan.reference)  # refuse a wrong name before the first cell
    _refuse_private(cells)
    for cell in cells:
        cell.look()
    sections = {cell.config.data.model_dump_json(): cell.config.data for cell in chosen if cell.status != DONE}
    for data in sections.values():
        check_sources(data)
    path.mkdir(parents=True, exist_ok=True)
    base = plain(plan.base) if isinstance(plan.base, str) else plan.base
    asked = plan.model_copy(update={"base": base}).model_dump(mode="json")
    write(path / SWEEP, yaml.safe_dump(asked, sort_keys=False, allow_unicode=True))
    until = None if limit_minutes is None else time.monotonic() + 60 * limit_minutes
    most = max(1, processes or available_cores())
    one_table = threading.Lock()
    unexpected: list[Exception] = []

    def late() -> bool:
        return until is not None and time.monotonic() > until

    def finish(cell: Cell, slot: Slot) -> bool:
        if stop.requested or late():
            return False
        if as_begun and cell.folder.has_run:
            _as_begun(cell, report)
        error = _run(cell, ledger, slot, stop=stop, progress=report if slot.cells == 1 else ignore, trackers=sent)
        if error is not None and not isinstance(error, TacitError) and not is_out_of_memory(error):
            unexpected.append(error)
        with one_table:
            write_table(path / "cells.csv", cells)
            notify(report, f"{cell.name}: {_end(cell)}")
        return error is not None and short_of_memory(error)

    write_table(path / "cells.csv", cells)
    with stop_on_ctrl_c(stop):
        side_by_side([cell for cell in chosen if cell.status != DONE], most, finish)
        if plan.attacks is not None:
            learned = [cell for cell in chosen if cell.status == DONE]
            attack_cells(learned, plan.attacks, most=most, late=late, progress=report, stop=stop)
            write_table(path / "cells.csv", cells)
    send_all(sent, path)
    if unexpected:
        raise unexpected[0]
    stop.check()
    return chosen


def fitting(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """The cells whose name fits one of the patterns; without patterns, all.

    Raises:
        ConfigError: A pattern fits none.
    """
    for pattern in only:
        if not any(_fits(cell, pattern) for cell in cells):
            names = "".join(f"\n  {whole_name(cell.changes)}" for cell in cells)
            raise ConfigError(f"no cell fits --cells {pattern!r}; the cells of the sweep are:{names}")
    return [cell for cell in cells if not only or any(_fits(cell, pattern) for pattern in only)]


def _fits(cell: Cell, pattern: str) -> bool:
    """By the name of its folder, or by the whole name, where that is too long for a folder."""
    return any(fnmatchcase(name, pattern) for name in (cell.name, whole_name(cell.changes)))


def _as_begun(cell: Cell, report: OnEvent) -> None:
    """Takes over where a cell was begun."""
    begun = cell.folder.config()
    if cell.config.device != begun.device:
        notify(report, f"{cell.name} was begun on {begun.device} and goes on there")
    cell.config = cell.config.model_copy(update={"device": begun.device, "threads": begun.threads})


def _refuse_private(cells: Sequence[Cell]) -> None:
    """Refuse a sweep on private data: its cells would compete for the budget of the same people."""
    private = [cell for cell in cells if cell.config.data.scenario == "declared"]
    if len(cells) > 1 and private:
        info = open_stream(private[0].config.data, private[0].config.seeds[0]).info
        if not info.public:
            raise ConfigError(
                f"a sweep of {len(cells)} cells would charge the people of {info.name!r} for each, and the first uses "
                "up their budget; choose settings on public data, then run one"
            )


def cells_of(plan: Sweep, folder: Path) -> list[Cell]:
    """Every cell, checked before the first is run."""
    base = plain(plan.base) if isinstance(plan.base, str) else dict(plan.base)
    points = [dict(zip(plan.grid, values, strict=True)) for values in itertools.product(*plan.grid.values())]
    found: dict[str, Cell] = {}
    for changes in [{**cell, **point} for cell in plan.cells or ({},) for point in points]:
        config = checked(override(base, list(changes.items())))
        if not isinstance(config, Config) or config.kind != "run":
            raise ConfigError(f"the base of a sweep must be a single run, and this one has kind {config.kind!r}")
        name = cell_name(changes)
        if name in found:
            raise ConfigError(f"two cells of the sweep make the same changes: {name}; every cell must differ")
        found[name] = Cell(changes=changes, config=config, folder=RunFolder(path=folder / name))
    cells = list(found.values())
    if plan.baseline is not None:
        for cell, place in zip(cells, baselines([cell.config for cell in cells], plan.baseline), strict=True):
            cell.baseline = None if place is None else cells[place]
    return cells


def cell_name(changes: Mapping[str, Any]) -> str:
    """The folder name of a cell: a function of its changes alone."""
    plain_name = whole_name(changes)
    safe = "".join(letter if letter.isalnum() or letter in "=._+-" else "-" for letter in plain_name)
    if safe == plain_name and len(safe) <= 100:
        return safe
    digest = hashlib.sha256(json.dumps(dict(changes), sort_keys=True).encode()).hexdigest()[:8]
    return f"{safe[:80]}_{digest}"


def whole_name(changes: Mapping[str, Any]) -> str:
    """All changes of a cell, such as `method=DPCL_epsilon=0.5`."""
    return "_".join(f"{key.rpartition('.')[2]}={_short(value)}" for key, value in changes.items()) or "base"


def _end(cell: Cell) -> str:
    """The status of a cell, and its average accuracy if it has one."""
    average = cell.metrics.get("average_accuracy")
    return cell.status + (f", average accuracy {accuracy_percent(average['mean'])}" if average else "")


def write_table(path: Path, cells: Sequence[Cell]) -> None:
    """Write `cells.csv`: the changes, results and status of each cell."""
    keys = list(dict.fromkeys(key for cell in cells for key in cell.changes))
    rows = [{**{key: _short(value) for key, value in cell.changes.items()}, **columns_of(cell)} for cell in cells]
    columns = list(dict.fromkeys([*keys, *(name for row in rows for name in row)]))
    write_csv(path, [columns, *([row.get(name, "") for name in columns] for row in rows)])


def columns_of(cell: Cell) -> dict[str, Any]:
    """The columns that every cell has; empty where there is no number."""
    found = cell.metrics
    lca, claimed, certified = (found.get(key) or {} for key in ("lca", "epsilon_claimed", "epsilon_certified"))
    figures = {name: found.get(name) for name in FIGURES}
    figures |= {"lca_paper": lca.get("paper"), "lca_trapezium": lca.get("trapezium")}
    spread = {f"{name}_{part}": (one or {}).get(part) for name, one in figures.items() for part in ("mean", "std")}
    return {
        "status": cell.status,
        **spread,
        **{f"records_{name}": (found.get("consumption") or {}).get(name) for name in COLUMNS},
        "seeds": len(found["seeds"]) if found else None,
        "epsilon_claimed_per_task": claimed.get("per_task"),
        "epsilon_claimed_total": claimed.get("total"),
        "epsilon_certified": certified.get("per_record"),
        "epsilon_certified_task_wise": certified.get("task_wise"),
        "epsilon_certified_all_tasks": certified.get("all_tasks"),
        "delta": certified.get("delta"),
        "folder": cell.name,
        **({} if cell.attacked is None else cell.attacked.row()),
        **({} if cell.baseline is None else {"baseline": cell.baseline.name, **(cell.compared or NOT_COMPARED).row()}),
    }


def _run(
    cell: Cell,
    ledger: str | Path | None,
    slot: Slot,
    *,
    stop: Stop,
    progress: OnEvent,
    trackers: Sequence[Tracker],
) -> Exception | None:
    """Run a cell, or what is left of it; returns why it failed."""
    config = cell.config
    if config.threads is None and not cell.folder.has_run:
        runs = slot.cells * min(slot.seeds, len(config.seeds))
        config = config.model_copy(update={"threads": max(1, available_cores() // runs)})
    try:
        found = run(
            config,
            cell.folder.path,
            ledger=ledger,
            resume=True,
            processes=slot.seeds,
            separate=slot.separate,
            moved=cell.folder.has_run,  # a sweep is on public data, and its plan names the data
            progress=progress,
            stop=stop,
            trackers=trackers,
        )
        cell.status, cell.metrics = DONE, found.metrics
    except Stopped:
        return None
    except Exception as error:
        known = isinstance(error, TacitError)
        words = OUT_OF_MEMORY if is_out_of_memory(error) else str(error) if known else type(error).__name__
        cell.status = f"failed: {words}"
        return error
    return None


def _short(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | dict | bool) or value is None else str(value)
