"""Bounds on attackers: above every attack, close to the best one, and exact where a closed form is known."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import optimize, stats

from tacit.privacy.accounting import epsilon, events, pld, tradeoff
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.gaussian_dp import delta_of_mu
from tacit.privacy.accounting.tradeoff import PAIR, PLD, RENYI, Profile, of_curve, of_event, of_exchange, of_pair

ADD = Adjacency.ADD_OR_REMOVE
NORMAL = stats.norm
RATES = (0.3, 0.01, 0.001)
TIGHT = 2e-3


def of_gaussian(mu: float, alpha: float) -> float:
    return float(NORMAL.cdf(NORMAL.ppf(alpha) + mu))


def close_above(bound: float, exact: float) -> bool:
    return exact * (1 - 1e-9) <= bound <= exact * (1 + TIGHT)


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_gaussian_has_its_closed_form(noise: float, adjacency: Adjacency) -> None:
    mu = (2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0) / noise
    profile = of_event(events.gaussian(noise), adjacency)
    assert close_above(tradeoff.advantage([profile]), 2 * NORMAL.cdf(mu / 2) - 1)
    for alpha in RATES:
        assert close_above(tradeoff.true_positives([profile], alpha), of_gaussian(mu, alpha))
    assert profile.mu == pytest.approx(mu) and tradeoff.gaussian_dp([profile], 0.0) == pytest.approx(mu)
    assert 0.99 * mu < tradeoff.gaussian_dp([profile], 1e-6) <= mu * (1 + 1e-12)


def test_composed_gaussians_are_one() -> None:
    both = of_event(events.compose([events.gaussian(3.0), events.repeat(events.gaussian(4.0), 9)]), ADD)
    mu = math.hypot(1 / 3, 3 / 4)
    assert both.mu == pytest.approx(mu) and close_above(tradeoff.advantage([both]), 2 * NORMAL.cdf(mu / 2) - 1)


@pytest.mark.parametrize("units", [2, 3, 5])
@pytest.mark.parametrize("noise", [2.0, 10.0])
def test_groups_of_a_gaussian_multiply_mu(noise: float, units: int) -> None:
    profile, mu = of_event(events.gaussian(noise), ADD), units / noise
    assert close_above(tradeoff.advantage([profile], units=units), 2 * NORMAL.cdf(mu / 2) - 1)
    for alpha in RATES:
        assert close_above(tradeoff.true_positives([profile], alpha, units=units), of_gaussian(mu, alpha))
    exact = pld._gaussian_epsilon(mu, 1e-5)
    assert exact <= tradeoff.group_epsilon([profile], 1e-5, units) <= exact * 1.005


def test_a_group_loses_less_than_by_the_general_rule() -> None:
    """(ε, δ) for one makes (kε, δ (1 + e^ε + … + e^(k-1)ε)) for k, which is never better."""
    event = events.poisson_gaussian(0.05, 1.0, 50)
    profile = of_event(event, ADD)
    for units in (2, 3):
        found = tradeoff.group_epsilon([profile], 1e-5, units)
        general = [
            units * e
            for e in np.linspace(0.5, 6, 200)
            if epsilon.delta(event, e) * sum(math.exp(i * e) for i in range(units)) <= 1e-5
        ]
        assert epsilon.epsilon(event, 1e-5) < found <= min(general)


@pytest.mark.parametrize("units", [2, 3])
def test_a_group_is_found_no_more_often_than_bounded(units: int) -> None:
    """All of a group may be sampled into one step together: a mixture of Gaussians with binomial weights."""
    rate, noise = 0.2, 1.5
    profile = of_event(events.poisson_gaussian(rate, noise), ADD)
    shifts = np.arange(units + 1)
    weights = stats.binom.pmf(shifts, units, rate)
    for alpha in RATES:
        threshold = NORMAL.isf(alpha)
        found = float(np.sum(weights * NORMAL.sf(threshold - shifts / noise)))
        assert found <= tradeoff.true_positives([profile], alpha, units=units)


@pytest.mark.parametrize("adjacency", [ADD, Adjacency.REPLACE_ONE])
def test_laplace_noise_has_its_closed_form(adjacency: Adjacency) -> None:
    profile = of_event(events.laplace(2.0), adjacency)
    pure = 0.5 if adjacency is ADD else 1.0
    assert close_above(tradeoff.advantage([profile]), 1 - math.exp(-pure / 2))
    assert close_above(tradeoff.true_positives([profile], 0.01), 0.01 * math.exp(pure))
    # µ of all that is (ε, 0)-DP; a little more than Laplace noise needs.
    assert NORMAL.cdf(-profile.mu / 2) == pytest.approx(1 / (1 + math.exp(pure)))


@pytest.mark.parametrize(("pure", "delta"), [(1.0, 0.0), (2.0, 1e-3), (0.1, 0.05)])
def test_randomised_response_has_its_closed_form(pure: float, delta: float) -> None:
    """With probability δ all is shown, otherwise one of two answers: the worst of all that is (ε, δ)-DP."""
    profile = of_pair(pure, delta)
    assert profile.method == PAIR
    assert close_above(tradeoff.advantage([profile]), delta + (1 - delta) * math.tanh(pure / 2))
    for alpha in (*RATES, 0.9):
        exact = min(1.0, math.exp(pure) * alpha + delta, 1 - math.exp(-pure) * (1 - alpha - delta))
        assert close_above(tradeoff.true_positives([profile], alpha), exact)
    assert math.isfinite(profile.mu) == (delta == 0)


def sampled(rate: float, noise: float) -> Callable[[float], float]:
    return lambda x: float((1 - rate) * NORMAL.sf(x) + rate * NORMAL.sf(x - 1 / noise))


@pytest.mark.parametrize(("rate", "noise"), [(0.1, 1.0), (0.5, 0.7), (0.01, 0.5)])
def test_a_sampled_gaussian_is_bounded_by_its_best_tests_in_both_directions(rate: float, noise: float) -> None:
    """The best test is a threshold (Neyman and Pearson), since the likelihood ratio is monotone."""
    profile = of_event(events.poisson_gaussian(rate, noise), ADD)
    beyond = sampled(rate, noise)
    for alpha in RATES:
        seeks_the_unit = beyond(float(NORMAL.isf(alpha)))
        cut = optimize.brentq(lambda x, alpha=alpha: 1 - beyond(x) - alpha, -40, 40)
        seeks_its_absence = float(NORMAL.cdf(cut))
        assert close_above(tradeoff.true_positives([profile], alpha), max(seeks_the_unit, seeks_its_absence))
    middle = 1 / (2 * noise)
    assert close_above(tradeoff.advantage([profile]), beyond(middle) - NORMAL.sf(middle))


def test_one_direction_alone_would_be_too_small() -> None:
    """The profile of added units only, taken for both directions, promises less than an attack achieves."""
    profile = of_event(events.poisson_gaussian(0.1, 1.0), ADD)
    wrong = Profile(epsilons=profile.epsilons, removed=profile.added, added=profile.added, method=PLD)
    attack = sampled(0.1, 1.0)(float(NORMAL.isf(0.01)))
    assert tradeoff.true_positives([wrong], 0.01) < 0.8 * attack < tradeoff.true_positives([profile], 0.01)
    swapped = Profile(epsilons=profile.epsilons, removed=profile.added, added=profile.removed, method=PLD)
    assert tradeoff.true_positives([swapped], 0.01) == tradeoff.true_positives([profile], 0.01)


def test_two_sampled_steps_are_bounded_by_their_best_test() -> None:
    rate, noise = 0.2, 1.0
    profile = of_event(events.poisson_gaussian(rate, noise, 2), ADD)
    x = np.linspace(-8, 9, 1701)
    without = NORMAL.pdf(x) * (x[1] - x[0])
    with_unit = ((1 - rate) * NORMAL.pdf(x) + rate * NORMAL.pdf(x - 1 / noise)) * (x[1] - x[0])
    for upper, lower in ((with_unit, without), (without, with_unit)):
        p, q = np.outer(upper, upper).ravel(), np.outer(lower, lower).ravel()
        order = np.argsort(-(p / q))
        alphas, betas = np.cumsum(q[order]), np.cumsum(p[order])
        for alpha in RATES:
            best = float(np.interp(alpha, alphas, betas))
            assert best * (1 - 1e-3) <= tradeoff.true_positives([profile], alpha)
            if upper is with_unit and alpha < 0.1:
                assert tradeoff.true_positives([profile], alpha) <= best * (1 + 3e-3)


def test_an_additive_delta_is_added() -> None:
    plain, more = (
        of_event(events.laplace(2.0), ADD),
        of_event(events.with_additive_delta(events.laplace(2.0), 1e-3), ADD),
    )
    assert tradeoff.advantage([more]) == pytest.approx(tradeoff.advantage([plain]) + 1e-3)
    assert tradeoff.true_positives([more], 0.001) == pytest.approx(tradeoff.true_positives([plain], 0.001) + 1e-3)
    assert tradeoff.gaussian_dp([more], 0.0) == math.inf == tradeoff.gaussian_dp([more], 1e-4)
    assert tradeoff.gaussian_dp([more], 1.1e-3) < math.inf


def test_an_adaptive_event_is_bounded_by_its_curve() -> None:
    """ρ-zCDP has no loss distribution and no µ; its bounds hold for the Gaussian that it may be."""
    profile, mu = of_event(events.zcdp(0.08), ADD), 0.4
    assert profile.method == RENYI and profile.mu == math.inf
    assert tradeoff.advantage([profile]) >= 2 * NORMAL.cdf(mu / 2) - 1
    for alpha in RATES:
        assert tradeoff.true_positives([profile], alpha) >= of_gaussian(mu, alpha)
    orders = (2.0, 8.0)
    few = of_curve([0.08 * order for order in orders], orders)
    assert tradeoff.advantage([few]) >= tradeoff.advantage([profile])


def test_without_a_loss_distribution_bounds_are_looser() -> None:
    event = events.poisson_gaussian(0.05, 1.0, 50)
    exact, rough = of_event(event, ADD), of_event(event, ADD, exact=False)
    assert (exact.method, rough.method) == (PLD, RENYI)
    for alpha in RATES:
        assert tradeoff.true_positives([exact], alpha) < tradeoff.true_positives([rough], alpha)


@pytest.mark.parametrize("delta", [1e-4, 1e-7])
def test_mu_is_the_smallest_whose_curve_is_nowhere_better(delta: float) -> None:
    event = events.poisson_gaussian(0.05, 1.0, 50)
    mu = tradeoff.gaussian_dp([of_event(event, ADD)], delta)
    assert mu < 0.6 * math.sqrt(50)
    grid = np.linspace(0, 5, 60)
    exact = np.array([epsilon.delta(event, float(e)) for e in grid])
    assert np.all(exact <= delta_of_mu(mu, grid) + delta + 1e-12)
    assert np.any(exact > delta_of_mu(mu * (1 - 5e-3), grid) + delta)
    # Far in the tail a sampled Gaussian is like an unsampled one: nothing smaller holds without the addition.
    assert of_event(event, ADD).mu == pytest.approx(math.sqrt(50))


def test_what_has_several_mechanisms_is_as_bad_as_the_worst() -> None:
    one, other = of_event(events.gaussian(2.0), ADD), of_event(events.laplace(1.0), ADD)
    for alpha in RATES:
        both = tradeoff.true_positives([one, other], alpha)
        assert both == max(tradeoff.true_positives([each], alpha) for each in (one, other))
    assert tradeoff.true_positives([], 0.01) == pytest.approx(0.01) and tradeoff.advantage([]) == 0


def test_an_exchange_of_gaussians_adds_both_shifts() -> None:
    mu = math.hypot(1 / 3, 1 / 5)
    profile = of_exchange(events.gaussian(3.0), events.gaussian(5.0))
    assert tradeoff.advantage([profile]) >= (2 * NORMAL.cdf(mu / 2) - 1) * (1 - 1e-9)
    assert tradeoff.advantage([profile]) <= (2 * NORMAL.cdf(mu / 2) - 1) * (1 + 5e-3)


def test_what_reads_nothing_tells_nothing() -> None:
    nothing = of_event(events.compose([]), ADD)
    assert tradeoff.advantage([nothing]) == 0 and nothing.mu == 0
    assert tradeoff.true_positives([nothing], 0.01, units=5) == pytest.approx(0.01)
    assert tradeoff.group_epsilon([nothing], 1e-6, 5) < 1e-3  # the spacing of the grid


def test_what_has_no_bound_is_shown_as_such() -> None:
    profile = of_event(events.gaussian(0.0), ADD)
    assert tradeoff.advantage([profile]) == 1 and tradeoff.true_positives([profile], 0.001) == 1
    assert tradeoff.group_epsilon([profile], 1e-5, 2) == math.inf
