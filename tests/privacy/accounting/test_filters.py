"""Open blocks: the curve is fixed first, every order is checked, and the printed ε does not move."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import PlanError
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.epsilon import ORDERS, epsilon, rdp_curve, rdp_to_epsilon
from tacit.privacy.accounting.events import compose, gaussian, laplace, poisson_gaussian, repeat, with_additive_delta
from tacit.privacy.accounting.filters import INFINITE_UNITS, UNITS, RenyiFilter, cost_units

ADD = Adjacency.ADD_OR_REMOVE
ONE = Budget(epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize("eps", [0.001, 0.01, 0.1, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_the_printed_epsilon_is_the_budgets(eps: float, delta: float, adjacency: Adjacency) -> None:
    budget = Budget(epsilon=eps, delta=delta, adjacency=adjacency)
    made = RenyiFilter.for_budget(budget)
    assert eps * (1 - 1e-9) <= made.epsilon(delta) <= eps
    assert set(made.orders) <= set(ORDERS)
    assert all(
        b == pytest.approx(made.limits[0] / made.orders[0] * o) for o, b in zip(made.orders, made.limits, strict=True)
    )
    for order, limit in zip(made.orders, made.limits, strict=True):  # every kept order is a useful one
        assert rdp_to_epsilon((limit,), delta, (order,)) <= 1.1 * eps * (1 + 1e-9)


def test_a_filter_like_its_charges_admits_more_of_them() -> None:
    budget, charge = Budget(epsilon=8.0, delta=1e-5), poisson_gaussian(0.01, 1.0, 10)
    plain, like = RenyiFilter.for_budget(budget), RenyiFilter.for_budget(budget, like=charge)
    assert like.epsilon(1e-5) <= 8.0
    admitted = [
        min(b // c for b, c in zip(made.limit_units, cost_units(made.cost(charge, ADD)), strict=True))
        for made in (plain, like)
    ]
    assert 1000 < admitted[0] < admitted[1]
    # nothing is given away: that many charges, had they been committed, cost no more than the printed ε
    assert epsilon(repeat(charge, admitted[1]), 1e-5, ADD, "rdp") <= 8.0


def test_many_adaptive_charges_never_pass_the_curve() -> None:
    made = RenyiFilter.for_budget(ONE)
    spent: tuple[int, ...] = (0,) * len(made.orders)
    events, admitted, refused = [gaussian(20.0), poisson_gaussian(0.05, 3.0, 5), laplace(30.0), gaussian(9.0)], [], 0
    for turn in range(200):
        event = events[turn % len(events)]
        cost = cost_units(made.cost(event, ADD))
        if made.admits_units(spent, cost):
            spent = tuple(s + c for s, c in zip(spent, cost, strict=True))
            admitted.append(event)
        else:
            refused += 1
    assert admitted and refused
    assert all(s <= b for s, b in zip(spent, made.limit_units, strict=True))
    assert rdp_to_epsilon(rdp_curve(compose(admitted), ADD, made.orders), 1e-5, made.orders) <= made.epsilon(1e-5)


def test_one_order_is_enough_to_refuse() -> None:
    made = RenyiFilter(orders=(2.0, 4.0), limits=(1.0, 2.0))

    def admits(*curves: tuple[float, float]) -> bool:
        return made.admits_units(*map(cost_units, curves))

    assert admits((0.5, 0.5), (0.5, 1.5))
    assert not admits((0.5, 0.5), (0.5, 1.6))
    assert not admits((0.5, 0.5), (math.nextafter(0.5, 1), 0.0))
    for bad in (math.nan, math.inf, -0.1):
        assert not admits((0.0, 0.0), (bad, 0.0))
        assert not admits((bad, 0.0), (0.0, 0.0))
    assert made.admits_units((0, 0), (UNITS, 2 * UNITS))
    assert not made.admits_units((1, 0), (UNITS, 0))
    assert not made.admits_units((0, 0), (-1, 0))
    with pytest.raises(ValueError):
        made.admits_units((0,), (0,))


def test_poisson_under_replace_one_is_refused() -> None:
    budget = Budget(epsilon=8.0, delta=1e-5, adjacency=Adjacency.REPLACE_ONE)
    made, charge = RenyiFilter.for_budget(budget), poisson_gaussian(1e-6, 1e3, 1)
    cost = made.cost(charge, budget.adjacency)
    assert set(cost) == {math.inf}
    assert not made.admits_units((0,) * len(cost), cost_units(cost))
    with pytest.raises(PlanError, match="commit"):
        RenyiFilter.for_budget(budget, like=charge)


def test_a_share_is_a_kth_and_k_of_them_are_the_whole() -> None:
    made = RenyiFilter.for_budget(ONE)
    fifth = made.share(5)
    assert fifth.orders == made.orders
    assert all(5 * part <= whole * (1 + 1e-15) for part, whole in zip(fifth.limits, made.limits, strict=True))
    assert all(5 * part <= whole for part, whole in zip(fifth.limit_units, made.limit_units, strict=True))
    assert fifth.epsilon(1e-5) < made.epsilon(1e-5)
    with pytest.raises(PlanError):
        made.share(0)


def test_units_round_against_the_spender() -> None:
    assert cost_units((0.0, 5e-324, 1e-9, 1.0000000001e-9, 1.0)) == (0, 1, 2, 2, UNITS)
    assert cost_units((math.inf, math.nan, -1.0, 1e300)) == (INFINITE_UNITS,) * 4
    assert RenyiFilter(orders=(2.0,), limits=(1.9999999999e-9,)).limit_units == (1,)
    assert RenyiFilter(orders=(2.0,), limits=(1e-10,)).limit_units == (0,)
    assert INFINITE_UNITS < 2**63


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(st.floats(0, 1e-3), min_size=1, max_size=50))
def test_integers_never_admit_more_than_reals(costs: list[float]) -> None:
    made = RenyiFilter(orders=(2.0,), limits=(0.01,))
    spent = 0
    paid = []
    for cost in costs:
        (units,) = cost_units((cost,))
        if made.admits_units((spent,), (units,)):
            spent += units
            paid.append(cost)
    assert math.fsum(paid) <= 0.01


def test_a_part_of_delta_is_set_aside_for_additive_charges() -> None:
    made = RenyiFilter.for_budget(ONE, additive=4e-6)
    assert made.epsilon(6e-6) <= 1.0 < made.epsilon(5.9e-6)
    assert made.cost(with_additive_delta(gaussian(9.0), 1e-6), ADD) == made.cost(gaussian(9.0), ADD)
    for additive in (1e-5, 1.0, -1e-9, math.nan):
        with pytest.raises(PlanError, match="additive"):
            RenyiFilter.for_budget(ONE, additive=additive)


@pytest.mark.parametrize(
    ("orders", "limits"),
    [((), ()), ((2.0,), (1.0, 2.0)), ((1.0,), (1.0,)), ((2.0,), (-1.0,)), ((2.0,), (math.nan,)), ((2.0,), (math.inf,))],
)
def test_senseless_filters_are_refused(orders: tuple[float, ...], limits: tuple[float, ...]) -> None:
    with pytest.raises(PlanError):
        RenyiFilter(orders=orders, limits=limits)


def test_a_budget_too_small_for_the_reference_says_so() -> None:
    with pytest.raises(PlanError, match="commit"):
        RenyiFilter.for_budget(Budget(epsilon=0.001, delta=1e-5), like=poisson_gaussian(0.01, 1.0, 10))
