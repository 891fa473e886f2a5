"""Metrics of the accuracy matrix: golden values, edges, and that nothing is guessed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from tacit import metrics
from tacit.errors import PlanError

GOLDEN = np.array([[0.60, 0.10, 0.12], [0.80, 0.85, 0.15], [0.90, 0.88, 0.95]])
LOWER = np.where(np.tri(3, dtype=bool), GOLDEN, np.nan)  # only tasks that were learned are measured
OF_TWO_TASKS = (metrics.forgetting, metrics.worst_forgetting, metrics.backward_transfer)


def test_golden_values() -> None:
    assert metrics.average_accuracy(GOLDEN) == pytest.approx((0.90 + 0.88 + 0.95) / 3)
    assert metrics.forgetting(GOLDEN) == pytest.approx(-0.065)
    assert metrics.worst_forgetting(GOLDEN) == pytest.approx(-0.03)
    assert metrics.backward_transfer(GOLDEN) == pytest.approx((0.30 + 0.03) / 2)
    assert metrics.forward_transfer(GOLDEN, [0.1, 0.2, 0.1]) == pytest.approx((0.10 - 0.2 + 0.15 - 0.1) / 2)


def test_weighted_by_test_rows_the_average_is_the_accuracy_on_all_of_them() -> None:
    # Parts of 10, 30 and 0 rows, of which 9 and 15 are answered rightly after the last task: 24 of 40.
    a = [[1.0, 0.2, np.nan], [0.9, 0.8, np.nan], [0.9, 0.5, np.nan]]
    rows = [10, 30, 0]
    assert metrics.average_accuracy(a, rows) == pytest.approx(24 / 40)
    assert metrics.average_curve(a, rows) == pytest.approx([1.0, 33 / 40, 24 / 40])
    assert metrics.forgetting(a, rows) == pytest.approx((10 * 0.1 + 30 * 0.3) / 40)
    assert metrics.worst_forgetting(a, rows) == pytest.approx(0.3)
    assert metrics.backward_transfer(a, rows) == pytest.approx(-(10 * 0.1 + 30 * 0.3) / 40)
    assert metrics.forward_transfer(a, [0.5, 0.1, np.nan], rows) == pytest.approx(0.1)
    assert math.isnan(metrics.average_accuracy(a)) and math.isnan(metrics.average_curve(a, [0, 1, 1])[0])
    for metric in (metrics.average_accuracy, *OF_TWO_TASKS):
        assert metric(GOLDEN, [7, 7, 7]) == pytest.approx(metric(GOLDEN))
    with pytest.raises(PlanError, match="weights must be 3 numbers"):
        metrics.average_accuracy(a, [1, 2])


def test_forgetting_is_positive_when_a_task_is_lost() -> None:
    a = [[0.9, np.nan, np.nan], [0.7, 0.8, np.nan], [0.5, 0.75, 0.9]]
    assert metrics.forgetting(a) == pytest.approx((0.4 + 0.05) / 2)
    assert metrics.worst_forgetting(a) == pytest.approx(0.4)
    assert metrics.backward_transfer(a) == pytest.approx(-(0.4 + 0.05) / 2)


def test_forgetting_of_each_learner_is_that_of_its_own_tasks() -> None:
    a = np.array([[0.9, 0.1, 0.1, 0.1], [0.6, 0.8, 0.1, 0.1], [0.0, 0.0, 0.7, 0.1], [0.0, 0.0, 0.5, 0.9]])
    assert metrics.forgetting_by(a, [[0, 1], range(2, 4)]) == pytest.approx([0.3, 0.2])
    assert metrics.forgetting_by(a, [range(4)]) == [metrics.forgetting(a)]
    assert math.isnan(metrics.forgetting_by(a, [[0, 1, 2], [3]])[1])
    for wrong in ([], [4]):
        with pytest.raises(PlanError, match="a group must contain tasks from 0 to 3"):
            metrics.forgetting_by(a, [wrong])


def test_what_was_not_measured_before_a_task_is_not_needed() -> None:
    for metric in (metrics.average_accuracy, *OF_TWO_TASKS):
        assert metric(LOWER) == pytest.approx(metric(GOLDEN))
    assert math.isnan(metrics.forward_transfer(LOWER, [0.1, 0.1, 0.1]))


def test_what_was_not_measured_is_never_guessed() -> None:
    last = GOLDEN.copy()
    last[2, 0] = np.nan
    column = GOLDEN.copy()
    column[:2, 0] = np.nan
    for a in (last, column):
        assert math.isnan(metrics.forgetting(a)) and math.isnan(metrics.worst_forgetting(a))
        assert math.isnan(metrics.backward_transfer(a))
    assert math.isnan(metrics.average_accuracy(last))
    assert metrics.average_accuracy(column) == metrics.average_accuracy(GOLDEN)


def test_a_single_task_has_an_accuracy_and_nothing_else() -> None:
    assert metrics.average_accuracy([[0.7]]) == 0.7
    assert all(math.isnan(metric([[0.7]])) for metric in OF_TWO_TASKS)
    assert math.isnan(metrics.forward_transfer([[0.7]], [0.1]))


def test_a_noisy_accuracy_may_lie_outside_the_unit_interval() -> None:
    assert metrics.forgetting([[1.03, np.nan], [-0.01, 0.5]]) == pytest.approx(1.04)


def test_both_readings_of_the_learning_curve() -> None:
    curves = [[0.1, 0.5, 0.7, 0.9], [0.3, 0.5, 0.9, 0.1]]  # Z = 0.2, 0.5, 0.8, …
    assert metrics.lca_paper(curves, beta=2) == pytest.approx(0.5)
    assert metrics.lca_trapezium(curves, beta=2) == pytest.approx((0.35 + 0.65) / 2)
    assert metrics.lca_paper(curves, beta=1) == pytest.approx(0.35)
    assert metrics.lca_paper([[0.1, *[0.9] * 10]]) == pytest.approx((0.1 + 9.0) / 11)
    assert metrics.lca_trapezium([[0.1, *[0.9] * 10]]) == pytest.approx((0.5 + 8.1) / 10)
    assert metrics.lca_paper(curves, beta=0) == pytest.approx(0.2)  # before any learning


def test_a_auc_is_the_mean_over_time() -> None:
    assert metrics.a_auc([0.2, 0.4, 0.9]) == pytest.approx(0.5)


def test_summary_over_seeds() -> None:
    found = metrics.summarise([0.5, 0.6, 0.7])
    assert (found.mean, found.std, found.seeds) == (pytest.approx(0.6), pytest.approx(0.1), 3)
    assert str(found) == "0.600 ± 0.100"
    one = metrics.summarise([0.5])
    assert one.mean == 0.5 and math.isnan(one.std) and str(one) == "0.500"
    assert metrics.summarise([-0.2, 0.1]).mean == pytest.approx(-0.05)  # forgetting may be negative
    assert math.isnan(metrics.summarise([0.5, math.nan]).mean)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: metrics.average_accuracy([0.1, 0.2]), r"must have 2 dimension\(s\) .* got shape \(2,\)"),
        (lambda: metrics.forgetting([[0.1, 0.2]]), r"must be square, .* got \(1, 2\)"),
        (lambda: metrics.forgetting(np.empty((0, 0))), "not be empty"),
        (lambda: metrics.average_accuracy([[0.1], [0.2, 0.3]]), "must be numbers in 2"),
        (lambda: metrics.forward_transfer(GOLDEN, [0.1]), "must have 3 accuracies, one for each task, got 1"),
        (lambda: metrics.lca_paper([[0.1] * 10]), "beta must be a whole number from 0 to 9.*got 10"),
        (lambda: metrics.lca_trapezium([[0.1] * 3], beta=0), "beta >= 1, got 0"),
        (lambda: metrics.lca_paper([[0.1] * 3], beta=True), "got True"),
        (lambda: metrics.a_auc([]), "not be empty"),
        (lambda: metrics.summarise([]), "one number per seed"),
    ],
)
def test_wrong_shapes_are_one_sentence(call: object, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        call()  # type: ignore[operator]


@given(arrays(float, st.integers(2, 6).map(lambda n: (n, n)), elements=st.floats(0, 1)))
def test_relations_between_the_metrics(a: np.ndarray) -> None:
    assert -1 <= metrics.forgetting(a) <= metrics.worst_forgetting(a) + 1e-12 <= 1 + 1e-12
    assert metrics.forgetting(a) >= -metrics.backward_transfer(a) - 1e-12  # the best is at least the first
    assert metrics.forward_transfer(a, np.zeros(len(a))) >= 0


@given(arrays(float, (2, 11), elements=st.floats(0, 1)))
def test_the_readings_of_lca_differ_by_their_ends(curves: np.ndarray) -> None:
    z = curves.mean(0)
    both = (11 * metrics.lca_paper(curves) - (z[0] + z[-1]) / 2) / 10
    assert metrics.lca_trapezium(curves) == pytest.approx(both, abs=1e-12)


def test_p_values_are_those_of_scipys_paired_test() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.uniform(size=9), rng.uniform(size=9)
    found = metrics.p_curve(one, other)
    assert len(found) == 8
    for place, value in enumerate(found):
        tau = place + 2
        assert value == pytest.approx(stats.ttest_rel(one[:tau], other[:tau]).pvalue)
    assert metrics.p_seeds(one, other) == pytest.approx(stats.ttest_rel(one, other).pvalue)
    assert metrics.p_curve(other, one) == pytest.approx(found)


def test_p_values_fall_with_every_task_of_a_difference_that_lasts() -> None:
    """Why they are no evidence: tasks are not independent samples."""
    drift = np.cumsum(np.full(20, 0.01)) % 0.02
    found = metrics.p_curve(0.6 + drift, np.full(20, 0.59))
    assert found[-1] < 1e-8 and found[-1] < found[4] < found[0]


def test_p_values_at_the_edges() -> None:
    same = [0.5, 0.6, 0.7]
    assert metrics.p_curve(same, same) == [1.0, 1.0]
    assert metrics.p_curve([0.5, 0.5], [0.25, 0.25]) == [0.0]
    assert math.isnan(metrics.p_seeds([0.5], [0.4])) and math.isnan(metrics.p_seeds([0.5, math.nan], [0.4, 0.3]))
    with pytest.raises(PlanError, match="got 3 and 2"):
        metrics.p_curve(same, same[:2])
    with pytest.raises(PlanError, match="got 1 and 1"):
        metrics.p_curve([0.5], [0.5])
    with pytest.raises(PlanError, match="the same seeds twice, got 3 and 2"):
        metrics.p_seeds(same, same[:2])


def test_the_average_curve() -> None:
    assert metrics.average_curve([[0.6, 0.1], [0.8, 0.9]]) == pytest.approx([0.6, 0.85])
