"""The plan of an individual filter: what it costs, and what is refused before anything is read."""

import math

import numpy as np
import pytest

from support.individual_filters import lengths, linear, sum_loss
from support.made_up import Admit
from tacit import Budget, Declared, Ledger, SumPlan, Vault
from tacit.certificate.issuance import issue
from tacit.errors import PlanError, TacitError, VaultError
from tacit.privacy import Adjacency
from tacit.privacy.accounting import epsilon, events
from tacit.privacy.accounting.epsilon import ORDERS, rdp_curve
from tacit.privacy.ledger.limits import prices
from tacit.privacy.ledger.log import event_lists
from tacit.privacy.vault import FilterPlan


def test_the_price_is_alpha_rho_and_never_a_loss_distribution() -> None:
    event = FilterPlan(rho=0.07).event
    assert rdp_curve(event) == pytest.approx([0.07 * order for order in ORDERS])
    assert rdp_curve(event, Adjacency.ZERO_OUT) == rdp_curve(event)
    assert rdp_curve(event, Adjacency.REPLACE_ONE) == pytest.approx([4 * 0.07 * order for order in ORDERS])
    both = events.compose([event, events.gaussian(5.0)])
    assert rdp_curve(both) == pytest.approx([(0.07 + 1 / 50) * order for order in ORDERS])
    for one in (event, both):
        assert epsilon.epsilon(one, 1e-5, method="pld") == math.inf and epsilon.delta(one, 1.0, method="pld") == 1
        assert epsilon.epsilon(one, 1e-5) == epsilon.epsilon(one, 1e-5, method="rdp") < math.inf
        assert events.from_json(events.to_json(one)) == one
    same = events.gaussian(math.sqrt(1 / (2 * 0.07)))  # a Gaussian of the same curve
    assert epsilon.epsilon(event, 1e-5) == pytest.approx(epsilon.epsilon(same, 1e-5, method="rdp"))


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_for_budget_takes_all_of_it_and_no_more(adjacency: Adjacency) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5, adjacency=adjacency)
    for tasks, beside in ((1, []), (3, []), (1, [SumPlan(noise=20.0)])):
        plan = FilterPlan.for_budget(budget, tasks, beside=beside)
        whole = events.repeat(events.compose([plan.event, *(one.event for one in beside)]), tasks)
        assert 0.9999 < epsilon.epsilon(whole, 1e-5, adjacency) <= 1.0
    with pytest.raises(PlanError, match="nothing is left"):
        FilterPlan.for_budget(budget, beside=[SumPlan(noise=0.5)])
    with pytest.raises(PlanError, match="rho must be a finite number > 0"):
        FilterPlan(rho=0.0)


def test_the_ledger_charges_it_once_and_finds_the_price_again(ledger: Ledger, vault: Vault) -> None:
    budget = Budget(epsilon=2.0, delta=1e-5)
    look = SumPlan(noise=10.0)
    plan = FilterPlan.for_budget(budget, beside=[look])
    block = vault.admit((lengths(1, 1), np.zeros(2)), Declared(stream="s", task="t", budget=budget, size=2, labels=[0]))
    vault.commit({block: [plan, look]})
    meter = vault.individual_filter(block, plan)
    before = ledger.statement(1)
    for noise in (3.0, 0.5, 7.0):
        meter.gradient(linear(2), sum_loss, noise=noise, clip=1.0)
    meter.noisy_units_left(look)
    after = ledger.statement(1)
    assert before.epsilon == after.epsilon == pytest.approx(2.0, abs=1e-3)
    assert [(g.kind, g.state) for g in after.grants] == [("meter", "CHARGED"), ("count", "RELEASED")]
    texts = tuple(sorted(events.to_json(one.event) for one in (plan, look)))
    assert prices.computed_price(texts, budget, 1) == math.ceil(after.epsilon * 1e9 - 1e-3)
    assert event_lists.composed(texts) is not None and ledger.verify().grants == 2
    with pytest.raises(TacitError):
        vault.count(block, look)  # the list holds one
    assert issue(vault.ledger, block, method="m").claims.certified.epsilon == pytest.approx(2.0, abs=1e-3)


def test_what_does_not_fit_is_refused_before_anything_is_read(vault: Vault, admit: Admit) -> None:
    small = Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises(TacitError, match="ε"):
        vault.individual_filter(admit(lengths(1), [0], budget=small), FilterPlan(rho=1.0))
    assert vault.ledger.statement(1).grants == ()
    with pytest.raises(VaultError, match="takes \\(block, FilterPlan\\)"):
        vault.individual_filter(admit(lengths(1), [0], budget=small), SumPlan(noise=1.0))  # type: ignore[arg-type]


def test_an_open_block_pays_for_it_at_every_order(vault: Vault, admit: Admit) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    plan = FilterPlan.for_budget(budget)
    block = admit(lengths(1.0, 1.0), [0, 0], budget=budget, open=True, like=plan)
    vault.individual_filter(block, plan).gradient(linear(2), sum_loss, noise=3.0, clip=1.0)
    with pytest.raises(TacitError):
        vault.count(block, SumPlan(noise=100.0))  # nothing is left at any order
    vault.ledger.verify()
