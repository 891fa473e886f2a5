"""Label sets of a run: declared, with labels outside them, learned from units kept apart, or read off the data."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.blobs import killed_at, make_blobs, make_config
from tacit.data.stream import Loader, Stream, StreamInfo, Task, TaskInfo
from tacit.errors import ConfigError, VaultError
from tacit.experiment.config.config import DataSection
from tacit.experiment.runs.resolver import declare
from tacit.experiment.runs.run_summary import RunSummary
from tacit.experiment.runs.runner import run
from tacit.learners.base.release import Release
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault.exits.label_set import LabelSetExit


def make_letters(seed: int, *, public: bool = True, test: bool = True, each: int = 60, **facts: Any) -> Stream:
    """Two tasks of two letters each; a letter is a direction."""
    letters = "abcd"
    tasks = tuple(
        TaskInfo(name=name, number=n, labels=tuple(name), size=2 * each) for n, name in enumerate(("ab", "cd"))
    )
    info = StreamInfo(name="letters", shape=(4,), tasks=tasks, public=public, **facts)

    def load(task: TaskInfo, part: int) -> Loader:
        def loader() -> tuple[Any, ...]:
            rng = np.random.default_rng([seed, task.number, part])
            y = np.repeat(list(task.labels), each)
            x = 3 * np.eye(4)[[letters.index(label) for label in y]] + rng.normal(size=(2 * each, 4))
            ids = () if part or facts.get("unit") != "person" else (np.arange(2 * each).astype(str),)
            return (x.astype(np.float32), y, *ids)

        return loader

    made = [Task(info=one, records=load(one, 0), test=load(one, 1) if test else None) for one in tasks]
    return Stream(info, made)


def data(**keys: Any) -> DataSection:
    return DataSection(source="digits", scenario="single", **keys)


def sets(stream: Stream) -> list[str]:
    return ["".join(map(str, task.labels)) for task in stream.info.tasks]


def test_the_stream_itself_where_nothing_is_asked_for() -> None:
    stream = make_letters(0)
    assert declare(stream, data(), 0) is stream


@pytest.mark.parametrize("space", ["constant", "learned", "data"])
def test_a_constant_set_is_the_union(space: str) -> None:
    assert sets(declare(make_letters(0), data(label_space=space), 0)) == ["abcd", "abcd"]


def test_a_prior_misses_a_public_random_share() -> None:
    stream = make_letters(0)
    found = {seed: sets(declare(stream, data(prior_missing=0.5), seed)) for seed in range(20)}
    assert all(len(one) == len(two) == 1 and one in "ab" and two in "cd" for one, two in found.values())
    assert len(set(map(tuple, found.values()))) == 4  # the seed decides
    assert found[3] == sets(declare(stream, data(prior_missing=0.5), 3))
    constant = sets(declare(stream, data(prior_missing=0.5, label_space="constant"), 0))
    assert len(constant[0]) == 2 and constant[0] == constant[1]
    assert all(map(len, sets(declare(stream, data(prior_missing=0.99), 0))))  # one label stays


def test_what_is_outside_can_have_a_label_of_its_own() -> None:
    found = declare(make_letters(0), data(prior_missing=0.5, outside="remap"), 0)
    assert found.info.other == "other" and all(task.labels[-1] == "other" for task in found.info.tasks)
    for task in found:
        assert task.test is not None
        y = task.test()[1]
        assert set(y) == set(task.info.labels) and (y == "other").mean() == 0.5
    numbers = declare(make_blobs(0), data(outside="remap"), 0)
    assert numbers.info.other == 2 and numbers.info.labels == (0, 1, 2)


def test_nothing_is_outside_a_set_from_data() -> None:
    with pytest.raises(ConfigError, match="none is outside"):
        declare(make_letters(0), data(label_space="data", prior_missing=0.1), 0)


def learn(folder: Path, stream: Any = make_letters, *, method: str = "CosineClassifier", **keys: Any) -> RunSummary:
    learner = {"method": method} | ({"steps": 8, "batch": 10, "lr": 0.5} if method != "CosineClassifier" else {})
    section = {"source": "digits", "scenario": "single", **keys}
    config = make_config(
        data=section, learner=learner, budget={"epsilon": 4.0, "delta": 1e-3}, repeatable_noise=stream is make_letters
    )
    return run(config, folder / "r", stream=stream, ledger=folder / "data.ledger", resume=(folder / "r").exists())


def release(found: RunSummary, place: int) -> Release:
    folder = sorted((found.folder / "seeds" / "seed-0" / "releases").iterdir())[place]
    return Release.load(folder)


def accuracy(found: RunSummary) -> float:
    return float(found.metrics["average_accuracy"]["mean"])


def test_a_wrong_prior_costs_what_it_misses(tmp_path: Path) -> None:
    whole = learn(tmp_path / "whole")
    missing = learn(tmp_path / "missing", prior_missing=0.5)
    renamed = learn(tmp_path / "renamed", prior_missing=0.5, outside="remap")
    assert accuracy(whole) > 0.9
    assert accuracy(missing) <= 0.5 and set(release(missing, 1).info.labels) < set("abcd")
    assert accuracy(renamed) > accuracy(missing)
    assert release(renamed, 1).info.other == "other"


@pytest.mark.parametrize("method", ["CosineClassifier", "NaiveDPSGD"])
def test_learned_sets_are_what_the_tasks_have(method: str, tmp_path: Path) -> None:
    found = learn(tmp_path, method=method, label_space="learned", labels_share=0.3)
    last = release(found, 1)
    assert [set(task.labels) for task in last.tasks] == [set("ab"), set("cd")]
    assert set(last.info.labels) == set("abcd") and [task.size for task in last.info.tasks] == [84, 84]
    assert last.certificate.labels.policy == "learned privately"
    assert accuracy(found) > (0.9 if method == "CosineClassifier" else 0.4)  # the other one forgets


class Person:
    """Private people who are in both tasks, without a test set."""

    def __call__(self, seed: int) -> Stream:
        return make_letters(
            seed, public=False, test=False, unit="person", tasks_per_unit=2, records_per_unit=2, each=200
        )


@pytest.mark.parametrize("method", ["CosineClassifier", "DPER"])
def test_labels_weights_and_questions_fit_one_budget(method: str, tmp_path: Path) -> None:
    found = learn(tmp_path, Person(), method=method, label_space="learned", labels_share=0.3)
    with Ledger(tmp_path / "data.ledger") as ledger:
        ledger.verify()
        statement = ledger.statement(1)
    assert statement.epsilon <= 4.0
    asked = [grant for grant in statement.grants if grant.kind == "label set"]
    parts = {block.row.id: block.row.part for block in statement.blocks}
    assert [parts[block] for grant in asked for block, _ in grant.reads] == ["learn/labels"] * 2
    read = {
        parts[block] for grant in statement.grants if grant.kind in ("sums", "gradient") for block, _ in grant.reads
    }
    assert read and all(part.startswith("learn/rest") for part in read)
    assert release(found, 1).certificate.epsilon is not None


@pytest.mark.parametrize("moment", [(LabelSetExit, "__call__", 2, False), (Release, "save", 1, False)])
def test_a_kill_changes_no_learned_set(moment: tuple[Any, str, int, bool], tmp_path: Path) -> None:
    asks = partial(learn, method="DPER", label_space="learned", labels_share=0.3)
    whole = asks(tmp_path / "whole")
    owner, name, count, before = moment
    (tmp_path / "killed").mkdir()
    killed_at(owner, name, count, before=before, work=lambda: asks(tmp_path / "killed"))
    again = asks(tmp_path / "killed")
    assert again.metrics["average_accuracy"] == whole.metrics["average_accuracy"]
    assert release(again, 1).tasks == release(whole, 1).tasks


def test_sets_from_data_are_not_private(tmp_path: Path) -> None:
    found = learn(tmp_path, label_space="data")
    said = release(found, 1).certificate
    assert said.epsilon is None and said.labels.policy == "from data, not private"
    assert [set(task.labels) for task in release(found, 1).tasks] == [set("ab"), set("cd")]


def test_sets_from_private_data_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    def stream(seed: int) -> Stream:
        def read() -> Any:
            raise AssertionError("records were read")

        made = make_letters(seed, public=False, test=False)
        return Stream(made.info, [Task(info=task.info, records=read) for task in made])

    with pytest.raises(VaultError, match="depends on one record"):
        learn(tmp_path, stream, label_space="data")
