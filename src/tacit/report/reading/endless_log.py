"""Reads the folder of an endless stream: its log of the last tasks and the certificates of the kept releases."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tacit.experiment.attacks.attacked import KEPT
from tacit.experiment.attacks.results import AttackResults
from tacit.metrics import Summary
from tacit.report.reading.one_run import declared_budget, note_version
from tacit.report.reading.privacy_steps import read_privacy
from tacit.report.reading.run_data import Matrix, PrivacyStep, RunData
from tacit.report.reading.safe_files import SafeFolder, mapping, number, words

MOST = 400
"""Points of a curve; a longer log is thinned evenly."""
WINDOW = 20
"""Tasks of the accuracy matrix."""


def read_endless(path: Path, key: str, label: str) -> RunData:
    """What the folder of an endless stream says.

    Args:
        path: The folder.
        key: A short name that is unique in the report.
        label: What the run is called.

    Returns:
        The run. Its accuracies are over the last tasks only, as the run measures them.
    """
    folder = SafeFolder(path=path)
    config, environment, state = folder.yaml("config.yaml"), folder.json("environment.json"), folder.json("state.json")
    note_version(folder, environment)
    lines = [*folder.log("metrics.1.jsonl"), *folder.log("metrics.jsonl")]
    known = folder.attempt("the log is damaged and was left out", partial(_rows, lines), _rows([]))
    if not known:
        folder.say("the log has no task yet")
    numbers = sorted(known)
    accuracies = {task: known[task][1] for task in numbers}
    chosen = _thinned(numbers)
    average = tuple(_average(accuracies[task]) for task in chosen)
    measured = any(accuracies.values())
    last = numbers[-WINDOW:]
    releases = [f"releases/{one.name}/certificate.json" for one in folder.folders("releases") if one.name[:1].isdigit()]
    facts = read_privacy(folder, [sorted(releases, key=_position)], {}, declared_budget(config))
    facts["privacy"] = tuple(_step(task + 1, known[task][2]) for task in chosen)
    ended = words(state.get("ended"))
    return RunData(
        key=key,
        label=label,
        folder=path,
        kind="endless",
        status=ended or f"{numbers[-1] + 1 if numbers else 0} tasks learned, endless",
        method=words(mapping(config.get("learner")).get("method")) or "unknown method",
        tasks=tuple(known[task][0] for task in last),
        first_task=last[0] + 1 if last else 1,
        seeds=tuple(seed for seed in _listed(config.get("seeds"))[:1] if isinstance(seed, int)),
        accuracy_from="public test sets of the last tasks" if measured else "",
        average_accuracy=Summary(mean=average[-1], std=math.nan, seeds=1) if _finite(average) else None,
        per_seed=average[-1:] if _finite(average) else (),
        average_curves=(average,) if measured else (),
        points=tuple(task + 1 for task in chosen),
        matrix=_matrix(accuracies, last) if measured else np.empty((0, 0)),
        config=config,
        config_text=folder.text("config.yaml"),
        environment=environment,
        caveats=("an endless stream measures accuracy on the test sets of its last tasks only",),
        attacks=_attacks(folder),
        **facts,
        missing=tuple(folder.missing),
    )


def _rows(lines: Sequence[dict[str, Any]]) -> dict[int, tuple[str, list[float], float | None]]:
    """Of each task: its name, the accuracies and ε."""
    found = {}
    for line in lines:
        values = [math.nan if value is None else float(value) for value in line.get("accuracy") or ()]
        name = words(line.get("name")) or f"task {int(line['task']) + 1}"
        found[int(line["task"])] = (name, values, number(line.get("epsilon")))
    return found


def _step(tasks: int, epsilon: float | None) -> PrivacyStep:
    return PrivacyStep(tasks=tasks, certified=epsilon, every_task=None, claimed=None)


def _thinned(numbers: Sequence[int]) -> list[int]:
    if len(numbers) <= MOST:
        return list(numbers)
    return [numbers[round(place * (len(numbers) - 1) / (MOST - 1))] for place in range(MOST)]


def _average(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _finite(curve: Sequence[float]) -> bool:
    return bool(curve) and not math.isnan(curve[-1])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _position(name: str) -> int:
    first = name.split("/")[1].partition("-")[0]
    return int(first) if first.isdigit() else 0


def _matrix(accuracies: dict[int, list[float]], last: Sequence[int]) -> Matrix:
    """After each of the last tasks, the accuracy on those of them that were measured."""
    matrix = np.full((len(last), len(last)), math.nan)
    place = {task: index for index, task in enumerate(last)}
    for task in last:
        values = accuracies[task]
        for index, value in enumerate(values):
            on = task - len(values) + 1 + index
            if on in place:
                matrix[place[task], place[on]] = value
    return matrix


def _attacks(folder: SafeFolder) -> AttackResults | None:
    found = folder.json(KEPT).get("found")
    if found is None:
        return None

    def checked() -> AttackResults | None:
        results = AttackResults.of(mapping(found))
        for column in results.columns:
            results.last(column)
        return results

    return folder.attempt("the attack results are damaged or of another version", checked, None)
