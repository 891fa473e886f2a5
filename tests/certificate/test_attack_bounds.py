"""The bounds on attackers of a certificate: from all that a unit may be in, and what was made smaller is refused."""

import json
import random
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certificate.test_ledger_check import spend
from support.made_up import Admit
from tacit import Budget, Certificate, GradientPlan, Ledger, SumPlan, Vault
from tacit.certificate import ledger_check, reprice
from tacit.certificate.attack_bounds import FALSE_POSITIVES, GROUPS, AttackBounds, attack_bounds
from tacit.certificate.attack_text import attack_words, percent, up
from tacit.certificate.issuance import issue
from tacit.certificate.signing import verify_own
from tacit.errors import CertificateError
from tacit.privacy.accounting import events, tradeoff
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.filters import RenyiFilter
from tacit.privacy.accounting.tradeoff import PAIR, PLD, RENYI
from tacit.privacy.ledger import LedgerView, StreamTerms
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.log import event_lists

BUDGET = Budget(epsilon=2.0, delta=1e-5)
WORK: dict[str, Any] = {"holder": "h", "kind": "sums"}
OLD = Path(__file__).parents[1] / "commands" / "old_certificate" / "certificate.json"


def bounds(certificate: Certificate) -> AttackBounds:
    found = attack_bounds(certificate)
    assert found is not None
    return found


def changed(certificate: Certificate, **fields: Any) -> Certificate:
    """A certificate with other fields in its certified bound."""
    body = certificate.model_dump(mode="json")
    body["claims"]["certified"] |= fields
    return Certificate.model_validate(body)


def stream_of(ledger: Ledger, lists: list[list[Any]], **terms: Any) -> int:
    """A stream with one block for each list of events."""
    adjacency = terms.pop("adjacency", Adjacency.ADD_OR_REMOVE)
    budget = Budget(epsilon=50.0, delta=1e-5, adjacency=adjacency)
    stream = ledger.stream(StreamTerms(name="s", budget=budget, **terms))
    for number, listed in enumerate(lists):
        block = ledger.block(stream, f"t{number}", size=10)
        ledger.bill([(block.id, event) for event in listed], pin=f"{number}", plan={}, **WORK)
    return stream


def test_they_are_those_of_the_charged_events(vault: Vault, admit: Admit) -> None:
    plan = SumPlan(noise=4.0)
    block = admit(np.ones((9, 2)), np.zeros(9), budget=BUDGET)
    vault.sums(block, plan)
    found = bounds(issue(vault.ledger, block, method="sums"))
    profile = tradeoff.of_event(plan.event, BUDGET.adjacency)
    assert found.one.advantage == pytest.approx(tradeoff.advantage([profile]))
    assert found.mu == pytest.approx(profile.mu) and found.methods == (PLD,)
    assert [group.units for group in found.groups] == list(GROUPS)
    assert found.groups[1].advantage == pytest.approx(tradeoff.advantage([profile], units=2), rel=1e-4)


def test_the_worst_task_counts(ledger: Ledger) -> None:
    """Two tasks of which one is worse for some attacks and the other for others."""
    few, many = events.laplace(2.0), events.poisson_gaussian(0.01, 0.4, 30)
    stream = stream_of(ledger, [[few], [many], [events.gaussian(50.0)]])
    found = bounds(issue(ledger, stream, method="m"))
    each = [tradeoff.of_event(event, Adjacency.ADD_OR_REMOVE) for event in (few, many)]
    assert found.one.advantage == pytest.approx(max(tradeoff.advantage([one]) for one in each))
    for rate, share in zip(FALSE_POSITIVES, found.one.true_positives, strict=True):
        assert share == pytest.approx(max(tradeoff.true_positives([one], rate) for one in each))


def test_a_unit_in_several_tasks_loses_all_of_them(ledger: Ledger) -> None:
    one = events.gaussian(5.0)
    stream = stream_of(ledger, [[one], [one], [one]], tasks_per_unit=2)
    found = bounds(issue(ledger, stream, method="m"))
    both = tradeoff.of_event(events.repeat(one, 2), Adjacency.ADD_OR_REMOVE)
    assert found.mu == pytest.approx(both.mu) and found.one.advantage == pytest.approx(tradeoff.advantage([both]))


def test_different_tasks_of_one_unit_are_taken_in_every_choice(ledger: Ledger) -> None:
    lists = [[events.gaussian(5.0)], [events.laplace(9.0)], [events.gaussian(7.0)]]
    stream = stream_of(ledger, lists, tasks_per_unit=2)
    found = bounds(issue(ledger, stream, method="m"))
    for first in range(3):
        for second in range(first):
            pair = tradeoff.of_event(events.compose([*lists[first], *lists[second]]), Adjacency.ADD_OR_REMOVE)
            assert found.one.advantage >= tradeoff.advantage([pair]) * (1 - 1e-9)


def test_under_replace_one_a_unit_may_come_from_another_task(ledger: Ledger) -> None:
    stream = stream_of(
        ledger, [[events.gaussian(5.0)], [events.gaussian(6.0), events.laplace(30.0)]], adjacency=Adjacency.REPLACE_ONE
    )
    found = bounds(issue(ledger, stream, method="m"))
    within = tradeoff.of_event(events.gaussian(5.0), Adjacency.REPLACE_ONE)
    alone = tradeoff.of_event(events.gaussian(5.0), Adjacency.ADD_OR_REMOVE)
    assert found.one.advantage >= tradeoff.advantage([within]) > 1.5 * tradeoff.advantage([alone])


def test_a_part_that_loses_less_at_delta_counts_as_well(vault: Vault, admit: Admit) -> None:
    """The certificate lists the worst part of a task at δ; the other may be the worse one for other attacks."""
    block = admit(np.ones((40, 2)), np.zeros(40), budget=Budget(epsilon=8.0, delta=1e-5))
    one, other = vault.split(block, {"one": 0.5, "other": 0.5})
    vault.ledger.bill([(one.id, events.laplace(0.5))], pin="a", plan={}, **WORK)
    vault.ledger.bill([(other.id, events.poisson_gaussian(0.02, 0.5, 4))], pin="b", plan={}, **WORK)
    certificate = issue(vault.ledger, block, method="m")
    others = certificate.claims.certified.other_blocks
    assert others is not None and len(others.lists) == 1
    laplace = tradeoff.of_event(events.laplace(0.5), Adjacency.ADD_OR_REMOVE)
    assert bounds(certificate).one.advantage >= tradeoff.advantage([laplace]) * (1 - 1e-9)
    ledger_check.check(certificate, vault.ledger)
    reprice(certificate)
    hidden = changed(certificate, other_blocks={"lists": [], "filters": []})
    with pytest.raises(CertificateError, match="of other blocks are not the same"):
        ledger_check.check(hidden, vault.ledger)
    assert bounds(changed(certificate, other_blocks=None)).methods == (PAIR,)


def test_an_open_block_is_bounded_by_its_filter(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((9, 2)), np.zeros(9), budget=BUDGET, open=True)
    vault.sums(block, SumPlan(noise=20.0))
    certificate = issue(vault.ledger, block, method="sums")
    found = bounds(certificate)
    spent = tradeoff.of_event(events.gaussian(20.0), BUDGET.adjacency)
    assert found.methods == (RENYI,) and found.mu is None and found.mu_with_delta is not None
    assert found.one.advantage > 2 * tradeoff.advantage([spent])  # the whole filter counts, not what was spent
    assert found.one.advantage < tradeoff.advantage([tradeoff.of_pair(2.0, 1e-5)])
    ledger_check.check(certificate, vault.ledger)
    others = certificate.claims.certified.other_blocks
    assert others is not None
    (limits,) = others.filters
    other_machine = limits.model_dump(mode="json") | {"limits": [one * (1 - 1e-14) for one in limits.limits]}
    ledger_check.check(changed(certificate, other_blocks={"filters": [other_machine]}), vault.ledger)
    smaller = limits.model_dump(mode="json") | {"limits": [one / 2 for one in limits.limits]}
    with pytest.raises(CertificateError, match="of other blocks are not the same"):
        ledger_check.check(changed(certificate, other_blocks={"filters": [smaller]}), vault.ledger)
    with pytest.raises(CertificateError, match="does not give the ε that is stated"):
        reprice(changed(certificate, other_blocks={"filters": [smaller]}))
    larger = smaller | {"limits": [one * 2 for one in limits.limits]}
    with pytest.raises(CertificateError, match="the filter of an open block allows"):
        reprice(changed(certificate, other_blocks={"filters": [larger]}))


@pytest.mark.parametrize("seed", range(8))
def test_no_block_of_a_ledger_is_worse_than_its_certificate_says(seed: int, tmp_path: Path) -> None:
    """Streams of all kinds: every committed block alone is within the bounds, and every true certificate passes."""
    dice = random.Random(seed)
    terms = {"tasks_per_unit": dice.choice([1, 1, 2]), "fixed_schedule": dice.random() < 0.7}
    with Ledger(tmp_path / "l", policy=Policy()) as ledger:
        stream = spend(ledger, dice, 4, **terms)
        certificate = Certificate.model_validate_json(issue(ledger, stream, method="m").to_json())
        ledger_check.check(certificate, ledger)
        found, statement = bounds(certificate), ledger.statement(stream)
    for block in statement.blocks:
        if block.row.mode == "committed" and block.row.state != "split":
            alone = tradeoff.of_event(event_lists.composed(block.events), certificate.adjacency)
            assert found.one.advantage >= tradeoff.advantage([alone]) * (1 - 1e-6)
            for rate, share in zip(FALSE_POSITIVES, found.one.true_positives, strict=True):
                assert share >= tradeoff.true_positives([alone], rate) * (1 - 1e-3)
    shares = list(chain.from_iterable(group.true_positives for group in found.groups))
    assert all(0 <= share <= 1 for share in shares)
    for one, more in zip(found.groups, found.groups[1:], strict=False):
        assert more.advantage >= one.advantage * (1 - 1e-3) and more.true_positives >= one.true_positives


def test_nothing_is_promised_where_nothing_is_certified(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((9, 2)), np.zeros(9), budget=BUDGET, public=True)
    vault.unsafe.records(block, "baseline")
    certificate = issue(vault.ledger, block, method="m")
    assert certificate.epsilon is None
    assert attack_bounds(certificate) is None and attack_words(certificate) is None
    assert "as µ-GDP" not in str(certificate)


def test_a_certificate_of_an_earlier_version_has_bounds() -> None:
    certificate = Certificate.load(OLD)
    assert certificate.claims.certified.other_blocks is None and "other_blocks" not in certificate.to_json()
    verify_own(certificate)
    found = bounds(certificate)
    assert found.methods == (PLD,) and found.mu is not None
    assert "as µ-GDP" in str(certificate)


def test_other_events_give_other_bounds(vault: Vault, admit: Admit) -> None:
    """No number is stored, so a certificate cannot state smaller ones beside the same events."""
    block = admit(np.ones((9, 2)), np.zeros(9), budget=BUDGET)
    vault.sums(block, SumPlan(noise=4.0))
    certificate = issue(vault.ledger, block, method="sums")
    assert str(bounds(certificate).one.advantage) not in certificate.to_json()
    body = json.loads(certificate.to_json())
    body["claims"]["certified"]["tasks"][0]["events"][0]["noise"] = 2.0
    with pytest.raises(CertificateError, match="its events cost"):
        reprice(Certificate.model_validate(body))


def test_words_round_up(vault: Vault, admit: Admit) -> None:
    assert (up(0.12301), up(2.0), up(1.9999), up(0.0), up(14.51), up(1e-7)) == (
        "0.124",
        "2",
        "2.00",
        "0",
        "14.6",
        "1.00e-7",
    )
    assert percent(0.030001) == "3.01\u202f%" and percent(1.0) == "100\u202f%" and percent(1.2) == "100\u202f%"
    block = admit(np.ones((9, 2)), np.zeros(9), budget=BUDGET)
    vault.sums(block, SumPlan(noise=4.0))
    certificate = issue(vault.ledger, block, method="sums")
    words, found = attack_words(certificate), bounds(certificate)
    assert words is not None
    assert words.mu == (up(found.mu or 0), "without any additional δ")
    assert words.groups[2][0] == "3" and words.groups[2][2] == percent(found.groups[2].advantage)


def test_a_view_of_the_ledger_gives_the_same_bounds(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        stream = stream_of(ledger, [[events.gaussian(5.0)], [events.laplace(9.0)]])
        direct = bounds(issue(ledger, stream, method="m"))
    with LedgerView(tmp_path / "l") as view:
        assert bounds(issue(view, stream, method="m")) == direct


def test_gradients_and_memory_are_one_list(vault: Vault, admit: Admit) -> None:
    plan = GradientPlan(rate=0.1, steps=30, noise=2.0)
    block = admit(np.ones((40, 2)), np.zeros(40), budget=Budget(epsilon=8.0, delta=1e-5))
    vault.commit({block: [plan, SumPlan(noise=9.0)]})
    found = bounds(issue(vault.ledger, block, method="m"))
    whole = tradeoff.of_event(events.compose([plan.event, events.gaussian(9.0)]), Adjacency.ADD_OR_REMOVE)
    assert found.one.advantage == pytest.approx(tradeoff.advantage([whole]))


def test_what_a_certificate_hides_is_bounded_by_its_pair(vault: Vault, admit: Admit) -> None:
    """Made-up certificates that leave out what their numbers would be computed from, or how tasks compose."""
    opened = admit(np.ones((9, 2)), np.zeros(9), budget=BUDGET, open=True)
    vault.sums(opened, SumPlan(noise=20.0))
    certificate = issue(vault.ledger, opened, method="sums")
    pair = tradeoff.of_pair(certificate.epsilon or 0.0, 1e-5)
    body = certificate.model_dump(mode="json")["claims"]["certified"]
    tasks = [body["tasks"][0] | {"mode": "committed", "events": []}]
    rules = [rule | {"applies": rule["rule"] == "basic"} for rule in body["over_tasks"]]
    for hidden in (
        {"other_blocks": {"lists": [], "filters": []}},
        {"other_blocks": {"lists": [], "filters": []}, "tasks": tasks},
        {"other_blocks": None, "tasks": tasks},
        {"over_tasks": rules},
    ):
        found = bounds(changed(certificate, **hidden))
        assert found.methods == (PAIR,) and found.one.advantage == pytest.approx(tradeoff.advantage([pair]))


def test_a_smaller_pair_at_another_delta_changes_nothing(vault: Vault, admit: Admit) -> None:
    """`curve` is not priced again without the ledger, so no bound rests on it."""
    block = admit(np.ones((9, 2)), np.zeros(9), budget=BUDGET)
    vault.sums(block, SumPlan(noise=4.0))
    certificate = issue(vault.ledger, block, method="sums")
    forged = changed(certificate, curve=[[1e-6, 1e-9], [certificate.epsilon, 1e-5]])
    assert bounds(forged) == bounds(certificate)


def test_a_smaller_curve_over_several_tasks_is_refused(ledger: Ledger) -> None:
    lists = [[events.gaussian(5.0)], [events.laplace(9.0)], [events.gaussian(7.0)]]
    certificate = issue(ledger, stream_of(ledger, lists, tasks_per_unit=2), method="m")
    reprice(certificate)
    others = certificate.claims.certified.other_blocks
    assert others is not None
    (limits,) = others.filters
    smaller = limits.model_dump(mode="json") | {"limits": [one / 2 for one in limits.limits]}
    with pytest.raises(CertificateError, match="does not give the ε that is stated"):
        reprice(changed(certificate, other_blocks={"filters": [smaller]}))


def test_equal_filters_count_with_their_own_shape(ledger: Ledger) -> None:
    """Filters made for sampled reads admit more at high orders than a Gaussian's of the same ε, which groups show."""
    budget = Budget(epsilon=8.0, delta=1e-5)
    like = events.repeat(events.poisson_gaussian(0.05, 0.8), 200)
    stream = ledger.stream(StreamTerms(name="s", budget=budget, tasks_per_unit=2, fixed_schedule=False))
    for number in range(2):
        block = ledger.block(stream, f"t{number}", size=10, mode="open", like=like)
        ledger.bill([(block.id, events.poisson_gaussian(0.05, 0.8))], pin=f"{number}", plan={}, **WORK)
    certificate = Certificate.model_validate_json(issue(ledger, stream, method="m").to_json())
    ledger_check.check(certificate, ledger)
    reprice(certificate)
    share = RenyiFilter.for_budget(budget, like=like).share(2)
    whole = tradeoff.of_curve([2 * limit for limit in share.limits], share.orders)
    allowed = tradeoff.within(whole, budget.epsilon, budget.delta)
    three = next(group for group in bounds(certificate).groups if group.units == 3)
    least = tradeoff.group_epsilon([allowed], budget.delta, 3)
    assert three.epsilon is not None and least <= three.epsilon < 1.001 * least


def test_weaker_events_of_tasks_that_are_compared_by_no_name_are_refused(ledger: Ledger) -> None:
    """A long stream lists few of its tasks, so a certificate might name others, with weaker events."""
    stream = stream_of(ledger, [[events.gaussian(3.0)]] * 34)
    certificate = issue(ledger, stream, method="m")
    ledger_check.check(certificate, ledger)
    certified = certificate.model_dump(mode="json")["claims"]["certified"]
    weak = [json.loads(events.to_json(events.gaussian(30.0)))]
    tasks = [task | {"task": f"x{task['task']}", "events": weak} for task in certified["tasks"]]
    alike = [group | {"events": weak} for group in certified["alike"]]
    assert tasks and alike
    forged = changed(certificate, tasks=tasks, alike=alike).model_copy(update={"mechanisms": ()})
    reprice(forged)
    assert bounds(forged).one.advantage < bounds(certificate).one.advantage / 5
    with pytest.raises(CertificateError, match="leaves out events"):
        ledger_check.check(forged, ledger)
    several = certified["tasks"][0] | {"task": "x"}
    with pytest.raises(CertificateError, match="leaves out events"):
        all_alone = [several | {"task": f"x{number}", "events": weak} for number in range(34)]
        ledger_check.check(changed(forged, tasks=all_alone, alike=[], other_blocks=None), ledger)


@pytest.mark.parametrize(
    "curve",
    [
        {"orders": [2.0, 3.0], "limits": [0.1]},
        {"orders": [0.5], "limits": [0.1]},
        {"orders": [2.0], "limits": [-0.1]},
        {"orders": [2.0], "limits": [0.1], "additive_delta": -1.0},
    ],
)
def test_a_curve_that_is_none_bounds_nothing(vault: Vault, admit: Admit, curve: dict[str, Any]) -> None:
    block = admit(np.ones((9, 2)), np.zeros(9), budget=BUDGET, open=True)
    vault.sums(block, SumPlan(noise=20.0))
    forged = changed(issue(vault.ledger, block, method="sums"), other_blocks={"filters": [curve]})
    assert bounds(forged).methods == (PAIR,) and str(forged)
    with pytest.raises(CertificateError, match=r"no valid orders|does not give"):
        reprice(forged)


def test_damaged_events_and_pairs_are_no_error_where_a_certificate_is_shown(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((9, 2)), np.zeros(9), budget=BUDGET)
    vault.sums(block, SumPlan(noise=4.0))
    certificate = issue(vault.ledger, block, method="sums")
    (task,) = certificate.model_dump(mode="json")["claims"]["certified"]["tasks"]
    damaged = changed(certificate, tasks=[task | {"events": [{"noise": 4.0}]}])
    assert bounds(damaged).methods == (PAIR,) and str(damaged)
    for wrong in (float("nan"), -1.0):
        assert attack_bounds(changed(certificate, epsilon=wrong)) is None
