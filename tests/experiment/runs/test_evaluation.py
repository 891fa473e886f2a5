"""Accuracy is free on public test sets, a committed and charged query otherwise, or not asked for."""

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.blobs import killed_at, make_blobs, make_config
from support.data_sets import toy_set
from tacit import CosineClassifier, Stream, StreamInfo, Task, TaskInfo
from tacit.data.scenarios.blurry import iblurry, siblurry
from tacit.errors import ConfigError
from tacit.experiment.config.config import EvaluationSection
from tacit.experiment.progress import Event
from tacit.experiment.runs.evaluation import ChargedQueries, PublicTests
from tacit.experiment.runs.folder import SeedFolder
from tacit.experiment.runs.resolver import make_evaluation
from tacit.experiment.runs.run_summary import RunSummary
from tacit.experiment.runs.runner import run
from tacit.learners import load_learner
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.accounting.calibrate import fits
from tacit.privacy.accounting.events import repeat
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Vault
from tacit.privacy.vault.exits.accuracy import AccuracyExit

Private = partial(make_blobs, public=False, test=False)


def learn(folder: Path, *, resume: bool = False, stream: Any = Private, **changes: Any) -> RunSummary:
    config = make_config(repeatable_noise=False, **changes)
    return run(config, folder / "r", stream=stream, ledger=folder / "data.ledger", resume=resume)


def queries(folder: Path) -> list[tuple[str, str]]:
    with Ledger(folder / "data.ledger") as ledger:
        ledger.verify()
        return [(one.state, str(one.reads)) for one in ledger.statement(1).grants if one.kind == "accuracy"]


def test_without_a_public_test_set_it_is_charged(tmp_path: Path) -> None:
    found = learn(tmp_path, evaluation={"share": 0.25})
    assert found.metrics["accuracy"] == "charged query"
    assert found.metrics["lca"] is None and found.metrics["fwt"] is None  # asking at every step would cost too much
    assert found.metrics["average_accuracy"]["mean"] is not None
    with (found.folder / "accuracy.csv").open() as file:
        asked = [(row["after_task"], row["on_task"]) for row in csv.DictReader(file)]
    assert asked == [("1", "1"), ("2", "1"), ("2", "2"), ("3", "1"), ("3", "2"), ("3", "3")]
    assert len(queries(tmp_path)) == 6 and {state for state, _ in queries(tmp_path)} == {"RELEASED"}
    # Nobody pays for being learned from and for being asked about: the stream costs its budget, not twice that.
    assert found.metrics["epsilon_certified"]["per_record"] <= 2.0


@pytest.mark.parametrize("recurs", [1, 2, 3])
def test_all_queries_of_a_task_cost_the_budget_together(recurs: int) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    stream = Private(0, tasks_per_unit=recurs)
    with Ledger.throwaway() as ledger:
        asked = ChargedQueries(stream=stream.info, vault=Vault(ledger), budget=budget, share=0.1)
    for number in range(3):
        events = repeat(asked.plan(number).event, 3 - number)
        assert fits(events, budget, recurs)
    assert not fits(repeat(asked.plan(0).event, 4), budget, recurs)  # and not one query more
    assert [task.size for task in asked.info.tasks] == [72, 72, 72]  # the learner plans with what it gets


def test_people_who_recur_fit_too(tmp_path: Path) -> None:
    stream = partial(Private, unit="person", tasks_per_unit=3)
    found = learn(tmp_path, stream=stream, learner={"method": "DPCL", "steps": 5, "batch": 10, "memory_batch": 2})
    assert found.metrics["epsilon_certified"]["per_record"] <= 2.0


def test_a_killed_query_is_charged_once(tmp_path: Path) -> None:
    killed_at(SeedFolder, "note", 6, before=True, work=lambda: learn(tmp_path))  # asked, and not yet noted
    began = queries(tmp_path)
    assert len(began) == 3 and {state for state, _ in began[1:]} == {"CHARGED"}
    learn(tmp_path, resume=True)
    assert len(queries(tmp_path)) == 6


LEARNERS: dict[str, dict[str, Any]] = {
    "RoutedExperts": {"steps": 3, "batch": 10},
    "NaiveDPSGD": {"steps": 3, "batch": 10},
    "DPER": {"steps": 3, "batch": 10},
    "DPCL": {"steps": 3, "batch": 10, "memory_batch": 2},
    "MomentsClassifier": {},
}


@pytest.mark.parametrize("method", LEARNERS)
def test_a_kill_among_the_queries_of_a_task_can_be_gone_on_from(method: str, tmp_path: Path) -> None:
    """The learner that asks again was restored from a release: it asks the same, and nothing is charged twice."""
    learner = {"method": method, **LEARNERS[method]}
    killed_at(AccuracyExit, "__call__", 2, before=False, work=lambda: learn(tmp_path, learner=learner))
    found = learn(tmp_path, resume=True, learner=learner)
    assert found.metrics["tasks"] == 3
    assert len(queries(tmp_path)) == 6 and {state for state, _ in queries(tmp_path)} == {"RELEASED"}


def test_it_can_be_left_out(tmp_path: Path) -> None:
    found = learn(tmp_path, evaluation={"test": "none"})
    assert found.metrics["accuracy"] is None and found.metrics["average_accuracy"] is None
    assert not found.last_row and queries(tmp_path) == []
    assert (found.folder / "accuracy.csv").read_text() == "seed,after_task,on_task,accuracy\n"


def test_a_public_test_set_must_be_there() -> None:
    with Ledger.throwaway() as ledger, pytest.raises(ConfigError, match="'public' needs a public test set"):
        make_evaluation(EvaluationSection(test="public"), Private(0), Vault(ledger), Budget(epsilon=1.0, delta=1e-5))


def test_the_spread_counts_noise_and_coins() -> None:
    """Right answers of 200 of 1,000 declared units whom coins put into the test part, over 200."""
    info = replace(make_blobs(0).info, tasks=tuple(replace(task, size=1000) for task in make_blobs(0).info.tasks))
    with Ledger.throwaway() as ledger:
        budget = Budget(epsilon=5.0, delta=1e-5)
        found = ChargedQueries(stream=info, vault=Vault(ledger), budget=budget, share=0.2)
    rng = np.random.default_rng(0)
    drawn = (rng.binomial(1000, 0.2, 100_000) + rng.normal(0, found.plan(0).std, 100_000)) / 200
    assert found.noise == pytest.approx(drawn.std(), rel=0.02) and found.noise > 1.2 * found.plan(0).std / 200


def test_its_precision_is_printed_before_anything_is_charged(tmp_path: Path) -> None:
    said: list[str] = []

    def hear(event: Event) -> None:
        if event.kind == "notice" and "charged query" in event.name:
            with Ledger(tmp_path / "data.ledger") as ledger:
                assert not ledger.task_states("blobs")
            said.append(event.name)

    config = make_config(repeatable_noise=False, evaluation={"share": 0.25})
    found = run(config, tmp_path / "r", stream=Private, ledger=tmp_path / "data.ledger", progress=hear)
    (line,) = said
    assert f"standard deviation of up to {found.metrics['accuracy_noise']:.1%};" in line


def test_bytes_of_pictures_are_asked_about_as_they_are_learned_from() -> None:
    facts = TaskInfo(name="t", number=0, labels=(0, 1), size=2)
    x = np.full((2, 1, 2, 2), 255, np.uint8)
    info = StreamInfo(name="s", shape=(1, 2, 2), tasks=(facts,), public=True)
    stream = Stream(info, [Task(info=facts, records=lambda: (x, [0, 1]), test=lambda: (x, [0, 1]))])
    learner = CosineClassifier()
    learner.start(info)
    asked, _ = PublicTests(stream, learner.budget).examples(learner, 0)
    assert asked.dtype == torch.float32 and float(asked.min()) == float(asked.max()) == 1.0


@pytest.mark.parametrize("make", [iblurry, siblurry])
def test_the_average_over_blurry_tasks_is_the_accuracy_with_each_class_once(
    tmp_path: Path, make: Callable[..., Stream]
) -> None:
    data = toy_set(classes=6, each=20)
    stream = make(data, 3, seed=7)
    assert len({task.weight for task in stream}) > (
        make is siblurry
    )  # tasks of several sizes, where they may have them
    config = make_config(learner={"method": "CosineClassifier"}, model={}, lca=1, budget={"epsilon": 8, "delta": 1e-3})
    found = run(config, tmp_path / "r", stream=lambda _: stream)
    learner = load_learner(found.certificate.parent)
    right = learner.predict(np.asarray(data.test.x)) == data.test.y  # six classes of three rows, all in the stream
    assert found.metrics["average_accuracy"]["mean"] == pytest.approx(right.mean())
    assert 0.0 < right.mean() < 1.0  # neither all nor nothing, which any average would give


def test_a_blurry_task_without_test_rows_is_left_out(tmp_path: Path) -> None:
    data = toy_set(classes=6, each=20)
    streams = (siblurry(data, 3, seed) for seed in range(50))
    stream = next(one for one in streams if 0.0 in [task.weight for task in one])
    config = make_config(learner={"method": "CosineClassifier"}, model={}, lca=1, budget={"epsilon": 8, "delta": 1e-3})
    found = run(config, tmp_path / "r", stream=lambda _: stream)
    assert found.metrics["average_accuracy"] is not None and found.metrics["forgetting"] is not None
    empty = [task.weight for task in stream].index(0.0)
    assert math.isnan(found.last_row[empty].mean) and not math.isnan(found.last_row[empty - 1].mean)
