"""One person, one total: what streams of one ledger cost together, from declarations alone."""

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from tacit import Budget, Declared, Ledger, SumPlan, Vault
from tacit.certificate.certificate import Certificate
from tacit.certificate.issuance import issue
from tacit.errors import PolicyError
from tacit.privacy.accounting.events import gaussian, poisson_gaussian
from tacit.privacy.ledger import StreamTerms, UnitTotal
from tacit.privacy.ledger.limits.policy import Policy

WORK = {"holder": "h", "kind": "sums", "plan": {}}


def charge(ledger: Ledger, name: str, *noises: float, k: int = 1, **budget: object) -> None:
    """A stream with a task for each noise multiplier."""
    wide = {"epsilon": 50.0, "delta": 1e-5, "unit": "person"} | budget
    stream = ledger.stream(StreamTerms(name=name, budget=Budget(**wide), tasks_per_unit=k))  # type: ignore[arg-type]
    for number, noise in enumerate(noises):
        block = ledger.block(stream, f"{name}{number}", size=10).id
        ledger.bill([(block, gaussian(noise))], pin=f"{name}{number}", **WORK)  # type: ignore[arg-type]


def total(ledger: Ledger) -> UnitTotal:
    (found,) = ledger.totals()
    return found


def delta_of(epsilon: float, noises: tuple[float, ...]) -> float:
    """The true δ of Gaussians on one unit: they are one Gaussian."""
    mean = math.sqrt(sum(noise**-2 for noise in noises))
    return float(norm.cdf(mean / 2 - epsilon / mean) - math.exp(epsilon) * norm.cdf(-mean / 2 - epsilon / mean))


def test_two_streams_are_composed_at_the_sum_of_their_deltas(ledger: Ledger) -> None:
    charge(ledger, "a", 4.0)
    alone = ledger.epsilon(1)
    assert total(ledger).epsilon == alone
    charge(ledger, "b", 5.0, delta=2e-5)
    found = total(ledger)
    assert [one.stream for one in found.streams] == ["a", "b"] and found.delta == pytest.approx(3e-5)
    assert delta_of(found.epsilon, (4.0, 5.0)) <= 3e-5  # a bound
    assert delta_of(found.epsilon * 0.999, (4.0, 5.0)) > 3e-5  # and a tight one
    assert alone < found.epsilon < ledger.epsilon(1) + ledger.epsilon(2)
    assert found.budget_epsilon == 100.0 and found.budget_delta == pytest.approx(3e-5)


def test_a_unit_is_in_as_many_tasks_of_each_stream_as_was_declared(ledger: Ledger) -> None:
    """Brute force: the worst choice of two tasks of the first stream and one of the second."""
    first, second = (4.0, 6.0, 8.0), (5.0, 9.0)
    charge(ledger, "a", *first, k=2)
    charge(ledger, "b", *second)
    found = total(ledger)
    worst = max(delta_of(found.epsilon, (*pair, one)) for pair in combinations(first, 2) for one in second)
    assert worst <= found.delta == pytest.approx(2e-5)


def test_a_stream_that_nothing_was_charged_to_adds_nothing(ledger: Ledger) -> None:
    charge(ledger, "a", 4.0)
    charge(ledger, "b")
    assert (total(ledger).epsilon, total(ledger).delta) == (ledger.epsilon(1), 1e-5)
    assert total(ledger).budget_epsilon == 100.0


def test_other_neighbours_are_stated_under_replace_one(ledger: Ledger) -> None:
    charge(ledger, "a", 8.0)
    charge(ledger, "b", 8.0, adjacency="replace-one")
    one, other = ledger.epsilon(1), ledger.epsilon(2)
    found = total(ledger)
    assert found.adjacency == "replace-one"
    assert found.epsilon == pytest.approx(2 * one + other)
    assert found.delta == pytest.approx((1 + math.exp(one)) * 1e-5 + 1e-5)


def test_records_and_persons_are_not_added_up(ledger: Ledger) -> None:
    charge(ledger, "a", 4.0)
    charge(ledger, "b", 5.0, unit="record")
    record, person = ledger.totals()
    assert (record.unit, record.epsilon, person.unit, person.epsilon) == (
        "record",
        ledger.epsilon(2),
        "person",
        ledger.epsilon(1),
    )


def test_streams_that_are_declared_disjoint_are_not_added_up(ledger: Ledger) -> None:
    for name, noise in (("a", 4.0), ("b", 5.0), ("c", 6.0)):
        charge(ledger, name, noise)
    ledger.adopt(Policy(disjoint=(("a", "b"),)), by="officer", why="two wards")
    found = total(ledger)
    assert found.disjoint == (("a", "b"),) and found.delta == pytest.approx(2e-5)
    assert delta_of(found.epsilon, (4.0, 6.0)) <= 2e-5
    assert found.epsilon < ledger.epsilon(1) + ledger.epsilon(3)
    assert ledger.verify()


def test_a_stream_is_in_one_group_of_disjoint_ones() -> None:
    with pytest.raises(PolicyError, match="a stream may be in one group only"):
        Policy.parse({"disjoint": [["a", "b"], ["b", "c"]]})
    assert Policy.parse({"disjoint": [["a", "b"]]}).to_dict()["disjoint"] == [["a", "b"]]
    assert "disjoint" not in Policy().to_dict()  # older policies keep their digest


def test_nothing_finite_in_one_stream_is_nothing_finite_in_all(ledger: Ledger) -> None:
    ledger.adopt(Policy(allow_unsafe=True), by="o", why="w")
    charge(ledger, "a", 4.0)
    charge(ledger, "b", 4.0)
    ledger.expose(2, "a baseline")
    assert total(ledger).epsilon == math.inf


def test_open_blocks_and_plans_chosen_as_one_goes_count_with_their_filters(ledger: Ledger) -> None:
    budget = Budget(epsilon=3.0, delta=1e-5, unit="person")  # type: ignore[arg-type]
    charge(ledger, "a", 4.0)
    terms = StreamTerms(name="b", budget=budget, tasks_per_unit=3, fixed_schedule=False)
    block = ledger.block(ledger.stream(terms), "t", size=10, mode="open").id
    ledger.bill([(block, poisson_gaussian(0.1, 8.0, 1))], pin="x", **WORK)  # type: ignore[arg-type]
    assert total(ledger).epsilon == pytest.approx(ledger.epsilon(1) + ledger.epsilon(2))
    assert ledger.epsilon(2) == pytest.approx(3.0, abs=1e-3)


def admitted(vault: Vault, stream: str, ids: np.ndarray, scale: float) -> Certificate:
    budget = Budget(epsilon=1.0, delta=1e-5, unit="person")  # type: ignore[arg-type]
    declared = Declared(stream=stream, task="t", budget=budget, size=10, labels=range(2))
    block = vault.admit((scale * np.ones((len(ids), 2), dtype=np.float32), np.zeros(len(ids)), ids), declared)
    vault.sums(block, SumPlan.for_budget(budget))
    return issue(vault.ledger, block, method="sums")


@pytest.mark.parametrize("shift", [0, 1000], ids=["the same people", "other people"])
def test_the_certificate_names_the_other_stream_whoever_is_in_it(tmp_path: Path, shift: int) -> None:
    """The same table under another name and scale: a second budget of the same people, and now it is said. Who is in
    both streams changes nothing."""
    with Ledger(tmp_path / "l") as ledger:
        vault, ids = Vault(ledger), np.arange(10)
        first = admitted(vault, "visits", ids, 1.0)
        assert first.same_units is None and "together" not in str(first)
        second = admitted(vault, "visits-again", ids + shift, 0.5)
        found = second.same_units
        assert found is not None and [(one.stream, one.added) for one in found.streams] == [("visits", True)]
        assert found.epsilon == total(ledger).epsilon == pytest.approx(1.400, abs=0.01) and found.delta == 2e-5
        text = " ".join(str(second).split())
        assert "for one person over this stream and 'visits' (ε = 1, δ = 1e-05), which may contain the same" in text
        assert "if streams and plans were fixed in advance" in text
        alone = "for what this stream released alone: other streams of the ledger may have the same persons"
        assert alone in text and alone not in " ".join(str(first).split())
        assert "unit cap none: nothing limits the total over all streams of the ledger" in text
        second.save(tmp_path / "c.json")
        assert Certificate.load(tmp_path / "c.json") == second
        assert "same_units" not in first.to_json()  # certificates of one stream read as they always did
