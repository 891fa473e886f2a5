"""The cap of one unit over all streams: asked for when a ledger is made, and checked before a stream's first task."""

import math
from pathlib import Path

import pytest

from tacit import Budget, Ledger
from tacit.errors import BudgetExceeded, LedgerError
from tacit.privacy.accounting.epsilon import Method, epsilon
from tacit.privacy.accounting.events import compose, gaussian
from tacit.privacy.ledger import StreamTerms
from tacit.privacy.ledger.limits.policy import Cap, Policy

WORK = {"holder": "h", "kind": "sums", "plan": {}}


def person(epsilon: float, delta: float = 1e-5) -> Budget:
    return Budget(epsilon=epsilon, delta=delta, unit="person")  # type: ignore[arg-type]


def terms(name: str, epsilon: float, k: int = 1, **more: object) -> StreamTerms:
    return StreamTerms(name=name, budget=person(epsilon), tasks_per_unit=k, **more)  # type: ignore[arg-type]


def test_a_ledger_is_made_with_a_cap_or_says_that_there_is_none(tmp_path: Path) -> None:
    with Ledger(tmp_path / "a", unit_cap=person(2.0)) as ledger:
        assert ledger.policy == Policy(unit_cap=Cap.of(person(2.0), counts="budgets"))
        assert ledger.entries()[1].body["why"].endswith("with unit_cap: ε = 2, δ = 1e-05")
    with Ledger(tmp_path / "b", unit_cap="none") as ledger:
        assert ledger.policy == Policy()
        assert ledger.entries()[1].body["why"].endswith("with unit_cap: none")
    Ledger(tmp_path / "a", unit_cap=person(2.0)).close()
    for path, other in (("a", person(3.0)), ("a", "none"), ("b", person(2.0))):
        with pytest.raises(LedgerError, match="leave it out, or have another adopted"):
            Ledger(tmp_path / path, unit_cap=other)  # type: ignore[arg-type]


def test_budgets_add_up_to_the_cap_before_the_first_task(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l", unit_cap=person(0.3, 3e-5)) as ledger:
        ledger.stream(terms("a", 0.1))
        ledger.stream(terms("b", 0.2))  # 0.1 + 0.2 is 0.3, as it was declared
        ledger.stream(terms("public", 9.0, public=True))
        head = ledger.head
        for refused in (lambda: ledger.stream(terms("c", 0.01)), lambda: ledger.check_new_stream(terms("c", 0.01))):
            with pytest.raises(
                BudgetExceeded, match=r"'a', 'b', 'c', which may hold the same persons, add up to ε = 0.31"
            ):
                refused()
        ledger.check_new_stream(terms("a", 0.1))  # it is there
        assert ledger.head == head and ledger.verify()


def test_the_deltas_add_up_too(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l", unit_cap=person(5.0, 1e-5)) as ledger:
        ledger.stream(terms("a", 1.0))
        with pytest.raises(BudgetExceeded, match="δ = 2e-05, above"):
            ledger.stream(terms("b", 1.0))


def test_a_stream_that_fits_is_never_stopped_half_way(tmp_path: Path) -> None:
    """Its own accountant may fill its budget, where one filter over Rényi curves would have refused."""
    with Ledger(tmp_path / "l", unit_cap=person(1.0)) as ledger:
        stream = ledger.stream(terms("a", 1.0, k=3))
        event = gaussian(6.465)
        assert (
            0.999 < epsilon(compose([event] * 3), 1e-5) <= 1.0 < epsilon(compose([event] * 3), 1e-5, method=Method.RDP)
        )
        for number in range(3):
            block = ledger.block(stream, f"t{number}", size=10).id
            ledger.bill([(block, event)], pin=str(number), **WORK)  # type: ignore[arg-type]
        assert ledger.verify() and ledger.totals()[0].left == pytest.approx(1.0 - ledger.epsilon(1))


def test_a_raise_stays_below_the_cap(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l", unit_cap=person(2.0)) as ledger:
        stream = ledger.stream(terms("a", 1.0))
        cap = Cap.of(person(2.0), counts="budgets")
        ledger.adopt(Policy(unit_cap=cap, may_raise=("o",)), by="o", why="w")
        with pytest.raises(BudgetExceeded, match="above the ledger's unit_cap"):
            ledger.raise_budget(stream, person(2.5), by="o", why="w")
        ledger.raise_budget(stream, person(2.0), by="o", why="w")
        with pytest.raises(BudgetExceeded, match="above the ledger's unit_cap"):
            ledger.adopt(Policy(unit_cap=Cap.of(person(1.5), counts="budgets")), by="o", why="w")


def test_streams_that_are_declared_disjoint_share_the_cap(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l", unit_cap=person(2.0)) as ledger:
        ledger.stream(terms("a", 2.0))
        ledger.adopt(ledger.policy.model_copy(update={"disjoint": (("a", "b"),)}), by="o", why="two wards")
        ledger.stream(terms("b", 2.0))
        with pytest.raises(BudgetExceeded):
            ledger.stream(terms("c", 0.1))
        assert ledger.verify()


def test_a_cap_on_charges_counts_the_tasks_to_come(ledger: Ledger) -> None:
    """Twelve months that do not fit are refused in the first, and not in the seventh."""
    ledger.adopt(Policy(unit_cap=person(1.2)), by="officer", why="cap")
    stream = ledger.stream(terms("a", 50.0, k=12))
    blocks = [ledger.block(stream, f"t{number}", size=10).id for number in range(12)]
    with pytest.raises(BudgetExceeded, match="all streams"):
        ledger.bill([(blocks[0], gaussian(8.0))], pin="x", **WORK)  # type: ignore[arg-type]
    assert ledger.epsilon(stream) == 0
    noise = 8.0 * math.sqrt(12)
    for number, block in enumerate(blocks):
        ledger.bill([(block, gaussian(noise))], pin=str(number), **WORK)  # type: ignore[arg-type]
    assert ledger.verify()


def test_a_cap_on_charges_checks_plans_of_other_tasks_ahead(ledger: Ledger) -> None:
    ledger.adopt(Policy(unit_cap=person(1.2)), by="officer", why="cap")
    cheap, dear = [gaussian(40.0)], [gaussian(4.0)]
    ledger.check_new_stream(terms("a", 50.0, k=2), [cheap])
    with pytest.raises(BudgetExceeded, match="all streams"):
        ledger.check_new_stream(terms("a", 50.0, k=2), [cheap, dear])


def test_an_older_policy_keeps_its_digest() -> None:
    before = Policy.parse({"unit_cap": {"epsilon": 3.0, "delta": 1e-6, "unit": "person", "adjacency": "add-or-remove"}})
    assert "counts" not in before.to_dict()["unit_cap"]
    assert Policy.parse(before.to_dict()) == before
    budgets = Policy(unit_cap=Cap.of(person(1.0), counts="budgets"))
    assert Policy.parse(budgets.to_dict()) == budgets
