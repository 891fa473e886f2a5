"""What every registered learner has in common; a learner without an entry in `CASES` fails."""

import inspect
import pickle
import re
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from support.small_world import ROOMY, Stopped, facts, fixed, records, same, stop_at, take, tiny
from tacit.errors import LearnerError
from tacit.learners import LEARNERS, Learner, find
from tacit.learners.base.release import Release

STEPS: dict[str, Any] = {"network": tiny, "steps": 4, "batch": 30, "lr": 0.5, "noise": 1.0}
REPLAY = STEPS | {"memory_batch": 8, "memory_noise": 1.0}
CASES: dict[str, dict[str, Any]] = {
    "AGEM": {"network": tiny, "memory_batch": 20},
    "AdaptiveDPSGD": STEPS | {"check": 2, "by_step": 2, "watch_share": 0.2},
    "Centralised": {"network": tiny, "epochs": 1},
    "CosineClassifier": {},
    "DPAGEM": REPLAY,
    "DPCL": REPLAY,
    "DPER": STEPS | {"replay": 10},
    "DPFC": {"steps": 2},
    "DPGenerativeReplay": STEPS | {"latent": 2, "hidden": 8, "samples": 20, "classifier_epochs": 2},
    "DPL2M": {"network": "linear", "batch": 40, "hidden": 8},
    "FeCAM": {},
    "Joint": STEPS,
    "L2DPML": {"network": "linear", "batch": 40, "hidden": 8},
    "LifelongDP": {"width": 40},
    "MeteredGD": {"network": tiny, "steps": 4},
    "MomentsClassifier": {},
    "NaiveDPSGD": STEPS,
    "NaiveGaussian": REPLAY | {"epochs": None},
    "PEFTEnsemble": STEPS | {"network": tiny, "epochs": None, "rule": "sgd"},
    "Pool": REPLAY | {"tasks_per_learner": 1, "early_start": True},
    "PublishedDPCL": {"network": tiny, "batch": 30, "memory_batch": 20},
    "PublishedRobustDPCL": {"network": tiny, "tasks_per_learner": 1, "early_start": True, "efficient_memory": False}
    | {"record_budget": 9.0, "charged_rate": 1.0, "noise": 1.0},
    "RanPAC": {"width": 60},
    "RoutedExperts": STEPS | {"momentum": 0.0},
}
NOT_RESUMED = {
    "MeteredGD": "what an individual filter spent is spent, so a task begins again with what its units have left",
}
EVERY = pytest.mark.parametrize("name", sorted(LEARNERS))


def make(name: str, **settings: Any) -> Learner:
    made: Learner = find(name)(**{"budget": ROOMY} | CASES[name] | settings)
    return made


def learn(learner: Learner, vault: Any, number: int) -> Release:
    task = learner.stream_.tasks[number]
    block = take(
        vault, learner.stream_, number, records(number), learner.budget, like=learner.representative_plan(task)
    )
    with vault.until_saved():
        return learner.learn(task, block, vault)


@cache
def learned(name: str) -> tuple[Learner, Any, tuple[Release, ...]]:
    """Two tasks with test keys."""
    learner, vault = make(name), fixed(Path(mkdtemp()))
    learner.start(facts(2))
    return learner, vault, tuple(learn(learner, vault, number) for number in range(2))


def inputs() -> torch.Tensor:
    return torch.from_numpy(records(1, part=1)[0])


def test_every_learner_has_an_entry() -> None:
    assert set(CASES) == set(LEARNERS)


@EVERY
def test_its_docstring_has_reference_claim_and_certified(name: str) -> None:
    learner = find(name)
    text = inspect.getdoc(learner) or ""
    for heading in ("Reference", "Claim", "Certified"):
        assert re.search(rf"^{heading}\b[^:]*: *\S", text, re.MULTILINE), heading
    assert learner.reference and learner.claim and learner.certifies


@EVERY
def test_its_settings_can_be_read_set_and_cloned(name: str) -> None:
    learner = make(name, seed=3)
    twin = clone(learner)
    assert twin is not learner and twin.get_params() == learner.get_params()
    assert twin.set_params(seed=5) is twin and (twin.seed, learner.seed) == (5, 3)
    with pytest.raises(LearnerError, match="has no setting 'sed'"):
        twin.set_params(sed=1)


@EVERY
def test_its_repr_is_short_and_names_what_was_changed(name: str) -> None:
    assert repr(find(name)()) == f"{name}()"
    text = repr(make(name, seed=3, stream=facts(2)))
    assert len(text) < 200 and text.startswith(f"{name}(budget=")
    assert "seed=3" in repr(find(name)(seed=3))


@EVERY
def test_it_refuses_before_billing(name: str, tmp_path: Path) -> None:
    learner = make(name, stream=facts(2, public=False), ledger=tmp_path / "ledger", seed=-1)
    with pytest.raises(LearnerError, match="seed must be a whole number ≥ 0"):
        learner.partial_fit(*records(0))
    with pytest.raises(LearnerError, match=r"classes must be the declared labels \[0, 1\], got \[0, 2\]"):
        learner.set_params(seed=0).partial_fit(*records(0), classes=[0, 2])
    assert not (tmp_path / "ledger").exists()


@EVERY
def test_before_it_learns_it_says_so_as_scikit_learn_does(name: str) -> None:
    learner = make(name, stream=facts(2))
    assert not hasattr(learner, "n_features_in_") and not hasattr(learner, "certificate_")
    with pytest.raises(NotFittedError, match="nothing is learned yet"):
        learner.predict(inputs())
    with pytest.raises(LearnerError, match="nothing is learned yet"):
        learner.predict_proba(inputs())


@EVERY
def test_blocks_are_charged_what_was_planned(name: str) -> None:
    learner, vault, _ = learned(name)
    charged = [sorted(map(str, block.events)) for block in vault.ledger.statement(1).blocks if block.events]
    planned = [sorted(map(str, _stored(events))) for events in learner.charges()]
    if not learner.private or learner.representative_plan(learner.stream_.tasks[0]) is not None:
        assert planned == [] or not learner.private  # raw records, or plans chosen behind a filter
    else:
        assert charged and all(events in planned for events in charged)


def _stored(events: list[Any]) -> list[str]:
    from tacit.privacy.accounting.events import to_json

    return [to_json(event) for event in events]


@EVERY
def test_a_release_restores_to_the_same_answers(name: str, tmp_path: Path) -> None:
    learner, _, releases = learned(name)
    releases[-1].save(tmp_path / "release")
    code = {"network": tiny} if CASES[name].get("network") is tiny else {}
    again = find(name).from_release(tmp_path / "release", **code)
    assert torch.equal(again.scores(inputs()), learner.scores(inputs()))
    assert again.n_features_in_ == 6 and np.array_equal(again.classes_, [0, 1])


@EVERY
def test_a_serialised_learner_holds_released_state_only(name: str) -> None:
    learner, vault, releases = learned(name)
    state = learner.__getstate__()
    assert set(state) == {"settings", "stream", "tasks", "tensors", "certificate"}
    assert not {"ledger", "store"} & set(state["settings"]) and same(state["tensors"], releases[-1].tensors)
    learner.vault_ = vault
    again = pickle.loads(pickle.dumps(learner))
    assert type(again) is type(learner) and not hasattr(again, "vault_") and not again.has_memory
    assert torch.equal(again.scores(inputs()), learner.scores(inputs()))
    assert again.certificate_ == learner.certificate_


@pytest.mark.parametrize("name", sorted(set(LEARNERS) - set(NOT_RESUMED)))
def test_a_kill_inside_a_task_changes_nothing(name: str, tmp_path: Path) -> None:
    _, _, releases = learned(name)
    vault, learner = fixed(tmp_path / "store"), make(name)
    learner.start(facts(2))
    first = learn(learner, vault, 0)
    killed = make(name)
    killed.start(facts(2))
    killed.restore(first.tensors, first.tasks, vault)
    killed.callback = stop_at(1, 1)
    with pytest.raises(Stopped):
        learn(killed, vault, 1)
    again = make(name)
    again.start(facts(2))
    again.restore(first.tensors, first.tasks, vault)
    assert same(learn(again, vault, 1).tensors, releases[-1].tensors)
