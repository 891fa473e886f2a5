"""The naive mechanism of Lai et al. 2022: a share of ε a task by its paper's account, claims by max and by sum."""

from dataclasses import replace
from typing import Any

import pytest

from support import made_up
from support.small_world import Watched, facts, fixed, learn, nothing, tiny
from tacit import Budget, Ledger, Vault
from tacit.certificate.claims import moments_accountant, naive_gaussian
from tacit.data.stream import StreamInfo
from tacit.errors import LearnerError, PlanError
from tacit.learners.replay.naive_gaussian import MAX_ORDER, NaiveGaussian

BUDGET = Budget(epsilon=6.0, delta=1e-5)


def naive(info: StreamInfo | None = None, **settings: Any) -> NaiveGaussian:
    common: dict[str, Any] = {"budget": BUDGET, "network": tiny, "batch": 30, "memory_batch": 8, "lr": 0.5}
    learner = NaiveGaussian(**common | settings)
    learner.start(info or facts())
    return learner


def share(learner: NaiveGaussian, number: int, steps: int) -> float:
    """ε_D + ε_M of a task of 120 records: 108 are trained on, 12 of each earlier task are the memory."""
    noise = learner.plan(learner.stream_.tasks[number]).noise
    train = moments_accountant(30 / 108, noise, steps, 1e-5, MAX_ORDER)
    return train + (moments_accountant(8 / (12 * number), noise, steps, 1e-5, MAX_ORDER) if number else 0.0)


def test_a_task_stops_where_its_share_ends() -> None:
    learner = naive(noise=5.0, epochs=30)
    taken = [learner.steps_in(task) for task in learner.stream_.tasks]
    assert learner.cap() == 2.0
    for number, steps in enumerate(taken):
        assert share(learner, number, steps) <= 2.0
        assert steps == 108 or share(learner, number, steps + 1) > 2.0  # 30 epochs of 108 / 30 steps
    assert taken[1] < taken[2] < taken[0]  # the smallest memory is read at the highest rate
    assert learner.memory_.schedule.steps == tuple(taken)


def test_it_never_takes_more_steps_than_asked_for() -> None:
    assert [naive(noise=50.0, epochs=3).steps_in(task) for task in facts().tasks] == [11, 11, 11]
    assert [naive(noise=50.0, epochs=None, steps=[2, 3, 4]).steps_in(task) for task in facts().tasks] == [2, 3, 4]


def test_not_even_one_step_is_a_sentence() -> None:
    with pytest.raises(PlanError, match=r"not one step of task 'task-1' with noise 1.1 .* ε = 2 .*use noise ≥ 1\.\d+"):
        naive(noise=1.1)
    with pytest.raises(PlanError, match="no noise up to 1e"):
        naive(memory_noise=0.1)
    with pytest.raises(LearnerError, match="total must be 'sum' or 'max', got 'mean'"):
        naive(total="mean")


def test_without_a_noise_it_takes_the_least_that_lets_a_task_finish() -> None:
    learner = naive(epochs=5)
    for number, task in enumerate(learner.stream_.tasks):
        assert learner.steps_in(task) == 18
        assert 1.99 < share(learner, number, 18) <= 2.0


def test_shares_too_small_for_low_orders_can_be_spent() -> None:
    """ε = .025 a task, as .5 over 20 tasks: orders up to 32 cannot show less than .36."""
    learner = naive(facts(4, size=55_000), budget=Budget(epsilon=0.1, delta=1e-5), batch=2500, memory_batch=256)
    learner.tasks_ = learner.stream_.tasks
    claimed = learner.claimed()
    assert 0.0249 < claimed.per_task <= 0.025 and 0.099 < claimed.total <= 0.1


def test_under_equation_4_every_task_may_spend_all() -> None:
    learner = naive(noise=5.0, epochs=30, total="max")
    learner.tasks_ = learner.stream_.tasks
    assert learner.cap() == 6.0
    assert all(share(learner, number, learner.steps_in(task)) <= 6 for number, task in enumerate(learner.tasks_))
    assert learner.claimed().per_task <= 6 < learner.claimed().total


def test_the_two_claims() -> None:
    largest, added = naive_gaussian([(0.85, 0.0), (0.85, 1.47), (0.5, 0.1)], 1e-4, MAX_ORDER)
    assert largest.epsilon == pytest.approx(2.32) and added.epsilon == pytest.approx(3.77)
    assert "Eq. 4" in largest.formula and "Theorem 1" in added.formula and largest.delta == added.delta == 1e-4
    with pytest.raises(PlanError, match="got none"):
        naive_gaussian([], 1e-4, MAX_ORDER)


def test_the_moments_accountants_known_number() -> None:
    """301 steps of 100 of 55,000 records at z = 1, δ = 1e-4: Desai et al.'s 0.85."""
    small = replace(BUDGET, delta=1e-4, epsilon=3.0)
    learner = naive(facts(1, size=61_111), batch=100, epochs=None, steps=301, noise=1.0, budget=small)
    learner.tasks_ = learner.stream_.tasks
    assert learner.claimed_pairs()[0][0] == pytest.approx(0.85, abs=5e-4)


def test_it_is_certified_within_the_budget_and_claims_stand_beside() -> None:
    for settings in ({"noise": 5.0, "epochs": 5}, {"epochs": 2}):
        learner, vault = naive(**settings), Vault(Ledger.throwaway())
        releases = learn(learner, vault, [0, 1, 2])
        certificate = releases[-1].certificate
        assert certificate.epsilon is not None and 0 < certificate.epsilon <= BUDGET.epsilon
        largest, added = certificate.claims.paper
        assert largest.epsilon == pytest.approx(learner.claimed().per_task) and largest.epsilon <= 2
        assert added.epsilon == pytest.approx(learner.claimed().total) and added.epsilon <= 6
        assert certificate.epsilon < added.epsilon
        assert len(releases[0].certificate.claims.paper) == 2


def test_tasks_of_very_different_size_keep_to_their_shares() -> None:
    sizes = (400, 40, 2000)
    info = facts(3)
    info = replace(info, tasks=tuple(replace(task, size=n) for task, n in zip(info.tasks, sizes, strict=True)))
    learner = naive(info, memory_batch=4, epochs=[1, 5, 1])
    learner.tasks_ = info.tasks
    for number, reading in ((1, 4 / 40), (2, 4 / (4 * 2))):  # of the smallest block: 4 records
        rates = learner.memory_.schedule.readings(number)[0].rates
        assert max(rates.values()) == pytest.approx(reading)
    assert all(sum(pair) <= 2 for pair in learner.claimed_pairs())
    assert [learner.steps_in(task) for task in info.tasks] == [12, 6, 60]


def test_both_gradients_carry_z_times_the_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks without records release noise alone."""
    seen = Watched(monkeypatch)
    roomy = Budget(epsilon=1e4, delta=1e-5)
    learner = naive(clip=0.1, noise=1.3, epochs=None, steps=40, budget=roomy)
    learn(learner, fixed(), [0, 1, 2], lambda _: nothing())
    assert len(list(seen.of_training())) == 3 and len(list(seen.of_memory())) == 2
    for _, values in seen.of_training():
        made_up.assert_scale(values, 1.3 * 0.1 / 30)
    for values in seen.references:
        made_up.assert_scale(values, 1.3 * 0.1 / 8)
        assert not made_up.scale_is(values, 1.7 * 0.1 / 8)
