"""The state machine of grants: fencing, leases, series, and open blocks."""

import threading
import time
from contextlib import suppress

import pytest

from tacit.errors import BudgetExceeded, LedgerError
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.epsilon import ORDERS, rdp_curve
from tacit.privacy.accounting.events import gaussian, laplace, poisson_gaussian, with_additive_delta
from tacit.privacy.accounting.filters import RenyiFilter, cost_units
from tacit.privacy.ledger import Ledger, StreamTerms

BUDGET = Budget(epsilon=1.0, delta=1e-5)
WORK = {"kind": "gradient", "plan": {"steps": 1}}
G8 = gaussian(8.0)


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "l") as opened:
        yield opened


@pytest.fixture
def stream(ledger) -> int:
    return ledger.stream(StreamTerms(name="s", budget=BUDGET))


@pytest.fixture
def block(ledger, stream) -> int:
    return ledger.block(stream, "t", size=10).id


def state(ledger, ticket) -> str:
    with ledger._read() as connection:
        query = f"SELECT state FROM grants WHERE id = '{ticket.grant}'"
        return connection.exec_driver_sql(query).scalar_one()


def spent(ledger, block: int) -> list[int]:
    with ledger._read() as connection:
        query = f"SELECT spent FROM curves WHERE block_id = {block} ORDER BY place"
        return list(connection.exec_driver_sql(query).scalars())


def test_the_way_of_a_grant_is_in_the_chain(ledger, block) -> None:
    ticket = ledger.reserve([(block, G8)], pin="p", holder="me", **WORK)
    assert state(ledger, ticket) == "RESERVED"
    with pytest.raises(LedgerError, match="RESERVED and cannot be released"):
        ledger.release(ticket)
    ledger.charge(ticket)
    ledger.charge(ticket)  # a resumed grant asks again: charged once
    with pytest.raises(LedgerError, match="what is charged is spent"):
        ledger.void(ticket)
    ledger.release(ticket, "hash")
    ledger.release(ticket, "hash")
    with pytest.raises(LedgerError, match="RELEASED and cannot be charged"):
        ledger.charge(ticket)
    with pytest.raises(LedgerError, match="RELEASED and cannot be released"):
        ledger.release(ticket, "another")
    with ledger._read() as connection:
        kinds = list(connection.exec_driver_sql("SELECT kind FROM log ORDER BY seq").scalars())
    assert kinds == ["open", "policy", "stream", "block", "reserve", "charge", "release"]
    assert ledger.statement(1).grants[0].output_hash == "hash"


def test_a_void_grant_stays_void(ledger, block) -> None:
    ticket = ledger.reserve([(block, G8)], pin="p", holder="me", **WORK)
    ledger.void(ticket)
    ledger.void(ticket)
    with pytest.raises(LedgerError, match="VOID and cannot be charged; its lease expired or it was cancelled"):
        ledger.charge(ticket)
    assert ledger.verify()


def test_resume_fences_the_older_ticket_off(ledger, block) -> None:
    old = ledger.bill([(block, G8)], pin="p", holder="me", **WORK)
    new = ledger.resume(pin="p", holder="me")
    assert new is not None and (new.grant, new.token, new.generation) == (old.grant, 2, old.generation)
    assert old.charged and new.charged
    for action in (ledger.check_ticket, ledger.charge, ledger.release, ledger.void):
        with pytest.raises(LedgerError, match="another process resumed this grant"):
            action(old)
    ledger.check_ticket(new)
    ledger.release(new)
    assert ledger.resume(pin="p", holder="me") is None
    assert ledger.verify()


def test_resume_is_for_the_same_work_and_holder(ledger, stream) -> None:
    a, b = (ledger.block(stream, task, size=10).id for task in "ab")
    ledger.bill([(a, G8)], pin="p", holder="me", **WORK)
    newest = ledger.bill([(b, G8)], pin="p", holder="me", **WORK)
    assert ledger.resume(pin="other work", holder="me") is None
    with pytest.raises(LedgerError, match="held by 'me', not by 'you'"):
        ledger.resume(pin="p", holder="you")
    found = ledger.resume(pin="p", holder="me")
    assert found is not None and found.grant == newest.grant


def test_sweep_voids_only_expired_reservations(ledger, stream) -> None:
    a, b, c = (ledger.block(stream, task, size=10).id for task in "abc")
    expired = ledger.reserve([(a, G8)], pin="p", holder="me", lease_s=-1, **WORK)
    charged = ledger.bill([(b, G8)], pin="q", holder="me", lease_s=-1, **WORK)
    fresh = ledger.reserve([(c, G8)], pin="r", holder="me", **WORK)
    assert ledger.void_expired() == 1 and ledger.void_expired() == 0
    assert [state(ledger, one) for one in (expired, charged, fresh)] == ["VOID", "CHARGED", "RESERVED"]
    with pytest.raises(LedgerError, match="VOID and cannot be charged"):
        ledger.charge(expired)
    assert ledger.void_expired(now=time.time() + 7200) == 1
    ledger.bill([(a, G8)], pin="p", holder="me", **WORK)  # given back
    assert ledger.verify()


def test_what_an_expired_lease_holds_is_given_back_when_it_is_needed(ledger, block) -> None:
    dead = ledger.reserve([(block, G8)], pin="p", holder="dead", lease_s=-1, **WORK)
    ledger.bill([(block, gaussian(9.0))], pin="q", holder="me", **WORK)
    assert state(ledger, dead) == "VOID" and ledger.verify()


def test_a_resumed_lease_begins_again(ledger, block) -> None:
    ledger.reserve([(block, G8)], pin="p", holder="me", lease_s=-1, **WORK)
    ticket = ledger.resume(pin="p", holder="me")
    assert ledger.void_expired() == 0 and not ticket.charged
    ledger.charge(ticket)
    assert ledger.resume(pin="p", holder="me").charged


def test_a_ticket_of_another_ledger_is_refused(ledger, block, tmp_path) -> None:
    ticket = ledger.bill([(block, G8)], pin="p", holder="me", **WORK)
    with Ledger(tmp_path / "other") as other, pytest.raises(LedgerError, match="not in this ledger"):
        other.check_ticket(ticket)


@pytest.mark.parametrize("wrong", [{"pin": ""}, {"holder": ""}, {"plan": {"x": float("nan")}}])
def test_incomplete_work_is_refused(ledger, block, wrong) -> None:
    head = ledger.head
    with pytest.raises(LedgerError):
        ledger.bill([(block, G8)], **({"pin": "p", "holder": "me", **WORK} | wrong))
    with pytest.raises(LedgerError, match="at least one read"):
        ledger.bill([], pin="p", holder="me", **WORK)
    with pytest.raises(LedgerError, match="no block 77"):
        ledger.bill([(77, G8)], pin="p", holder="me", **WORK)
    assert ledger.head == head


# ---- series ----------------------------------------------------------------------------------------------------


def test_a_series_gives_each_position_once(ledger, stream) -> None:
    series = {"series": "sums", "horizon": 3, "holder": "me", **WORK}
    blocks = [ledger.block(stream, str(number), size=10).id for number in range(6)]
    first = ledger.bill([(blocks[0], G8)], pin="p", **series)
    held = ledger.reserve([(blocks[1], G8)], pin="p", **series)
    assert (first.series, held.series) == ((first.grant,), (first.grant, held.grant))
    ledger.void(held)
    ledger.keys.rotate(keep=ledger.key_generations())
    second = ledger.bill([(blocks[2], G8)], pin="p", **series)
    assert second.series == (first.grant, second.grant)
    assert second.generation == first.generation  # one key for the whole series
    assert ledger.bill([(blocks[5], G8)], pin="p", holder="me", **WORK).generation == first.generation + 1
    resumed = ledger.resume(pin="p", holder="me")
    assert resumed is not None and resumed.series == ()
    with pytest.raises(LedgerError, match="started with horizon 3, got 4"):
        ledger.bill([(blocks[3], G8)], pin="p", **(series | {"horizon": 4}))
    assert ledger.bill([(blocks[3], G8)], pin="p", **series).series[:2] == (first.grant, second.grant)
    with pytest.raises(LedgerError, match="used all 3 positions"):
        ledger.bill([(blocks[4], G8)], pin="p", **series)
    assert len(ledger.bill([(blocks[4], G8)], pin="p", **(series | {"series": "other"})).series) == 1
    assert ledger.verify()


# ---- open blocks -----------------------------------------------------------------------------------------------


def test_an_open_block_fills_its_filter_at_every_order(ledger, stream) -> None:
    step = poisson_gaussian(0.01, 1.5, 60)
    block = ledger.block(stream, "open", mode="open", like=step, size=10).id
    filter_ = RenyiFilter.for_budget(BUDGET, like=step)
    cost = dict(zip(ORDERS, cost_units(rdp_curve(step, BUDGET.adjacency)), strict=True))
    fits = min(limit // cost[order] for order, limit in zip(filter_.orders, filter_.limit_units, strict=True))
    assert ledger.epsilon(stream) == 0.0
    for number in range(fits):
        ledger.bill([(block, step)], pin=str(number), holder="me", **WORK)
        # the filter's, never the odometer's; its limits are whole nano-units
        assert ledger.epsilon(stream) == pytest.approx(filter_.epsilon(BUDGET.delta), abs=1e-8)
        assert ledger.epsilon(stream) <= BUDGET.epsilon
    with pytest.raises(BudgetExceeded, match=r"cost ε = .* and ε = .* is left, enough for .*% of them"):
        ledger.bill([(block, step)], pin="last", holder="me", **WORK)
    assert spent(ledger, block) == [fits * cost[order] for order in filter_.orders]
    assert ledger.verify()


def test_one_exhausted_order_is_enough_to_refuse(ledger, stream) -> None:
    block = ledger.block(stream, "open", mode="open", size=10).id
    with ledger._write() as txn:  # only one order is full: forged, so the chain does not verify any more
        sql = 'UPDATE curves SET spent = "limit" WHERE place = (SELECT max(place) FROM curves)'
        txn.connection.exec_driver_sql(sql)
    with pytest.raises(BudgetExceeded):
        ledger.bill([(block, gaussian(1e4))], pin="p", holder="me", **WORK)


def test_a_void_reservation_returns_to_the_filter(ledger, stream) -> None:
    block = ledger.block(stream, "open", mode="open", size=10).id
    ledger.bill([(block, gaussian(9.0))], pin="p", holder="me", **WORK)
    before = spent(ledger, block)
    ticket = ledger.reserve([(block, gaussian(9.0)), (block, G8)], pin="p", holder="me", **WORK)
    assert all(now > then for now, then in zip(spent(ledger, block), before, strict=True))
    ledger.void(ticket)
    assert spent(ledger, block) == before and ledger.verify()


def test_parts_of_an_open_block_inherit_limits_and_spending(ledger, stream) -> None:
    block = ledger.block(stream, "open", mode="open", size=10).id
    ledger.bill([(block, gaussian(5.0))], pin="p", holder="me", **WORK)
    a, b = ledger.split(block, {"a": 5, "b": 5})
    assert spent(ledger, a.id) == spent(ledger, b.id) == spent(ledger, block)
    with pytest.raises(BudgetExceeded):
        ledger.bill([(a.id, gaussian(5.0))], pin="p", holder="me", **WORK)
    ledger.bill([(a.id, gaussian(8.0))], pin="p", holder="me", **WORK)
    ledger.bill([(b.id, gaussian(8.0))], pin="p", holder="me", **WORK)
    assert len(ledger.statement(stream).blocks[1].events) == 2
    assert ledger.verify()


def test_an_open_block_refuses_what_a_filter_cannot_count(ledger, stream) -> None:
    block = ledger.block(stream, "open", mode="open", size=10).id
    with pytest.raises(BudgetExceeded, match="additive δ"):
        ledger.bill([(block, with_additive_delta(G8, 1e-9))], pin="p", holder="me", **WORK)
    with pytest.raises(BudgetExceeded):
        ledger.bill([(block, gaussian(0.0))], pin="p", holder="me", **WORK)
    with pytest.raises(LedgerError, match="takes no list"):
        ledger.commit({block: [G8]})
    ledger.bill([(block, laplace(100.0))], pin="p", holder="me", **WORK)


def test_open_replace_one_blocks_refuse_poisson_sampling(ledger) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5, adjacency=Adjacency.REPLACE_ONE)
    stream = ledger.stream(StreamTerms(name="r", budget=budget))
    block = ledger.block(stream, "open", mode="open", size=10).id
    with pytest.raises(BudgetExceeded):
        ledger.bill([(block, poisson_gaussian(0.001, 50.0))], pin="p", holder="me", **WORK)
    ledger.bill([(block, gaussian(20.0))], pin="p", holder="me", **WORK)


def test_threads_never_overspend_together(ledger, stream) -> None:
    block = ledger.block(stream, "open", mode="open", size=10).id
    done = []

    def spend() -> None:
        with suppress(BudgetExceeded):
            while True:
                done.append(ledger.bill([(block, gaussian(14.0))], pin="p", holder="me", **WORK))

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (row,) = ledger.statement(stream).blocks
    cost = cost_units(rdp_curve(gaussian(14.0), BUDGET.adjacency))
    pairs = [(cost[ORDERS.index(order)], limit) for order, limit in zip(row.orders, row.limits, strict=True)]
    assert len(done) == min(limit // unit for unit, limit in pairs) > 5
    assert ledger.verify()


def test_tiny_spends_are_not_free(ledger, stream) -> None:
    block = ledger.block(stream, "open", mode="open", size=10).id
    ledger.bill([(block, poisson_gaussian(1e-12, 1e6))], pin="p", holder="me", **WORK)
    assert min(spent(ledger, block)) >= 1
