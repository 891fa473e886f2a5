"""`tacit ledger show` and `meter`: what one person may lose, and what is left."""

import json
from pathlib import Path

import pytest

from support.shell import tacit
from tacit import Budget, Ledger
from tacit.privacy.accounting.events import gaussian
from tacit.privacy.ledger import StreamTerms

WORK = {"holder": "h", "kind": "sums", "plan": {}}


@pytest.fixture
def months(tmp_path: Path) -> Path:
    """Twelve months, a person in all of them; and a second stream of persons."""
    budget = Budget(epsilon=2.0, delta=1e-5, unit="person")  # type: ignore[arg-type]
    with Ledger(tmp_path / "l") as ledger:
        stream = ledger.stream(StreamTerms(name="visits", budget=budget, tasks_per_unit=12))
        for month in range(12):
            block = ledger.block(stream, f"2026-{month + 1:02d}", size=100).id
            ledger.bill([(block, gaussian(7.5))], pin=str(month), **WORK)  # type: ignore[arg-type]
        other = ledger.stream(StreamTerms(name="scans", budget=budget))
        ledger.bill([(ledger.block(other, "s", size=10).id, gaussian(4.0))], pin="s", **WORK)  # type: ignore[arg-type]
    return tmp_path / "l"


def test_the_meter_says_what_is_left_for_a_person(months: Path) -> None:
    """Each month shows much left in it alone; a person of all months has hardly any."""
    found = json.loads(tacit("ledger", "blocks", "visits", "--ledger", months, "--json").output)
    assert all(block["left"] > 1.4 for block in found["blocks"])
    whole = found["unit"]
    with Ledger(months) as ledger:
        assert whole["epsilon"] == ledger.epsilon(1) and whole["all_streams"] == ledger.totals()[0].epsilon
    assert (whole["unit"], whole["tasks"]) == ("person", 12)
    assert whole["left"] == pytest.approx(2.0 - whole["epsilon"]) and 0 < whole["left"] < 0.2
    shown = tacit("ledger", "blocks", "visits", "--ledger", months).output
    assert f"a person in 12 tasks, the declared maximum: charged at most ε = {whole['epsilon']:.4g}" in shown
    assert "the same persons may be in scans" in shown


def test_show_has_a_total_for_each_kind_of_unit(months: Path) -> None:
    found = json.loads(tacit("ledger", "show", "--ledger", months, "--json").output)
    (total,) = found["totals"]
    streams = {one["stream"]: one["epsilon"] for one in found["streams"]}
    assert max(streams.values()) < total["epsilon"] <= sum(streams.values()) and total["delta"] == 2e-5
    assert (total["budget_epsilon"], total["cap"], total["left"]) == (4.0, None, None)
    shown = tacit("ledger", "show", "--ledger", months).output
    assert "one person over all 2 streams, which may hold the same persons: at most ε = " in shown
    assert "no unit_cap" in shown and "not authenticated" in shown


def test_show_says_what_a_cap_leaves(months: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("[unit_cap]\nepsilon = 5.0\ndelta = 2e-5\nunit = 'person'\n")
    tacit("policy", "adopt", tmp_path / "p.toml", "--ledger", months, "--by", "o", "--why", "w")
    (total,) = json.loads(tacit("ledger", "show", "--ledger", months, "--json").output)["totals"]
    assert total["left"] == pytest.approx(5.0 - total["epsilon"])
    assert "unit_cap ε = 5, δ = 2e-05: ε = " in tacit("ledger", "show", "--ledger", months).output
