"""Centralised training: it learns from all that it has seen, says that it is not private, and can be taken up again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.small_world import OnStep, accuracies, facts, fixed, learn, nothing, records, same, tiny
from tacit import Ledger, Vault
from tacit.errors import LearnerError, PolicyError
from tacit.learners.base.callbacks import Step
from tacit.learners.baselines.centralised import Centralised

SETTINGS: dict[str, Any] = {"network": tiny, "batch": 20, "lr": 0.05, "epochs": 5.0}


def started(public: bool = True, **settings: Any) -> Centralised:
    learner = Centralised(**SETTINGS | settings)
    learner.start(facts(public=public, task_id="given"))
    return learner


@pytest.mark.parametrize(("rule", "lr"), [("adam", 0.05), ("sgd", 0.3)])
def test_it_knows_all_tasks_so_far(rule: str, lr: float) -> None:
    learner = started(rule=rule, lr=lr)
    learn(learner, fixed(), [0, 1, 2])
    assert min(accuracies(learner)) > 0.95


def test_it_begins_afresh_after_each_task() -> None:
    """The second task's network does not depend on what the first one had become."""
    one, other = started(epochs=[5.0, 5.0, 5.0]), started(epochs=[1.0, 5.0, 5.0])
    for learner in (one, other):
        learn(learner, fixed(), [0, 1])
    assert same(one.tensors(), other.tensors())


def test_alone_each_task_has_a_model_of_its_own() -> None:
    learner, only = started(scope="task"), started(scope="task")
    learn(learner, fixed(), [0, 1, 2])
    assert not learner.blocks_
    right = []
    for number, task in enumerate(learner.stream_.tasks):
        x, y = records(number, part=1)
        right.append(np.mean(learner.predict(x, task) == y))
    assert min(right) > 0.95
    learn(only, fixed(), [0])
    x = torch.from_numpy(records(0, part=1)[0])
    task = learner.stream_.tasks[0]
    assert torch.equal(learner.scores(x, task), only.scores(x, task))  # later tasks left it alone
    assert torch.equal(learner.scores(x), learner.scores(x, learner.stream_.tasks[2]))  # not given: the last one


def test_it_makes_the_passes_that_are_asked_for() -> None:
    learner, ends = started(epochs=[1.0, 2.5, 0.5]), list[tuple[int, int]]()

    def note_end(step: Step) -> None:
        if step.step == step.of:
            ends.append((step.task.number, step.of))

    learner.callback = OnStep(note_end)
    learn(learner, fixed(), [0, 1, 2])
    assert ends == [(0, 6), (1, 30), (2, 9)]  # 120, 240 and 360 records in batches of 20


@pytest.mark.parametrize("scope", ["all", "task"])
def test_it_goes_on_from_a_release(scope: str, tmp_path: Path) -> None:
    twin = started(scope=scope)
    whole = learn(twin, fixed(), [0, 1, 2])[-1]
    vault = fixed(tmp_path / "store")
    learner = started(scope=scope)
    release = learn(learner, vault, [0, 1])[-1]
    later = Vault(vault.ledger, tmp_path / "store")
    again = started(scope=scope)
    again.restore(release.tensors, release.tasks, later)
    (last,) = learn(again, later, [2])
    assert same(last.tensors, whole.tensors)
    x, task = torch.from_numpy(records(0, part=1)[0]), twin.stream_.tasks[0]
    assert torch.equal(again.scores(x, task), twin.scores(x, task))


def test_it_certifies_nothing_and_is_refused_on_private_data(tmp_path: Path) -> None:
    (release,) = learn(started(), Vault(Ledger.throwaway()), [0])
    assert release.certificate.epsilon is None and "raw" in release.certificate.claims.certified.reason
    assert not Centralised.private and not any(name.startswith("memory") for name in release.tensors)
    with Ledger(tmp_path / "ledger") as ledger, pytest.raises(PolicyError, match="allow_unsafe"):
        learn(started(public=False), Vault(ledger, tmp_path / "store"), [0])
    assert not list((tmp_path / "store").rglob("*.safetensors"))


def test_a_task_without_records_is_learned() -> None:
    learner = started()
    learn(learner, fixed(), [0, 1], lambda number: nothing() if number == 0 else records(number))
    assert accuracies(learner, [1])[0] > 0.95


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"scope": "some"}, "scope must be 'all' or 'task', got 'some'"),
        ({"rule": "lion"}, "rule must be 'sgd' or 'adam', got 'lion'"),
        ({"epochs": 0}, "epochs must be a number > 0"),
        ({"epochs": [1.0, 2.0]}, "epochs has 2 values and task 3 needs its own"),
        ({"lr": [0.1]}, "lr has 1 values and task 2 needs its own"),
    ],
)
def test_wrong_settings_are_said_before_the_first_task(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LearnerError, match=sentence):
        started(**settings)
