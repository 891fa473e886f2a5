"""A pool of learners in a run: held tasks are handed over, a kill changes nothing, forgetting is told by learner."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from support.blobs import killed_at, make_blobs, make_config
from tacit.data.stream import Loader, Stream, StreamInfo, Task
from tacit.errors import ConfigError, LearnerError
from tacit.experiment.config.config import Config
from tacit.experiment.runs.folder import SeedFolder
from tacit.experiment.runs.resolver import open_stream
from tacit.experiment.runs.runner import run
from tacit.learners.base.release import Release
from tacit.privacy.ledger import Ledger
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault import Grant

DIGITS = {"source": "digits", "scenario": "permuted", "tasks": 5, "held": 2, "task_id": "given", "records": 400}
NETWORK = {"network": "mlp", "hidden": [32]}
NOISE: dict[str, Any] = {"noise": 4.0, "memory_noise": 4.0}


def digits(**learner: Any) -> Config:
    """Three tasks of two learners, two tasks held back."""
    own = {
        "method": "Pool", "tasks_per_learner": 2, "steps": 12, "batch": 40, "lr": 0.2, "memory_batch": 10, **NOISE
    }  # fmt: skip
    return make_config(
        data=DIGITS, learner=own | learner, budget={"epsilon": 50.0, "delta": 1e-3}, lca=1, model=NETWORK
    )


def months(seed: int) -> Stream:
    """Digits as they come, 300 in each of five tasks, of which two are held back."""
    x, y = load_digits(return_X_y=True)
    x, order = (x / 16).astype(np.float32), np.random.default_rng(seed).permutation(len(y))
    info = StreamInfo.uniform("months", labels=range(10), shape=64, size=300, tasks=5, public=True, task_id="given")

    def rows(first: int, last: int) -> Loader:
        return lambda: (x[order[first:last]], y[order[first:last]])

    whole = Stream(
        info,
        [
            Task(info=one, records=rows(300 * one.number, 300 * (one.number + 1)), test=rows(1500, 1797))
            for one in info.tasks
        ],
    )
    stream = whole[2:]
    stream.held = whole[:2]
    return stream


def found(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return told


def first_accuracy(folder: Path) -> float:
    """Of the second learner, on its first task."""
    rows = [line.split(",") for line in (folder / "accuracy.csv").read_text().splitlines()[1:]]
    return next(float(accuracy) for _, after, on, accuracy in rows if (after, on) == ("3", "3"))


def test_the_held_tasks_stay_with_the_stream_they_were_held_back_from() -> None:
    config = digits()
    stream = open_stream(config.data, 0)
    assert stream.held is not None
    whole = open_stream(config.data.model_copy(update={"held": 0}), 0)
    assert [task.info.name for task in (*stream.held, *stream)] == [task.info.name for task in whole]
    assert len(stream.held) == 2
    assert whole.held is None


def test_a_learner_that_begins_on_held_tasks_is_better_from_the_first_task_on(tmp_path: Path) -> None:
    run(digits(), tmp_path / "plain", stream=months)
    run(digits(fine_tune="public", fine_tune_epochs=5), tmp_path / "tuned", stream=months)
    plain, tuned = found(tmp_path / "plain"), found(tmp_path / "tuned")
    assert first_accuracy(tmp_path / "tuned") > first_accuracy(tmp_path / "plain") + 0.3
    assert "held" not in plain and tuned["held"]["use"] == "public" and tuned["held"]["epsilon"] is None
    assert tuned["epsilon_certified"] == plain["epsilon_certified"]
    for told in (plain, tuned):
        assert [one["tasks"] for one in told["learners"]] == [[1, 2], [3]]
        assert told["learners"][0]["forgetting"] is not None and told["learners"][1]["forgetting"] is None


def ends(folder: Path) -> dict[str, Any]:
    """All that two runs must agree on."""
    seed = folder / "seeds" / "seed-0"
    with Ledger(seed / "private" / "throwaway.ledger", keys=KeyRing.for_tests(0)) as ledger:
        grants = [grant for number, _ in ledger.streams() for grant in ledger.statement(number).grants]
        ledger.verify()
    assert {grant.state for grant in grants} <= {"RELEASED", "VOID"}
    (last,) = (seed / "releases").glob("03-*")
    weights = load_file(last / "model.safetensors")
    return {
        "metrics": (folder / "metrics.json").read_bytes(),
        "accuracy": (folder / "accuracy.csv").read_bytes(),
        "weights": {name: value.tolist() for name, value in weights.items()},
        "charged": sorted((grant.pin, grant.reads) for grant in grants if grant.state == "RELEASED"),
    }


KILLS = {
    "in the passes over held tasks": (Grant, "gradient", 5, True),
    "while the second learner starts early": (Grant, "gradient", 50, False),
    "in the last task": (Grant, "gradient", 80, True),
    "between the release and its evaluation": (Release, "save", 2, False),
}


@pytest.mark.parametrize("how", ["public", "charged"])
def test_a_kill_changes_nothing(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeedFolder, "clear", lambda self: None)  # the ledger is read first
    config = digits(fine_tune=how, early_start=True, fine_tune_epochs=0.5)
    run(config, tmp_path / "whole")
    whole = ends(tmp_path / "whole")
    for moment, (owner, name, count, before) in KILLS.items():
        folder = tmp_path / moment
        killed_at(owner, name, count, before=before, work=lambda at=folder: run(config, at))  # type: ignore[misc]
        assert not (folder / "metrics.json").exists()
        run(config, folder, resume=True)
        assert ends(folder) == whole


@pytest.mark.slow
def test_what_charged_held_tasks_lose_has_a_line_and_a_certificate_of_its_own(tmp_path: Path) -> None:
    config = digits(fine_tune="charged").model_copy(update={"repeatable_noise": False})
    run(config, tmp_path)
    told = found(tmp_path)["held"]
    kept = json.loads((tmp_path / "seeds" / "seed-0" / "held-certificate.json").read_text())
    assert told["stream"].endswith("/held") and told["use"] == "charged"
    assert 0 < told["epsilon"] == kept["claims"]["certified"]["epsilon"] <= 50


def test_held_tasks_that_are_not_there_or_not_public_are_a_sentence(tmp_path: Path) -> None:
    pool: dict[str, Any] = {"method": "Pool", "steps": 5, "batch": 20, "memory_batch": 5, "fine_tune": "public"}
    config = make_config(learner=pool)
    with pytest.raises(ConfigError, match=r"and data\.held = 0 holds out none; set data\.held to their number"):
        run(config, tmp_path / "none", stream=make_blobs)
    assert not (tmp_path / "none").exists()

    def private(seed: int) -> Stream:
        stream = make_blobs(seed, public=False)
        stream.held = make_blobs(seed + 1, public=False, tasks=1)
        return stream

    with pytest.raises(ConfigError, match="'public' reads held tasks without noise, and 'blobs' is private"):
        run(
            config.model_copy(update={"repeatable_noise": False}), tmp_path / "private", stream=private,
            ledger=tmp_path / "ledger",
        )  # fmt: skip


def test_a_run_with_too_few_learners_is_refused_before_it_begins(tmp_path: Path) -> None:
    said = r"3 tasks are planned and the 1 learner\(s\) of this pool end after 2; plan 2 tasks, or more learners"
    with pytest.raises(LearnerError, match=said):
        run(digits(learners=1), tmp_path)
    assert not list(tmp_path.glob("**/release.json"))
