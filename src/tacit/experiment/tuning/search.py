"""Model-based search with Optuna, on public data.

A trial that cannot be run (a batch larger than its task) counts as a failure and not as a score. The same seed, space
and scores give the same settings, so that a search that was ended continues from its log with the same trials. It is
not for private data, since each proposal depends on all scores before it; private tuning draws its trials independently
(see `private`).
"""

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError, TacitError
from tacit.experiment.config.config import Config
from tacit.experiment.files import add_line, lines, write, write_csv
from tacit.experiment.progress import OnEvent, Stop, Stopped, notify
from tacit.experiment.runs.resolver import make_learner
from tacit.experiment.tuning.space import Settings, Space
from tacit.learners.base.gradient import GradientLearner
from tacit.learners.pool.pool import Pool
from tacit.plugins import extra
from tacit.privacy.accounting.budget import Budget
from tacit.words import accuracy_percent

Sampler = Literal["tpe", "gp", "random"]
LOG = "trials.jsonl"
"""The log of finished trials in the folder of a search."""
SAMPLERS: dict[Sampler, str] = {"tpe": "TPE", "gp": "Gaussian-process", "random": "random"}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial."""

    settings: Settings
    score: float | None
    """None if it could not be run."""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class TuningResult:
    """The result of tuning."""

    settings: Settings
    """The best settings by key, with how they were tuned, for `--set` or a file."""
    score: float | None
    """The best score; None if there is none."""
    tried: tuple[Trial, ...]
    """All trials on public data; empty for private tuning, where they are secret."""
    config: Config
    """The configuration with the best settings, to be run next."""


def search(
    space: Space,
    score: Callable[[int, Settings], float],
    *,
    trials: int,
    sampler: Sampler,
    seed: int,
    progress: OnEvent,
    stop: Stop,
    log: Path | None = None,
) -> tuple[Trial, ...]:
    """Run the trials one after another. `log`: trials are appended to it, and those of an earlier call are reused."""
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
    tried: list[Trial] = []
    kept = [] if log is None else [Trial(**line) for line in lines(log)]
    for number in range(trials):
        stop.check()
        trial = study.ask()
        settings = space.ask(trial)
        found = kept[number] if number < len(kept) else _try(score, number, settings)
        if found.settings != json.loads(json.dumps(settings)) and number < len(kept):
            raise ConfigError(
                f"{log} holds trials of another space, sampler or seed; use the same ones, or pass another folder "
                "with --out"
            )
        if log is not None and number >= len(kept):
            add_line(log, asdict(found))
        study.tell(trial, found.score, state=None if found.score is not None else optuna.trial.TrialState.FAIL)
        tried.append(found)
        notify(progress, f"trial {number + 1} of {trials}: {_words(found)}")
    return tuple(tried)


def _try(score: Callable[[int, Settings], float], number: int, settings: Settings) -> Trial:
    try:
        return Trial(settings=settings, score=score(number, settings))
    except Stopped:
        raise
    except TacitError as error:
        return Trial(settings=settings, score=None, why=str(error))


def best(tried: Sequence[Trial]) -> Trial:
    """The trial with the highest score; the earliest of several."""
    scored = [one for one in tried if one.score is not None]
    if not scored:
        raise ConfigError(f"no trial could be run; the last one: {tried[-1].why}")
    return max(scored, key=lambda one: one.score or 0.0)


def planner(config: Config, budget: Budget, info: StreamInfo) -> GradientLearner | Pool:
    """The started learner of a configuration, for its public plans and sizes."""
    made = make_learner(config, budget, config.seeds[0])
    if not isinstance(made, GradientLearner | Pool):
        raise ConfigError(
            f"learner.method = {config.learner.method!r} has no learning rate, batch and clip to tune; run it as it is"
        )
    made.start(info)
    return made


def save(found: TuningResult, folder: Path) -> None:
    """`settings.yaml` for `--set @FILE`, `tuned.yaml` for `tacit run`, and `trials.csv` where trials are public."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "settings.yaml", yaml.safe_dump(found.settings, sort_keys=False, allow_unicode=True))
    write(folder / "tuned.yaml", found.config.to_yaml())
    if found.tried:
        keys = list(dict.fromkeys(key for one in found.tried for key in one.settings))
        rows = ([*(json.dumps(one.settings.get(key)) for key in keys), one.score, one.why] for one in found.tried)
        write_csv(folder / "trials.csv", [[*keys, "score", "why"], *rows])


def _words(one: Trial) -> str:
    settings = ", ".join(f"{key.rpartition('.')[2]} {shown(value)}" for key, value in one.settings.items())
    return f"{settings}: " + (f"failed, {one.why}" if one.score is None else f"{accuracy_percent(one.score)}")


def shown(value: Any) -> str:
    """A setting in a few characters."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def optuna_module() -> Any:
    """The module optuna, or an error that says how it is installed."""
    return extra("optuna", "tuning", "tuning")
