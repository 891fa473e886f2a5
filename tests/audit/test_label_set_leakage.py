"""The attack on label sets: it refutes sets that are read from data, and is consistent with all others."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.audit import label_set_leakage
from tacit.audit.label_set_leakage import Leakage, audit
from tacit.cli import app
from tacit.errors import PlanError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import SumPlan, Vault


@pytest.fixture(scope="module")
def leakages() -> list[Leakage]:
    return audit(seed=0)


def test_a_label_set_from_data_distinguishes_neighbours(leakages: list[Leakage]) -> None:
    """Prop. 4.6 in both forms, and F.1: certainty, which no (ε, δ) with δ < 1 allows."""
    leaks = [leakage for leakage in leakages if leakage.space == "from data"]
    assert {leakage.neighbours for leakage in leaks} == {"the task's labels", "the union so far", "the empty task"}
    assert all(leakage.advantage == 1.0 and not leakage.consistent for leakage in leaks)


def test_other_label_sets_do_not_distinguish_neighbours(leakages: list[Leakage]) -> None:
    others = [leakage for leakage in leakages if leakage.space != "from data"]
    assert len(others) == 15 and len({leakage.space for leakage in others}) == 5
    assert all(leakage.consistent and leakage.advantage < 1 for leakage in others)
    assert {round(leakage.bound, 4) for leakage in leakages} == {0.4621}  # (e − 1 + 2δ)/(e + 1)


def test_too_little_noise_is_detected() -> None:
    """The attack can refute a guarantee: with the noise of ε = 60, its advantage exceeds what ε = 1 allows."""
    budget, coins = Budget(epsilon=60.0, delta=1e-5), np.arange(200) % 2 == 0
    space = label_set_leakage.spaces(budget, len(coins))["declared constant"]
    with Ledger.throwaway() as ledger:
        sums = SumPlan.for_budget(budget)
        trial = label_set_leakage.Trial(name="thin", space=space, budget=budget, sums=sums, vault=Vault(ledger))
        advantage, least = label_set_leakage._advantage(trial.crowd("one", coins, tasks=1), coins)
    assert advantage > 0.8 and least > 0.4621


def test_an_audit_that_could_show_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="no leak could be shown at ε = 1; use 34"):
        audit(records=10)
    with pytest.raises(PlanError, match="near 1; look at one below 5"):
        audit(epsilon=20.0)


def test_the_command_prints_the_table(leakages: list[Leakage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_set_leakage, "audit", lambda **_: leakages)
    shown = CliRunner().invoke(app, ["audit", "label-space"])
    assert shown.exit_code == 0 and shown.output.count("NOT PRIVATE") == 3 and shown.output.count("consistent") == 15
    listed = json.loads(CliRunner().invoke(app, ["audit", "label-space", "--json"]).output)
    assert len(listed) == 18 and {"neighbours", "space", "advantage", "bound", "consistent"} <= set(listed[0])
