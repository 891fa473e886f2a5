"""The factorisation of the prefix sum for streams of unknown length: its product, its sensitivity, its error."""

import math
from itertools import combinations

import numpy as np
import pytest

from tacit.errors import PlanError
from tacit.privacy.accounting import endless_factor, events, toeplitz
from tacit.privacy.vault import SumPlan


def matrix(column: np.ndarray) -> np.ndarray:
    size = len(column)
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(size)] for i in range(size)])


def test_the_factors_multiply_to_the_prefix_sum() -> None:
    right, inverse, left = (
        matrix(part(100)) for part in (endless_factor.data_factor, endless_factor.inverse, endless_factor.prefix_factor)
    )
    assert right @ inverse == pytest.approx(np.eye(100), abs=1e-12)
    assert left @ right == pytest.approx(np.tril(np.ones((100, 100))), rel=1e-10)
    assert np.tril(np.ones((100, 100))) @ inverse == pytest.approx(left, abs=1e-12)


def test_coefficients_are_those_of_the_generating_functions() -> None:
    """At x = ½ the series converge quickly."""
    x, powers = 0.5, 0.5 ** np.arange(64)
    log = math.log(1 / (1 - x)) / x
    gamma = endless_factor.EXPONENT
    assert endless_factor.data_factor(64) @ powers == pytest.approx((1 - x) ** -0.5 * log**-gamma, rel=1e-12)
    assert endless_factor.inverse(64) @ powers == pytest.approx((1 - x) ** 0.5 * log**gamma, rel=1e-12)
    assert endless_factor.prefix_factor(64) @ powers == pytest.approx((1 - x) ** -0.5 * log**gamma, rel=1e-12)
    for part in (endless_factor.data_factor, endless_factor.inverse, endless_factor.prefix_factor):
        assert np.array_equal(part(70)[:64], part(4096)[:64])  # a longer stream continues the shorter one's noise


def test_the_data_factor_is_positive_and_does_not_increase() -> None:
    r = endless_factor.data_factor(4096)
    assert (np.diff(r) < 0).all() and r[-1] > 0


def test_the_sensitivity_is_an_upper_bound_and_hardly_more() -> None:
    """From below: the rows that are added up, and the integral for the rest, r_n² ≈ 1/(π n (ln n)^2γ)."""
    r, gamma = endless_factor.data_factor(4096), endless_factor.EXPONENT
    known = float(r @ r)
    assert known < endless_factor.square()
    rest = endless_factor.square() - known
    # (Γ(½) ln n)² in place of the exact coefficients: right to the first order in 1/ln n.
    rough = math.log(4096) ** (1 - 2 * gamma) / (math.pi * (2 * gamma - 1))
    assert 0.8 * rough < rest < 1.2 * rough


def test_the_integral_is_two_sided() -> None:
    """The same integral by the midpoint rule, which is no bound, to five digits."""
    gamma = endless_factor.EXPONENT
    theta = (np.arange(400_000) + 0.5) * (2 * math.pi / 3) / 400_000 + math.pi / 3
    near = (
        (np.log(2 * np.sin(theta / 2)) ** 2 + ((math.pi - theta) / 2) ** 2) ** -gamma / (2 * np.sin(theta / 2))
    ).mean()
    # u = sinh(v) spreads the points evenly over the tail.
    v = (np.arange(400_000) + 0.5) * 200 / 400_000
    with np.errstate(over="ignore"):
        u = np.sinh(v)
    angle = 2 * np.arcsin(np.exp(-u) / 2)
    far = ((u**2 + ((math.pi - angle) / 2) ** 2) ** -gamma / np.cos(angle / 2) * np.cosh(v)).sum() * 200 / 400_000
    value = (near * 2 * math.pi / 3 + far) / math.pi
    assert value * (1 - 1e-7) < endless_factor.square() < value * (1 + 1e-4)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_tasks_are_worse_than_the_first_ones(k: int) -> None:
    """Of the first twelve columns, with 4,096 rows: below the bound, and the worst not far below."""
    r = endless_factor.data_factor(4096)
    columns = np.stack([np.concatenate([np.zeros(j), r[: len(r) - j]]) for j in range(12)])
    lengths = {chosen: float(np.linalg.norm(columns[list(chosen)].sum(0))) for chosen in combinations(range(12), k)}
    assert max(lengths, key=lambda chosen: lengths[chosen]) == tuple(range(k))
    assert max(lengths.values()) < toeplitz.first_columns(None, k) < 1.25 * max(lengths.values())
    for j in range(1, k + 1):  # j of k equal charges cover any j tasks
        assert toeplitz.sensitivity(None, k) * math.sqrt(j / k) >= toeplitz.first_columns(None, j) * (1 - 1e-12)


def test_the_error_is_that_of_the_page() -> None:
    """Noise in the sum of all releases, per unit of sensitivity: more than with a horizon, far less than √T."""
    for tasks, expected, finite in ((10, 2.65, 1.56), (100, 4.37, 2.10), (1000, 6.21, 2.62)):
        error = toeplitz.total_noise(None, tasks, 1) * toeplitz.sensitivity(None, 1)
        assert error == pytest.approx(expected, abs=0.01)
        assert toeplitz.coefficients(tasks)[0] == 1
        if tasks <= 100:
            assert toeplitz.total_noise(tasks, tasks, 1) * toeplitz.sensitivity(tasks, 1) == pytest.approx(
                finite, abs=0.01
            )
        assert error < math.sqrt(tasks)


def test_a_plan_without_a_horizon_is_priced_as_one_gaussian() -> None:
    plan = SumPlan(noise=2.0, horizon=None, series="s")
    assert plan.event == events.gaussian(2.0)
    assert plan.std == 2.0 * toeplitz.sensitivity(None, 1)
    assert plan.describe()["horizon"] is None
    recurring = SumPlan(noise=2.0, horizon=None, participations=4, series="s")
    assert recurring.event == events.gaussian(4.0)
    for bad in ({"series": ""}, {"series": "s", "participations": 0}):
        with pytest.raises(PlanError):
            SumPlan(noise=1.0, horizon=None, **bad)  # type: ignore[arg-type]
