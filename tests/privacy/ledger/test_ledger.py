"""Streams, blocks, lists, grants: what the ledger lets through and what it refuses."""

import stat

import numpy as np
import pytest

from tacit.errors import BudgetExceeded, LedgerError, PolicyError
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.calibrate import gradient_noise, price
from tacit.privacy.accounting.events import coin_flip, compose, gaussian, poisson_gaussian, to_json, with_additive_delta
from tacit.privacy.ledger import Ledger, StreamTerms
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.randomness.keys import KeyRing

BUDGET = Budget(epsilon=1.0, delta=1e-5)
WORK = {"holder": "me", "kind": "gradient", "plan": {"steps": 1}}
G8, G9, G3 = gaussian(8.0), gaussian(9.0), gaussian(3.0)


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "l") as opened:
        yield opened


@pytest.fixture
def stream(ledger) -> int:
    return ledger.stream(StreamTerms(name="s", budget=BUDGET))


def kinds(ledger) -> list[str]:
    with ledger._read() as connection:
        return list(connection.exec_driver_sql("SELECT kind FROM log ORDER BY seq").scalars())


# ---- opening ---------------------------------------------------------------------------------------------------


def test_files_are_owner_only(ledger, tmp_path) -> None:
    ledger.stream(StreamTerms(name="s", budget=BUDGET))
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_history_survives_close_and_open(ledger, stream, tmp_path) -> None:
    block = ledger.block(stream, "t", size=10, labels=(1, 2), fingerprint="f")
    ledger.bill([(block.id, G8)], pin="p", **WORK)
    before = (ledger.id, ledger.head, ledger.epsilon(stream), ledger.statement(stream))
    ledger.close()
    with Ledger(tmp_path / "l") as again:
        assert (again.id, again.head, again.epsilon(stream), again.statement(stream)) == before
        with pytest.raises(BudgetExceeded):
            again.bill([(block.id, G8)], pin="p", **WORK)


def test_reading_changes_nothing(ledger, stream) -> None:
    block = ledger.block(stream, "t", size=10)
    ledger.bill([(block.id, G8)], pin="p", **WORK)
    head = ledger.head
    assert [ledger.epsilon(stream) for _ in range(3)] == [price(G8, BUDGET) / 1e9] * 3
    ledger.statement(stream), ledger.verify(), ledger.policy
    assert ledger.head == head and ledger.contains(head)


def test_missing_or_foreign_keys_are_refused(ledger, stream, tmp_path) -> None:
    ledger.close()
    keys = tmp_path / "l.keys"
    kept = keys.read_bytes()
    keys.unlink()
    with pytest.raises(LedgerError, match=r"key file .* is missing"):
        Ledger(tmp_path / "l")
    KeyRing.create(keys)
    with pytest.raises(LedgerError, match="belong to another ledger"):
        Ledger(tmp_path / "l")
    keys.write_bytes(kept)
    Ledger(tmp_path / "l").close()


def test_throwaway_is_for_public_data_and_goes() -> None:
    with Ledger.throwaway() as ledger:
        folder = ledger.path.parent
        with pytest.raises(LedgerError, match="is private, and a private stream needs a ledger file"):
            ledger.stream(StreamTerms(name="s", budget=BUDGET))
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET, public=True))
        block = ledger.block(stream, "t", size=10)
        ledger.bill([(block.id, G8)], pin="p", **WORK)
        with pytest.raises(BudgetExceeded):
            ledger.bill([(block.id, G8)], pin="p", **WORK)
        assert ledger.verify().grants == 1
    assert not folder.exists()


def test_only_test_keys_give_grants_the_same_names_again(tmp_path) -> None:
    def name(keys: KeyRing | None) -> str:
        with Ledger.throwaway(keys=keys) as ledger:
            stream = ledger.stream(StreamTerms(name="s", budget=BUDGET, public=True))
            ledger.block(stream, "t", size=10)
            return ledger.bill([(1, G8)], pin="p", **WORK).grant

    assert name(KeyRing.for_tests(1)) == name(KeyRing.for_tests(1)) != name(KeyRing.for_tests(2))
    ring = KeyRing.create(None)
    assert name(ring) != name(ring)


def test_test_keys_need_the_policy(tmp_path) -> None:
    keys = KeyRing.for_tests(1)
    with Ledger(tmp_path / "l", keys=keys) as ledger:
        with pytest.raises(PolicyError, match="allow_test_keys"):
            ledger.stream(StreamTerms(name="s", budget=BUDGET))
        ledger.stream(StreamTerms(name="p", budget=BUDGET, public=True))
    with pytest.raises(LedgerError, match="belong to another ledger"):
        Ledger(tmp_path / "l", keys=KeyRing.for_tests(2))


# ---- policy ----------------------------------------------------------------------------------------------------


def test_another_policy_must_be_adopted(ledger, tmp_path) -> None:
    loose = Policy(allow_unsafe=True)
    with pytest.raises(LedgerError, match=r"call ledger\.adopt"):
        Ledger(tmp_path / "l", policy=loose)
    with pytest.raises(LedgerError, match="by whom and why"):
        ledger.adopt(loose, by=" ", why="x")
    ledger.adopt(loose, by="officer", why="baseline on old data")
    assert ledger.policy == loose and kinds(ledger)[-1] == "policy"
    Ledger(tmp_path / "l", policy=loose).close()


def test_a_budget_is_raised_only_by_who_may(ledger, stream) -> None:
    more = Budget(epsilon=2.0, delta=1e-5)
    with pytest.raises(PolicyError, match="may not raise"):
        ledger.raise_budget(stream, more, by="eve", why="please")
    ledger.adopt(Policy(may_raise=("officer",)), by="officer", why="set-up")
    for wrong in (Budget(epsilon=0.5, delta=1e-5), BUDGET, Budget(epsilon=2.0, delta=1e-6)):
        with pytest.raises(LedgerError, match="must be larger"):
            ledger.raise_budget(stream, wrong, by="officer", why="x")
    with pytest.raises(LedgerError, match="keeps unit and adjacency"):
        replaced = Budget(epsilon=2.0, delta=1e-5, adjacency=Adjacency.REPLACE_ONE)
        ledger.raise_budget(stream, replaced, by="officer", why="x")
    block = ledger.block(stream, "t", size=10)
    with pytest.raises(BudgetExceeded):
        ledger.bill([(block.id, G3)], pin="p", **WORK)
    ledger.raise_budget(stream, more, by="officer", why="the ethics board said so")
    ledger.bill([(block.id, G3)], pin="p", **WORK)
    (raised,) = ledger.statement(stream).raises
    assert (raised.by, raised.before, raised.after) == ("officer", BUDGET, more)
    assert ledger.verify()


def test_raw_records_need_the_policy_and_end_the_guarantee(ledger, stream) -> None:
    block = ledger.block(stream, "t", size=10)
    with pytest.raises(PolicyError, match="allow_unsafe"):
        ledger.expose(block.id, "baseline")
    ledger.adopt(Policy(allow_unsafe=True), by="officer", why="baseline")
    ledger.expose(block.id, "baseline")
    assert ledger.epsilon(stream) == np.inf
    assert ledger.statement(stream).exposures == ((block.id, "baseline"),)
    assert ledger.verify()


# ---- streams and blocks ----------------------------------------------------------------------------------------


def test_a_name_has_one_budget(ledger, stream) -> None:
    assert ledger.stream(StreamTerms(name="s", budget=BUDGET)) == stream
    for field, terms in {
        "epsilon": StreamTerms(name="s", budget=Budget(epsilon=2, delta=1e-5)),
        "delta": StreamTerms(name="s", budget=Budget(epsilon=1, delta=1e-6)),
        "unit": StreamTerms(name="s", budget=Budget(epsilon=1, delta=1e-5, unit="person")),
        "tasks_per_unit": StreamTerms(name="s", budget=BUDGET, tasks_per_unit=2),
        "public": StreamTerms(name="s", budget=BUDGET, public=True),
    }.items():
        with pytest.raises(LedgerError, match=f"with {field} ="):
            ledger.stream(terms)


def test_the_same_records_have_one_block(ledger, stream) -> None:
    block = ledger.block(stream, "t", size=10, fingerprint="f")
    assert ledger.block(stream, "t", size=10, fingerprint="f") == block
    other = ledger.stream(StreamTerms(name="other", budget=BUDGET))
    for where, task, says in (
        (stream, "t2", "already learned as task 't'; pass the records of the next task"),
        (other, "t", "already in the ledger as stream 's', task 't'"),
    ):
        with pytest.raises(LedgerError, match=says):
            ledger.block(where, task, size=10, fingerprint="f")
    assert ledger.block(stream, "t", size=10, fingerprint="g") == block  # its records changed, the budget did not
    with pytest.raises(LedgerError, match="already in the ledger"):
        ledger.block(other, "t", size=10, fingerprint="g")
    assert kinds(ledger)[-1] == "refresh" and ledger.verify()
    assert ledger.statement(stream).blocks[0].fingerprints == ("f", "g")


def test_a_public_stream_may_be_copied_but_not_hide_a_private_one(ledger, stream) -> None:
    public = ledger.stream(StreamTerms(name="p", budget=BUDGET, public=True))
    ledger.block(public, "t", size=10, fingerprint="f")
    ledger.block(public, "t2", size=10, fingerprint="f")
    ledger.block(stream, "t", size=10, fingerprint="private")
    with pytest.raises(LedgerError, match="already in the ledger"):
        ledger.block(public, "t3", size=10, fingerprint="private")


def test_a_task_has_one_root_and_one_mode(ledger, stream) -> None:
    ledger.block(stream, "t", size=10)
    with pytest.raises(LedgerError, match="split that block"):
        ledger.block(stream, "t", part="memory", size=10)
    with pytest.raises(LedgerError, match="keeps its mode"):
        ledger.block(stream, "t", mode="open", size=10)
    with pytest.raises(LedgerError, match="mode must be"):
        ledger.block(stream, "u", mode="closed", size=10)
    with pytest.raises(LedgerError, match="no stream 99"):
        ledger.block(99, "t", size=10)
    with pytest.raises(LedgerError, match="cannot be written"):
        ledger.block(stream, "u", size=10, labels=[object()])


def test_enrolment_lets_a_unit_into_k_tasks(ledger) -> None:
    stream = ledger.stream(StreamTerms(name="people", budget=BUDGET, tasks_per_unit=2))
    names = np.array([1, 2, 2**63 + 5], dtype=np.uint64)
    assert ledger.enroll(stream, "a", names, 2).all()
    assert ledger.enroll(stream, "b", names[:2], 2).all()
    assert ledger.enroll(stream, "c", names, 2).tolist() == [False, False, True]
    assert ledger.enroll(stream, "a", names, 2).all()  # the same task again
    assert ledger.enroll(stream, "d", names, 2).tolist() == [False] * 3
    assert ledger.enroll(stream, "e", names[:0], 2).tolist() == []
    with pytest.raises(LedgerError, match="tasks_per_unit = 2, got 3"):
        ledger.enroll(stream, "a", names, 3)
    assert ledger.verify()


# ---- committed blocks ------------------------------------------------------------------------------------------


def test_a_calibrated_plan_is_never_refused(ledger, stream) -> None:
    for number, (rate, steps) in enumerate([(0.01, 600), (0.2, 30), (1.0, 5)]):
        event = poisson_gaussian(rate, gradient_noise(BUDGET, rate, steps), steps)
        block = ledger.block(stream, f"t{number}", size=10)
        ledger.bill([(block.id, event)], pin="p", **WORK)
    assert 0.99 < ledger.epsilon(stream) <= 1.0


def test_the_first_grant_is_the_whole_list(ledger, stream) -> None:
    block = ledger.block(stream, "t", size=10)
    ticket = ledger.reserve([(block.id, G8)], pin="p", **WORK)
    with pytest.raises(BudgetExceeded, match="is held by an unfinished grant"):
        ledger.reserve([(block.id, gaussian(1000.0))], pin="q", **WORK)
    ledger.void(ticket)
    assert ledger.epsilon(stream) == 0.0
    ledger.bill([(block.id, G9), (block.id, G9)], pin="q", **WORK)
    assert ledger.epsilon(stream) == price(compose([G9, G9]), BUDGET) / 1e9
    assert ledger.verify()


def test_a_committed_list_is_consumed_entry_by_entry(ledger, stream) -> None:
    block = ledger.block(stream, "t", size=10)
    ledger.commit({block.id: [G8, G8, G9]})
    cost = ledger.epsilon(stream)
    assert cost == price(compose([G8, G8, G9]), BUDGET) / 1e9
    ledger.bill([(block.id, G8)], pin="p", **WORK)
    with pytest.raises(BudgetExceeded):
        ledger.bill([(block.id, G8), (block.id, G8)], pin="p", **WORK)
    held = ledger.reserve([(block.id, G8)], pin="p", **WORK)
    with pytest.raises(BudgetExceeded):
        ledger.bill([(block.id, G8)], pin="p", **WORK)
    ledger.void(held)
    ledger.bill([(block.id, G8), (block.id, G9)], pin="p", **WORK)
    for event in (G8, G9, G3):
        with pytest.raises(BudgetExceeded):
            ledger.bill([(block.id, event)], pin="p", **WORK)
    assert ledger.epsilon(stream) == cost and ledger.verify()


def test_a_list_is_committed_once(ledger, stream) -> None:
    block = ledger.block(stream, "t", size=10)
    with pytest.raises(BudgetExceeded, match=r"would cost a unit of 's' ε = 1\.\d+ at δ = 1e-05, its budget is ε = 1"):
        ledger.commit({block.id: [G3]})
    ledger.commit({block.id: [G8]})
    head = ledger.head
    ledger.commit({block.id: [G8]})  # a rerun
    assert ledger.head == head
    with pytest.raises(BudgetExceeded, match="committed to another list"):
        ledger.commit({block.id: [G8, G9]})
    with pytest.raises(LedgerError, match="empty list"):
        ledger.commit({ledger.block(stream, "u", size=1).id: []})


def test_blocks_are_parallel_and_grants_are_one_transaction(ledger, stream) -> None:
    a, b = (ledger.block(stream, task, size=10).id for task in "ab")
    with pytest.raises(BudgetExceeded):
        ledger.bill([(a, G8), (b, G3)], pin="p", **WORK)
    assert ledger.epsilon(stream) == 0.0
    ledger.bill([(a, G8), (b, G9)], pin="p", **WORK)
    assert ledger.epsilon(stream) == price(G8, BUDGET) / 1e9


def test_additive_delta_is_taken_off_delta(ledger, stream) -> None:
    a, b = (ledger.block(stream, task, size=10).id for task in "ab")
    ledger.bill([(a, with_additive_delta(G8, 5e-6))], pin="p", **WORK)
    assert ledger.epsilon(stream) > price(G8, BUDGET) / 1e9
    with pytest.raises(BudgetExceeded, match="infinity"):
        ledger.bill([(b, with_additive_delta(G8, 2e-5))], pin="p", **WORK)


@pytest.mark.parametrize("event", [coin_flip(0.5, G8), compose([G8, coin_flip(0.1, G9)])])
def test_coins_that_were_not_tossed_are_refused(ledger, stream, event) -> None:
    block = ledger.block(stream, "t", size=10)
    with pytest.raises(LedgerError, match="an event with a coin flip cannot be billed"):
        ledger.bill([(block.id, event)], pin="p", **WORK)
    with pytest.raises(LedgerError, match="an event with a coin flip cannot be billed"):
        ledger.commit({block.id: [event]})


def test_what_has_no_price_is_refused_even_by_a_huge_budget(ledger) -> None:
    huge = ledger.stream(StreamTerms(name="huge", budget=Budget(epsilon=1e12, delta=1e-5)))
    block = ledger.block(huge, "t", size=10)
    with pytest.raises(BudgetExceeded, match="infinity"):
        ledger.bill([(block.id, gaussian(0.0))], pin="p", **WORK)


# ---- splits ----------------------------------------------------------------------------------------------------


def test_parts_inherit_what_was_promised(ledger, stream) -> None:
    block = ledger.block(stream, "t", size=10)
    ledger.commit({block.id: [G8]})
    train, memory = ledger.split(block.id, {"train": 9, "memory": 1})
    assert [(row.part, row.size, row.root_id) for row in (train, memory)] == [
        ("train", 9, block.id),
        ("memory", 1, block.id),
    ]
    assert ledger.split(block.id, {"train": 9, "memory": 1}) == [train, memory]
    with pytest.raises(LedgerError, match="a split is made once"):
        ledger.split(block.id, {"train": 8, "memory": 2})
    with pytest.raises(LedgerError, match="is split and cannot be charged"):
        ledger.bill([(block.id, G8)], pin="p", **WORK)
    noise = gaussian(4.0)
    assert price(noise, BUDGET) < 1e9 < price(compose([noise, G8]), BUDGET)
    with pytest.raises(BudgetExceeded):
        ledger.bill([(train.id, noise)], pin="p", **WORK)
    ledger.bill([(train.id, G9)], pin="p", **WORK)
    assert ledger.epsilon(stream) == price(compose([G8, G9]), BUDGET) / 1e9
    inner = ledger.split(memory.id, {"a": 1, "b": 0})
    assert [row.part for row in inner] == ["memory/a", "memory/b"]
    events = {row.row.part: row.events for row in ledger.statement(stream).blocks}
    assert events["train"] == (to_json(G8), to_json(G9))
    assert events["memory/a"] == (to_json(G8),)
    assert ledger.verify()


def test_a_committed_block_is_split_before_it_is_read_or_never(ledger, stream) -> None:
    """Lists of parts that are chosen after a release would be priced as if they had been fixed before it."""
    block = ledger.block(stream, "t", size=10)
    ticket = ledger.reserve([(block.id, G8)], pin="p", **WORK)
    with pytest.raises(LedgerError, match="split it before its first read"):
        ledger.split(block.id, {"a": 5, "b": 5})
    ledger.void(ticket)
    assert len(ledger.split(block.id, {"a": 5, "b": 5})) == 2
    open_one = ledger.block(stream, "o", size=10, mode="open")
    ledger.bill([(open_one.id, gaussian(100.0))], pin="p", **WORK)
    assert len(ledger.split(open_one.id, {"a": 5, "b": 5})) == 2 and ledger.verify()


def test_facts_are_declared_once(ledger, stream) -> None:
    ledger.block(stream, "t", size=10, labels=(0, 1))
    with pytest.raises(LedgerError, match="declared with size 10"):
        ledger.block(stream, "t", size=11, labels=(0, 1))
    with pytest.raises(LedgerError, match="other labels"):
        ledger.block(stream, "t", size=10, labels=(1, 0))


def test_whether_records_changed_does_not_show_in_the_chain(ledger, stream) -> None:
    ledger.block(stream, "t", size=10, fingerprint="f")
    lengths = []
    for fingerprint in ("f", "g"):
        before = ledger.head.seq
        ledger.block(stream, "t", size=10, fingerprint=fingerprint)
        lengths.append(ledger.head.seq - before)
    assert lengths == [1, 1] and ledger.verify()


def test_raw_records_leave_only_after_a_durable_entry(ledger) -> None:
    public = ledger.stream(StreamTerms(name="p", budget=BUDGET, public=True))
    block = ledger.block(public, "t", size=10)
    with pytest.raises(LedgerError), ledger.transaction():
        ledger.expose(block.id, "why")


def test_a_retired_block_is_read_no_more(ledger, stream) -> None:
    block = ledger.block(stream, "t", size=10)
    ticket = ledger.reserve([(block.id, G8)], pin="p", **WORK)
    with pytest.raises(LedgerError, match="reserved grant"):
        ledger.retire(block.id)
    ledger.charge(ticket)
    ledger.retire(block.id)
    ledger.retire(block.id)
    with pytest.raises(LedgerError, match="is retired"):
        ledger.bill([(block.id, G8)], pin="p", **WORK)
    assert ledger.epsilon(stream) == price(G8, BUDGET) / 1e9 and ledger.verify()


def test_many_things_in_one_transaction_or_none(ledger, stream) -> None:
    with ledger.transaction():
        ids = [ledger.block(stream, str(number), size=1).id for number in range(5)]
        ledger.commit({block: [G8] for block in ids})
        with pytest.raises(LedgerError, match="would not be on disk"):
            ledger.bill([(ids[0], G8)], pin="p", **WORK)
    head = ledger.head
    with pytest.raises(LedgerError, match="nothing was written"), ledger.transaction():
        ledger.block(stream, "x", size=1)
        with pytest.raises(LedgerError):
            ledger.block(stream, "x", size=1, mode="open")
    assert ledger.head == head and ledger.verify().blocks == 5
