"""Replace-one across parts and tasks: a removal from one leaf and an addition to another, against brute force."""

import math

import numpy as np
import pytest
from dp_accounting.dp_event import DpEvent
from scipy.stats import norm

from tacit.certificate import signing
from tacit.certificate.certificate import Certificate
from tacit.certificate.issuance import issue
from tacit.errors import BudgetExceeded, CertificateError
from tacit.privacy.accounting import calibrate, replace_one
from tacit.privacy.accounting import epsilon as accounting
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.epsilon import rdp_curve
from tacit.privacy.accounting.events import (
    compose,
    gaussian,
    laplace,
    poisson_gaussian,
    repeat,
    repeat_and_select,
    with_additive_delta,
    zcdp,
)
from tacit.privacy.ledger import Ledger, StreamTerms
from tacit.privacy.randomness.keys import KeyRing

DELTA = 1e-5
REPLACE = Budget(epsilon=1.0, delta=DELTA, adjacency=Adjacency.REPLACE_ONE)
Met = tuple[float, float, float]
"""One noisy sum: the rate of a unit of +1 before, that of a unit of −1 after, the noise."""
REACH = 8.0
STEPS = {1: 0.01, 2: 0.03, 3: 0.12}


def densities(met: Met, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Of the sum, in units of its noise, before and after the exchange."""
    before, after, noise = met
    x = np.arange(-REACH - 1 / noise, REACH + 1 / noise, step)
    return (
        step * ((1 - before) * norm.pdf(x) + before * norm.pdf(x, 1 / noise)),
        step * ((1 - after) * norm.pdf(x) + after * norm.pdf(x, -1 / noise)),
    )


def true_epsilon(sums: list[Met], delta: float = DELTA) -> float:
    """ε at δ of independent sums together, by their joint density; the larger of both directions."""
    changed = [met for met in sums if met[0] or met[1]]
    pairs = [densities(met, STEPS[len(changed)]) for met in changed]
    joint = [np.ones(1), np.ones(1)]
    for pair in pairs:
        joint = [np.outer(whole, one).ravel() for whole, one in zip(joint, pair, strict=True)]

    def smallest(p: np.ndarray, q: np.ndarray) -> float:
        low, high = 0.0, 30.0
        while high - low > 1e-5:
            middle = (low + high) / 2
            fits = float(np.sum(np.maximum(p - math.exp(middle) * q, 0))) <= delta
            low, high = (low, middle) if fits else (middle, high)
        return low

    return max(smallest(joint[0], joint[1]), smallest(joint[1], joint[0]))


RARE, STRONG = poisson_gaussian(0.001, 0.5), gaussian(8.0)
PAIRS: dict[str, tuple[DpEvent, DpEvent, list[Met]]] = {
    "rare against plain": (RARE, STRONG, [(0.001, 0, 0.5), (0, 1, 8.0)]),
    "rare against often": (RARE, poisson_gaussian(0.5, 4.0), [(0.001, 0, 0.5), (0, 0.5, 4.0)]),
    "two rates": (RARE, poisson_gaussian(0.01, 0.7), [(0.001, 0, 0.5), (0, 0.01, 0.7)]),
    "inherited": (
        compose([gaussian(9.0), RARE]),
        compose([gaussian(9.0), poisson_gaussian(0.01, 0.7)]),
        [(1, 1, 9.0), (0.001, 0, 0.5), (0, 0.01, 0.7)],
    ),
    "plain": (gaussian(5.0), gaussian(6.0), [(1, 0, 5.0), (0, 1, 6.0)]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_an_exchange_is_priced_as_brute_force_does(name: str) -> None:
    first, second, pairs = PAIRS[name]
    true, priced = true_epsilon(pairs), replace_one.epsilon(first, second, DELTA)
    assert true - 2e-4 <= priced <= true * (1 + 1e-3) + 1e-3
    assert replace_one.epsilon(second, first, DELTA) == priced


def test_an_exchange_can_cost_more_than_a_replacement_in_either_leaf() -> None:
    """What the maximum over leaves misses."""
    rate, steps = 0.001, 10
    rare = poisson_gaussian(rate, calibrate.gradient_noise(REPLACE, rate, steps), steps)
    plain = gaussian(calibrate.gaussian_noise(REPLACE))
    within = [accounting.epsilon(one, DELTA, Adjacency.REPLACE_ONE) for one in (rare, plain)]
    assert max(within) <= 1 and replace_one.epsilon(rare, plain, DELTA) > 1.034


@pytest.mark.parametrize(
    ("first", "second", "pairs"),
    [
        # one grant reads two blocks at two rates and draws noise once
        (poisson_gaussian(0.01, 0.7), poisson_gaussian(0.2, 0.7), [(0.01, 0.2, 0.7)]),
        (gaussian(3.0), poisson_gaussian(0.2, 3.0), [(1, 0.2, 3.0)]),
        (poisson_gaussian(0.1, 0.7, 2), poisson_gaussian(0.2, 0.7, 2), [(0.1, 0.2, 0.7)] * 2),
        # crossed: the high rate of each meets the low rate of the other
        (
            compose([poisson_gaussian(0.1, 1.0), poisson_gaussian(0.01, 1.0)]),
            compose([poisson_gaussian(0.1, 1.0), poisson_gaussian(0.02, 1.0)]),
            [(0.1, 0.02, 1.0), (0.01, 0.1, 1.0)],
        ),
        # of the longer list one is left over
        (poisson_gaussian(0.2, 1.0, 2), poisson_gaussian(0.05, 1.0), [(0.2, 0.05, 1.0), (0.2, 0, 1.0)]),
    ],
)
def test_units_that_share_a_draw_of_noise_are_covered(first: DpEvent, second: DpEvent, pairs: list[Met]) -> None:
    assert replace_one.epsilon(first, second, DELTA) >= true_epsilon(pairs) - 2e-4


def test_sums_that_are_correlated_over_tasks_are_covered() -> None:
    """Two units of one series of correlated sums, one in one task and one in four, in one direction."""
    shift = (1 + math.sqrt(4)) / 3.0
    assert replace_one.epsilon(gaussian(3.0), repeat(gaussian(3.0), 4), DELTA) >= accounting.epsilon(
        gaussian(1 / shift), DELTA
    )


def test_additive_deltas_of_both_lists_count() -> None:
    first = with_additive_delta(gaussian(5.0), 4e-6)
    assert replace_one.epsilon(first, with_additive_delta(RARE, 7e-6), DELTA) == math.inf
    assert replace_one.epsilon(first, RARE, DELTA) == pytest.approx(
        replace_one.epsilon(gaussian(5.0), RARE, 6e-6), rel=1e-9
    )


@pytest.mark.parametrize(
    "event",
    [gaussian(0.3), gaussian(40.0), laplace(0.1), laplace(3.0), laplace(3e4), zcdp(0.2), zcdp(1e-9),
     repeat_and_select(gaussian(4.0), 10, 1.0), repeat_and_select(zcdp(0.1), 3, math.inf)],
)  # fmt: skip
def test_renyi_curves_under_replace_one_cover_a_removal_and_an_addition(event: DpEvent) -> None:
    replaced, removed = np.array(rdp_curve(event, Adjacency.REPLACE_ONE)), np.array(rdp_curve(event))
    assert np.all(replaced >= 2 * removed * (1 - 1e-12))


def test_a_bound_by_renyi_curves_where_losses_have_no_distribution() -> None:
    found = replace_one.epsilon(zcdp(0.01), gaussian(6.0), DELTA)
    curve = np.array(rdp_curve(zcdp(0.01))) + np.array(rdp_curve(gaussian(6.0)))
    assert found == accounting.rdp_to_epsilon(tuple(curve), DELTA)
    shared = replace_one.epsilon(zcdp(0.01), zcdp(0.04), DELTA)  # one draw: (0.1 + 0.2)² = 0.09
    assert shared == pytest.approx(accounting.epsilon(zcdp(0.09), DELTA), rel=1e-9)


# --- in the ledger ---------------------------------------------------------------------------------------------------


def lists_that_fit_alone() -> tuple[DpEvent, DpEvent]:
    rate, steps = 0.001, 10
    rare = poisson_gaussian(rate, calibrate.gradient_noise(REPLACE, rate, steps), steps)
    return rare, gaussian(calibrate.gaussian_noise(REPLACE))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger.throwaway(keys=KeyRing.create(None))


def stream(ledger: Ledger, budget: Budget, k: int = 1) -> int:
    return ledger.stream(StreamTerms(name="visits", budget=budget, public=True, tasks_per_unit=k))


def test_the_gate_refuses_two_parts_of_a_task_that_cost_too_much_together(ledger: Ledger) -> None:
    rare, plain = lists_that_fit_alone()
    number = stream(ledger, REPLACE)
    block = ledger.block(number, "january", size=1000)
    train, memory = ledger.split(block.id, {"train": 900, "memory": 100})
    ledger.commit({train.id: [rare]})
    head = ledger.head
    with pytest.raises(BudgetExceeded, match=r"one of another part or task would cost ε = 1.034.*its budget is ε = 1;"):
        ledger.commit({memory.id: [plain]})
    assert ledger.head == head
    ledger.commit({memory.id: [rare]})  # the same plan costs nothing more
    ledger.verify()


def test_the_gate_refuses_two_tasks_and_two_lists_at_once(ledger: Ledger) -> None:
    rare, plain = lists_that_fit_alone()
    number = stream(ledger, REPLACE)
    blocks = [ledger.block(number, name, size=1000) for name in ("january", "february")]
    with pytest.raises(BudgetExceeded, match="another part or task"):
        ledger.commit({blocks[0].id: [rare], blocks[1].id: [plain]})
    work = {"pin": "p", "holder": "h", "kind": "sum", "plan": {}}
    ledger.bill([(blocks[0].id, rare)], **work)  # type: ignore[arg-type]
    with pytest.raises(BudgetExceeded, match="another part or task"):
        ledger.bill([(blocks[1].id, plain)], **work)  # type: ignore[arg-type]


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_OR_REMOVE, Adjacency.ZERO_OUT])
def test_other_relations_pay_for_one_leaf(ledger: Ledger, adjacency: Adjacency) -> None:
    budget = Budget(epsilon=1.0, delta=DELTA, adjacency=adjacency)
    rare = poisson_gaussian(0.001, calibrate.gradient_noise(budget, 0.001, 10), 10)
    plain = gaussian(calibrate.gaussian_noise(budget))
    number = stream(ledger, budget)
    blocks = [ledger.block(number, name, size=1000) for name in ("january", "february")]
    ledger.commit({blocks[0].id: [rare], blocks[1].id: [plain]})
    assert 0.999 < ledger.epsilon(number) <= 1.0


def test_the_certificate_states_the_worst_exchange(ledger: Ledger) -> None:
    rare, plain = lists_that_fit_alone()
    number = stream(ledger, Budget(epsilon=1.2, delta=DELTA, adjacency=Adjacency.REPLACE_ONE))
    block = ledger.block(number, "january", size=1000)
    parts = ledger.split(block.id, {"train": 800, "memory": 100, "held": 100})
    ledger.commit({parts[0].id: [rare], parts[1].id: [plain]})
    expected = replace_one.epsilon(rare, plain, DELTA)
    assert ledger.epsilon(number) == pytest.approx(expected, abs=2e-9)
    certified = issue(ledger, number, method="m").claims.certified
    assert certified.epsilon == ledger.epsilon(number)
    parallel = next(rule for rule in certified.over_tasks if rule.applies)
    assert parallel.rule == "parallel" and parallel.epsilon == certified.epsilon
    for epsilon, delta in (certified.curve[0], certified.curve[-1]):
        assert epsilon is not None and epsilon >= replace_one.epsilon(rare, plain, delta)
    ledger.verify()


def test_a_unit_of_several_tasks_may_be_replaced_by_one_of_others(ledger: Ledger) -> None:
    """Brute force over every two choices of tasks, one for the unit that leaves and one for the unit that comes."""
    plans = [RARE, poisson_gaussian(0.3, 9.0), gaussian(30.0)]
    number = stream(ledger, Budget(epsilon=3.0, delta=DELTA, adjacency=Adjacency.REPLACE_ONE), k=2)
    blocks = [ledger.block(number, name, size=1000) for name in ("january", "february", "march")]
    ledger.commit({block.id: [plan] for block, plan in zip(blocks, plans, strict=True)})

    def pair(place: int, before: bool, after: bool) -> Met:
        rate, noise = [(0.001, 0.5), (0.3, 9.0), (1.0, 30.0)][place]
        return (rate * before, rate * after, noise)

    choices = [(0, 1), (0, 2), (1, 2)]
    true = max(
        true_epsilon([pair(place, place in before, place in after) for place in range(3)])
        for before in choices
        for after in choices
    )
    assert true - 2e-4 <= ledger.epsilon(number) <= true * 1.002 + 1e-3


def test_open_blocks_of_different_filters_are_exchanged_too(ledger: Ledger) -> None:
    """Each filter alone allows ε = 1; half of each, at their orders, allows more."""
    number = stream(ledger, REPLACE)
    ledger.block(number, "january", size=1000, mode="open")
    with pytest.raises(BudgetExceeded, match="another part or task"):
        ledger.block(number, "february", size=1000, mode="open", like=laplace(3.0))
    ledger.block(number, "march", size=1000, mode="open")  # the same filter costs nothing more


def test_plans_are_found_that_fit_together() -> None:
    rare, plain = lists_that_fit_alone()
    assert not calibrate.fits_mixed([[rare], [plain]], REPLACE, 1)
    assert calibrate.fits_mixed([[rare], [rare]], REPLACE, 1)
    more = Budget(epsilon=1.04, delta=DELTA, adjacency=Adjacency.REPLACE_ONE)
    assert calibrate.fits_mixed([[rare], [plain]], more, 1)


def test_a_certificate_that_states_the_worst_leaf_only_is_refused(ledger: Ledger) -> None:
    rare, plain = lists_that_fit_alone()
    number = stream(ledger, Budget(epsilon=1.2, delta=DELTA, adjacency=Adjacency.REPLACE_ONE))
    blocks = [ledger.block(number, name, size=1000) for name in ("january", "february")]
    ledger.commit({blocks[0].id: [rare], blocks[1].id: [plain]})
    true = issue(ledger, number, method="m")
    signing.reprice(true)
    forged = true.model_dump(mode="json")
    forged["claims"]["certified"]["epsilon"] = max(one["epsilon"] for one in forged["claims"]["certified"]["tasks"])
    with pytest.raises(CertificateError, match=r"replaced by one of another part or task loses 1\.034"):
        signing.reprice(Certificate.model_validate(forged))
