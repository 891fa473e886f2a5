"""Checks before a run reads a record: changed facts, records that were already learned, changed plans."""

from dataclasses import replace
from pathlib import Path

from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.runs.folder import RunFolder, changed
from tacit.experiment.runs.resolver import make_budget, make_learner
from tacit.learners.base.release import Release
from tacit.privacy.accounting.events import to_json
from tacit.privacy.ledger import Ledger


def check_facts(last: Release, info: StreamInfo) -> None:
    """Refuse to resume from a release if the stream is declared differently by now."""
    if replace(last.info, features=last.info.features or info.features) != info:  # older ones lack the features
        raise ConfigError(
            f"the declared facts of {last.info.name!r} (tasks, sizes, labels, bounds, columns, how its files are read) "
            f"are not those that {last.task.name!r} was learned with; put them back, since what was planned and "
            "charged rests on them"
        )


def refuse_spent(info: StreamInfo, ledger: Path) -> None:
    """Refuse records that were already learned, before a folder is made."""
    if not ledger.exists():
        return
    with Ledger(ledger) as book:
        charged = {task for task, states in book.task_states(info.name).items() if states}
    spent = next((task.name for task in info.tasks if task.name in charged), None)
    if spent is not None:
        raise ConfigError(
            f"task {spent!r} of {info.name!r} has already been learned and charged to {ledger}; load the release saved "
            "after it, continue that run with --resume, or declare new records as new tasks"
        )


def corrected(config: Config, folder: RunFolder, info: StreamInfo) -> None:
    """Apply corrected settings of the learner to a run on private data, which a new run would charge again.

    What was planned and charged stays: a setting that changes a plan (steps, batch, noise, shares) is refused. Others,
    such as a learning rate, count from here on: for the steps of an unfinished task that were not drawn, and for later
    tasks. Changes of anything but the learner's settings are left for `RunFolder.begin` to refuse."""
    begun = folder.config()
    other = changed(config, begun)
    if not other or any(not key.startswith("learner.") or key == "learner.method" for key in other):
        return
    if all(folder.seed(seed).finished for seed in begun.seeds):
        key, (_, value) = next(iter(other.items()))
        raise ConfigError(
            f"{folder.path} is finished, so its settings can no longer change ({key} = {value!r}); start a new run "
            "with --out"
        )
    now = config.model_copy(update={"threads": config.threads or begun.threads, "name": begun.name})
    if _plans(begun, info) != _plans(now, info):
        key, (before, value) = next(iter(other.items()))
        raise ConfigError(
            f"{folder.path} was begun, and charged, with {key} = {before!r}; {value!r} changes the charged "
            "plan; keep it (a learning rate or momentum may change), or start a new run with --out"
        )
    folder.correct(now)


def _plans(config: Config, info: StreamInfo) -> list[list[str]]:
    """All events that a unit may be charged for, as text."""
    learner = make_learner(config, make_budget(config.budget, info.unit), config.seeds[0])
    learner.start(info)
    return [[to_json(event) for event in events] for events in learner.charges()]
