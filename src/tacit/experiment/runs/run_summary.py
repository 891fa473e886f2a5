"""The results of a run: from the logs and certificates of its seeds to `metrics.json`, `accuracy.csv`, `timing.json`.

All are pure functions of files that are public or charged. `metrics.json` holds no time and no random name, so that two
equal runs give the same bytes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit import metrics
from tacit.certificate.certificate import Certificate
from tacit.experiment.config.config import Config
from tacit.experiment.files import write_json
from tacit.experiment.runs import record_counts
from tacit.experiment.runs.folder import RunFolder, SeedFolder
from tacit.metrics import Summary as Spread

Row = tuple[int, int, int, float]
"""seed, after_task, on_task (both from 1), accuracy."""
Figure = dict[str, Any]
"""mean, std and one value for each seed; None where it is not defined."""


@dataclass(frozen=True, kw_only=True)
class SeedLog:
    """The measurements of one seed."""

    seed: int
    accuracy: dict[int, list[float | None]]
    """After each task (from 0): one value for every task."""
    curves: dict[int, list[float | None]]
    untrained: list[float | None] | None
    seconds: dict[str, float]
    consumption: dict[int, dict[str, float]]
    """Expected numbers of records of each task, where the learner gives them."""
    end: Mapping[str, Any]
    """The line that was written when the seed last ended, after all tasks or some of them; empty before."""

    @classmethod
    def read(cls, folder: SeedFolder) -> "SeedLog":
        notes = folder.notes()
        seconds: dict[str, float] = {}
        for note in notes:
            for part, value in note.get("seconds", {}).items():
                seconds[part] = seconds.get(part, 0.0) + value

        def by_task(key: str) -> dict[int, Any]:
            return {note["task"]: note[key] for note in notes if key in note}

        return cls(
            seed=folder.seed,
            accuracy=by_task("accuracy"),
            curves=by_task("curve"),
            untrained=next((note["untrained"] for note in notes if "untrained" in note), None),
            seconds=seconds,
            consumption=by_task("consumption"),
            end=next((note for note in reversed(notes) if "finished" in note), {}),
        )

    def first(self, tasks: int) -> "SeedLog":
        """The measurements on the first tasks, after each of them."""
        return replace(
            self,
            accuracy={after: values[:tasks] for after, values in self.accuracy.items() if after < tasks},
            curves={after: curve for after, curve in self.curves.items() if after < tasks},
            consumption={task: counts for task, counts in self.consumption.items() if task < tasks},
            untrained=None if self.untrained is None else self.untrained[:tasks],
        )

    @property
    def weights(self) -> list[float] | None:
        """The weight of each task that was learned in averages over tasks; None if all are alike."""
        given: list[float] | None = self.end.get("weights")
        return None if given is None else given[: len(self.accuracy)]

    @property
    def matrix(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """a[t, j], NaN where it was not measured."""
        return np.array([_floats(self.accuracy[after]) for after in sorted(self.accuracy)])


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The results of a finished run, or those so far of a run that learns some tasks at a time."""

    folder: Path
    metrics: Mapping[str, Any]
    """As in `metrics.json`."""
    tasks: tuple[str, ...]
    """The tasks that every seed has learned."""
    last_row: tuple[Spread, ...]
    """The accuracy on each task after the last one, over seeds; empty if it was not measured."""
    claim: str
    private: bool
    certificate: Path
    left: tuple[str, ...] = ()
    """Tasks that are still to be learned."""


def accuracy_rows(logs: Sequence[SeedLog]) -> list[Row]:
    return [
        (log.seed, after + 1, on + 1, value)
        for log in logs
        for after in sorted(log.accuracy)
        for on, value in enumerate(log.accuracy[after])
        if value is not None
    ]


def write_accuracy(config: Config, folder: RunFolder) -> None:
    """Write the accuracies so far."""
    folder.write_accuracy(accuracy_rows(_logs(config, folder)))


def finish(config: Config, folder: RunFolder) -> RunSummary:
    """Write the results of all seeds. `metrics.json` is written last and marks the run as finished; it is not written
    while tasks are left."""
    logs = _logs(config, folder)
    folder.write_accuracy(accuracy_rows(logs))
    if any(log.consumption for log in logs):
        record_counts.write(folder.path / "consumption.csv", {log.seed: log.consumption for log in logs})
    found = read(config, folder)
    if not found.left:
        if all(log.seconds for log in logs):
            write_json(folder.path / "timing.json", timing(logs))
        write_json(folder.metrics, found.metrics)
    return found


def read(config: Config, folder: RunFolder) -> RunSummary:
    """The results of all seeds, from the run folder."""
    logs = _logs(config, folder)
    end = logs[0].end
    tasks: list[str] = min((log.end["tasks"] for log in logs), key=len)
    logs = [log.first(len(tasks)) for log in logs]
    rows = [log.matrix[-1] for log in logs] if end["accuracy_from"] else []
    return RunSummary(
        folder=folder.path,
        metrics=figures(config, folder, logs, tasks),
        tasks=tuple(tasks),
        last_row=tuple(metrics.summarise([row[on] for row in rows]) for on in range(len(tasks))) if rows else (),
        claim=end["claim"],
        private=end["private"],
        certificate=_certificate(folder.seed(config.seeds[0]), tasks),
        left=(*end["tasks"], *end.get("left", ()))[len(tasks) :],
    )


def figures(config: Config, folder: RunFolder, logs: Sequence[SeedLog], tasks: Sequence[str]) -> dict[str, Any]:
    """The content of `metrics.json`, for these tasks."""
    end = logs[0].end

    def over_seeds(of: Callable[[SeedLog], float]) -> Figure | None:
        return figure([of(log) for log in logs]) if end["accuracy_from"] else None

    def over_tasks(of: Callable[[SeedLog], float]) -> Figure | None:
        return over_seeds(of) if end["sequential"] else None

    certified, reason = _certified([Certificate.load(_certificate(folder.seed(log.seed), tasks)) for log in logs])
    learners = end.get("learners")
    return {
        "method": config.learner.method,
        "tuned": config.tuned.plain(),
        "tasks": len(tasks),
        "seeds": list(config.seeds),
        "task_id": end["task_id"],
        "caveats": end.get("caveats", []),
        "accuracy": end["accuracy_from"],
        "accuracy_noise": end.get("accuracy_noise"),
        "average_accuracy": over_seeds(lambda log: metrics.average_accuracy(log.matrix, log.weights)),
        "forgetting": over_tasks(lambda log: metrics.forgetting(log.matrix, log.weights)),
        "worst_forgetting": over_tasks(lambda log: metrics.worst_forgetting(log.matrix, log.weights)),
        "lca": _lca(logs, config.lca),
        "bwt": over_tasks(lambda log: metrics.backward_transfer(log.matrix, log.weights)),
        "fwt": _fwt(logs) if end["sequential"] else None,
        "a_auc": over_seeds(lambda log: metrics.a_auc(metrics.average_curve(log.matrix, log.weights))),
        "consumption": record_counts.totals([log.consumption for log in logs]),
        "epsilon_claimed": _worst([log.end["claimed"] for log in logs]),
        "epsilon_certified": certified,
        "epsilon_certified_reason": reason,
        **({"learners": _by_learner(logs, learners, len(tasks))} if learners else {}),
        **({"held": end["held"]} if end.get("held") else {}),
    }


def _by_learner(logs: Sequence[SeedLog], learners: Sequence[Sequence[int]], tasks: int) -> list[dict[str, Any]]:
    """For each learner that takes its turn: its tasks, from 1, what it forgot of them while it learned, and, for later
    learners, the drop where it began."""
    begun = [own for one in learners if (own := [task for task in one if task < tasks])]
    measured = bool(logs[0].end["accuracy_from"])
    each = [metrics.forgetting_by(log.matrix, begun) for log in logs] if measured else []
    fallen = [[math.nan, *metrics.handover_drops(log.matrix, begun)] for log in logs] if measured else []
    return [
        {
            "tasks": [task + 1 for task in own],
            "forgetting": figure([seed[index] for seed in each]) if each else None,
            "drop": figure([seed[index] for seed in fallen]) if fallen else None,
        }
        for index, own in enumerate(begun)
    ]


def _logs(config: Config, folder: RunFolder) -> list[SeedLog]:
    return [SeedLog.read(folder.seed(seed)) for seed in config.seeds]


def figure(values: Sequence[float]) -> Figure | None:
    """The mean, the standard deviation (of two seeds or more) and the values; None if one of them is undefined."""
    if any(math.isnan(value) for value in values):
        return None
    found = metrics.summarise(values)
    return {"mean": found.mean, "std": None if math.isnan(found.std) else found.std, "per_seed": list(values)}


def timing(logs: Sequence[SeedLog]) -> dict[str, Any]:
    """Seconds of each seed: admit (records into the vault), learn, evaluate, rest (releases, logs, ledger)."""
    return {f"seed-{log.seed}": {**log.seconds, "total": math.fsum(log.seconds.values())} for log in logs}


def _lca(logs: Sequence[SeedLog], beta: int) -> dict[str, Any] | None:
    """Both readings; None where the curves were not measured, or tasks have fewer steps than β."""
    curves = [[_floats(log.curves.get(task, [])) for task in sorted(log.accuracy)] for log in logs]
    if any(len(curve) <= beta or any(map(math.isnan, curve)) for each in curves for curve in each):
        return None
    cut = [[curve[: beta + 1] for curve in each] for each in curves]
    return {
        "paper": figure([metrics.lca_paper(each, beta) for each in cut]),
        "trapezium": figure([metrics.lca_trapezium(each, beta) for each in cut]),
        "beta": beta,
    }


def _fwt(logs: Sequence[SeedLog]) -> Figure | None:
    if any(log.untrained is None for log in logs):
        return None
    return figure([metrics.forward_transfer(log.matrix, _floats(log.untrained or []), log.weights) for log in logs])


def average_curves(config: Config, folder: RunFolder) -> list[list[float]]:
    """Of each seed of a finished run: the average accuracy after each task; none where it was not asked for."""
    logs = _logs(config, folder)
    return [metrics.average_curve(log.matrix, log.weights) for log in logs] if logs[0].end["accuracy_from"] else []


def _certified(certificates: Sequence[Certificate]) -> tuple[dict[str, Any] | None, str]:
    """The largest bound of any seed, or None with the reason."""
    for certificate in certificates:
        if certificate.epsilon is None:
            return None, certificate.claims.certified.reason
    worst = max(certificates, key=lambda certificate: certificate.epsilon or 0.0).claims.certified
    together = next(rule for rule in worst.over_tasks if rule.rule == "accountant")
    return {
        "per_record": worst.epsilon,
        "task_wise": max((task.epsilon for task in worst.tasks if task.epsilon is not None), default=None),
        "all_tasks": together.epsilon if together.tasks == worst.all_tasks else None,
        "delta": worst.delta,
        "unit": str(certificates[0].unit.kind),
    }, worst.reason


def _worst(claimed: Sequence[Mapping[str, float] | None]) -> dict[str, float] | None:
    found = [one for one in claimed if one is not None]
    return dict(max(found, key=lambda one: one["total"])) if found else None


def _certificate(folder: SeedFolder, tasks: Sequence[str]) -> Path:
    """The certificate of the release after the last of the tasks."""
    return folder.release(len(tasks) - 1, tasks[-1]) / "certificate.json"


def _floats(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
