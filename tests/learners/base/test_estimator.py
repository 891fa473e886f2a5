"""scikit-learn's shape, and what it refuses."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils import get_tags

from support.small_world import ALL, GENEROUS, ROOMY, facts, given, make, records, tiny
from tacit import Ledger
from tacit.errors import LearnerError, VaultError
from tacit.learners import LEARNERS, find
from tacit.learners.base.learner import Learner
from tacit.privacy.accounting.budget import Unit


@pytest.mark.parametrize("name", ALL)
def test_it_can_be_cloned_and_set(name: str) -> None:
    learner = make(name, seed=3, stream=facts())
    twin = clone(learner)
    assert type(twin) is type(learner) and twin is not learner
    one, other = learner.get_params(), twin.get_params()
    assert one == other and one["seed"] == 3 and one["budget"] == GENEROUS and one["network"] is tiny
    assert set(one) >= {"budget", "network", "seed", "device", "stream", "ledger", "store"}
    assert twin.set_params(seed=5, budget=ROOMY) is twin
    assert (twin.seed, twin.budget, learner.seed) == (5, ROOMY, 3)
    with pytest.raises(LearnerError, match=f"{type(learner).__name__} has no setting 'sed'; it has budget"):
        twin.set_params(sed=1)


@pytest.mark.parametrize("name", ALL)
def test_scikit_learn_knows_what_it_is(name: str) -> None:
    learner = make(name, stream=facts())
    tags = get_tags(learner)
    assert is_classifier(learner) and not is_regressor(learner)
    assert (tags.estimator_type, tags.target_tags.required, tags.requires_fit) == ("classifier", True, True)
    assert tags.classifier_tags is not None and tags.non_deterministic
    assert learner._estimator_type == "classifier"  # what older versions ask for


def test_scikit_learn_is_no_base_and_is_not_imported_with_a_learner() -> None:
    assert not any(base.__module__.startswith("sklearn") for base in find("DPCL").__mro__)
    code = "import sys; from tacit import DPCL; DPCL().get_params(); print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_a_clone_shares_the_open_ledger(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        twin = clone(make("DPCL union", stream=facts(), ledger=ledger))
    assert twin.ledger is ledger


def test_a_clone_has_learned_nothing() -> None:
    learner = make("NaiveDPSGD", **given("NaiveDPSGD"), stream=facts())
    learner.partial_fit(*records(0))
    with pytest.raises(LearnerError, match="nothing is learned yet; call partial_fit first"):
        clone(learner).predict_proba(records(0)[0])


def test_predict_too_says_that_nothing_is_learned() -> None:
    with pytest.raises(LearnerError, match="nothing is learned yet; call partial_fit first"):
        make("NaiveDPSGD", stream=facts()).predict(records(0)[0])


@pytest.mark.parametrize("name", ["AGEM", "DPCL union", "experts"])
def test_partial_fit_is_one_task(name: str) -> None:
    learner = make(name, **given(name), stream=facts())
    for number in range(3):
        assert learner.partial_fit(*records(number)) is learner
        assert len(learner.tasks_) == number + 1
    x, y = records(1, part=1)
    probabilities = learner.predict_proba(x)
    assert probabilities.shape == (len(y), 2) and np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert np.array_equal(learner.predict(x), learner.classes_[probabilities.argmax(1)])
    assert learner.score(x, y) == np.mean(learner.predict(x) == y)
    assert learner.classes_.tolist() == [0, 1]
    assert (learner.certificate_.epsilon is None) == (name == "AGEM")
    with pytest.raises(LearnerError, match="all 3 planned tasks are learned; plan more of them in StreamInfo"):
        learner.partial_fit(*records(0))


def test_labels_may_be_texts_and_come_in_the_declared_order() -> None:
    info = facts()
    named = type(info).uniform("named", labels=("well", "ill"), shape=(6,), size=120, tasks=3, public=True)
    learner = make("NaiveDPSGD", stream=named, noise=0.5, budget=ROOMY)
    for number in range(3):
        x, y = records(number)
        learner.partial_fit(x, np.array(["well", "ill"])[y])
    assert learner.classes_.tolist() == ["well", "ill"]
    x, y = records(2, part=1)
    assert learner.score(x, np.array(["well", "ill"])[y]) > 0.9


def test_nothing_is_inferred_from_the_data() -> None:
    """Neither the number of records nor the labels that occur change what is public."""
    learners = []
    for source in (records(0, 120), records(0, 37), (records(0, 50)[0], np.zeros(50, dtype=np.int64))):
        learner = make("NaiveDPSGD", **given("NaiveDPSGD"), stream=facts())
        learners.append(learner.partial_fit(*source))
    assert len({learner.classes_.tobytes() for learner in learners}) == 1
    assert len({str(learner.plan(learner.stream_.tasks[0])) for learner in learners}) == 1  # type: ignore[attr-defined]
    assert len({learner.certificate_.epsilon for learner in learners}) == 1
    assert len({len(learner.predict_proba(records(0)[0])[0]) for learner in learners}) == 1


def test_a_stream_must_be_declared() -> None:
    with pytest.raises(LearnerError, match=r"declare the stream first: stream=StreamInfo.uniform"):
        make("NaiveDPSGD").partial_fit(*records(0))


def test_private_data_needs_a_ledger_that_lasts(tmp_path: Path) -> None:
    private = facts(public=False)
    with pytest.raises(LearnerError, match="the stream 'blobs' is private, so its charges must last: give ledger=path"):
        make("NaiveDPSGD", stream=private).partial_fit(*records(0))
    learner = make("NaiveDPSGD", **given("NaiveDPSGD"), stream=private, ledger=tmp_path / "ledger")
    learner.partial_fit(*records(0))
    assert learner.certificate_.epsilon is not None and (tmp_path / "ledger").exists()


def test_the_ledger_remembers_what_another_learner_spent(tmp_path: Path) -> None:
    """The budget belongs to the data: a second learner on the same task is refused."""
    with Ledger(tmp_path / "ledger") as ledger:
        for seed, refused in ((0, False), (1, True)):
            learner = make("NaiveDPSGD", stream=facts(public=False), ledger=ledger, seed=seed)
            if refused:
                before = ledger.head
                with pytest.raises(LearnerError, match=r"has already been learned.*NaiveDPSGD\.from_release\(folder"):
                    learner.partial_fit(*records(0))
                assert ledger.head == before
            else:
                learner.partial_fit(*records(0))


def test_people_need_ids() -> None:
    budget = replace(ROOMY, unit=Unit.PERSON)
    learner = make("NaiveDPSGD", **given("NaiveDPSGD", budget=budget), stream=facts(unit="person"))
    with pytest.raises(VaultError, match="whose each record is"):
        learner.partial_fit(*records(0))
    learner.partial_fit(*records(0), ids=np.arange(120))


def test_learners_are_found_by_name() -> None:
    for name in LEARNERS:
        found = find(name)
        assert found.__name__ == name and issubclass(found, Learner)
        assert found.reference and found.certifies and found.claim
        published = ("DPL2M", "L2DPML", "PublishedDPCL", "PublishedRobustDPCL")
        assert found.private == (name not in ("AGEM", "Centralised", "FeCAM", "RanPAC", *published))
    with pytest.raises(LearnerError, match="there is no learner 'DPSGD'; there are AGEM, AdaptiveDPSGD, Centralised"):
        find("DPSGD")


def test_a_seed_sets_the_weights_and_nothing_of_the_callers() -> None:
    before = torch.get_rng_state()
    one, again, other = (make("NaiveDPSGD", seed=seed) for seed in (1, 1, 2))
    for learner in (one, again, other):
        learner.start(facts())
    assert torch.equal(torch.get_rng_state(), before)
    weights = [torch.cat([p.flatten() for p in learner.model_.parameters()]) for learner in (one, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_network_can_be_a_name_a_module_or_a_function() -> None:
    module = tiny(facts())
    for network in ("linear", module, tiny):
        learner = make("NaiveDPSGD", **given("NaiveDPSGD", network=network), stream=facts())
        learner.partial_fit(*records(0))
        assert learner.predict_proba(records(0)[0]).shape == (120, 2)
        assert learner.model_ is not module  # the caller's module is not trained
