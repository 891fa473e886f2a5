"""A release is all that is needed to predict and, with the vault, to go on as if nothing had happened."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from support.small_world import (
    ALL,
    REPLAY,
    ROOMY,
    facts,
    fixed,
    given,
    learn,
    of_people,
    person_facts,
    records,
    same,
    started,
    whole_run,
)
from tacit import Vault
from tacit.errors import LearnerError, TacitError
from tacit.learners.base.release import Release
from tacit.privacy.accounting.budget import Unit


@pytest.mark.parametrize("name", ALL)
def test_it_is_the_same_after_a_release_and_goes_on_the_same(name: str, tmp_path: Path) -> None:
    uninterrupted, _, twins = whole_run(name)
    vault = fixed(tmp_path / "store")
    learner = started(name, **given(name))
    release = learn(learner, vault, [0, 1])[-1]
    assert same(release.tensors, twins[1].tensors)
    written = release.save(tmp_path / "release")

    loaded = Release.load(tmp_path / "release")
    assert same(loaded.tensors, release.tensors)
    assert (loaded.task, loaded.tasks, loaded.info, loaded.method) == (
        release.task, release.tasks, release.info, release.method
    )  # fmt: skip
    assert loaded.certificate == written and written.release is not None
    assert written.model_copy(update={"release": None}) == release.certificate
    assert set(written.release.tensors) == set(release.tensors)
    x = torch.from_numpy(records(0, part=1)[0])
    reader = started(name, loaded.info, **given(name))
    reader.restore(loaded.tensors, loaded.tasks)  # to predict, no vault is needed
    assert torch.equal(reader.scores(x), learner.scores(x))

    later = Vault(vault.ledger, tmp_path / "store")  # what another process has
    again = started(name, loaded.info, **given(name))
    again.restore(loaded.tensors, loaded.tasks, later)
    (last,) = learn(again, later, [2])
    assert same(last.tensors, twins[2].tensors) and last.tasks == twins[2].tasks
    assert torch.equal(again.scores(x), uninterrupted.scores(x))


@pytest.mark.parametrize("name", ["DPCL union", "DPAGEM each", "DPER", "Joint"])
def test_records_of_earlier_tasks_are_found_again_for_people_too(name: str, tmp_path: Path) -> None:
    vault = fixed(tmp_path / "store")
    settings = given(name, budget=replace(ROOMY, unit=Unit.PERSON))
    learner = started(name, person_facts(), **settings)
    learn(learner, vault, [0, 1], of_people)
    later = Vault(vault.ledger, tmp_path / "store")
    again = started(name, person_facts(), **settings)
    again.restore(learner.tensors(), learner.tasks_, later)
    (release,) = learn(again, later, [2], of_people)
    assert release.tasks == again.stream_.tasks
    assert {grant.state for grant in later.ledger.statement(1).grants} == {"RELEASED"}


@pytest.mark.parametrize("name", REPLAY)
def test_without_its_memory_a_replay_learner_says_so(name: str) -> None:
    learner = started(name, **given(name))
    learner.restore(whole_run(name)[2][0].tensors, learner.stream_.tasks[:1])
    with pytest.raises(LearnerError, match="the memory of task 1 is not here; restore the learner with its vault"):
        learn(learner, fixed(), [1])


@pytest.mark.parametrize("name", REPLAY)
def test_without_a_store_it_cannot_go_on_later(name: str) -> None:
    vault = fixed()
    learner = started(name, **given(name))
    (release,) = learn(learner, vault, [0])
    again = started(name, **given(name))
    with pytest.raises(LearnerError, match=r"store=…\) the store that it was trained with"):
        again.restore(release.tensors, release.tasks, Vault(vault.ledger))


def test_a_release_is_whole_or_not_there(tmp_path: Path) -> None:
    release = whole_run("NaiveDPSGD")[2][0]
    release.save(tmp_path)
    (tmp_path / "release.json").unlink()  # it is written last
    with pytest.raises(LearnerError, match=r"holds no whole release: release\.json is missing"):
        Release.load(tmp_path)


def test_a_release_holds_released_values_only(tmp_path: Path) -> None:
    """Files by name; no record of a private learner is in any of them."""
    learner, _, releases = whole_run("DPCL union")
    releases[-1].save(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "README.md",
        "certificate.json",
        "model.safetensors",
        "release.json",
    ]
    assert releases[-1].tensors.keys() == learner.model_.state_dict().keys()


@pytest.mark.parametrize(("name", "other"), [("AGEM", "NaiveDPSGD"), ("NaiveDPSGD", "experts")])
def test_the_release_of_another_method_is_refused(name: str, other: str) -> None:
    learner = started(name)
    with pytest.raises((TacitError, RuntimeError)):
        learner.restore(whole_run(other)[2][0].tensors, learner.stream_.tasks[:1])


def test_low_rank_experts_can_be_restored_where_they_learned() -> None:
    learner = started("low-rank experts", facts(), **given("low-rank experts"))
    releases = learn(learner, fixed(), [0, 1])
    learner.restore(releases[0].tensors, releases[0].tasks)
    assert same(learner.tensors(), releases[0].tensors)


def test_whole_experts_can_be_restored_where_they_learned() -> None:
    learner = started("experts", facts(), **given("experts"))
    releases = learn(learner, fixed(), [0, 1])
    learner.restore(releases[0].tensors, releases[0].tasks)
    assert same(learner.tensors(), releases[0].tensors)
