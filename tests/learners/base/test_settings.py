"""What learners are told, what they refuse, and what they say then."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

from support.small_world import (
    ALL,
    GENEROUS,
    REPLAY,
    SIZE,
    STEPLESS,
    facts,
    fixed,
    given,
    learn,
    make,
    records,
    same,
    started,
    take,
    uncommitted,
)
from tacit import Budget
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, PlanError
from tacit.learners.base.learner import Learner

DRAW_BATCHES = sorted({method: name for name, (method, _) in ALL.items() if method not in STEPLESS}.values())
"""One of each kind."""


def trained(name: str) -> float:
    """The share of a task's records that a step may draw."""
    return {"DPER": 0.5, "adaptive": 0.8, "Joint": 3}.get(name, 0.9 if name in REPLAY else 1)


def test_tasks_may_differ_in_everything() -> None:
    lists: dict[str, Any] = {
        "steps": [3, 5, 4],
        "batch": [20, 30.5, 40],
        "noise": [1.0, 2.0, 1.5],
        "lr": [0.1, 0.2, 0.3],
    }
    for name in ("DPCL union", "NaiveDPSGD", "DPER"):
        learner, vault = started(name, **given(name, **lists)), fixed()
        learn(learner, vault, [0, 1, 2])
        size = learner.train_size(learner.stream_.tasks[0])  # type: ignore[attr-defined]
        plans = [learner.plan(task) for task in learner.stream_.tasks]  # type: ignore[attr-defined]
        assert [(plan.steps, plan.noise) for plan in plans] == [(3, 1.0), (5, 2.0), (4, 1.5)]
        assert [plan.rate for plan in plans] == pytest.approx([20 / size, 30.5 / size, 40 / size])
        billed = [grant.plan for grant in vault.ledger.statement(1).grants if grant.kind == "gradient"]
        for plan in plans:
            assert plan.describe() in billed
        assert uncommitted(vault) == Counter()


@pytest.mark.parametrize("setting", ["steps", "batch", "noise", "lr"])
def test_a_list_that_is_too_short_is_a_sentence(setting: str) -> None:
    value = {"steps": [3, 3], "batch": [20, 20], "noise": [1.0, 1.0], "lr": [0.1, 0.1]}[setting]
    for name in ("DPCL union", "NaiveDPSGD"):
        with pytest.raises(LearnerError, match=f"{setting} has 2 values and task 3 needs its own; give one for each"):
            learn(started(name, **given(name, **{setting: value})), fixed(), [0, 1, 2])


def test_a_batch_that_is_larger_than_the_task_is_a_sentence() -> None:
    for name in DRAW_BATCHES:
        most = round(trained(name) * SIZE)
        with pytest.raises(LearnerError, match=rf"batch of {most + 1} cannot be drawn from {most} units of .*; choose"):
            started(name, batch=most + 1)  # before a vault, a record or a charge
    with pytest.raises(LearnerError, match=r"from 120 units of task 'task-2', the largest; choose"):
        started("NaiveDPSGD", uneven(40, 120, 40), batch=121)
    with pytest.raises(LearnerError, match=r"batch of 60 cannot be drawn from 40 units of task 'task-3'; choose"):
        started("NaiveDPSGD", uneven(120, 120, 40), batch=[60, 60, 60])


def uneven(*sizes: int) -> StreamInfo:
    info = facts(len(sizes))
    return replace(info, tasks=tuple(replace(one, size=size) for one, size in zip(info.tasks, sizes, strict=True)))


@pytest.mark.parametrize("name", DRAW_BATCHES)
def test_a_task_smaller_than_the_batch_is_read_whole(name: str) -> None:
    sizes = (120, 40)
    learner, vault = started(name, uneven(*sizes), **given(name, batch=50)), fixed()
    learn(learner, vault, [0, 1], lambda task: records(task, sizes[task]))
    billed = {grant.plan["rate"] for grant in vault.ledger.statement(1).grants if grant.kind == "gradient"}
    if name == "Joint":  # one draw from all tasks
        assert billed == {50 / 160}
    else:
        assert {50 / round(trained(name) * 120), 1.0} <= billed


def test_plan_sampler_event_and_divisor_agree_about_a_small_task() -> None:
    learner, vault = (
        started("NaiveDPSGD", uneven(40, 120), **given("NaiveDPSGD", steps=None, epochs=3, batch=80)),
        fixed(),
    )
    plan = replace(learner.plan(learner.stream_.tasks[0]), clip=0.01)  # type: ignore[attr-defined]
    assert (plan.rate, plan.steps) == (1.0, 3)  # a pass is one step
    assert plan.event == SelfComposedDpEvent(PoissonSampledDpEvent(1.0, GaussianDpEvent(plan.noise)), 3)
    x, y = np.ones((40, 6), dtype=np.float32), np.zeros(40, dtype=np.int64)
    block = take(vault, learner.stream_, 0, (x, y), learner.budget)
    grant = vault.grant(block, plan, learner.model_, learner.loss_)
    assert grant.expected_batch == 40
    loss = torch.nn.functional.cross_entropy(learner.model_(torch.ones(1, 6)), torch.zeros(1, dtype=torch.long))
    one = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(learner.model_.parameters()))])
    for _ in grant:  # equal records, each clipped: how many were read can be counted
        read = 40 * torch.cat([g.flatten() for g in grant.gradient().values()]) @ one / (one.norm() * plan.clip)
        assert float(read) == pytest.approx(40, abs=5 * plan.noise)


def explicit(name: str, steps: int, noise: float) -> Learner:
    return make(name, budget=Budget(epsilon=1.0, delta=1e-5), noise=noise, steps=steps)


def offered(name: str, steps: int, noise: float) -> tuple[float, int | None]:
    """The noise and the steps that the sentence names."""
    learner = explicit(name, steps, noise)
    learner.start(facts())
    with pytest.raises(
        PlanError, match=rf"{steps} steps at rate .* do not fit .*noise ≥ .*or a smaller batch"
    ) as error:
        learner.plan(learner.stream_.tasks[0])  # type: ignore[attr-defined]
    words = str(error.value).replace(",", "").split()
    steps_at = words.index("most") + 1 if "most" in words else None
    return float(words[words.index("≥") + 1]), None if steps_at is None else int(words[steps_at])


def test_noise_that_does_not_fit_is_a_sentence_with_what_would() -> None:
    noise, steps = offered("NaiveDPSGD", 40, 4.5)
    assert steps is not None and 1 <= steps < 40
    for fits in (explicit("NaiveDPSGD", 40, noise), explicit("NaiveDPSGD", steps, 4.5)):
        fits.start(facts())
        fits.plan(fits.stream_.tasks[0])  # type: ignore[attr-defined]
    assert offered("NaiveDPSGD", 40, 0.4)[1] is None  # not even one step would fit


def test_the_noise_that_the_sentence_names_always_fits() -> None:
    for steps in (20, 25, 30):
        noise, _ = offered("NaiveDPSGD", steps, 0.4)
        fits = explicit("NaiveDPSGD", steps, noise)
        fits.start(facts())
        fits.plan(fits.stream_.tasks[0])  # type: ignore[attr-defined]


def test_given_noise_of_experts_must_fit_with_the_router() -> None:
    """Noise that fits by itself and not together with the router's sum is refused before anything is touched."""
    alone = make("NaiveDPSGD", budget=Budget(epsilon=1.0, delta=1e-5))
    alone.start(facts())
    learner = explicit("experts", 20, alone.plan(alone.stream_.tasks[0]).noise)  # type: ignore[attr-defined]
    learner.start(facts())
    with pytest.raises(PlanError, match="noise ≥"):
        learn(learner, fixed(), [0])


def test_memory_noise_that_does_not_fit_is_refused_before_anything_is_spent() -> None:
    learner, vault = make("DPCL union", budget=Budget(epsilon=1.0, delta=1e-5), memory_noise=0.5), fixed()
    with pytest.raises(PlanError):
        learner.start(facts())
        learn(learner, vault, [0])
    assert not vault.ledger.streams()


@pytest.mark.parametrize(("name", "setting"), [("DPCL union", "memory_noise"), ("DPER", "replay")])
def test_no_noise_and_no_batch_are_refused(name: str, setting: str) -> None:
    none: dict[str, Any] = {setting: 0}
    with pytest.raises((PlanError, LearnerError)):
        started(name, **none)


@pytest.mark.parametrize(("name", "setting"), [("DPCL union", "memory_share"), ("experts", "router_share")])
def test_shares_are_between_0_and_1(name: str, setting: str) -> None:
    for value in (0.0, 1.0, -0.1):
        wrong: dict[str, Any] = {setting: value}
        with pytest.raises(LearnerError, match=f"{setting} must be between 0 and 1, got {value}"):
            started(name, **wrong)


def test_tasks_come_in_the_planned_order() -> None:
    learner, vault = started("NaiveDPSGD", **given("NaiveDPSGD")), fixed()
    with pytest.raises(LearnerError, match=r"task 'task-2' is not the next one that was planned \(task-1\)"):
        learn(learner, vault, [1])
    learn(learner, vault, [0])
    with pytest.raises(LearnerError, match="learn in order"):
        learn(learner, vault, [0])
    learn(learner, vault, [1, 2])
    more = TaskInfo(name="task-4", number=3, labels=(0, 1), size=SIZE)
    with pytest.raises(LearnerError, match=r"planned \(no more\)"):
        learner.learn(more, take(vault, facts(4), 3, records(3), learner.budget), vault)


def test_a_learner_without_a_stream_says_so() -> None:
    info, vault = facts(), fixed()
    with pytest.raises(LearnerError, match=r"has no stream yet; call start\(stream.info\) first"):
        make("NaiveDPSGD").learn(info.tasks[0], take(vault, info, 0, records(0), GENEROUS), vault)


def test_a_new_start_forgets_everything() -> None:
    for name in ("DPCL union", "Joint", "experts"):
        learner = started(name, **given(name))
        fresh = learner.tensors()
        learn(learner, fixed(), [0, 1])
        learner.start(facts())
        assert same(learner.tensors(), fresh) and learner.tasks_ == ()


def test_a_new_start_forgets_raw_records_too() -> None:
    learner = started("AGEM")
    learn(learner, fixed(), [0])
    learner.start(facts())
    assert not getattr(learner, "kept_", [])
