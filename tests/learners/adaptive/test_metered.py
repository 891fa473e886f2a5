"""Meters as a learner: it learns, each unit leaves by its own losses and in silence, and a killed run ends."""

import json
import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.small_world import (
    GENEROUS,
    SIZE,
    Stopped,
    accuracies,
    facts,
    fixed,
    learn,
    nothing,
    of_people,
    person_facts,
    records,
    same,
    stop_at,
    tiny,
    uncommitted,
)
from tacit import Budget, Ledger, Stream, StreamInfo, Task, Vault
from tacit.errors import LearnerError
from tacit.experiment.config.config import Config
from tacit.experiment.runs.folder import SeedFolder
from tacit.experiment.runs.runner import run
from tacit.learners import MeteredGD
from tacit.learners.base.public_figures import Consumption
from tacit.learners.base.release import Release
from tacit.privacy import FilterPlan
from tacit.privacy.accounting.budget import Unit
from tacit.privacy.accounting.epsilon import epsilon
from tacit.privacy.accounting.events import compose, repeat
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault import IndividualFilter
from tacit.privacy.vault.exits.filter_state import FULL

TIGHT = Budget(epsilon=2.0, delta=1e-4)


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are stopped here, machines are not."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def metered(info: StreamInfo | None = None, **settings: Any) -> MeteredGD:
    made = MeteredGD(
        **{"budget": GENEROUS, "network": tiny, "steps": 6, "lr": 0.5, "clip": 1.0, "memory_share": 0.3} | settings
    )
    made.start(info or facts())
    return made


def one_task(learner: MeteredGD, vault: Vault, number: int, sources: Callable[[int], Any] = records) -> Release:
    """Learned, and its release kept for good."""
    with vault.until_saved():
        (release,) = learn(learner, vault, [number], sources)
    learner.on_saved(vault.find(learner.stream_.name, learner.stream_.tasks[number].name), vault)
    return release


def alive(vault: Vault) -> set[tuple[str, str]]:
    blocks = [block.row for block in vault.ledger.statement(1).blocks]
    return {(row.task, row.part) for row in blocks if row.state == "live"}


# It learns, and pays what it planned.


@pytest.mark.parametrize("store", [False, True])
def test_it_learns_three_tasks_and_keeps_to_its_budget(store: bool, tmp_path: Path) -> None:
    learner, vault = metered(steps=15), fixed(tmp_path if store else None)
    assert np.mean(accuracies(learner)) < 0.75
    releases = [one_task(learner, vault, number) for number in range(3)]
    assert min(accuracies(learner)) > 0.9 and releases[-1].tasks == learner.stream_.tasks
    assert 0.999 * GENEROUS.epsilon < vault.ledger.epsilon(1) <= GENEROUS.epsilon
    assert uncommitted(vault) == Counter() and alive(vault) == {("task-3", "memory")}  # which nobody ever reads
    assert not list((tmp_path).rglob("*.safetensors")) and not list(tmp_path.rglob("*.steps"))
    vault.ledger.verify()


def digits(tasks: int) -> tuple[StreamInfo, list[tuple[Any, Any]], list[tuple[Any, Any]]]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, orders = (
        (x / 16).astype(np.float32),
        np.random.default_rng(0).permuted(np.tile(np.arange(64), (tasks, 1)), axis=1),
    )
    info = StreamInfo.uniform("digits", labels=tuple(range(10)), shape=(64,), size=1500, tasks=tasks, public=True)
    return info, [(x[:1500, o], y[:1500]) for o in orders], [(x[1500:, o], y[1500:]) for o in orders]


def test_it_learns_permuted_digits_and_remembers_them() -> None:
    info, train, test = digits(2)
    ends = {}
    for share in (0.0, 0.4):
        learner = metered(
            info,
            budget=TIGHT,
            network=lambda _: torch.nn.Linear(64, 10),
            steps=20,
            lr=2.0,
            clip=2.0,
            memory_share=share,
        )
        learn(learner, fixed(), [0, 1], lambda number: train[number])
        ends[share] = [learner.score(*one) for one in test]
    assert min(ends[0.4]) > 0.6 and ends[0.4][0] > ends[0.0][0] + 0.1


def test_the_certificate_is_within_the_budget_and_says_what_was_applied(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        learner = metered(facts(public=False), budget=TIGHT)
        vault = Vault(ledger, tmp_path / "store")
        certificates = [one_task(learner, vault, number).certificate for number in range(2)]
        ledger.verify()
    certificate = certificates[-1]
    assert certificate.mode == "certified" and certificate.method == "MeteredGD"
    assert certificate.epsilon is not None and 1.999 < certificate.epsilon <= 2.0
    rho = FilterPlan.for_budget(TIGHT).rho
    assert "each until its own loss reaches its bound; which units are excluded is secret" in certificate.to_json()
    assert json.dumps(rho) in certificate.to_json()
    page = " ".join(str(certificate).split())
    assert "by RDP of whole event lists, with the ρ of each unit's individual filter; dp-accounting" in page
    assert "PLD" not in page and "sees every noisy gradient and every model" in page
    own = f"each unit is used until its own loss reaches ρ = {rho:.4g}; which units are excluded is secret"
    assert f"{own}; no amplification" in page


def test_people_who_recur_are_paid_for_in_each_of_their_tasks(tmp_path: Path) -> None:
    budget = replace(TIGHT, unit=Unit.PERSON)
    learner, vault = metered(person_facts(), budget=budget, count_share=0.1), fixed(tmp_path)
    for number in range(3):
        one_task(learner, vault, number, of_people)
    assert 1.9 < vault.ledger.epsilon(1) <= 2.0
    for one in learner.charges():
        assert 1.999 < epsilon(repeat(compose(one), 2), TIGHT.delta) <= 2.0


# The meters.


def test_noise_makes_a_gradient_at_the_clip_last_as_long_as_was_said() -> None:
    rho = FilterPlan.for_budget(TIGHT).rho
    for lasting in (0.25, 0.5, 1.0):
        learner = metered(facts(4), budget=TIGHT, lasting=lasting, steps=40)
        for tasks in (1, 3):
            price = 1 / (2 * learner.noise_of(tasks) ** 2)
            assert rho / price == pytest.approx(lasting * 40 * tasks, rel=1e-5)
    assert metered(noise=7.0).noise_of(1) == 7.0 and metered(noise=7.0).noise_of(4) == 14.0


def far(task: int) -> tuple[Any, Any]:
    """Wrong labels and large features: every gradient is longer than the clip."""
    x, y = records(task)
    return 100 * x, y


@pytest.mark.parametrize(("lasting", "used"), [(1.0, 8), (0.5, 4), (0.25, 2)])
def test_each_unit_lasts_while_it_can_pay(lasting: float, used: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taking: list[int] = []
    honest = IndividualFilter.gradient

    def gradient(meter: IndividualFilter, *args: Any, **said: Any) -> Any:
        found = honest(meter, *args, **said)
        taking.append(int((meter._spent <= FULL).sum()))
        return found

    monkeypatch.setattr(IndividualFilter, "gradient", gradient)
    learner = metered(lasting=lasting, steps=8, clip=1e-6, lr=1e-9, memory_share=0.0)
    learn(learner, fixed(), [0], far)
    assert [bool(one) for one in taking] == [step < used for step in range(8)] and taking[0] == SIZE


def test_remembered_units_have_one_meter_over_all_later_tasks(tmp_path: Path) -> None:
    learner, vault = metered(facts(4)), fixed(tmp_path)
    for number in range(3):
        one_task(learner, vault, number)
    meter = vault.individual_filter(learner.memory_.blocks[0][None], learner.plan)
    assert meter.steps == 2 * learner.steps
    assert [len(grants) for grants in _grants_of_memory(vault).values()] == [1, 1]


def _grants_of_memory(vault: Vault) -> dict[int, list[str]]:
    statement = vault.ledger.statement(1)
    memory = [block.row.id for block in statement.blocks if block.row.part == "memory"]
    found = {one: [g.kind for g in statement.grants for block, _ in g.reads if block == one] for one in memory}
    return {block: grants for block, grants in found.items() if grants}


def test_they_stay_no_longer_than_was_said(tmp_path: Path) -> None:
    info = replace(facts(2), endless=True)
    learner, vault = metered(info, stay=2), fixed(tmp_path)
    for number in range(5):
        task = info.task(number)
        assert task is not None
        block = learner_block(learner, vault, number)
        with vault.until_saved():
            learner.learn(task, block, vault)
        learner.on_saved(vault.find(info.name, task.name), vault)
        assert sorted(learner.memory_.blocks) == list(range(max(0, number - 1), number + 1))
        assert len([file for file in (tmp_path / "blocks").iterdir() if file.name.count(".") == 1]) <= 2
    assert alive(vault) == {("task-4", "memory"), ("task-5", "memory")}
    assert learner.consumption(task) == Consumption(
        trained=6 * 0.7 * SIZE, read=432.0, admitted=0.3 * SIZE, retired=0.3 * SIZE, held=0.6 * SIZE
    )
    with pytest.raises(LearnerError, match="remembered records must be retired at some time: give stay=2"):
        metered(info)


def learner_block(learner: MeteredGD, vault: Vault, number: int) -> Any:
    from tacit.learners.base.task_loop import admit

    task = learner.stream_.task(number)
    assert task is not None
    x, y = records(number)
    return admit(vault, (x + np.float32(1e-3 * number), y), learner.stream_, task, learner.budget)


def test_counts_of_who_is_left_are_noisy_paid_for_and_released(tmp_path: Path) -> None:
    budget = Budget(epsilon=1e4, delta=1e-5)
    learner, vault = metered(budget=budget, count_share=0.3, lasting=1.0), fixed(tmp_path)
    releases = [one_task(learner, vault, number) for number in range(3)]
    assert [sorted(one.tensors.keys() & {"left.0", "left.1", "left.2"}) for one in releases] == [
        ["left.0"], ["left.0", "left.1"], ["left.0", "left.1", "left.2"],
    ]  # fmt: skip
    assert all(abs(learner.noisy_units_left_[number] - 0.3 * SIZE) < 15 for number in (0, 1))
    assert abs(learner.noisy_units_left_[2] - 0.7 * SIZE) < 15
    assert all(not float(count).is_integer() for count in learner.noisy_units_left_.values())
    assert uncommitted(vault) == Counter()
    again = metered(budget=budget, count_share=0.3)
    again.restore(releases[-1].tensors, releases[-1].tasks)
    assert again.noisy_units_left_ == pytest.approx(learner.noisy_units_left_)
    spent = metered(budget=budget, count_share=0.3, lasting=0.1, steps=40, clip=1e-6, memory_share=0.0)
    learn(spent, fixed(), [0], far)
    assert abs(spent.noisy_units_left_[0]) < 5  # they are all out


# Silence.


def said(folder: Path, sources: Callable[[int], Any], capfd: Any) -> tuple[Any, ...]:
    """All public files and texts of a learner on private data, but for what noise is in and what names are drawn."""
    with Ledger(folder / "ledger") as ledger:
        vault, learner = Vault(ledger, folder / "store"), metered(facts(public=False), budget=TIGHT, clip=1e-3)
        for number in range(3):
            one_task(learner, vault, number, sources).save(folder / str(number))
        statement = ledger.statement(1)
        rows = [(g.kind, dict(g.plan), g.state, g.reads, g.output_hash) for g in statement.grants]
        blocks = [(b.row.task, b.row.part, b.row.state, b.row.size) for b in statement.blocks]
    texts = [(folder / str(number) / "release.json").read_bytes() for number in range(3)]
    shapes = [{name: tuple(value.shape) for name, value in Release.load(folder / str(2)).tensors.items()}]
    issued = [json.loads((folder / str(number) / "certificate.json").read_text()) for number in range(3)]
    facts_of = [
        (one["claims"], [{k: v for k, v in m.items() if k != "grant"} for m in one["mechanisms"]], one["assumptions"])
        for one in issued
    ]
    return rows, blocks, texts, shapes, facts_of, capfd.readouterr(), learner.consumption(learner.stream_.tasks[2])


def test_nothing_but_noisy_values_depends_on_who_is_out(tmp_path: Path, capfd: Any) -> None:
    """Everybody is out at half of the steps; nobody ever is, for want of a gradient; nobody is there."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    everybody = said(tmp_path / "a", far, capfd)
    one_less = said(tmp_path / "b", lambda number: tuple(part[1:] for part in far(number)), capfd)
    empty = said(tmp_path / "c", lambda number: nothing(), capfd)
    assert everybody == one_less == empty


# Going on.


def test_it_goes_on_from_a_release_as_if_nothing_had_happened(tmp_path: Path) -> None:
    twin, whole = metered(), fixed(tmp_path / "whole")
    ends = [one_task(twin, whole, number) for number in range(3)]
    vault, learner = fixed(tmp_path / "store"), metered()
    release = [one_task(learner, vault, number) for number in range(2)][-1]
    release.save(tmp_path / "release")
    loaded = Release.load(tmp_path / "release")
    later, again = Vault(vault.ledger, tmp_path / "store"), metered()
    again.restore(loaded.tensors, loaded.tasks, later)
    assert same(one_task(again, later, 2).tensors, ends[-1].tensors)
    blind = metered()
    blind.restore(loaded.tensors, loaded.tasks)
    with pytest.raises(LearnerError, match="the memory of task 1 is not here; restore the learner with its vault"):
        learn(blind, fixed(), [2])


@pytest.mark.parametrize("step", [0, 3, 6])
def test_a_task_that_is_begun_again_has_what_its_units_have_left(step: int, tmp_path: Path) -> None:
    vault, learner = fixed(tmp_path), metered(count_share=0.1)
    before = one_task(learner, vault, 0)
    learner.callback = stop_at(1, step)
    with pytest.raises(Stopped):
        one_task(learner, vault, 1)
    vault, learner = Vault(vault.ledger, tmp_path), metered(count_share=0.1)  # the locks are free
    learner.restore(before.tensors, before.tasks, vault)
    spent = vault.ledger.epsilon(1)
    one_task(learner, vault, 1)
    assert vault.ledger.epsilon(1) == spent
    meter = vault.individual_filter(learner.memory_.blocks[0][None], learner.plan)
    assert meter.steps == step + 6
    assert sorted(learner.noisy_units_left_) == ([0, 1] if step == 0 else [])  # a count may have been asked for before
    meter.pause()
    one_task(learner, vault, 2)
    assert sorted(learner.noisy_units_left_) == ([0, 1, 2] if step == 0 else [1, 2])
    vault.ledger.verify()


# Through the runner.


def blobs(seed: int) -> Stream:
    info = facts()
    return Stream(
        info,
        [
            Task(info=task, records=lambda n=task.number: records(n), test=lambda n=task.number: records(n, part=1))
            for task in info.tasks
        ],
    )


CONFIG = Config.of(
    {
        "name": "blobs",
        "data": {"source": "digits", "scenario": "permuted", "tasks": 3},
        "learner": {"method": "MeteredGD", "steps": 5, "lr": 0.5, "count_share": 0.1},
        "model": {"network": "mlp", "hidden": [6]},
        "budget": {"epsilon": 20.0, "delta": 1e-3},
        "threads": 1,
        "repeatable_noise": True,
    }
)
MOMENTS: dict[str, tuple[type, str, int, bool]] = {
    "in the first task": (IndividualFilter, "gradient", 3, True),
    "in the second task": (IndividualFilter, "gradient", 9, False),
    "after a count": (IndividualFilter, "noisy_units_left", 2, False),
    "between the last step and the release": (Release, "save", 2, True),
    "between the release and its evaluation": (Release, "save", 2, False),
    "before its units are retired": (Vault, "retire", 2, True),
    "as they are retired": (Ledger, "retire", 3, False),
    "at the very end": (SeedFolder, "note", 11, True),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_ends_and_is_charged_once(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeedFolder, "clear", lambda self: None)  # the ledger is read first
    owner, name, count, before = MOMENTS[moment]
    honest, calls = getattr(owner, name), [0]

    def deadly(*args: Any, **said: Any) -> Any:
        calls[0] += 1
        if before and calls[0] == count:
            raise Stopped
        found = honest(*args, **said)
        if calls[0] == count:
            raise Stopped
        return found

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, deadly)
        with pytest.raises(Stopped):
            run(CONFIG, tmp_path / "run", stream=blobs)
    run(CONFIG, tmp_path / "run", stream=blobs, resume=True)
    assert (tmp_path / "run" / "metrics.json").exists()
    private = tmp_path / "run" / "seeds" / "seed-0" / "private"
    last = Release.load(private.parent / "releases" / "03-task-3")
    assert all(torch.isfinite(value).all() for value in last.tensors.values())
    with Ledger(private / "throwaway.ledger", keys=KeyRing.for_tests(0)) as ledger:
        ledger.verify()
        grants = ledger.statement(1).grants
        assert ledger.epsilon(1) <= 20.0
    meters = [grant for grant in grants if grant.kind == "meter"]
    assert len(meters) == 5 and {grant.state for grant in meters} == {"RELEASED"}
    assert not list((private / "store" / "blocks").iterdir())


# What is refused.


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"steps": 0}, "steps must be a whole number ≥ 1, got 0"),
        ({"stay": 0}, "stay must be a whole number ≥ 1, got 0"),
        ({"lasting": 1.5}, "lasting must be above 0 and at most 1, got 1.5; 1 is a public schedule"),
        ({"memory_share": 1.0}, "memory_share must be at least 0 and below 1, got 1.0"),
        ({"count_share": -0.1}, "count_share must be at least 0 and below 1, got -0.1"),
        ({"noise": 0.0}, "noise must be a finite number > 0, got 0.0"),
        ({"lr": math.nan}, "lr must be a finite number with 0 < lr ≤ 1000, got nan"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LearnerError, match=sentence):
        metered(**settings)
