"""The tuning protocol of Tobaben et al. 2025: what is tuned on, and how settings grow with the task."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.blobs import SIZE, make_blobs, make_config
from tacit.certificate.certificate import Certificate
from tacit.data.stream import Stream, StreamInfo, Task, TaskInfo
from tacit.errors import ConfigError
from tacit.experiment.runs.runner import run
from tacit.experiment.tuning import paper_protocol
from tacit.experiment.tuning.paper_protocol import ranges, representative, scaled
from tacit.experiment.tuning.tuner import tune


def several(count: int = 1000) -> Stream:
    """Two data sets as tasks; the second is CIFAR-10 by name."""
    facts = [TaskInfo(name=name, number=i, labels=(0, 1), size=count) for i, name in enumerate(("mnist", "cifar10"))]
    info = StreamInfo(name="both", shape=(1,), tasks=tuple(facts), public=True)

    def records() -> Any:
        return np.arange(count, dtype=np.float32)[:, None], np.arange(count) % 2

    return Stream(info, [Task(info=one, records=records, test=records) for one in facts])


def test_one_task_is_cut_70_to_30() -> None:
    chosen = representative(make_blobs(0), 0)
    (task,) = chosen.stream
    assert task.test is not None
    x, y = task.records()
    tx, ty = task.test()
    assert (len(x), len(tx)) == (round(0.7 * SIZE), SIZE - round(0.7 * SIZE)) == (chosen.size, len(ty))
    assert task.info.size == chosen.size == len(y) and chosen.stream.info.public
    whole = make_blobs(0)[0].records()[0]
    both = np.concatenate([x, tx])
    assert np.array_equal(np.sort(both, axis=0), np.sort(whole, axis=0))  # each record on one side, none left
    assert not np.array_equal(representative(make_blobs(0), 1).stream[0].records()[0], x)


def test_of_several_sets_it_is_a_tenth_of_cifar10() -> None:
    chosen = representative(several(), 0)
    (task,) = chosen.stream
    assert task.test is not None
    assert task.info.name == "cifar10-tuning" and chosen.size == 100 and len(task.test()[1]) == 43
    assert not set(task.records()[0].ravel()) & set(task.test()[0].ravel())


def test_private_records_are_refused() -> None:
    with pytest.raises(ConfigError, match="is private, and the paper's protocol reads it without a charge"):
        representative(make_blobs(0, public=False), 0)


def test_the_ranges_are_those_of_table_a2() -> None:
    space = ranges(3500)
    assert {key: one.ends for key, one in space.ranges.items()} == {
        "learner.lr": (1e-7, 1e-2),
        "learner.batch": (10, 3500),
        "learner.clip": (0.2, 10.0),
    }
    assert space.ranges["learner.lr"].log and paper_protocol.fixed()["learner.epochs"] == 40


def test_batch_grows_by_s_and_the_learning_rate_by_its_root() -> None:
    tuned = {"learner.lr": 0.01, "learner.batch": 700, "learner.clip": 2.0}
    same = scaled(tuned, 3500, [5000, 5000])
    assert same["learner.batch"] == pytest.approx(1000) and same["learner.clip"] == 2.0
    assert same["learner.lr"] == pytest.approx(0.01 * math.sqrt(5000 / 3500))
    other = scaled(tuned, 3500, [7000, 14_000])
    assert other["learner.batch"] == pytest.approx([1400, 2800])
    assert other["learner.lr"] == pytest.approx([0.01 * math.sqrt(2), 0.02])
    assert scaled(tuned | {"learner.batch": 3500}, 3500, [4999])["learner.batch"] == 4999.0  # never above the task


def test_every_seed_is_tuned_by_itself_and_nothing_is_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_protocol, "EPOCHS", 2)
    learner = {"method": "NaiveDPSGD", "rule": "adam", "steps": 4, "batch": 40}
    config = make_config(learner=learner, lca=1, seeds=2)
    found = tune(config, None, tmp_path / "t", protocol="tobaben2025", trials=2, stream=make_blobs)
    assert len(found.tried) == 4 and len(found.config.per_seed) == 2
    assert found.config.per_seed[0] != found.config.per_seed[1]
    growth = SIZE / round(0.7 * SIZE)
    best = [max(found.tried[at : at + 2], key=lambda one: one.score or 0) for at in (0, 2)]
    for own, one in zip(found.config.per_seed, best, strict=True):
        assert own["learner.batch"] == pytest.approx(one.settings["learner.batch"] * growth)
    assert found.score == pytest.approx(sum(one.score or 0 for one in best) / 2)
    done = run(found.config, tmp_path / "r", stream=make_blobs, processes=1)
    assert done.metrics["tuned"]["how"] == "paper-protocol" and not done.metrics["tuned"]["charged"]
    certificate = Certificate.load(done.certificate)
    assert certificate.tuning.startswith("not accounted: ") and certificate.tuning.endswith("not charged")
    assert "hyper-parameter tuning on private data" in certificate.not_accounted


def test_it_is_for_learners_with_a_learning_rate(tmp_path: Path) -> None:
    config = make_config(learner={"method": "CosineClassifier"})
    with pytest.raises(ConfigError, match="'CosineClassifier' has no learning rate, batch and clip to tune"):
        tune(config, None, tmp_path / "t", protocol="tobaben2025", trials=1, stream=make_blobs)
    with pytest.raises(ConfigError, match="brings its own space"):
        tune(config, {"learner.lr": {"low": 1, "high": 2}}, tmp_path / "t", protocol="tobaben2025")
