"""Label sets of a run: declared, with labels outside them, learned from units kept apart, or read off the data."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blobs import killed_at, make_blobs, make_config
from typer.testing import CliRunner

from tacit.cli import app
from tacit.data.stream import Loader, Stream, StreamInfo, Task, TaskInfo
from tacit.errors import ConfigError, PlanError, VaultError
from tacit.experiment import label_audit
from tacit.experiment.config import DataSection
from tacit.experiment.label_audit import Finding, audit
from tacit.experiment.labels import declare
from tacit.experiment.runner import run
from tacit.experiment.summary import Summary
from tacit.learners.release import Release
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.plan import SumPlan
from tacit.privacy.vault import Vault


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


def learn(folder: Path, stream: Any = make_letters, *, method: str = "CosineClassifier", **keys: Any) -> Summary:
    learner = {"method": method} | ({"steps": 8, "batch": 10, "lr": 0.5} if method != "CosineClassifier" else {})
    section = {"source": "digits", "scenario": "single", **keys}
    config = make_config(
        data=section, learner=learner, budget={"epsilon": 4.0, "delta": 1e-3}, repeatable_noise=stream is make_letters
    )
    return run(config, folder / "r", stream=stream, ledger=folder / "data.ledger", resume=(folder / "r").exists())


def release(found: Summary, place: int) -> Release:
    folder = sorted((found.folder / "seeds" / "seed-0" / "releases").iterdir())[place]
    return Release.load(folder)


def accuracy(found: Summary) -> float:
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


@pytest.mark.parametrize("moment", [(Vault, "label_set", 2, False), (Release, "save", 1, False)])
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


# -- the attack --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    return audit(seed=0)


def test_a_set_from_data_tells_neighbours_apart(findings: list[Finding]) -> None:
    """Prop. 4.6 in both forms, and F.1: certainty, which no (ε, δ) with δ < 1 allows."""
    leaks = [one for one in findings if one.space == "from data"]
    assert {one.neighbours for one in leaks} == {"the task's labels", "the union so far", "the empty task"}
    assert all(one.advantage == 1.0 and not one.consistent for one in leaks)


def test_the_other_sets_do_not(findings: list[Finding]) -> None:
    others = [one for one in findings if one.space != "from data"]
    assert len(others) == 15 and len({one.space for one in others}) == 5
    assert all(one.consistent and one.advantage < 1 for one in others)
    assert {round(one.bound, 4) for one in findings} == {0.4621}  # (e − 1 + 2δ)/(e + 1)


def test_too_little_noise_is_found_out() -> None:
    """The attack can refute a guarantee: with the noise of ε = 60, it finds the records at more than ε = 1 allows."""
    budget, coins = Budget(epsilon=60.0, delta=1e-5), np.arange(200) % 2 == 0
    space = label_audit.spaces(budget, len(coins))["declared constant"]
    with Ledger.throwaway() as ledger:
        sums = SumPlan.for_budget(budget)
        trial = label_audit.Trial(name="thin", space=space, budget=budget, sums=sums, vault=Vault(ledger))
        advantage, least = label_audit._advantage(trial.crowd("one", coins, tasks=1), coins)
    assert advantage > 0.8 and least > 0.4621


def test_an_audit_that_could_show_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="no leak could be shown at ε = 1; use 34"):
        audit(records=10)
    with pytest.raises(PlanError, match="near 1; look at one below 5"):
        audit(epsilon=20.0)


def test_the_command_prints_the_table(findings: list[Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_audit, "audit", lambda **_: findings)
    shown = CliRunner().invoke(app, ["audit", "label-space"])
    assert shown.exit_code == 0 and shown.output.count("NOT PRIVATE") == 3 and shown.output.count("consistent") == 15
    listed = json.loads(CliRunner().invoke(app, ["audit", "label-space", "--json"]).output)
    assert len(listed) == 18 and {"neighbours", "space", "advantage", "bound", "consistent"} <= set(listed[0])
