"""Finds the runs in the folders that a report is asked for: runs, sweeps, endless streams, or folders of such."""

import itertools
from collections.abc import Mapping, Sequence
from csv import DictReader
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.experiment.config.loading import SWEEP
from tacit.experiment.sweeps.comparison import labels
from tacit.experiment.sweeps.sweep import cell_name
from tacit.report.reading.endless_log import read_endless
from tacit.report.reading.one_run import read_run
from tacit.report.reading.run_data import Collection, RunData
from tacit.report.reading.safe_files import SafeFolder, mapping, words

CONFIG = "config.yaml"
MOST_RUNS = 500
"""Runs of one report."""


def read_folders(folders: Sequence[str | Path]) -> Collection:
    """All runs in some folders.

    A folder that is incomplete, damaged or of another version gives what can be read of it, and a sentence on the rest.

    Args:
        folders: Folders of runs, sweeps or endless streams, or folders that contain such folders.

    Returns:
        The runs.

    Raises:
        ConfigError: A folder does not exist, or there is no run in any of them.
    """
    paths = [Path(folder) for folder in folders]
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"there is no folder {str(path)!r}; pass the folder of a run or of a sweep")
    found: list[tuple[Path, str, str]] = []
    missing: list[str] = []
    description = ""
    for path in paths:
        inside, said, sentences = _find(path)
        found += [(run, name if len(paths) == 1 else f"{path.name}: {name}", base) for run, name, base in inside]
        missing += sentences
        description = description or (said if len(paths) == 1 else "")
    if not found and not missing:
        raise ConfigError(f"{no_run(paths[0] if paths else Path())}; pass the folder that `tacit run` made")
    if len(found) > MOST_RUNS:
        missing.append(f"there are {len(found):,} runs, of which the first {MOST_RUNS} are shown")
    names = _unique([name for _, name, _ in found[:MOST_RUNS]])
    runs = tuple(
        _read(path, f"r{place}", name, base)
        for place, ((path, _, base), name) in enumerate(zip(found[:MOST_RUNS], names, strict=True))
    )
    title = paths[0].resolve().name if len(paths) == 1 else f"{len(paths)} folders"
    return Collection(title=title, description=description, runs=runs, missing=tuple(missing))


def no_run(path: Path) -> str:
    """The words on a folder without a run."""
    return f"there is no run in {path}"


def _find(path: Path) -> tuple[list[tuple[Path, str, str]], str, list[str]]:
    """The runs of one folder with their names and those of their baselines, a description, and what is missing."""
    folder = SafeFolder(path=path)
    if folder.readable(SWEEP):
        return _cells(folder)
    if is_run(path):
        config = SafeFolder(path=path).yaml(CONFIG)
        return [(path, _method(config) or path.name, "")], words(config.get("description")), []
    inside = [one for one in folder.folders(".") if is_run(one) or (one / SWEEP).is_file()]
    found = [
        (run, one.name if len(runs) == 1 else f"{one.name}: {name}", base)
        for one in inside
        for runs in [_cells(SafeFolder(path=one))[0] if (one / SWEEP).is_file() else [(one, one.name, "")]]
        for run, name, base in runs
    ]
    return found, "", folder.missing


def is_run(path: Path) -> bool:
    """Whether a folder has files of a run.

    Args:
        path: The folder.

    Returns:
        True or False.
    """
    return any((path / name).exists() for name in (CONFIG, "metrics.json", "metrics.jsonl", "seeds"))


def _cells(folder: SafeFolder) -> tuple[list[tuple[Path, str, str]], str, list[str]]:
    """The cells of a sweep that were begun, in the order of its plan, and then folders that the plan does not name."""
    plan = folder.yaml(SWEEP)
    begun = {path.name: path for path in folder.folders(".") if is_run(path)}
    changes = folder.attempt(
        f"{SWEEP} is damaged, so runs are named by their folders", partial(_changes, plan), _changes({})
    )
    known = [name for name in changes if name in begun]
    if not_begun := len(changes) - len(known):
        folder.say(f"{not_begun} of {len(changes)} runs of the sweep {'has' if not_begun == 1 else 'have'} not begun")
    titles = folder.attempt("runs are named by their folders", lambda: labels([changes[name] for name in known]), known)
    bases = _baselines(folder)
    others = [name for name in begun if name not in changes]
    found = [(begun[n], t, bases.get(n, "")) for n, t in zip([*known, *others], [*titles, *others], strict=True)]
    return found, words(plan.get("description")), [f"{folder.path.name}: {one}" for one in folder.missing]


def _changes(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The changes of each cell, by the name of its folder."""
    grid = dict(mapping(plan.get("grid")))
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    given: Any = plan.get("cells", [] if not plan else None) or ([] if not plan else [{}])
    cells: list[dict[str, Any]] = [{**cell, **point} for cell in given for point in points]
    return {cell_name(cell): cell for cell in cells}


def _baselines(folder: SafeFolder) -> dict[str, str]:
    """The baseline of each cell that has one, as `cells.csv` says."""
    rows = DictReader(StringIO(folder.text("cells.csv")))
    return folder.attempt(
        "cells.csv is damaged and was left out",
        lambda: {str(row.get("folder")): str(row["baseline"]) for row in rows if row.get("baseline")},
        {},
    )


def _method(config: Mapping[str, Any]) -> str:
    return words(mapping(config.get("learner")).get("method"))


def _unique(names: Sequence[str]) -> list[str]:
    """The names, with a number after those that occur again."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return unique


def _read(path: Path, key: str, label: str, baseline: str) -> RunData:
    config = SafeFolder(path=path).yaml(CONFIG)
    endless = config.get("kind") == "endless" or (not config and (path / "metrics.jsonl").is_file())

    return replace((read_endless if endless else read_run)(path, key, label), baseline=baseline)
