"""Repeat-and-select on the first task: one charge, one release, and a run that goes on from it."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from support.blobs import make_blobs, make_config
from tacit.certificate.certificate import Certificate
from tacit.errors import CertificateError, ConfigError, LearnerError, PlanError
from tacit.experiment.config.config import Config
from tacit.experiment.runs.folder import SeedFolder
from tacit.experiment.runs.planning import SeedPlan
from tacit.experiment.runs.resolver import make_budget
from tacit.experiment.runs.runner import run
from tacit.experiment.tuning import private as private_tuning
from tacit.experiment.tuning.private import Trials, rehearsed
from tacit.experiment.tuning.search import TuningResult
from tacit.experiment.tuning.space import Space
from tacit.experiment.tuning.tuner import tune
from tacit.learners.baselines.naive import NaiveDPSGD
from tacit.privacy.accounting.calibrate import price
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Vault

NAIVE = {"method": "NaiveDPSGD", "steps": 6, "batch": 40}
SPACE = {"learner.lr": {"low": 0.01, "high": 1.0, "log": True}, "learner.clip": {"low": 0.5, "high": 2.0}}
Private = partial(make_blobs, public=False, test=False)


def config(**changes: Any) -> Config:
    return make_config(**({"learner": NAIVE, "lca": 1, "repeatable_noise": False} | changes))


def private(folder: Path, stream: Any = Private, space: Any = None, **changes: Any) -> TuningResult:
    return tune(
        config(**changes), space or SPACE, folder / "r", how="private", trials=4, ledger=folder / "data.ledger",
        stream=stream,
    )  # fmt: skip


def planned(stream: Any = Private, *, trials: float = 4.0, shape: float = 1.0, **changes: Any) -> Trials:
    asked, place = config(**changes), SeedFolder(path=Path("nowhere"), seed=0)
    with Ledger.throwaway() as ledger:
        facts = SeedPlan(asked, place, stream(0), Vault(ledger))
        return rehearsed(facts, Space.of(SPACE), trials=trials, shape=shape)


@pytest.mark.slow
def test_one_charge_then_the_run_goes_on(tmp_path: Path) -> None:
    found = private(tmp_path)
    assert found.tried == () and not (tmp_path / "r" / "trials.csv").exists()  # losers are secret
    assert 0.01 <= found.settings["learner.lr"] <= 1 and 0.5 <= found.settings["learner.clip"] <= 2
    assert found.config.tuned.how == "private" and found.config.tuned.charged
    with Ledger(tmp_path / "data.ledger") as ledger:
        ledger.verify()
        before = ledger.statement(1)
        assert sorted(grant.kind for grant in before.grants) == ["tuning"]
        assert 0.9 * 2.0 < ledger.epsilon(1) <= 2.0
    first = Certificate.load(next((tmp_path / "r").rglob("certificate.json")))
    assert first.epsilon is not None and first.epsilon <= 2.0
    assert first.tuning == f"charged: {found.config.tuned.about}" and "4 random trials expected" in first.tuning
    done = run(found.config, tmp_path / "r", stream=Private, resume=True)
    assert done.tasks == ("task-1", "task-2", "task-3") and not done.left
    assert done.metrics["tuned"] == {"how": "private", "charged": True, "about": found.config.tuned.about}
    last = Certificate.load(done.certificate)
    assert last.epsilon is not None and last.epsilon <= 2.0 and last.tuning == first.tuning
    with Ledger(tmp_path / "data.ledger") as ledger:
        kinds = [grant.kind for grant in ledger.statement(1).grants]
    assert kinds.count("tuning") == 1 and kinds.count("gradient") == 2


def test_the_release_is_the_winners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Public scores decide; settings and weights that leave are those of the best trial."""
    seen: list[tuple[float, dict[str, Any], Any]] = []
    inside = private_tuning._TuningLoop.trial

    def spied(self: Any, *given: Any) -> Any:
        score, (settings, tensors) = inside(self, *given)
        seen.append((score, settings, tensors))
        return score, (settings, tensors)

    monkeypatch.setattr(private_tuning._TuningLoop, "trial", spied)
    monkeypatch.setattr("tacit.privacy.vault.exits.repeat_and_select.draw_trials", lambda *_: 5)
    found = private(tmp_path, stream=partial(make_blobs, public=False))
    assert len(seen) == 5 and len({settings["learner.lr"] for _, settings, _ in seen}) == 5
    score, settings, tensors = max(seen, key=lambda one: one[0])
    assert found.score == score and {key: found.settings[key] for key in settings} == settings
    done = run(found.config, tmp_path / "r", stream=partial(make_blobs, public=False), resume=True)
    assert done.metrics["average_accuracy"] is not None and done.metrics["fwt"] is not None
    from tacit.learners.base.release import Release

    saved = Release.load(tmp_path / "r" / "seeds" / "seed-0" / "releases" / "01-task-1").tensors
    assert all(np.array_equal(saved[name], value) for name, value in tensors.items())


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_what_a_trial_may_spend_is_the_most_that_fits(shape: float) -> None:
    settled = planned(shape=shape, trials=6.0)
    budget = make_budget(config().budget, "record")
    cost = price(settled.plan.event, budget) / 1e9
    assert 0.995 * budget.epsilon < cost <= budget.epsilon
    assert len(settled.plan.reads) == 2 and settled.score in settled.plan.reads  # gradients, and the score's query
    public = planned(partial(make_blobs, public=False), shape=shape, trials=6.0)
    assert len(public.plan.reads) == 1 and public.score is None
    assert public.noise < settled.noise and settled.plan.trials == 6.0


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"learner.batch": {"low": 10, "high": 50, "whole": True}}, r"learner\.batch changes what a trial reads"),
        ({"learner.steps": {"choices": [6, 7]}}, r"learner\.steps changes what a trial reads"),
        ({"learner.lrr": {"low": 1, "high": 2}}, r"did you mean learner\.lr"),
        ({"learner.noise": {"low": 1, "high": 2}}, r"learner\.noise cannot be tuned privately"),
        ({"budget.epsilon": {"low": 1, "high": 8}}, r"budget\.epsilon cannot be tuned privately"),
        ({"evaluation.share": {"low": 0.1, "high": 0.5}}, r"evaluation\.share cannot be tuned privately"),
        ({"data.label_space": {"choices": ["constant"]}}, r"data\.label_space cannot be tuned privately"),
        ({"seeds": {"choices": [[5]]}}, "seeds cannot be tuned privately, .*; tune keys of the learner and the model"),
    ],
)
def test_what_would_change_a_trials_reads_is_refused_before_any_charge(
    tmp_path: Path, space: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        private(tmp_path, space=space)
    assert not (tmp_path / "r").exists() and not (tmp_path / "data.ledger").exists()


@pytest.mark.parametrize(
    ("changes", "stream", "words"),
    [
        ({"seeds": 2}, make_blobs, "it has one seed and no held tasks"),
        ({"per_seed": [{"learner.lr": 0.1}]}, Private, r"per_seed = \[\{'learner.lr': 0.1\}\]"),
        ({"learner": NAIVE | {"noise": 3.0}}, Private, r"learner\.noise = 3\.0 is set"),
        ({"evaluation": {"test": "none"}}, Private, "private tuning needs scores"),
        (
            {"learner": {"method": "DPCL", "steps": 6, "batch": 20, "memory_batch": 5}},
            Private,
            "DPCL cuts a task's records or reads them in several ways",
        ),
        ({}, partial(Private, unit="person", tasks_per_unit=2), "private tuning is for those that are in one"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_any_charge(
    tmp_path: Path, changes: dict[str, Any], stream: Callable[[int], Any], words: str
) -> None:
    with pytest.raises((ConfigError, LearnerError, PlanError), match=words):
        private(tmp_path, stream=stream, **changes)
    assert not (tmp_path / "r").exists() and not (tmp_path / "data.ledger").exists()


def test_no_trial_at_all_is_not_offered(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use 0"):
        tune(config(), SPACE, tmp_path / "r", how="private", trials=4, shape=math.inf, stream=make_blobs)
    with pytest.raises(ConfigError, match="pass the ledger of the data with --ledger"):
        tune(config(), SPACE, tmp_path / "r", how="private", trials=4, stream=Private)


def test_records_that_were_learned_from_are_not_tuned_on(tmp_path: Path) -> None:
    run(config(), tmp_path / "before", stream=Private, ledger=tmp_path / "data.ledger")
    with pytest.raises(ConfigError, match="'task-1' of 'blobs' has already been learned"):
        private(tmp_path)
    assert not (tmp_path / "r").exists()


def test_trials_keep_the_records_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner lets go of its block when it has learned; under an umbrella the next trial still reads it."""
    calls: list[int] = []
    inside = NaiveDPSGD.fit

    def counted(self: Any, *given: Any) -> None:
        calls.append(1)
        inside(self, *given)

    monkeypatch.setattr(NaiveDPSGD, "fit", counted)
    monkeypatch.setattr("tacit.privacy.vault.exits.repeat_and_select.draw_trials", lambda *_: 3)
    private(tmp_path)
    assert len(calls) == 3 + 1 + 4  # and the rehearsals on no records: as it is, and at the ends of two ranges


def test_each_end_of_each_range_is_rehearsed_before_any_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = NaiveDPSGD.fit

    def picky(self: Any, *given: Any) -> None:
        if self.clip > 1.9:
            raise LearnerError("this clip is too large")
        inside(self, *given)

    monkeypatch.setattr(NaiveDPSGD, "fit", picky)
    with pytest.raises(LearnerError, match="this clip is too large"):
        private(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_shows_no_time_from_before_the_end_of_the_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long the trials took tells how many there were."""
    there: list[bool] = []
    inodes: set[int] = set()
    inside = private_tuning._TuningLoop.trial

    def spied(self: Any, *given: Any) -> Any:
        there.append((tmp_path / "r").exists())
        inodes.update(path.stat().st_ino for path in tmp_path.rglob("*") if path.is_dir())  # they stay to the end
        return inside(self, *given)

    monkeypatch.setattr(private_tuning._TuningLoop, "trial", spied)
    found = private(tmp_path, stream=make_blobs)
    public = [tmp_path / "r", *(one for one in (tmp_path / "r").rglob("*") if "private" not in one.parts[:-1])]
    assert there and not any(there) and len(public) > 10
    assert len({one.stat().st_mtime_ns for one in public}) == 1 and not inodes & {one.stat().st_ino for one in public}
    secret = tmp_path / "r" / "seeds" / "seed-0" / "private"
    assert secret.stat().st_mode & 0o777 == 0o700 and (secret / "throwaway.ledger").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    done = run(found.config, tmp_path / "r", stream=make_blobs, resume=True)
    assert done.tasks == ("task-1", "task-2", "task-3")


def test_what_fails_leaves_no_folder_and_what_is_killed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: Any, *_: Any) -> Any:
        raise LearnerError("no trial today")

    (tmp_path / ".r-unseen").mkdir()
    with pytest.raises(ConfigError, match=r"\.r-unseen exists: another process is tuning .*, or was killed"):
        private(tmp_path)
    assert not (tmp_path / "data.ledger").exists()
    (tmp_path / ".r-unseen").rmdir()
    monkeypatch.setattr(private_tuning._TuningLoop, "trial", failing)
    with pytest.raises(LearnerError, match="no trial today"):
        private(tmp_path)
    assert not (tmp_path / "r").exists() and not (tmp_path / ".r-unseen").exists()


def test_a_charge_that_is_said_must_be_in_the_ledger(tmp_path: Path) -> None:
    lying = config(tuned={"how": "private", "charged": True, "about": "somewhere"})
    with pytest.raises(CertificateError, match="the ledger has no tuning of 'blobs'"):
        run(lying, tmp_path / "r", stream=make_blobs)


def test_files_for_people(tmp_path: Path) -> None:
    found = private(tmp_path, stream=make_blobs)
    assert yaml.safe_load((tmp_path / "r" / "settings.yaml").read_text()) == found.settings
    assert (tmp_path / "r" / "config.yaml").read_text() == (tmp_path / "r" / "tuned.yaml").read_text()
