"""Calibration and gate ask one question, so what was calibrated is never refused."""

import math

import pytest
from dp_accounting.dp_event import DpEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import PlanError
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.calibrate import (
    INFINITE_PRICE,
    allowance,
    fits,
    gaussian_noise,
    gradient_noise,
    gradient_rate,
    gradient_steps,
    noise_for,
    price,
    rate_for,
    steps_for,
)
from tacit.privacy.accounting.epsilon import epsilon
from tacit.privacy.accounting.events import (
    compose,
    from_json,
    gaussian,
    laplace,
    poisson_gaussian,
    repeat,
    repeat_and_select,
    to_json,
    with_additive_delta,
)

ONE, EIGHT = Budget(epsilon=1.0, delta=1e-5), Budget(epsilon=8.0, delta=1e-5)
REPLACE = Budget(epsilon=1.0, delta=1e-5, adjacency=Adjacency.REPLACE_ONE)


def still_fits(event: DpEvent, budget: Budget) -> bool:
    return fits(event, budget) and fits(from_json(to_json(event)), budget)


@pytest.mark.parametrize(
    ("budget", "rate", "steps", "known"),
    [
        (ONE, 0.01, 10_000, 3.814),
        (ONE, 0.1, 400, 7.572),
        (EIGHT, 0.1, 400, 1.423),
        (ONE, 0.5, 80, 16.79),
        (EIGHT, 0.5, 80, 2.81),
    ],
)
def test_gradient_noise(budget: Budget, rate: float, steps: int, known: float) -> None:
    noise = gradient_noise(budget, rate, steps)
    assert noise == pytest.approx(known, rel=1e-3)
    assert still_fits(poisson_gaussian(rate, noise, steps), budget)
    assert not fits(poisson_gaussian(rate, noise * (1 - 2e-4), steps), budget)


@pytest.mark.parametrize(("budget", "known"), [(ONE, 3.730631634), (EIGHT, 0.600229072), (REPLACE, 2 * 3.730631634)])
def test_gaussian_noise_is_the_analytic_one(budget: Budget, known: float) -> None:
    noise = gaussian_noise(budget)
    assert noise == pytest.approx(known, rel=2e-9)
    assert still_fits(gaussian(noise), budget)
    assert not fits(gaussian(noise * (1 - 1e-8)), budget)
    assert gaussian_noise(budget, times=4) == pytest.approx(2 * noise, rel=1e-8)
    assert fits(gaussian(gaussian_noise(budget, times=4)), budget, times=4)


@settings(max_examples=8, derandomize=True, deadline=None)
@given(
    st.floats(0.05, 20.0),
    st.sampled_from([1e-9, 1e-6, 1e-4]),
    st.floats(1e-4, 1.0),
    st.integers(1, 2_000),
    st.sampled_from(Adjacency),
)
def test_a_calibrated_plan_is_never_refused(
    eps: float, delta: float, rate: float, steps: int, adjacency: Adjacency
) -> None:
    budget = Budget(epsilon=eps, delta=delta, adjacency=adjacency)
    noise = gradient_noise(budget, rate, steps)
    assert still_fits(poisson_gaussian(rate, noise, steps), budget)
    assert epsilon(poisson_gaussian(rate, noise, steps), delta, adjacency) <= eps


def test_steps_and_rate() -> None:
    steps = gradient_steps(ONE, 0.01, 3.814)
    assert steps == pytest.approx(10_000, rel=2e-3)
    assert still_fits(poisson_gaussian(0.01, 3.814, steps), ONE)
    assert not fits(poisson_gaussian(0.01, 3.814, steps + 3), ONE)
    few = gradient_steps(ONE, 0.1, 7.572)
    assert few == 400 and not fits(poisson_gaussian(0.1, 7.572, 401), ONE)
    rate = gradient_rate(ONE, 10_000, 3.814)
    assert rate == pytest.approx(0.01, rel=1e-3)
    assert still_fits(poisson_gaussian(rate, 3.814, 10_000), ONE)
    assert gradient_rate(ONE, 1, 100.0) == 1.0
    assert steps_for(ONE, lambda n: repeat(gaussian(30.0), n)) == math.floor((30 / gaussian_noise(ONE)) ** 2)


def test_any_event_can_be_calibrated() -> None:
    makers = [
        laplace,
        lambda s: compose([gaussian(2 * s), poisson_gaussian(0.01, s, 100)]),
        lambda s: repeat_and_select(poisson_gaussian(0.01, s, 100), 5, 1.0),
        lambda s: with_additive_delta(gaussian(s), 9e-6),
    ]
    for make in makers:
        noise = noise_for(ONE, make)
        assert still_fits(make(noise), ONE) and not fits(make(noise * 0.999), ONE)
    rate = rate_for(ONE, lambda q: compose([gaussian(5.0), poisson_gaussian(q, 1.0, 100)]))
    assert 0 < rate < 1 and still_fits(compose([gaussian(5.0), poisson_gaussian(rate, 1.0, 100)]), ONE)


def test_prices_are_rounded_up_and_budgets_down() -> None:
    event = gaussian(3.0)
    exact = epsilon(event, 1e-5)
    assert price(event, ONE) == math.ceil(exact * 1e9) >= exact * 1e9
    assert allowance(Budget(epsilon=1.9999999999e-9, delta=1e-5)) == 1
    assert price(gaussian(0), ONE) == price(event, ONE, times=0) + INFINITE_PRICE == INFINITE_PRICE
    assert not fits(gaussian(0), Budget(epsilon=1e300, delta=1e-5))
    assert price(event, ONE, times=3) == price(repeat(event, 3), ONE)
    assert not fits(event, Budget(epsilon=1e-10, delta=1e-5))
    assert fits(compose([]), Budget(epsilon=1e-10, delta=1e-5))


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: gradient_noise(Budget(epsilon=1e-8, delta=1e-30), 0.01, 10**7),
        lambda: gradient_steps(Budget(epsilon=0.01, delta=1e-9), 0.5, 0.5),
        lambda: gradient_rate(Budget(epsilon=0.01, delta=1e-300), 10**6, 0.01),
        lambda: noise_for(ONE, lambda s: with_additive_delta(gaussian(s), 1e-5)),
        lambda: noise_for(ONE, lambda s: compose([gaussian(s), gaussian(1.0)])),
    ],
)
def test_the_impossible_is_refused_with_a_way_out(attempt: object) -> None:
    with pytest.raises(PlanError) as caught:
        attempt()  # type: ignore[operator]
    sentence = str(caught.value)
    assert "\n" not in sentence and "larger epsilon or delta" in sentence


@pytest.mark.parametrize("eps", [1e-3, 1e4])
def test_extreme_budgets(eps: float) -> None:
    budget = Budget(epsilon=eps, delta=1e-9)
    noise = gradient_noise(budget, 0.01, 1000)
    assert still_fits(poisson_gaussian(0.01, noise, 1000), budget)
