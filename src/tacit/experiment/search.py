"""Model-based search with Optuna, on public data: settings are asked for, tried, and told their score.

Guarantee: a trial that cannot be run (a batch larger than its task) counts as a failure and not as a score; the same
seed, space and scores ask for the same settings, so that a search which was ended goes on from its log to the same
trials as in one go. Not for private data: the tuner's next question depends on all scores
before it (private tuning draws its trials independently, see `private_tuning`).
"""

import csv
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError, TacitError
from tacit.experiment.changes import override
from tacit.experiment.config import Config
from tacit.experiment.events import Said, Stop, Stopped, Tell
from tacit.experiment.folder import add_line, lines, write
from tacit.experiment.loading import checked
from tacit.experiment.seed import new_learner
from tacit.experiment.space import Settings, Space
from tacit.learners.gradient import GradientLearner
from tacit.privacy.budget import Budget
from tacit.words import install

Sampler = Literal["tpe", "gp", "random"]
LOG = "trials.jsonl"
"""Trials that are done, a line each, in the folder of a search."""
SAMPLERS: dict[Sampler, str] = {"tpe": "TPE", "gp": "Gaussian-process", "random": "random"}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One trial."""

    settings: Settings
    score: float | None
    """None: it could not be run."""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What tuning came to."""

    settings: Settings
    """The best, key → value; with how they were tuned, for `--set` or a file."""
    score: float | None
    """Of the best; None where none is known."""
    tried: tuple[Tried, ...]
    """All trials on public data; empty where they are secret."""
    config: Config
    """The configuration with the best settings: what to run now."""


def search(
    space: Space,
    score: Callable[[int, Settings], float],
    *,
    trials: int,
    sampler: Sampler,
    seed: int,
    tell: Tell,
    stop: Stop,
    log: Path | None = None,
) -> tuple[Tried, ...]:
    """Try so many settings, one after another. `log`: where each is written down when it is done, and those of an
    earlier call are found."""
    if trials < 1:
        raise ConfigError(f"trials must be a whole number ≥ 1, got {trials}")
    optuna = optuna_module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # samplers that Optuna calls experimental
        made = {
            "tpe": optuna.samplers.TPESampler,
            "gp": optuna.samplers.GPSampler,
            "random": optuna.samplers.RandomSampler,
        }[sampler](seed=seed)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=made)
    tried: list[Tried] = []
    kept = [] if log is None else [Tried(**line) for line in lines(log)]
    for number in range(trials):
        stop.check()
        trial = study.ask()
        settings = space.ask(trial)
        found = kept[number] if number < len(kept) else _try(score, number, settings)
        if found.settings != json.loads(json.dumps(settings)) and number < len(kept):
            raise ConfigError(
                f"{log} holds trials of another space, sampler or seed; give the same ones, or another folder by --out"
            )
        if log is not None and number >= len(kept):
            add_line(log, asdict(found))
        study.tell(trial, found.score, state=None if found.score is not None else optuna.trial.TrialState.FAIL)
        tried.append(found)
        tell(Said(kind="notice", name=f"trial {number + 1} of {trials}: {_words(found)}"))
    return tuple(tried)


def _try(score: Callable[[int, Settings], float], number: int, settings: Settings) -> Tried:
    try:
        return Tried(settings=settings, score=score(number, settings))
    except Stopped:
        raise
    except TacitError as error:
        return Tried(settings=settings, score=None, why=str(error))


def best(tried: Sequence[Tried]) -> Tried:
    """The one with the highest score; the earliest of several."""
    scored = [one for one in tried if one.score is not None]
    if not scored:
        raise ConfigError(f"no trial could be run; the last one: {tried[-1].why}")
    return max(scored, key=lambda one: one.score or 0.0)


def with_settings(config: Config, settings: Settings) -> Config:
    """The configuration with some keys set, checked."""
    found = checked(override(config.plain(), list(settings.items())))
    assert isinstance(found, Config)
    return found


def planner(config: Config, budget: Budget, info: StreamInfo) -> GradientLearner:
    """The learner of a configuration, to ask for its public plans and sizes."""
    made = new_learner(config, budget, config.seeds[0])
    if not isinstance(made, GradientLearner):
        raise ConfigError(
            f"learner.method = {config.learner.method!r} has no learning rate, batch and clip to tune; run it as it is"
        )
    made.start(info)
    return made


def save(found: Found, folder: Path) -> None:
    """`settings.yaml` for `--set @FILE`, `tuned.yaml` for `tacit run`, and `trials.csv` where trials are public."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "settings.yaml", yaml.safe_dump(found.settings, sort_keys=False, allow_unicode=True))
    write(folder / "tuned.yaml", found.config.to_yaml())
    if found.tried:
        keys = list(dict.fromkeys(key for one in found.tried for key in one.settings))
        with (folder / "trials.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*keys, "score", "why"])
            for one in found.tried:
                values = [json.dumps(one.settings.get(key)) for key in keys]
                writer.writerow([*values, "" if one.score is None else one.score, one.why])


def _words(one: Tried) -> str:
    settings = ", ".join(f"{key.rpartition('.')[2]} {shown(value)}" for key, value in one.settings.items())
    return f"{settings}: " + (f"failed, {one.why}" if one.score is None else f"{one.score:.1%}")


def shown(value: Any) -> str:
    """A setting in a few characters."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def optuna_module() -> Any:
    """Optuna, or the sentence that says how it is installed."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(f"tuning needs the package optuna; install it with {install('tuning')}") from None
    return optuna
