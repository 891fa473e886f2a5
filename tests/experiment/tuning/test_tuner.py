"""Settings chosen on public data: what was tried, what is written, and what a run of it says."""

import csv
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.blobs import make_blobs, make_config
from tacit.certificate.certificate import Certificate
from tacit.data.stream import Stream
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.config.loading import load_as
from tacit.experiment.files import lines
from tacit.experiment.progress import Event
from tacit.experiment.runs.resolver import make_tuning_record
from tacit.experiment.runs.runner import run
from tacit.experiment.tuning import tuner
from tacit.experiment.tuning.search import search as optuna_search
from tacit.experiment.tuning.space import Settings, Space
from tacit.experiment.tuning.tuner import tune

NAIVE = {"method": "NaiveDPSGD", "steps": 4, "batch": 40}
SPACE = {"learner.lr": {"low": 1e-6, "high": 1.0, "log": True}}
Private = partial(make_blobs, public=False, test=False)


def config(**changes: Any) -> Config:
    return make_config(**({"learner": NAIVE, "lca": 1} | changes))


def peak(_: int, settings: Settings) -> float:
    """In place of a run: the best learning rate is known."""
    return -abs(float(settings["learner.lr"]) - 0.3)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "random"])
def test_the_tuner_comes_near_the_best_and_is_repeatable(sampler: Any) -> None:
    space = Space.of({"learner.lr": {"low": 0.0, "high": 1.0}})
    silent = {"progress": lambda _: None, "stop": tuner.Stop()}
    found = [
        optuna_search(space, peak, trials=18, sampler=sampler, seed=3, **silent)
        for _ in range(2)  # type: ignore[arg-type]
    ]
    assert found[0] == found[1] and len(found[0]) == 18
    best = tuner.best(found[0]).settings["learner.lr"]
    assert abs(best - 0.3) < 0.12


def test_on_the_runs_own_benchmark(tmp_path: Path) -> None:
    said: list[Event] = []
    found = tune(config(), SPACE, tmp_path / "t", trials=3, sampler="random", stream=make_blobs, progress=said.append)
    assert len(found.tried) == 3 and found.score == max(one.score or 0 for one in found.tried)
    assert found.config.learner.options["lr"] == found.settings["learner.lr"]
    assert found.config.tuned.how == "public-proxy" and not found.config.tuned.charged
    assert "3 trials of random search on blobs (public, the data of the run itself)" in found.config.tuned.about
    assert [line.name.partition(":")[0] for line in said if line.name.startswith("trial")] == [
        "trial 1 of 3", "trial 2 of 3", "trial 3 of 3"
    ]  # fmt: skip
    patch = yaml.safe_load((tmp_path / "t" / "settings.yaml").read_text())
    assert patch == found.settings and load_as(Config, tmp_path / "t" / "tuned.yaml") == found.config
    with (tmp_path / "t" / "trials.csv").open() as file:
        assert [float(row["score"]) for row in csv.DictReader(file)] == [one.score for one in found.tried]
    with pytest.raises(ConfigError, match="is not empty"):
        tune(config(), SPACE, tmp_path / "t", trials=1, stream=make_blobs)


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_what_was_tried_is_kept_and_the_same_call_goes_on(tmp_path: Path, sampler: Any) -> None:
    """A stop in the middle of the third trial: two are not run again, and all come out as in one go."""
    call: dict[str, Any] = {"trials": 4, "sampler": sampler, "stream": make_blobs}
    whole = tune(config(), SPACE, tmp_path / "whole", **call)
    stop, begun = tuner.Stop(), list[int]()

    def third(seed: int) -> Stream:
        begun.append(seed)
        if len(begun) == 1 + 2 * 3:  # the facts are looked at once, then twice in each trial
            stop.request()
        return make_blobs(seed)

    with pytest.raises(tuner.Stopped, match=r"stopped; 2 finished trials are kept in .*t$"):
        tune(config(), SPACE, tmp_path / "t", **(call | {"stream": third}), stop=stop)
    assert len(lines(tmp_path / "t" / "trials.jsonl")) == 2
    with pytest.raises(ConfigError, match="was begun with seed = 0; repeat the same call"):
        tune(config(), SPACE, tmp_path / "t", **call, seed=1)
    with pytest.raises(ConfigError, match="was begun with another configuration"):
        tune(config(lca=2), SPACE, tmp_path / "t", **call)
    said: list[Event] = []
    found = tune(config(), SPACE, tmp_path / "t", **call, progress=said.append)
    assert found == whole and len([line for line in said if line.name.startswith("trial")]) == 4


def test_certificates_and_metrics_of_the_run_say_how(tmp_path: Path) -> None:
    found = tune(config(), SPACE, tmp_path / "t", trials=1, objective="first", stream=make_blobs)
    assert found.score is not None
    done = run(found.config, tmp_path / "r", stream=make_blobs)
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert metrics["tuned"] == {"how": "public-proxy", "charged": False, "about": found.config.tuned.about}
    certificate = Certificate.load(done.certificate)
    assert certificate.tuning == f"public data: {found.config.tuned.about}"
    assert certificate.tuning.split()[-1] in str(certificate)
    plain = run(config(), tmp_path / "plain", stream=make_blobs)
    assert plain.metrics["tuned"] is None and Certificate.load(plain.certificate).tuning == "none"


def test_on_held_tasks_that_are_not_learned_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[tuple[str, ...]] = []
    real = tuner.run

    def spied(config: Config, folder: Path, **given: Any) -> Any:
        used.append(tuple(task.name for task in given["stream"](0).info.tasks))
        return real(config, folder, **given)

    monkeypatch.setattr(tuner, "run", spied)
    data = {"source": "digits", "scenario": "permuted", "tasks": 4, "limit": 60, "held": 3}
    asked = config(data=data, model={"network": "linear"})
    found = tune(asked, SPACE, tmp_path / "t", how="held-tasks", trials=2, sampler="random")
    assert used == [("permutation-1", "permutation-2", "permutation-3")] * 2
    assert found.config.data.held == 3 and found.config.tuned.how == "held-tasks"
    done = run(found.config, tmp_path / "r")
    assert done.tasks == ("permutation-4",)
    patch = yaml.safe_load((tmp_path / "t" / "settings.yaml").read_text())
    elsewhere = tuner.with_settings(config(data=data | {"held": 0}, model={"network": "linear"}), patch)
    assert run(elsewhere, tmp_path / "s").tasks == ("permutation-4",)
    assert "first 3 tasks of permuted-digits, declared public" in Certificate.load(done.certificate).tuning
    with pytest.raises(ConfigError, match=r"no task is held back for tuning; set data\.held"):
        tune(config(), SPACE, tmp_path / "u", how="held-tasks", trials=1)


def test_private_records_are_not_read_without_a_charge(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'blobs' is private, and this way of tuning reads it without a charge"):
        tune(config(), SPACE, tmp_path / "t", trials=1, stream=Private)
    held = config(data={"source": "digits", "scenario": "permuted", "tasks": 3, "held": 1})
    with pytest.raises(ConfigError, match="reads its first 1 tasks without a charge; say so by --held-are-public"):
        tune(held, SPACE, tmp_path / "t", how="held-tasks", trials=1, stream=Private)
    assert not (tmp_path / "t").exists()
    fine = partial(make_blobs, public=False, test=True)
    found = tune(held, SPACE, tmp_path / "t", how="held-tasks", trials=1, stream=fine, held_are_public=True)
    assert found.score is not None


def test_a_proxy_takes_the_place_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def spied(config: Config, folder: Path, streams: Any, stop: Any) -> float:
        opened: Stream = streams(0)
        seen.append(opened.info.name)
        return 0.5

    monkeypatch.setattr(tuner, "accuracy", spied)
    other = {"name": "p", "data": {"source": "digits", "scenario": "split", "tasks": 2}}
    found = tune(config(), SPACE, tmp_path / "a", trials=1, proxy=other, stream=Private)
    again = tune(config(), SPACE, tmp_path / "b", trials=1, proxy="quickstart", stream=Private)
    assert seen == ["split-digits", "permuted-digits"]
    assert found.config.data == config().data and found.config.tuned.about.endswith("on split-digits (public)")
    assert again.config.tuned.how == "public-proxy"


def test_trials_that_cannot_be_run_are_not_scores(tmp_path: Path) -> None:
    space = {"learner.batch": {"choices": [40, 10_000]}}
    found = tune(config(), space, tmp_path / "t", trials=6, sampler="random", stream=make_blobs)
    failed = [one for one in found.tried if one.score is None]
    assert failed and all(one.settings["learner.batch"] == 10_000 for one in failed)
    assert found.settings["learner.batch"] == 40 and "cannot be drawn" in failed[0].why
    with pytest.raises(ConfigError, match=r"no trial could be run; the last one: .*cannot be drawn"):
        tune(config(), {"learner.batch": {"choices": [10_000]}}, tmp_path / "u", trials=1, stream=make_blobs)
    assert not (tmp_path / "u").exists()


def test_what_is_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="tuning needs a search space"):
        tune(config(), None, tmp_path / "t")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        ConfigError, match=r"tuning needs optuna; install it with pip install '\.\[tuning\]' in tacit's folder"
    ):
        tune(config(), SPACE, tmp_path / "u", trials=1, stream=make_blobs)


def test_the_section_says_one_thing() -> None:
    with pytest.raises(ConfigError, match="only private tuning is charged"):
        config(tuned={"how": "held-tasks", "charged": True})
    with pytest.raises(ConfigError, match=r"tuned\.how must be one of"):
        config(tuned={"how": "guessed"})
    with pytest.raises(ConfigError, match=r"= 0 learns all tasks; set data\.held to the number of these"):
        config(tuned={"how": "held-tasks"})
    assert make_tuning_record(config(tuned={"how": "private", "charged": True}).tuned).on == "charged"


def test_settings_of_a_seed_are_its_own(tmp_path: Path) -> None:
    own = ({"learner.lr": 0.5}, {"learner.lr": 1e-6})
    done = run(config(seeds=2, per_seed=own), tmp_path / "r", stream=make_blobs, processes=1)
    alone = [
        run(config(seeds=[seed], learner=NAIVE | {"lr": one["learner.lr"]}), tmp_path / str(seed), stream=make_blobs)
        for seed, one in enumerate(own)
    ]
    expected = [one.metrics["average_accuracy"]["per_seed"][0] for one in alone]
    assert done.metrics["average_accuracy"]["per_seed"] == expected and expected[0] != expected[1]
    with pytest.raises(ConfigError, match="per_seed has settings for 1 seeds, and there are 2"):
        config(seeds=2, per_seed=own[:1])
    with pytest.raises(ConfigError, match="did you mean lr"):
        run(config(per_seed=[{"learner.lrr": 1}]), tmp_path / "wrong", stream=make_blobs)
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"learner.lrr": {"low": 0.1, "high": 1}}, "learner.lrr is not a key .*; did you mean learner.lr?"),
        ({"lr": {"low": 0.1, "high": 1}}, "lr is not a key of this run's configuration"),
        ({"learner.lr": {"low": -1, "high": 1}}, "learner.lr must be a finite number .*, got -1"),
        ({"learner.lr": {"choices": [0.1, "x"]}}, "learner.lr must be a number.*, got 'x'"),
    ],
)
@pytest.mark.parametrize("how", ["public-proxy", "private"])
def test_a_space_that_does_not_fit_is_refused_before_the_first_trial(
    how: Any, space: Any, said: str, tmp_path: Path
) -> None:
    def opened(seed: int) -> Stream:
        raise AssertionError("a stream was opened")

    with pytest.raises(ConfigError, match=said):
        tune(config(), space, tmp_path / "t", how=how, trials=1, stream=opened)
    assert not (tmp_path / "t").exists()


def test_a_key_of_another_choice_in_the_space_is_none_too_many() -> None:
    both = {"learner.method": {"choices": ["DPCL"]}, "learner.memory_batch": {"low": 4, "high": 9}}
    tuner.check_keys(Space.of(both), config())
