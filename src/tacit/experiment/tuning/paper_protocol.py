"""How Tobaben et al. 2025 tuned (App. H.1), for comparing with their tables. It is not charged.

For each (ε, δ) and seed: 20 trials of a Gaussian-process sampler over the ranges of Table A2, 40 epochs, the noise by
the target ε. Trials learn one representative task, cut 70:30 into tuning and validation records; of 5-datasets they
learn CIFAR-10, on 10 % of its records, validated on 4.28 %. Then, with s = records of the task / tuning records: batch
× s (the same rate), learning rate × √s, clip and epochs kept.

What is learned from is tuned on, so this is for public benchmarks only, and certificates say "not accounted".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.data.scenarios.task import generator
from tacit.data.stream import Stream, Task, TaskInfo
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.config.loading import with_settings
from tacit.experiment.features.features import Place
from tacit.experiment.progress import OnEvent, Stop, notify
from tacit.experiment.runs.resolver import Streams, make_budget, open_stream
from tacit.experiment.runs.runner import run
from tacit.experiment.tuning.search import LOG, Trial, TuningResult, best, planner, search
from tacit.experiment.tuning.space import Settings, Space

PAPER = "Tobaben et al. 2025, App. H.1"
EPOCHS = 40
SHARE = 0.7
OF_SEVERAL = ("cifar10", 0.10, 0.0428)
"""In a stream of several data sets: the one that is tuned on, and its shares for tuning and validation."""


@dataclass(frozen=True, kw_only=True)
class Representative:
    """One task to tune on."""

    stream: Stream
    size: int
    """Tuning records."""
    about: str


def tobaben2025(
    config: Config, folder: Path, *, trials: int, stream: Streams | None, progress: OnEvent, stop: Stop
) -> TuningResult:
    """Tune each seed by itself; the configuration has the settings of each."""
    at = Place(device=config.device, progress=progress, stop=stop)
    settings_by_seed: list[Settings] = []
    tried: list[Trial] = []
    data = ""
    for seed in config.seeds:
        full_stream = open_stream(config.data, seed, at) if stream is None else stream(seed)
        chosen = representative(full_stream, seed)
        data = chosen.about
        notify(progress, f"seed {seed}: tuning on {data}")
        learner = planner(config, make_budget(config.budget, full_stream.info.unit), full_stream.info)
        sizes = [learner.train_size(task) for task in full_stream.info.tasks]
        seed_trials = _one_seed(config, chosen, folder / f"seed-{seed}", seed, trials, progress, stop)
        tried += seed_trials
        settings_by_seed.append(scaled(best(seed_trials).settings, chosen.size, sizes))
    about = (
        f"learner.lr, learner.batch, learner.clip: {trials} Gaussian-process trials for each seed on {data}; {PAPER}; "
        "not charged"
    )
    tuned = {"tuned.how": "paper-protocol", "tuned.charged": False, "tuned.about": about}
    settings = tuned | fixed() | {"per_seed": settings_by_seed}
    tuned_config = with_settings(config, settings)
    score = math.fsum(best(tried[at : at + trials]).score or 0.0 for at in range(0, len(tried), trials)) / len(
        settings_by_seed
    )
    return TuningResult(settings=settings, score=score, tried=tuple(tried), config=tuned_config)


def fixed() -> Settings:
    """What is not searched."""
    return {"learner.epochs": EPOCHS, "learner.steps": None}


def ranges(size: int) -> Space:
    """Table A2."""
    return Space.of(
        {
            "learner.lr": {"low": 1e-7, "high": 1e-2, "log": True},
            "learner.batch": {"low": 10, "high": size, "whole": True},
            "learner.clip": {"low": 0.2, "high": 10.0},
        }
    )


def representative(stream: Stream, seed: int) -> Representative:
    """The task that stands for all, its records cut into tuning and validation; public records only."""
    if not stream.info.public:
        raise ConfigError(
            f"the stream {stream.info.name!r} is private, and the paper's protocol reads it without a charge; tune "
            "privately, or on public data"
        )
    name, tuning, validation = OF_SEVERAL
    named_task = next((task for task in stream if task.info.name == name), None)
    task = stream[0] if named_task is None else named_task
    records = task.records()
    count = len(records[1])
    shares = (SHARE, 1 - SHARE) if named_task is None else (tuning, validation)
    order = generator(seed, PAPER).permutation(count)
    first, second = (round(share * count) for share in shares)
    learn, check = order[:first], order[first : first + second]
    if not len(learn) or not len(check):
        raise ConfigError(f"task {task.info.name!r} has {count} records, too few to cut into tuning and validation")
    facts = TaskInfo(name=f"{task.info.name}-tuning", number=0, labels=task.info.labels, size=len(learn))
    info = replace(stream.info, name=f"{stream.info.name}-tuning", tasks=(facts,))

    def part(rows: Any, columns: int) -> Any:
        return tuple(column[rows] for column in records[:columns])

    made = Task(info=facts, records=lambda: part(learn, len(records)), test=lambda: part(check, 2))
    about = f"{len(learn)} records of {task.info.name} of {stream.info.name}, validated on {len(check)} others"
    return Representative(stream=Stream(info, [made]), size=len(learn), about=about)


def scaled(settings: Settings, tuned: int, tasks: Sequence[int]) -> Settings:
    """The settings for tasks of these sizes: the rate stays, the learning rate grows by the root."""
    factors = [size / tuned for size in tasks]
    batch = [min(float(size), settings["learner.batch"] * s) for size, s in zip(tasks, factors, strict=True)]
    rate = [settings["learner.lr"] * math.sqrt(s) for s in factors]
    return {
        "learner.lr": rate[0] if len(set(rate)) == 1 else rate,
        "learner.batch": batch[0] if len(set(batch)) == 1 else batch,
        "learner.clip": settings["learner.clip"],
    }


def _one_seed(
    config: Config, chosen: Representative, folder: Path, seed: int, trials: int, progress: OnEvent, stop: Stop
) -> tuple[Trial, ...]:
    def score(number: int, settings: Settings) -> float:
        trial_config = with_settings(
            config, fixed() | settings | {"seeds": [seed], "per_seed": [], "data.held": 0, "tuned": {}}
        )
        trial_folder = folder / f"{number + 1:03d}"
        summary = run(trial_config, trial_folder, stream=lambda _: chosen.stream, processes=1, stop=stop, resume=True)
        return float(summary.metrics["average_accuracy"]["mean"])

    folder.mkdir(parents=True, exist_ok=True)
    space, log = ranges(chosen.size), folder / LOG
    return search(space, score, trials=trials, sampler="gp", seed=seed, progress=progress, stop=stop, log=log)
