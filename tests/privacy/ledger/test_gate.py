"""The gate over several tasks and several streams."""

import numpy as np
import pytest

from tacit.errors import BudgetExceeded, LedgerError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.accounting.calibrate import gaussian_noise, price
from tacit.privacy.accounting.epsilon import ORDERS, rdp_curve, rdp_to_epsilon
from tacit.privacy.accounting.events import compose, gaussian, to_json, with_additive_delta
from tacit.privacy.accounting.filters import RenyiFilter
from tacit.privacy.ledger import Ledger, StreamTerms
from tacit.privacy.ledger.limits.policy import Policy

BUDGET = Budget(epsilon=1.0, delta=1e-5)
WORK = {"pin": "p", "holder": "me", "kind": "sum", "plan": {}}


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "l") as opened:
        yield opened


def stream_of(ledger, k: int, **terms) -> int:
    return ledger.stream(StreamTerms(name=f"k{k}{terms}", budget=BUDGET, tasks_per_unit=k, **terms))


def blocks_of(ledger, stream: int, count: int, **options) -> list[int]:
    return [ledger.block(stream, str(number), size=10, **options).id for number in range(count)]


def curve(event) -> np.ndarray:
    return np.array(rdp_curve(event, BUDGET.adjacency))


def test_equal_lists_cost_k_times(ledger) -> None:
    stream = stream_of(ledger, 3)
    event = gaussian(gaussian_noise(BUDGET, times=3))
    for place, block in enumerate(blocks_of(ledger, stream, 5)):
        ledger.bill([(block, event)], **WORK)
        assert ledger.epsilon(stream) == price(event, BUDGET, times=min(3, place + 1)) / 1e9
    assert 0.99 < ledger.epsilon(stream) <= 1.0
    assert ledger.verify()


def test_a_plan_calibrated_for_one_task_is_refused_where_units_recur(ledger) -> None:
    stream = stream_of(ledger, 2)
    (block,) = blocks_of(ledger, stream, 1)
    with pytest.raises(BudgetExceeded, match=r"in 2 tasks ε = 1\.\d+ at"):
        ledger.bill([(block, gaussian(gaussian_noise(BUDGET)))], **WORK)


def test_different_lists_cost_the_worst_k_of_them(ledger) -> None:
    stream = stream_of(ledger, 2)
    blocks = blocks_of(ledger, stream, 4)
    events = [gaussian(noise) for noise in (9.0, 7.0, 8.0)]
    for block, event in zip(blocks, events, strict=False):
        ledger.bill([(block, event)], **WORK)
    worst = compose(sorted([events[1], events[2]], key=to_json))  # 7 is there once
    assert ledger.epsilon(stream) == price(worst, BUDGET) / 1e9
    assert ledger.epsilon(stream) <= rdp_to_epsilon(tuple(curve(events[1]) + curve(events[2])), BUDGET.delta)
    with pytest.raises(BudgetExceeded, match=r"in 2 tasks ε = 1\.\d+ at"):
        ledger.bill([(blocks[3], gaussian(4.0))], **WORK)
    assert ledger.verify()


def test_many_different_lists_cost_the_k_largest_at_every_order(ledger) -> None:
    stream = stream_of(ledger, 3)
    events = [gaussian(noise) for noise in (12.0, 11.0, 10.5, 10.0, 9.0)]
    for block, event in zip(blocks_of(ledger, stream, 5), events, strict=True):
        ledger.bill([(block, event)], **WORK)
    expected = rdp_to_epsilon(tuple(sum(curve(event) for event in events[2:])), BUDGET.delta)
    assert ledger.epsilon(stream) == pytest.approx(expected, rel=1e-12)
    assert ledger.statement(stream).accountant.startswith("RDP")
    assert ledger.verify()


def test_a_smaller_task_is_not_refused_after_calibrated_ones(ledger) -> None:
    stream = stream_of(ledger, 2)
    a, b, c = blocks_of(ledger, stream, 3)
    whole = gaussian(gaussian_noise(BUDGET, times=2))
    ledger.bill([(a, whole)], **WORK)
    train, memory = ledger.split(b, {"train": 9, "memory": 1})
    ledger.bill([(train.id, whole), (memory.id, gaussian(50.0))], **WORK)
    ledger.bill([(c, gaussian(20.0))], **WORK)
    assert 0.99 < ledger.epsilon(stream) <= 1.0 and ledger.verify()


def test_a_list_inside_another_costs_nothing_more(ledger) -> None:
    stream = stream_of(ledger, 2)
    (block,) = blocks_of(ledger, stream, 1)
    once = gaussian(gaussian_noise(BUDGET, times=4))
    ledger.commit({block: [once]})
    train, _ = ledger.split(block, {"train": 9, "memory": 1})
    ledger.bill([(train.id, once)], **WORK)
    assert ledger.epsilon(stream) == price(once, BUDGET, times=2) / 1e9 and ledger.verify()


def test_a_root_costs_its_worst_leaf(ledger) -> None:
    stream = stream_of(ledger, 2)
    one, two = blocks_of(ledger, stream, 2)
    train, memory = ledger.split(one, {"train": 9, "memory": 1})
    ledger.bill([(train.id, gaussian(7.0)), (memory.id, gaussian(9.0)), (two, gaussian(8.0))], **WORK)
    worst = compose(sorted([gaussian(7.0), gaussian(8.0)], key=to_json))
    assert price(worst, BUDGET) / 1e9 <= ledger.epsilon(stream) <= price(gaussian(7.0), BUDGET, times=2) / 1e9


def test_additive_deltas_of_k_tasks_add_up(ledger) -> None:
    stream = stream_of(ledger, 2)
    a, b, c = blocks_of(ledger, stream, 3)
    ledger.bill([(a, with_additive_delta(gaussian(9.0), 4e-6)), (b, gaussian(8.0))], **WORK)
    both = compose([gaussian(9.0), gaussian(8.0)])
    assert ledger.epsilon(stream) == pytest.approx(price(both, Budget(epsilon=1, delta=6e-6)) / 1e9, rel=1e-6)
    with pytest.raises(BudgetExceeded):
        ledger.bill([(c, with_additive_delta(gaussian(9.0), 7e-6))], **WORK)


def test_open_blocks_share_the_filter(ledger) -> None:
    stream = stream_of(ledger, 4)
    blocks = blocks_of(ledger, stream, 6, mode="open")
    limits = [row.limits for row in ledger.statement(stream).blocks]
    whole = RenyiFilter.for_budget(BUDGET)
    assert all(4 * part <= all_ for part, all_ in zip(limits[0], whole.limit_units, strict=True))
    for block in blocks:
        ledger.bill([(block, gaussian(10.0))], **WORK)
    assert 0.9 < ledger.epsilon(stream) <= 1.0 and ledger.verify()


def test_open_and_committed_tasks_of_one_unit_add_up(ledger) -> None:
    stream = stream_of(ledger, 2)
    ledger.block(stream, "open", mode="open", size=10)
    block = ledger.block(stream, "committed", size=10).id
    with pytest.raises(BudgetExceeded):  # it would fit alone; half of the filter is promised
        ledger.bill([(block, gaussian(4.5))], **WORK)
    ledger.bill([(block, gaussian(9.0))], **WORK)
    assert ledger.verify()
    other = stream_of(ledger, 2, records_per_unit=2)
    first, second = blocks_of(ledger, other, 2)
    ledger.bill([(first, gaussian(gaussian_noise(BUDGET, times=2)))], **WORK)
    with pytest.raises(BudgetExceeded):
        ledger.block(other, "open", mode="open", size=10)
    ledger.bill([(second, gaussian(gaussian_noise(BUDGET, times=2)))], **WORK)


def test_plans_chosen_as_one_goes_are_gated_by_a_filter(ledger) -> None:
    stream = stream_of(ledger, 2, fixed_schedule=False)
    a, b, c = blocks_of(ledger, stream, 3)
    with pytest.raises(
        BudgetExceeded, match=r"would cost one record ε = .* over stream .*, the limit is ε = 1 at .*; use more noise"
    ):
        ledger.bill([(a, gaussian(3.5))], **WORK)
    ledger.bill([(a, gaussian(6.0))], **WORK)
    limit = RenyiFilter.for_budget(BUDGET)
    assert ledger.epsilon(stream) == limit.epsilon(BUDGET.delta)
    with pytest.raises(BudgetExceeded):
        ledger.bill([(b, gaussian(4.5))], **WORK)
    ledger.bill([(b, gaussian(7.0)), (c, gaussian(7.0))], **WORK)
    assert ledger.verify()


def test_the_unit_cap_is_over_all_streams(ledger) -> None:
    cap = Budget(epsilon=1.2, delta=1e-5)
    ledger.adopt(Policy(unit_cap=cap), by="officer", why="one person is in both registers")
    one, two = stream_of(ledger, 1), stream_of(ledger, 2)
    (a,), (b, c) = blocks_of(ledger, one, 1), blocks_of(ledger, two, 2)
    ledger.bill([(a, gaussian(5.0))], **WORK)
    with pytest.raises(BudgetExceeded, match="all streams"):
        ledger.bill([(b, gaussian(6.0)), (c, gaussian(6.0))], **WORK)
    ledger.bill([(b, gaussian(12.0)), (c, gaussian(12.0))], **WORK)
    total = curve(gaussian(5.0)) + 2 * curve(gaussian(12.0))
    limit = RenyiFilter.for_budget(cap)
    needed = dict(zip(ORDERS, total, strict=True))
    assert all(needed[o] <= most for o, most in zip(limit.orders, limit.limits, strict=True))
    with pytest.raises(BudgetExceeded, match="additive"):
        block = ledger.block(one, "x", size=1).id
        ledger.bill([(block, with_additive_delta(gaussian(50.0), 1e-9))], **WORK)
    assert ledger.verify()


def test_a_cap_counts_open_blocks_in_full(ledger) -> None:
    ledger.adopt(Policy(unit_cap=Budget(epsilon=1.2, delta=1e-5)), by="officer", why="cap")
    one, two = stream_of(ledger, 1), stream_of(ledger, 1, public=True)
    ledger.block(one, "open", mode="open", size=10)
    with pytest.raises(BudgetExceeded):
        ledger.block(two, "open", mode="open", size=10)


def test_a_cap_adds_up_only_like_with_like(ledger) -> None:
    ledger.adopt(Policy(unit_cap=Budget(epsilon=3, delta=1e-5)), by="officer", why="cap")
    for other in ({"adjacency": "replace-one"}, {"unit": "person"}):
        with pytest.raises(LedgerError, match="unit_cap"):
            ledger.stream(StreamTerms(name="s", budget=Budget(epsilon=1, delta=1e-5, **other)))


def test_a_cap_that_is_already_exceeded_is_refused(ledger) -> None:
    (block,) = blocks_of(ledger, stream_of(ledger, 1), 1)
    ledger.bill([(block, gaussian(4.0))], **WORK)
    head = ledger.head
    with pytest.raises(BudgetExceeded, match="all streams"):
        ledger.adopt(Policy(unit_cap=Budget(epsilon=0.5, delta=1e-5)), by="officer", why="cap")
    assert ledger.head == head
