"""Reads one run folder, finished or not, into a `RunData`; what cannot be read is named in a sentence."""

import itertools
import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tacit import __version__, metrics
from tacit.experiment.attacks.attacked import KEPT
from tacit.experiment.attacks.results import AttackResults
from tacit.experiment.runs.folder import SeedFolder
from tacit.experiment.runs.run_summary import SeedLog
from tacit.metrics import Summary
from tacit.report.reading.privacy_steps import read_privacy
from tacit.report.reading.run_data import Matrix, RunData
from tacit.report.reading.safe_files import PROBLEMS, SafeFolder, mapping, number, words

SEED = "seed-(0|[1-9][0-9]{0,15})"
"""The name of the folder of a seed."""


def read_run(path: Path, key: str, label: str) -> RunData:
    """What a run folder says.

    Args:
        path: The folder of a run with an end.
        key: A short name that is unique in the report.
        label: What the run is called.

    Returns:
        The run; its `missing` has a sentence for everything that could not be read.
    """
    folder = SafeFolder(path=path)
    config, environment = folder.yaml("config.yaml"), folder.json("environment.json")
    note_version(folder, environment)
    logs = _logs(folder, config)
    told = folder.json("metrics.json")
    end = logs[0].end if logs else {}
    learned = min((len(_rows(log)) for log in logs), default=0)
    tasks = _names(end.get("tasks"), learned)
    done = bool(told) or bool(end.get("finished"))
    left = len(end.get("left") or ())
    if not done or left:
        folder.say(f"the run is not finished: {len(tasks)} tasks were learned" + (f", {left} are left" if left else ""))
    elif not told:
        folder.say("metrics.json is missing, so the figures are those of the logs")
    matrices = [] if not end.get("accuracy_from", "logs") else [_square(log, len(tasks)) for log in logs]
    weights = logs[0].weights[: len(tasks)] if logs and logs[0].weights else None
    sequential = bool(end.get("sequential", True))
    accuracy = tuple(_curve(metrics.average_accuracy, matrix, weights) for matrix in matrices)
    forgotten = tuple(_curve(metrics.forgetting, matrix, weights) for matrix in matrices) if sequential else ()
    releases = _releases(folder, [log.seed for log in logs])
    return RunData(
        key=key,
        label=label,
        folder=path,
        status="done" if done and not left else f"{len(tasks)} tasks learned",
        method=words(told.get("method") or mapping(config.get("learner")).get("method")) or "unknown method",
        tasks=tasks,
        seeds=tuple(log.seed for log in logs),
        accuracy_from=words(told.get("accuracy") or end.get("accuracy_from")),
        task_given={"given": True, "hidden": False}.get(words(told.get("task_id") or end.get("task_id"))),
        average_accuracy=_figure(told.get("average_accuracy")) or _last(accuracy),
        forgetting=_figure(told.get("forgetting")) or _last(forgotten),
        per_seed=tuple(curve[-1] for curve in accuracy if curve),
        average_curves=accuracy if sequential else (),
        forgetting_curves=forgotten,
        points=tuple(range(1, len(tasks) + 1)),
        matrix=_mean(matrices),
        claimed=_claimed(told.get("epsilon_claimed") or end.get("claimed")),
        attacks=_attacks(folder, [log.seed for log in logs]),
        config=config,
        config_text=folder.text("config.yaml"),
        environment=environment,
        caveats=tuple(words(one) for one in told.get("caveats") or end.get("caveats") or () if words(one)),
        **read_privacy(folder, releases, told, declared_budget(config)),
        missing=tuple(folder.missing),
    )


def note_version(folder: SafeFolder, environment: Any) -> None:
    """Say if the folder was made by a newer version than this one."""
    made = words(environment.get("tacit"))

    def parts(version: str) -> list[int]:
        return [int(part) for part in version.split(".")[:3] if part.isdigit()]

    if parts(made) > parts(__version__):
        folder.say(f"made by tacit {made[:20]}, newer than {__version__}: what this version does not know is left out")


def declared_budget(config: Any) -> float | None:
    """The ε of the configuration."""
    return number(mapping(config.get("budget")).get("epsilon"))


def _logs(folder: SafeFolder, config: Any) -> list[SeedLog]:
    """The logs of the seeds that have one."""
    asked = config.get("seeds")
    seeds = [int(match[1]) for path in folder.folders("seeds") if (match := re.fullmatch(SEED, path.name))]
    if isinstance(asked, list) and (without := [seed for seed in asked if seed not in seeds]):
        folder.say(f"nothing was found of seed {', '.join(words(seed) for seed in without[:8])}")
    found = []
    for seed in sorted(seeds):
        name = f"seeds/seed-{seed}/progress.jsonl"
        if not folder.readable(name):
            folder.say(f"the log of seed {seed} is missing")
            continue
        place = SeedFolder(path=folder.path / "seeds" / f"seed-{seed}", seed=seed)
        log = folder.attempt(f"{name} is damaged and was left out", partial(_log, place), None)
        if log is not None and log.accuracy:
            found.append(log)
        elif log is not None:
            folder.say(f"seed {seed} has learned no task yet")
    return found


def _log(place: SeedFolder) -> SeedLog | None:
    """The log, if its accuracies are lists of numbers; raises otherwise."""
    log = SeedLog.read(place)
    for row in log.accuracy.values():
        np.array([math.nan if value is None else float(value) for value in row])
    if not isinstance(log.end, dict) or not all(isinstance(task, int) for task in log.accuracy):
        raise TypeError
    return log


def _rows(log: SeedLog) -> list[int]:
    """The tasks that were measured, from the first on without a gap."""
    return [one for one, place in zip(sorted(log.accuracy), itertools.count(), strict=False) if one == place]


def _names(given: Any, learned: int) -> tuple[str, ...]:
    names = [words(name) for name in given] if isinstance(given, list) else []
    return tuple((names + [f"task {number + 1}" for number in range(len(names), learned)])[:learned])


def _square(log: SeedLog, tasks: int) -> Matrix:
    """a[t, j] of the first tasks."""
    matrix = np.full((tasks, tasks), math.nan)
    for after in range(tasks):
        values = [math.nan if value is None else float(value) for value in log.accuracy[after][:tasks]]
        matrix[after, : len(values)] = values
    return matrix


def _curve(of: Any, matrix: Matrix, weights: Sequence[float] | None) -> tuple[float, ...]:
    """A metric after each task."""

    def after(tasks: int) -> float:
        try:
            return float(of(matrix[:tasks, :tasks], None if weights is None else weights[:tasks]))
        except PROBLEMS:
            return math.nan

    return tuple(after(tasks) for tasks in range(1, len(matrix) + 1))


def _mean(matrices: Sequence[Matrix]) -> Matrix:
    return np.mean(matrices, axis=0) if matrices else np.empty((0, 0))


def _last(curves: Sequence[Sequence[float]]) -> Summary | None:
    """Over seeds, after the last task; None if it was not measured."""
    values = [curve[-1] for curve in curves if curve]
    return None if not values or any(map(math.isnan, values)) else metrics.summarise(values)


def _figure(told: Any) -> Summary | None:
    """A figure of `metrics.json`."""
    mean, std = number(mapping(told).get("mean")), number(mapping(told).get("std"))
    seeds = mapping(told).get("per_seed")
    if mean is None:
        return None
    return Summary(mean=mean, std=math.nan if std is None else std, seeds=len(seeds) if isinstance(seeds, list) else 1)


def _claimed(told: Any) -> dict[str, float] | None:
    found = {name: number(mapping(told).get(name)) for name in ("per_task", "total", "delta")}
    return None if None in found.values() else {name: value for name, value in found.items() if value is not None}


def _releases(folder: SafeFolder, seeds: Sequence[int]) -> list[list[str]]:
    """The certificates of each seed, in the order of the tasks."""
    return [
        [
            f"seeds/seed-{seed}/releases/{path.name}/certificate.json"
            for path in folder.folders(f"seeds/seed-{seed}/releases")
        ]
        for seed in seeds
    ]


def _attacks(folder: SafeFolder, seeds: Sequence[int]) -> AttackResults | None:
    """The results of attacks that are kept; those of all seeds or none."""
    names = [f"seeds/seed-{seed}/{KEPT}" for seed in seeds]
    if not names or not any(folder.readable(name) for name in names):
        return None
    kept = [mapping(folder.json(name).get("found")) for name in names]
    if not all(kept):
        folder.say("attack results of some seeds are missing, so none are shown")
        return None

    def merged() -> AttackResults | None:
        found = AttackResults.merged([AttackResults.of(one) for one in kept])
        for column in found.columns:
            found.last(column)
        return found

    return folder.attempt("the attack results are damaged or of another version", merged, None)
