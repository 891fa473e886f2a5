"""A second month in a new process: what `save` wrote is a learner again, and it goes on where it was."""

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from support.pictures import TinyConv, digits, digits_facts
from support.small_world import GENEROUS, facts, given, make, records, same, tiny
from tacit import Budget, CosineClassifier, Joint, Ledger, MomentsClassifier, NaiveDPSGD
from tacit.errors import LearnerError
from tacit.learners import LEARNERS, find, load_learner
from tacit.learners.base.learner import Learner
from tacit.learners.base.networks import NamedNetwork
from tacit.learners.base.settings import Stored
from tacit.privacy.randomness.keys import KeyRing

BACKBONE = "from support.pictures import TinyConv\nclass Mine(TinyConv): pass\n"


def month(name: str, folder: Path, **settings: Any) -> Learner:
    """The first task, in the first process."""
    folder.mkdir(exist_ok=True)
    told: dict[str, Any] = {"stream": facts(public=False), "ledger": folder / "ledger", "store": folder / "store"}
    learner = make(name, **given(name, network="linear") | told | settings).partial_fit(*records(0))
    learner.save(folder / "task-1")
    return learner


@pytest.mark.parametrize("name", ["DPCL union", "experts", "lifelong", "moments", "ensemble", "Joint"])
def test_the_next_month_in_another_process(name: str, tmp_path: Path) -> None:
    first = month(name, tmp_path)
    places: dict[str, Any] = {"ledger": tmp_path / "ledger", "store": tmp_path / "store"}
    later = type(first).from_release(tmp_path / "task-1", **places)
    x = records(0, part=1)[0]
    assert np.array_equal(later.predict_proba(x), first.predict_proba(x))
    machine = ("ledger", "store", "device")
    one, other = (
        {key: value for key, value in learner.get_params().items() if key not in machine} for learner in (first, later)
    )
    assert one == other
    assert later.certificate_ == first.certificate_
    later.partial_fit(*records(1)).save(tmp_path / "task-2")
    third = load_learner(tmp_path / "task-2", **places)
    assert type(third) is type(first) and [task.name for task in third.tasks_] == ["task-1", "task-2"]
    third.partial_fit(*records(2))
    if name != "Joint":  # it has read nothing before its last task
        assert later.certificate_.epsilon == pytest.approx(first.certificate_.epsilon, rel=0.05)  # one task a record
    with pytest.raises(LearnerError, match="all 3 planned tasks are learned"):
        third.partial_fit(*records(0))


@pytest.mark.parametrize("name", ["moments", "DPER"])
def test_it_goes_on_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    """Also with noise that is correlated over tasks, and with its memory."""
    ledgers = [Ledger.throwaway(keys=KeyRing.for_tests(0)) for _ in range(2)]
    one, other = (
        make(name, **given(name, network="linear"), stream=facts(), ledger=ledger, store=tmp_path / str(number))
        for number, ledger in enumerate(ledgers)
    )
    one.partial_fit(*records(0)).partial_fit(*records(1))
    other.partial_fit(*records(0)).save(tmp_path / "release")
    again = load_learner(tmp_path / "release", ledger=ledgers[1], store=tmp_path / "1")
    assert same(again.partial_fit(*records(1)).tensors(), one.tensors())


def test_without_a_ledger_it_predicts_only(tmp_path: Path) -> None:
    month("moments", tmp_path)
    reader = MomentsClassifier.from_release(tmp_path / "task-1")
    assert reader.predict(records(0)[0]).shape == (120,)
    with pytest.raises(LearnerError, match=r"only predicts; to learn the next task, give from_release\(folder, ledger"):
        reader.partial_fit(*records(1))
    reader.save(tmp_path / "copy")
    assert same(load_learner(tmp_path / "copy").tensors(), reader.tensors())


@pytest.mark.parametrize("name", ["Pool", "MeteredGD", "Joint"])
def test_what_is_remembered_needs_its_store(name: str, tmp_path: Path) -> None:
    """Without one a learner goes on in its own process, is warned when it saves, and elsewhere only predicts."""
    settings: dict[str, Any] = {"budget": GENEROUS, "network": "linear", "steps": 3}
    places: dict[str, Any] = {"stream": facts(2, public=False), "ledger": tmp_path / "ledger"}
    learner = find(name)(**settings, **places).partial_fit(*records(0))
    with pytest.warns(UserWarning, match=f"{name} remembers records, and without store=FOLDER from the first task on"):
        learner.save(tmp_path / "task-1")
    with pytest.raises(LearnerError, match=r"give from_release\(folder, ledger=…, store=…\) the store that it was"):
        load_learner(tmp_path / "task-1", ledger=tmp_path / "ledger")
    with pytest.raises(
        LearnerError, match="does not hold the memory of task 'task-1'; give the store that the learner"
    ):
        load_learner(tmp_path / "task-1", ledger=tmp_path / "ledger", store=tmp_path / "wrong")
    assert load_learner(tmp_path / "task-1").predict(records(0)[0]).shape == (120,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.partial_fit(*records(1)).save(tmp_path / "task-2")  # no task is left


def test_a_release_may_be_read_by_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        month("DPCL union", tmp_path)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "task-1").iterdir()}
    assert modes == dict.fromkeys(("README.md", "model.safetensors", "certificate.json", "release.json"), 0o644)
    kept = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert kept and all(path.stat().st_mode & 0o077 == 0 for path in kept)


def test_another_ledger_is_refused_and_left_empty(tmp_path: Path) -> None:
    month("moments", tmp_path)
    with Ledger(tmp_path / "other") as other:
        with pytest.raises(
            LearnerError, match="knows nothing of task 'task-1' of 'blobs', which the release has learned"
        ):
            MomentsClassifier.from_release(tmp_path / "task-1", ledger=other)
        assert not other.streams()


def test_a_month_that_was_learned_is_not_learned_again(tmp_path: Path) -> None:
    """Also from an older release, by the same records or by new ones."""
    month("moments", tmp_path)
    MomentsClassifier.from_release(tmp_path / "task-1", ledger=tmp_path / "ledger").partial_fit(*records(1))
    with Ledger(tmp_path / "ledger") as ledger:
        before = ledger.head
        old = MomentsClassifier.from_release(tmp_path / "task-1", ledger=ledger)
        with pytest.raises(
            LearnerError, match=r"task 'task-2' of 'blobs' has already been learned.*MomentsClassifier\."
        ):
            old.partial_fit(*records(2))
        assert ledger.head == before


def test_settings_may_be_changed_and_code_must_be_given(tmp_path: Path) -> None:
    month("moments", tmp_path)
    other = MomentsClassifier.from_release(tmp_path / "task-1", scale=5.0)
    assert other.scale == 5.0
    with pytest.raises(LearnerError, match="MomentsClassifier has no setting 'scal'; did you mean scale"):
        MomentsClassifier.from_release(tmp_path / "task-1", scal=5.0)
    for network in (tiny, tiny(facts())):
        first = month("NaiveDPSGD", tmp_path / type(network).__name__, network=network)
        folder = tmp_path / type(network).__name__ / "task-1"
        with pytest.raises(
            LearnerError, match=r"made with network as code of your own.*from_release\(folder, network=…"
        ):
            NaiveDPSGD.from_release(folder)
        assert same(NaiveDPSGD.from_release(folder, network=network).tensors(), first.tensors())


def test_a_release_of_another_method_is_named(tmp_path: Path) -> None:
    month("moments", tmp_path)
    with pytest.raises(LearnerError, match=r"is a release of MomentsClassifier, not of Joint; use MomentsClassifier\."):
        Joint.from_release(tmp_path / "task-1")


def test_nothing_learned_is_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match="nothing is learned yet"):
        make("moments", stream=facts()).save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_releases_of_earlier_versions_still_load(tmp_path: Path) -> None:
    first = month("moments", tmp_path)
    file = tmp_path / "task-1" / "release.json"
    said = json.loads(file.read_text())
    del said["settings"], said["code"], said["stream"]["features"]
    file.write_text(json.dumps(said))
    with pytest.raises(LearnerError, match="saved before releases held settings; give all of them"):
        MomentsClassifier.from_release(tmp_path / "task-1")
    again = MomentsClassifier.from_release(tmp_path / "task-1", budget=GENEROUS)
    assert same(again.tensors(), first.tensors())


def test_a_backbone_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(BACKBONE)
    monkeypatch.chdir(tmp_path)
    learner = CosineClassifier(stream=digits_facts(1), backbone="mine.py:Mine", budget=GENEROUS)
    learner.partial_fit(*digits(0)).save(tmp_path / "r")
    assert f"{tmp_path}/mine.py:Mine" in (tmp_path / "r" / "release.json").read_text()
    monkeypatch.chdir("/")
    x = digits(0, test=True)[0]
    allowed = [hashlib.sha256((tmp_path / "mine.py").read_bytes()).hexdigest()]
    again = CosineClassifier.from_release(tmp_path / "r", allow_code=allowed)
    assert np.array_equal(again.predict(x), learner.predict(x))
    (tmp_path / "moved").mkdir()
    (tmp_path / "mine.py").rename(tmp_path / "moved" / "mine.py")
    moved = CosineClassifier.from_release(tmp_path / "r", backbone=f"{tmp_path}/moved/mine.py:Mine")
    assert np.array_equal(moved.predict(x), learner.predict(x))
    with pytest.raises(LearnerError, match="use the same one"):
        CosineClassifier.from_release(tmp_path / "r", backbone=TinyConv(seed=1))


@pytest.mark.parametrize("name", LEARNERS)
def test_all_settings_are_plain_or_named_as_code(name: str) -> None:
    """And come back the same through JSON."""
    method = find(name)
    network = NamedNetwork(name="mlp", options={"hidden": [4]})
    learner = method(network=network, budget=Budget(epsilon=3.0, delta=1e-6), seed=np.int64(4))  # type: ignore[arg-type]
    stored = Stored.of(learner)
    again = Stored(plain=json.loads(json.dumps(stored.plain)), code=stored.code)
    assert stored.code == ()
    assert method(**again.settings(method, {})).get_params() == learner.get_params()
    assert Stored.of(method(network=nn.Linear(6, 2))).code == ("network",)
