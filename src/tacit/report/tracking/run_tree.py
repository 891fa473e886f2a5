"""The entries of a folder: a run with its seeds, a sweep with its runs, or an endless stream.

Each has a key that is kept in `tracking.json` of the folder, so that whoever sends it again, also after a crash or from
another machine, finds what was sent.
"""

import json
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.experiment.config.loading import SWEEP
from tacit.experiment.files import write_json
from tacit.experiment.runs.folder import flat
from tacit.metrics import summarise
from tacit.report.reading.endless_log import read_endless
from tacit.report.reading.run_folders import CONFIG, is_run
from tacit.report.reading.safe_files import SafeFolder, mapping, words
from tacit.report.tracking.seed_history import SeedHistory, releases, seed_history, with_certificates
from tacit.report.tracking.tracked_run import TrackedRun

KEYS = "tracking.json"
_KEY = re.compile("[0-9a-f]{32}")
_LONGEST = 500
"""Characters of a setting."""
_MOST_SETTINGS = 300
_SEED = re.compile("seed-(0|[1-9][0-9]{0,15})")


def tracked(path: Path) -> list[TrackedRun]:
    """The entries of a folder, parents first, with the sweep that the run is part of. A run without a settled task has
    none.

    Args:
        path: The folder of a run, a sweep or an endless stream.

    Returns:
        The entries.

    Raises:
        ConfigError: It is no such folder, or its `tracking.json` cannot be used.
    """
    path = path.resolve()
    if (path / SWEEP).is_file():
        cells = [one for one in SafeFolder(path=path).folders(".") if is_run(one)]
        below = [entry for cell in cells for entry in _run(cell, path)]
        return [_sweep(path, below, whole=True), *below] if below else []
    if not is_run(path):
        raise ConfigError(f"there is no run in {path}; pass the folder that `tacit run` made")
    sweep = path.parent if (path.parent / SWEEP).is_file() else None
    found = _run(path, sweep)
    return [_sweep(sweep, found, whole=False), *found] if found and sweep is not None else found


def key_of(path: Path) -> str:
    """The key of a folder, which is made when it is first asked for.

    Args:
        path: The folder.

    Returns:
        32 hexadecimal digits.

    Raises:
        ConfigError: The file with the key was changed, or cannot be written.
    """
    file = path / KEYS
    with suppress(FileNotFoundError):
        try:
            key = str(json.loads(file.read_text(encoding="utf-8"))["key"])
        except FileNotFoundError:
            raise
        except (OSError, ValueError, TypeError, LookupError):
            key = ""
        if not _KEY.fullmatch(key):
            raise ConfigError(f"{file} was changed or is damaged; delete it to send the run anew")
        return key
    key = secrets.token_hex(16)
    try:
        write_json(file, {"key": key})
    except OSError as error:
        raise ConfigError(f"cannot write {file}, which says under which key a run was sent: {error.strerror}") from None
    return key


def _run(path: Path, sweep: Path | None) -> list[TrackedRun]:
    """The entries of one run: one for each seed and one above them, or a single one if there is one seed."""
    folder = SafeFolder(path=path)
    config = folder.yaml(CONFIG)
    endless = config.get("kind") == "endless" or (not config and (path / "metrics.jsonl").is_file())
    numbers = [int(match[1]) for one in folder.folders("seeds") if (match := _SEED.fullmatch(one.name))]
    work = {0: partial(_endless, folder)} if endless else {n: partial(seed_history, folder, n) for n in numbers}
    nothing = SeedHistory(series={}, releases=())
    seeds = {seed: folder.attempt("a log is damaged", read, nothing) for seed, read in work.items()}
    known = {seed: history for seed, history in sorted(seeds.items()) if history.series or history.releases}
    if not known:
        return []
    asked = config.get("seeds")
    planned = len(asked) if isinstance(asked, list) else len(seeds)
    key, place = key_of(path), (path.name,) if sweep is None else (sweep.name, path.name)
    method = words(mapping(config.get("learner")).get("method"))[:_LONGEST]
    settings, parent = _settings(config), "" if sweep is None else key_of(sweep)
    name = path.name if sweep is not None else words(config.get("name"))[:_LONGEST] or path.name
    facts = {"kind": "endless" if endless else "run", "learner": method, **_evaluation(folder, endless=endless)}
    several = planned > 1
    worst = max(known.values(), key=lambda one: _severity(one.facts.get("epsilon")))
    above = TrackedRun(
        key=key, name=name, place=place, parent=parent, folder=path, settings=settings, facts=facts | worst.facts,
        series=_over_seeds([*known.values()], planned) if several else worst.series,
        releases=() if several else worst.releases,
        moment=min(one.moment for one in known.values()),
        done=len(known) >= planned and all(one.done for one in known.values()),
    )  # fmt: skip
    if not several:
        return [above]
    return [above] + [
        TrackedRun(
            key=f"{key}-seed-{seed}", name=f"seed {seed}", place=(*place, f"seed-{seed}"), parent=key, folder=path,
            series=one.series, settings=settings | {"seed": str(seed)}, facts=facts | one.facts, releases=one.releases,
            moment=one.moment, done=one.done, whole=False,
        )
        for seed, one in known.items()
    ]  # fmt: skip


def _sweep(path: Path, below: Sequence[TrackedRun], *, whole: bool) -> TrackedRun:
    """The entry above the runs of a sweep, all of them (`whole`) or one."""
    plan = SafeFolder(path=path).yaml(SWEEP)
    name = words(plan.get("name"))[:_LONGEST] or path.name
    runs = [one for one in below if one.whole]
    done = sum(one.done for one in runs)
    return TrackedRun(
        key=key_of(path), name=name, place=(path.name,), folder=path, facts={"kind": "sweep"},
        series={"runs_done": {done: float(done)}} if whole and done else {},
        moment=min(one.moment for one in below), done=whole and done == len(runs),
    )  # fmt: skip


def _endless(folder: SafeFolder) -> SeedHistory:
    """The history of an endless stream: averages over its last tasks, and ε."""
    run = read_endless(folder.path, "r0", folder.path.name)
    series: dict[str, dict[int, float]] = {"average_accuracy": {}, "accuracy_newest_task": {}, "epsilon_certified": {}}
    for curve in run.average_curves:
        pairs = zip(run.points, curve, strict=False)
        series["average_accuracy"] |= {task: value for task, value in pairs if math.isfinite(value)}
    for place in range(len(run.matrix)):
        if math.isfinite(value := float(run.matrix[place, place])):
            series["accuracy_newest_task"][run.first_task + place] = value
    series["epsilon_certified"] |= {one.tasks: one.certified for one in run.privacy if one.certified is not None}
    settled = folder.json("state.json").get("settled")
    tasks = settled if isinstance(settled, int) else 0
    kept = releases(folder, "releases", tasks)
    series = {name: {task: value for task, value in values.items() if task <= tasks} for name, values in series.items()}
    # The log has ε of all tasks, certificates are kept of the last ones only.
    logged = dict(series["epsilon_certified"])
    history = with_certificates(folder, series, kept, done=bool(folder.json("state.json").get("ended")))
    history.series.update({"epsilon_certified": logged} if logged else {})
    return history


def _over_seeds(seeds: Sequence[SeedHistory], planned: int) -> dict[str, dict[int, float]]:
    """Mean and standard deviation after each task that all seeds have learned; of ε the largest."""
    series: dict[str, dict[int, float]] = {}
    if len(seeds) < planned:
        return series
    for name in seeds[0].series:
        if not all(name in one.series for one in seeds):
            continue
        for task in sorted(set.intersection(*(set(one.series[name]) for one in seeds))):
            values = [one.series[name][task] for one in seeds]
            if name.startswith("epsilon"):
                series.setdefault(name, {})[task] = max(values)
                continue
            found = summarise(values)
            series.setdefault(name, {})[task] = found.mean
            if not math.isnan(found.std):
                series.setdefault(f"{name}_std", {})[task] = found.std
    return series


def _evaluation(folder: SafeFolder, *, endless: bool) -> dict[str, str]:
    """How accuracy was measured, where it is known."""
    told = {} if endless else folder.json("metrics.json")
    found = {"accuracy_from": told.get("accuracy"), "accuracy_noise": told.get("accuracy_noise")}
    return {name: words(value)[:_LONGEST] for name, value in found.items() if words(value)}


def _settings(config: Mapping[str, Any]) -> dict[str, str]:
    """The configuration by dotted keys, as short texts."""
    plain = {key: value for key, value in flat(config).items() if value is not None}
    return {words(key)[:200]: words(_text(value))[:_LONGEST] for key, value in list(plain.items())[:_MOST_SETTINGS]}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _severity(epsilon: str | None) -> float:
    try:
        return float(epsilon or "")
    except ValueError:
        return math.inf
