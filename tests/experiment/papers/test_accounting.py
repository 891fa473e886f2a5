"""Figs. 3 and 4 of Hassanpour 2022: three readings against golden values, the files, and what is said beside them."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.certificate.claims import moments_accountant, moments_delta, stream_wide
from tacit.cli import app
from tacit.errors import ConfigError, PlanError
from tacit.experiment.papers import accounting
from tacit.experiment.papers.accounting import (
    CAPTION_DELTA,
    CERTIFIED,
    AccountingSetting,
    certified,
    formula,
    halts_after,
    measured_at,
    printed,
    run,
)
from tacit.privacy.accounting.epsilon import epsilon

PMNIST = AccountingSetting(name="PMNIST", records=60_000, batch=10)
SCIFAR = AccountingSetting(name="SCIFAR", records=2_500, batch=10)
ONE, EVERY, CLIPPED, ORDERED, ORDERED_CLIPPED = CERTIFIED
NOISES = (2.0, 4.0, 8.0)
GOLDEN = {  # PMNIST, δ = 1e-5, on a grid of 1e-5: (curve, tasks) → σ = 2, 4, 8
    (ONE, 1): (0.0181, 0.0078, 0.0035),
    (EVERY, 9): (0.0610, 0.0269, 0.0124),
    (CLIPPED, 9): (0.165, 0.061, 0.027),
    (ORDERED, 9): (1.993, 0.926, 0.434),
    (ORDERED_CLIPPED, 9): (4.377, 1.993, 0.926),
}


def values(points: list[accounting.AccountingPoint], of: str = "epsilon") -> dict[str, float]:
    return {point.curve: point.value for point in points if point.of == of}


@pytest.mark.parametrize("place", range(3))
def test_certified_values_are_the_golden_ones_or_a_little_tighter(place: int) -> None:
    for (curve, tasks), golden in GOLDEN.items():
        found = epsilon(CERTIFIED[curve](PMNIST, NOISES[place], tasks), CAPTION_DELTA)
        assert 0.97 * golden[place] <= found <= golden[place] * 1.005, (curve, tasks)


def test_a_record_of_one_task_loses_the_same_however_many_tasks_there_are() -> None:
    few, many = (values(certified(SCIFAR, 4.0, tasks, (1e-4,), 2.0)) for tasks in (1, 12))
    assert few[ONE] == many[ONE] == few[EVERY] < many[EVERY] < many[CLIPPED]
    assert many[ORDERED] < many[ORDERED_CLIPPED]


def test_what_is_printed() -> None:
    found = {(p.tasks, p.noise): p.value for p in printed("PMNIST")}
    assert found == {(9, 2): 0.41, (9, 4): 0.19, (9, 8): 0.12, (6, 2): 0.35, (6, 4): 0.16, (6, 8): 0.115}
    found = {(p.tasks, p.noise): p.value for p in printed("SCIFAR")}
    assert found == {(9, 2): 2.2, (9, 4): 1.22, (9, 8): 0.5, (6, 2): 1.8, (6, 4): 0.81, (6, 8): 0.4}


@pytest.mark.parametrize("plan", [PMNIST, SCIFAR], ids=lambda plan: plan.name)
def test_printed_values_do_not_follow_from_the_settings_and_a_fit_comes_near(plan: AccountingSetting) -> None:
    for point in printed(plan.name):
        learner, record, fitted = values(formula(plan, point.noise, point.tasks, 17, (CAPTION_DELTA,), 2.0)).values()
        assert record < learner < 0.85 * point.value
        assert halts_after(plan, point.noise, point.value) > 10 * point.tasks
        if (plan.name, point.tasks, point.noise) != ("SCIFAR", 9, 4):  # 1.22 is off the line of all the others
            assert fitted == pytest.approx(point.value, rel=0.07)


def test_the_known_fit() -> None:
    for tasks, golden in ((9, (0.414, 0.195, 0.116)), (6, (0.348, 0.161, 0.108))):
        found = [stream_wide(1e-3, noise, 2_800 * tasks, CAPTION_DELTA).epsilon for noise in NOISES]
        assert found == pytest.approx(golden, abs=1.1e-3)


def test_one_use_in_a_known_order_costs_more_than_every_printed_budget() -> None:
    for data in ("PMNIST", "SCIFAR"):
        for point in printed(data):
            found = values(certified(SCIFAR, point.noise, 1, (CAPTION_DELTA,), 2.0))
            assert point.value < found[ORDERED_CLIPPED]


def test_delta_of_the_moments_accountant_is_the_inverse_of_its_epsilon() -> None:
    for rate, noise, steps in ((0.004, 2.0, 2_250), (0.01, 1.0, 500), (1.0, 8.0, 3)):
        spent = moments_accountant(rate, noise, steps, 1e-5, 128)
        assert moments_delta(rate, noise, steps, spent, 128) == pytest.approx(1e-5, rel=1e-6)
    assert moments_delta(0.01, 1.0, 500, 0.0, 128) == 1.0
    with pytest.raises(PlanError, match="epsilon >= 0"):
        moments_delta(0.01, 1.0, 500, -1.0)


def test_more_noise_and_fewer_tasks_cost_less_in_both_figures() -> None:
    for of in ("epsilon", "delta"):
        for smaller, larger in pairwise(NOISES):
            mine, other = (values(certified(SCIFAR, noise, 2, (1e-4,), 1.0), of) for noise in (smaller, larger))
            assert all(other[curve] < mine[curve] for curve in CERTIFIED)
            mine, other = (values(formula(SCIFAR, noise, 3, 17, (1e-4,), 1.0), of) for noise in (smaller, larger))
            assert all(other[curve] < mine[curve] for curve in mine)


def test_where_bounds_are_computed() -> None:
    assert measured_at(17) == [1, 3, 6, 9, 12, 17] and measured_at(6) == [1, 3, 6] and measured_at(1) == [1]


def test_a_run_leaves_a_table_a_figure_and_says_which_reading_is_which(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ["run", "hassanpour2022/accounting", "--out", str(tmp_path / "r")]
    small = ["--set", "tasks=6", "--set", "noises=[8]", "--set", "pmnist=1000", "--set", "scifar=500"]
    shown = CliRunner(env={"COLUMNS": "160"}).invoke(app, [*words, *small])
    assert shown.exit_code == 0, shown.output
    assert "printed: GPB of a learner that halts here" in shown.stdout and "after 6 tasks" in shown.stdout
    said = [shown.stdout.replace("\n", " ").index(words) for words in (
        "do not follow from the stated settings", "known order: ", "whole batch clipped: ", "printed: GPB of a learner"
    )]  # fmt: skip
    assert said == sorted(said)  # what follows, what the words mean, then the tables
    with (tmp_path / "r" / "accounting.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert {row["reading"] for row in rows} == {"printed", "formula", "certified"}
    per_task = 2 * 3 * 3  # data sets, curves, ε at two δ and δ at one ε
    assert len(rows) == 2 * 6 + 6 * per_task + 3 * 2 * 5 * 3
    one = next(r for r in rows if (r["curve"], r["of"], r["at"], r["data"]) == (ORDERED, "epsilon", "1e-05", "PMNIST"))
    assert float(one["value"]) == pytest.approx(0.4344, abs=1e-4)
    assert (tmp_path / "r" / "accounting.png").read_bytes().startswith(b"\x89PNG")
    said = CliRunner().invoke(app, [*words, *small, "--json", "--quiet"])
    found = json.loads(said.stdout)
    assert said.exit_code == 0 and found["tasks"] == 6 and len(found["halts"]) == 12


def test_wrong_settings() -> None:
    for wrong in ({"noises": ()}, {"passes": 0}, {"batch": 0}, {"batch": 3_000}):
        with pytest.raises(ConfigError, match="accounting needs"):
            run(Path("never"), **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tasks must be a whole number >= 1"):
        run(Path("never"), tasks=0)
    assert not Path("never").exists()
