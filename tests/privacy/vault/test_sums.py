"""Sums, second moments, counts, accuracy and label sets: scale, bound, and noise where nothing is."""

import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.made_up import REJECTED, Admit, assert_scale, rate_is, scale_is
from tacit import Budget, Declared, LabelPlan, Ledger, SumPlan, Vault
from tacit.certificate.issuance import issue
from tacit.errors import LedgerError, PlanError, VaultError
from tacit.privacy.accounting import toeplitz
from tacit.privacy.randomness.noise import Normals
from tacit.privacy.vault.exits import single_release

PLAN = SumPlan(noise=3.0, clip=2.0)
QUIET = SumPlan(noise=1e-3, clip=2.0)


def sums_noise_is_right(vault: Vault, admit: Admit) -> bool:
    """Only label 0 occurs; every label gets its own noise of standard deviation noise · clip."""
    block = admit(np.zeros((30, 400)), np.zeros(30))
    out = vault.sums(block, PLAN).numpy()
    own = np.corrcoef(out)[np.triu_indices(10, 1)]
    return scale_is(out, 6.0) and bool(np.abs(own).max() < 0.3)


def moment_noise_is_right(vault: Vault, admit: Admit) -> bool:
    """Symmetric, standard deviation s on the diagonal and s/√2 off it, s = noise · clip²."""
    out = vault.second_moment(admit(np.zeros((5, 700)), np.zeros(5)), PLAN).numpy()
    upper = out[np.triu_indices(700, 1)]
    return bool((out == out.T).all()) and scale_is(np.diag(out), 12.0) and scale_is(upper, 12.0 / math.sqrt(2))


def sums_are_bounded(vault: Vault, admit: Admit) -> bool:
    out = vault.sums(admit([[100.0, 0], [0, 0.5]], [3, 4]), QUIET).numpy()
    return bool(abs(out[3, 0] - 2.0) < 0.02 and abs(out[4, 1] - 0.5) < 0.02 and abs(out[3, 1]) < 0.02)


def moment_is_bounded(vault: Vault, admit: Admit) -> bool:
    out = vault.second_moment(admit([[100.0, 0], [0, 0.5]], [3, 4]), QUIET).numpy()
    return bool(abs(out[0, 0] - 4.0) < 0.03 and abs(out[1, 1] - 0.25) < 0.03)


def one_sum_is_right(vault: Vault, admit: Admit) -> bool:
    """Over all labels: one row, one draw of noise, the same bound."""
    quiet = vault.sums(admit([[100.0, 0], [0, 0.5]], [3, 4], task="quiet"), QUIET, by_label=False).numpy()
    noisy = vault.sums(admit(np.zeros((30, 4000)), np.arange(30) % 10), PLAN, by_label=False).numpy()
    bounded = abs(quiet[0, 0] - 2.0) < 0.02 and abs(quiet[0, 1] - 0.5) < 0.02
    return noisy.shape == (1, 4000) and scale_is(noisy, 6.0) and bool(bounded)


CHECKS = [one_sum_is_right, sums_noise_is_right, moment_noise_is_right, sums_are_bounded, moment_is_bounded]


@pytest.mark.parametrize("check", CHECKS)
def test_the_exits_are_right(check: Callable[[Vault, Admit], bool], fixed: Vault, admit_fixed: Admit) -> None:
    assert check(fixed, admit_fixed)


def _patch_noise(patch: pytest.MonkeyPatch, change: Callable[[Tensor], Any]) -> None:
    true = Normals.fill_

    def broken(self: Normals, out: Tensor, scale: float) -> Tensor:
        return out.copy_(change(true(self, out, scale)))

    patch.setattr(Normals, "fill_", broken)


MUTATIONS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[Vault, Admit], bool]]] = [
    (lambda patch: _patch_noise(patch, torch.zeros_like), sums_noise_is_right),
    (lambda patch: _patch_noise(patch, lambda z: 0.7 * z), sums_noise_is_right),
    (lambda patch: _patch_noise(patch, lambda z: 1.3 * z), sums_noise_is_right),
    (lambda patch: _patch_noise(patch, lambda z: z[:400].repeat(len(z) // 400)), sums_noise_is_right),
    (lambda patch: _patch_noise(patch, lambda z: 0.7 * z), moment_noise_is_right),
    (lambda patch: _patch_noise(patch, torch.zeros_like), moment_noise_is_right),
    (
        lambda patch: patch.setattr(single_release, "clip_weights", lambda norms, clip: torch.ones_like(norms)),
        sums_are_bounded,
    ),
    (
        lambda patch: patch.setattr(single_release, "clip_weights", lambda norms, clip: torch.ones_like(norms)),
        moment_is_bounded,
    ),
    (lambda patch: patch.setattr(SumPlan, "std", property(lambda self: self.noise**2)), sums_noise_is_right),
]


@pytest.mark.parametrize(("mutate", "check"), MUTATIONS)
def test_broken_code_is_caught(
    mutate: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Vault, Admit], bool],
    fixed: Vault,
    admit_fixed: Admit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutate(monkeypatch)
    assert not check(fixed, admit_fixed)


def test_the_scales_are_two_sided(fixed: Vault, admit_fixed: Admit) -> None:
    assert_scale(fixed.sums(admit_fixed(np.zeros((3, 300)), np.zeros(3), task="a"), PLAN).numpy(), 6.0)
    moment = fixed.second_moment(admit_fixed(np.zeros((3, 700)), np.ones(3), task="b"), PLAN).numpy()
    assert_scale(np.diag(moment), 12.0)
    assert_scale(moment[np.triu_indices(700, 1)], 12.0 / math.sqrt(2))


def test_counts_and_accuracies_have_noise_of_the_stated_scale(fixed: Vault, admit_fixed: Admit) -> None:
    plan, of_each = SumPlan(noise=5.0), 25
    always_zero = lambda rows: torch.zeros(len(rows), dtype=torch.long)  # noqa: E731
    counts, accuracies = [], []
    for task in range(20):  # a block's charges are composed at every charge, so many on one block take long
        block = admit_fixed(np.ones((40, 2)) * np.arange(40)[:, None], np.zeros(40), size=50, task=f"task {task}")
        fixed.commit({block: [plan] * (2 * of_each)})
        counts += [fixed.count(block, plan) for _ in range(of_each)]
        accuracies += [fixed.accuracy(block, always_zero, plan) for _ in range(of_each)]
    assert_scale(np.asarray(counts) - 40, 5.0)
    assert_scale(np.asarray(accuracies) - 40 / 50, 5.0 / 50)


def test_accuracy_counts_units_over_the_public_size(vault: Vault, admit: Admit) -> None:
    block = admit([[1.0], [-1.0], [2.0], [-2.0]], [1, 1, 1, 0], size=8)
    sign = lambda rows: (rows[:, 0] > 0).long()  # noqa: E731
    assert vault.accuracy(block, sign, SumPlan(noise=1e-4)) == pytest.approx(3 / 8, abs=0.01)


def test_a_predictor_that_looks_at_other_rows_is_refused(vault: Vault, admit: Admit) -> None:
    block = admit([[1.0], [-1.0]], [1, 1])
    with pytest.raises(VaultError, match="whatever the other rows are"):
        vault.accuracy(block, lambda rows: (rows[:, 0] > rows.mean()).long(), PLAN)


def test_labels_outside_the_set_are_skipped_and_absent_ones_get_noise(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((4, 1)), [0, 1, 77, 77], labels=(0, 1, 2))
    out = vault.sums(block, QUIET)
    assert torch.allclose(out[:, 0], torch.tensor([1.0, 1.0, 0.0]), atol=0.02)
    assert float(out[2].abs()) > 0


def test_a_person_is_bounded_as_a_whole(vault: Vault, admit: Admit) -> None:
    person = Budget(epsilon=1e9, delta=1e-5, unit="person")
    x = [[1.0, 0], [1, 0], [0, 1], [0.3, 0]]
    block = admit(x, [0, 0, 1, 0], ids=["ann", "ann", "ann", "bob"], budget=person, records_per_unit=3, size=2)
    plan = SumPlan(noise=1e-4, clip=1.0)
    vault.commit({block: [plan, plan]})
    out = vault.sums(block, plan).numpy()
    scale = 1 / math.sqrt(5)  # ann's matrix is (2, 1)
    assert out[:2] == pytest.approx(np.asarray([[2 * scale + 0.3, 0], [0, scale]]), abs=0.005)
    moment = vault.second_moment(block, plan).numpy()
    assert moment == pytest.approx(np.diag([2 / math.sqrt(5) + 0.09, 1 / math.sqrt(5)]), abs=0.005)


def test_non_finite_features_count_as_nothing(vault: Vault, admit: Admit) -> None:
    out = vault.sums(admit([[math.nan], [math.inf], [1.0]], [0, 0, 0]), QUIET)
    assert float(out[0, 0]) == pytest.approx(1.0, abs=0.02)


def test_through_is_applied_inside(vault: Vault, admit: Admit) -> None:
    half = nn.Linear(1, 2, bias=False).eval()
    half.weight.data.fill_(0.5)
    assert vault.sums(admit([[1.0]], [0]), QUIET, through=half)[0].numpy() == pytest.approx([0.5, 0.5], abs=0.02)


def test_a_map_that_mixes_rows_is_refused(vault: Vault, admit: Admit) -> None:
    class Centre(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0)

    with pytest.raises(VaultError, match="mixes rows"):
        vault.sums(admit([[1.0]], [0]), QUIET, through=Centre().eval())


# -- noise correlated over tasks ---------------------------------------------------------------------------------------


def test_prefix_sums_carry_the_noise_of_the_factorisation(fixed: Vault, admit_fixed: Admit) -> None:
    """After 4 tasks of a horizon of 4 the running sum has far less noise than √4 times that of one release."""
    plan = SumPlan(noise=1.0, horizon=4, series="prototypes")
    outs = [
        fixed.sums(admit_fixed(np.zeros((2 + t, 500)), np.zeros(2 + t), task=str(t)), plan).numpy() for t in range(4)
    ]
    squares = sum(f * f for f in toeplitz.coefficients(4))
    assert_scale(outs[0], math.sqrt(squares))
    assert toeplitz.total_noise(4, 4, 1) * plan.std < 1.4
    assert_scale(np.sum(outs, axis=0), toeplitz.total_noise(4, 4, 1) * plan.std)
    g = toeplitz.inverse(4)
    assert_scale(outs[3], math.sqrt(sum(v * v for v in g)))  # the last column is scaled up the most: 1/‖Ce_0‖
    assert np.corrcoef(outs[0].ravel(), outs[1].ravel())[0, 1] < -0.3
    white = np.asarray(toeplitz.mixing(4, 4, 1)) @ np.stack([out.ravel() for out in outs])
    for row in white:
        assert_scale(row, plan.std)
    assert np.abs(np.corrcoef(white) - np.eye(4)).max() < 0.1
    with pytest.raises(LedgerError, match="horizon"):
        fixed.sums(admit_fixed(np.zeros((9, 500)), np.zeros(9), task="5"), plan)


def test_without_a_horizon_the_noise_is_that_of_its_factorisation_and_goes_on(fixed: Vault, admit_fixed: Admit) -> None:
    """Times C the noise is white; sums over tasks have the noise of the left factor; no number of tasks ends it."""
    plan = SumPlan(noise=1.0, horizon=None, series="prototypes")
    outs = [
        fixed.sums(admit_fixed(np.zeros((2 + t, 500)), np.zeros(2 + t), task=str(t)), plan).numpy() for t in range(6)
    ]
    for tasks in (1, 3, 6):
        assert_scale(np.sum(outs[:tasks], axis=0), toeplitz.total_noise(None, tasks, 1) * plan.std)
    assert_scale(outs[5], math.hypot(*toeplitz.weights(None, 5, 1)) * plan.std)
    own, shared = toeplitz.weights(None, 1, 1)
    stated = shared / math.hypot(own, shared)
    assert np.corrcoef(outs[0].ravel(), outs[1].ravel())[0, 1] == pytest.approx(stated, abs=0.05) and stated < -0.1
    white = np.asarray(toeplitz.mixing(None, 6, 1)) @ np.stack([out.ravel() for out in outs])
    for row in white:
        assert_scale(row, plan.std)
    assert np.abs(np.corrcoef(white) - np.eye(6)).max() < 0.15


def test_a_series_without_a_horizon_goes_on_in_a_later_process(tmp_path: Path) -> None:
    """The noise of earlier tasks is derived again, and a release that was not saved is repeated, not drawn anew."""
    plan = SumPlan(noise=1.0, horizon=None, series="p")

    def task(vault: Vault, number: int) -> np.ndarray:
        said = Declared(stream="s", task=str(number), budget=Budget(epsilon=9.0, delta=1e-5), size=5, labels=(0,))
        return vault.sums(
            vault.admit((np.zeros((3 + number, 8000)), np.zeros(3 + number, dtype=int)), said), plan
        ).numpy()

    outs = []
    for number in range(3):
        with Ledger(tmp_path / "l.ledger") as ledger:
            outs.append(task(Vault(ledger), number))
    assert_scale(np.sum(outs, axis=0), toeplitz.total_noise(None, 3, 1) * plan.std)
    again = []
    for _ in range(2):
        with (
            suppress(KeyboardInterrupt),
            Ledger(tmp_path / "l.ledger") as ledger,
            Vault(ledger, tmp_path / "st") as vault,
            vault.until_saved(),
        ):
            again.append(task(vault, 3))
            raise KeyboardInterrupt
    assert np.array_equal(again[0], again[1])
    assert_scale(np.sum([*outs, again[1]], axis=0), toeplitz.total_noise(None, 4, 1) * plan.std)


def test_a_task_is_in_a_series_once(vault: Vault, admit: Admit) -> None:
    """Its units would meet the same z twice, and be charged as if the two were independent."""
    plan = SumPlan(noise=1.0, horizon=4, series="p")
    block = admit(np.arange(40)[:, None], np.zeros(40))
    train, memory = vault.split(block, {"train": 0.5, "memory": 0.5})
    vault.commit({train: [plan, plan], memory: [plan]})
    vault.sums(train, plan)
    for part in (train, memory):
        with pytest.raises(LedgerError, match="in this series already"):
            vault.sums(part, plan)


def test_a_ledger_that_was_copied_never_gives_noise_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies go on with the second task of a series, on data that differ by one record: all they share is z_1. The
    second is on another machine, and somebody says there that the first is out of use."""
    plan = SumPlan(noise=1.0, horizon=4, series="p")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()

    def task(vault: Vault, number: int, x: np.ndarray) -> np.ndarray:
        said = Declared(stream="s", task=str(number), budget=Budget(epsilon=9.0, delta=1e-5), size=5, labels=(0,))
        return vault.sums(vault.admit((x, np.zeros(len(x), dtype=int)), said), plan).numpy()

    with Ledger(tmp_path / "one" / "l.ledger") as ledger:
        task(Vault(ledger), 0, np.zeros((3, 8000)))
    for file in (tmp_path / "one").iterdir():
        shutil.copy2(file, tmp_path / "two" / file.name)
    outs = []
    for name, rows in (("one", 4), ("two", 5)):
        monkeypatch.setenv("TACIT_STATE", str(tmp_path / f"{name}-machine"))
        if name == "two":
            Ledger.reanchor(tmp_path / name / "l.ledger", by="o", why="moved")
        with Ledger(tmp_path / name / "l.ledger") as ledger:
            outs.append(task(Vault(ledger), 1, np.zeros((rows, 8000))))
    assert_scale(outs[0] - outs[1], math.sqrt(2) * plan.std * toeplitz.easing(4, 1)[1])


def test_no_bound_for_a_unit_of_more_tasks_than_a_series_was_priced_for(tmp_path: Path) -> None:
    """Noise correlated over tasks is not independent: rules that add up tasks say nothing."""
    budget = Budget(epsilon=2.0, delta=1e-5)
    plans = (SumPlan.for_budget(budget, horizon=horizon, series="p") for horizon in (3, None))
    for plan, known in (*((plan, False) for plan in plans), (SumPlan.for_budget(budget), True)):
        with Ledger(tmp_path / f"{plan.horizon}.ledger") as ledger:
            vault = Vault(ledger)
            for number in range(3):
                said = Declared(stream="s", task=str(number), budget=budget, size=5, labels=(0,))
                block = vault.admit((np.ones((4 + number, 6)) * number, np.zeros(4 + number, dtype=int)), said)
                vault.sums(block, plan)
            rules = issue(vault.ledger, block, method="m").claims.certified.over_tasks
        assert rules[0].applies and rules[0].epsilon == pytest.approx(2.0, abs=1e-3)
        assert [rule.epsilon is not None for rule in rules[1:]] == [known] * 3


@pytest.mark.parametrize("horizon", [1, 2, 7, 10])
def test_every_unit_of_one_task_moves_its_series_alike(horizon: int) -> None:
    """Columns of the scaled factor are all as long as the first: that is what the noise was set for."""
    scaled = np.asarray(toeplitz.mixing(horizon, horizon, 1))
    assert np.linalg.norm(scaled, axis=0) == pytest.approx([toeplitz.sensitivity(horizon, 1)] * horizon)
    noise = np.asarray(toeplitz.easing(horizon, 1))[:, None] * [
        [toeplitz.inverse(horizon)[i - j] if i >= j else 0.0 for j in range(horizon)] for i in range(horizon)
    ]
    assert scaled @ noise == pytest.approx(np.eye(horizon))  # what the vault adds is the inverse of what is billed
    for tasks in range(1, horizon + 1):
        assert toeplitz.total_noise(horizon, tasks, 1) == pytest.approx(np.linalg.norm(noise[:tasks].sum(0)))


@pytest.mark.parametrize(("horizon", "early"), [(2, 0.5), (7, 0.1), (10, 0.3), (10, 0.9)])
def test_with_a_share_of_the_early_releases_units_move_their_series_as_before(horizon: int, early: float) -> None:
    """Every column is as long as without it, and what the vault adds is the inverse of what is billed."""
    factor = np.asarray(toeplitz.mixing(horizon, horizon, 1, early))
    assert np.linalg.norm(factor, axis=0) == pytest.approx([toeplitz.sensitivity(horizon, 1)] * horizon, rel=1e-12)
    assert (np.triu(factor, 1) == 0).all()
    noise = np.zeros((horizon, horizon))
    for position in range(horizon):
        noise[position, : position + 1] = toeplitz.weights(horizon, position, 1, early)[::-1]
    assert factor @ noise == pytest.approx(np.eye(horizon))
    for tasks in range(1, horizon + 1):
        total = toeplitz.total_noise(horizon, tasks, 1, early)
        assert total == pytest.approx(np.linalg.norm(noise[:tasks].sum(0)))
        assert np.asarray(toeplitz.mixing(horizon, tasks, 1, early)) == pytest.approx(factor[:tasks, :tasks])
        assert (total < toeplitz.total_noise(horizon, tasks, 1)) == (tasks == horizon)


def test_the_last_release_has_the_noise_of_its_share(fixed: Vault, admit_fixed: Admit) -> None:
    plan = SumPlan(noise=1.0, horizon=4, series="late", early=0.3)
    outs = [
        fixed.sums(admit_fixed(np.zeros((2 + t, 500)), np.zeros(2 + t), task=str(t)), plan).numpy() for t in range(4)
    ]
    assert_scale(outs[0], toeplitz.sensitivity(4, 1) / math.sqrt(0.3))
    assert_scale(np.sum(outs, axis=0), toeplitz.total_noise(4, 4, 1, 0.3) * plan.std)
    white = np.asarray(toeplitz.mixing(4, 4, 1, 0.3)) @ np.stack([out.ravel() for out in outs])
    for row in white:
        assert_scale(row, plan.std)
    assert np.abs(np.corrcoef(white) - np.eye(4)).max() < 0.1
    assert "early" not in SumPlan(noise=1.0, horizon=4, series="late").describe()
    assert plan.describe()["early"] == 0.3 and plan.event == SumPlan(noise=1.0, horizon=4, series="late").event


def test_units_of_several_tasks_get_the_unscaled_factor() -> None:
    assert toeplitz.easing(5, 2) == (1.0,) * 5
    plain = np.asarray(toeplitz.mixing(5, 5, 2))
    assert np.linalg.norm(plain[:, :2].sum(1)) == pytest.approx(toeplitz.first_columns(5, 2))


def test_toeplitz_numbers() -> None:
    assert sum(f * f for f in toeplitz.coefficients(10)) == pytest.approx(1.791, abs=1e-3)
    f, g = toeplitz.coefficients(6), toeplitz.inverse(6)
    product = [sum(f[i] * g[k - i] for i in range(k + 1)) for k in range(6)]
    assert product == pytest.approx([1, 0, 0, 0, 0, 0])
    square = [sum(f[i] * f[k - i] for i in range(k + 1)) for k in range(6)]
    assert square == pytest.approx([1.0] * 6)  # C·C is the prefix sum


@pytest.mark.parametrize(("horizon", "k"), [(4, 1), (4, 2), (6, 3), (6, 6), (10, 9), (10, 10)])
def test_sensitivity_is_the_worst_over_all_subsets(horizon: int, k: int) -> None:
    from itertools import combinations

    f = toeplitz.coefficients(horizon)
    c = np.asarray([[f[i - j] if i >= j else 0.0 for j in range(horizon)] for i in range(horizon)])
    worst = {
        j: max(np.linalg.norm(c[:, list(s)].sum(1)) for s in combinations(range(horizon), j)) for j in range(1, k + 1)
    }
    assert toeplitz.first_columns(horizon, k) == pytest.approx(worst[k])
    for j in range(1, k + 1):  # j of k equal charges cover any j tasks
        assert toeplitz.sensitivity(horizon, k) * math.sqrt(j / k) >= worst[j] * (1 - 1e-12)


def test_recurring_units_are_charged_for_the_correlated_noise() -> None:
    """T = 10, noise for ε = 1 at one task; in two tasks it is 1.92, in ten 7.84."""
    from tacit.privacy.accounting import calibrate, events
    from tacit.privacy.accounting import epsilon as accounting

    budget = Budget(epsilon=1.0, delta=1e-5)
    sigma = calibrate.gaussian_noise(budget)
    for k, epsilon in ((1, 1.0), (2, 1.92), (10, 7.84)):
        noise = sigma * toeplitz.first_columns(10, 1) / toeplitz.first_columns(10, k)
        assert accounting.epsilon(events.gaussian(noise), 1e-5) == pytest.approx(epsilon, abs=0.01)


def test_calibrated_sum_plans_fit_exactly(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    a, b = (SumPlan.for_budget(budget, share=share) for share in (0.15, 0.85))
    block = admit(np.ones((3, 2)), np.zeros(3), budget=budget)
    vault.commit({block: [a, b]})
    vault.second_moment(block, a)
    vault.sums(block, b)
    assert ledger.epsilon(block.stream_id) == pytest.approx(1.0, abs=1e-3)
    k = 3
    recurring = SumPlan.for_budget(budget, horizon=5, participations=k, series="x")
    other = admit(np.ones((4, 2)), np.zeros(4), stream="people", budget=budget, tasks_per_unit=k)
    vault.sums(other, recurring)
    independent = SumPlan.for_budget(budget, tasks_per_unit=k)
    third = admit(np.ones((5, 2)), np.zeros(5), stream="more", budget=budget, tasks_per_unit=k)
    vault.sums(third, independent)


def test_participations_must_cover_the_declared_tasks_per_unit(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((4, 2)), np.zeros(4), tasks_per_unit=3)
    with pytest.raises(VaultError, match="participations"):
        vault.sums(block, SumPlan(noise=1.0, horizon=5, participations=2, series="x"))


@pytest.mark.parametrize(
    "bad",
    [
        {"noise": 0},
        {"noise": 1, "horizon": 0},
        {"noise": 1, "horizon": 5},
        {"noise": 1, "horizon": None},
        {"noise": 1, "horizon": 2, "series": "x", "participations": 3},
        {"noise": 1, "participations": 2},
        {"noise": 1, "clip": math.inf},
        {"noise": 1, "early": 0.5},
        {"noise": 1, "horizon": 5, "series": "x", "early": 1.0},
        {"noise": 1, "horizon": None, "series": "x", "early": 0.5},
        {"noise": 1, "horizon": 5, "series": "x", "participations": 2, "early": 0.5},
    ],
)
def test_bad_sum_plans_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        SumPlan(**bad)


# -- label sets --------------------------------------------------------------------------------------------------------


def test_candidates_are_kept_by_noisy_counts(vault: Vault, admit: Admit) -> None:
    y = ["cat"] * 200 + ["dog"] * 100 + ["eel"]
    block = admit(np.arange(301)[:, None], y, labels=None)
    found = vault.label_set(block, LabelPlan(noise=5.0, candidates=("cat", "dog", "eel", "fox")))
    assert found == ("cat", "dog")
    known = vault.with_labels(block, found)
    assert known.labels == found


def test_discovery_shows_frequent_labels_and_hides_rare_ones(vault: Vault, admit: Admit) -> None:
    y = ["flu"] * 300 + ["rare"]
    block = admit(np.arange(301)[:, None], y, labels=None)
    assert vault.label_set(block, LabelPlan(noise=2.0, delta=1e-6)) == ("flu",)


@pytest.mark.parametrize("labels_per_unit", [1, 3])
def test_a_label_of_one_unit_is_shown_with_probability_delta(labels_per_unit: int) -> None:
    """The additive δ is what it says: at most δ for any number of labels that the unit has, and reached by one."""
    plan = LabelPlan(noise=1.0, delta=0.1, labels_per_unit=labels_per_unit)
    rng = np.random.default_rng(0)
    shown = []
    for m in range(1, labels_per_unit + 1):
        counts = 1 / math.sqrt(m) + plan.std * rng.normal(size=(40_000, m))
        shown.append(float((counts >= plan.cut).any(axis=1).mean()))
    assert max(shown) == pytest.approx(0.1, abs=0.006)
    cut_without_the_unit = plan.cut - 1 / math.sqrt(labels_per_unit)  # a threshold that forgets the unit's own weight
    leaked = (1 / math.sqrt(labels_per_unit) + rng.normal(size=(40_000, labels_per_unit)) >= cut_without_the_unit).any(
        axis=1
    )
    assert leaked.mean() > 0.15


def test_label_set_adds_its_delta_to_the_charge(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(np.arange(3)[:, None], ["a", "b", "b"], labels=None, budget=Budget(epsilon=2.0, delta=1e-5))
    with pytest.raises(Exception, match="infinity"):
        vault.label_set(block, LabelPlan(noise=10.0, delta=1e-5))
    vault.label_set(block, LabelPlan(noise=10.0, delta=1e-6))
    assert 0 < ledger.epsilon(block.stream_id) < 2.0


def test_label_noise_has_the_stated_scale(fixed: Vault, admit_fixed: Admit) -> None:
    """Share of empty candidates above the cut, by the normal law; a 30 % smaller scale would be seen."""
    n, std, cut = 4000, 3.0, 3.0
    block = admit_fixed(np.arange(2)[:, None], [-1, -2], labels=None)
    plan = LabelPlan(noise=std, candidates=tuple(range(n)), threshold=cut)
    kept = len(fixed.label_set(block, plan))
    assert rate_is(kept, n, 0.15866)
    assert not rate_is(kept, n, 0.0766, REJECTED)  # scale 0.7
    assert not rate_is(kept, n, 0.2209, REJECTED)  # scale 1.3


def test_no_label_set_no_sums(vault: Vault, admit: Admit) -> None:
    with pytest.raises(VaultError, match="label_set"):
        vault.sums(admit([[1.0]], ["x"], labels=None), PLAN)
