"""The memory's schedule with retirement, several readers, classes and no end: what it costs, and that it is quick."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from torch import nn

from tacit import Budget, Declared, GradientPlan, Ledger, Vault
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import BudgetExceeded, LearnerError, LedgerError
from tacit.gradients.losses import cross_entropy
from tacit.memory import ReplayMemory, Schedule, calibrated, most_read, widened
from tacit.memory import read_schedule as schedule_module
from tacit.privacy.accounting import epsilon, events
from tacit.privacy.accounting.budget import Adjacency

BUDGET = Budget(epsilon=2.0, delta=1e-3)
six = partial(
    Schedule,
    mode="union",
    sizes=(40.0, 60.0, 24.0, 48.0, 36.0, 60.0),
    steps=(6, 9, 5, 7, 4, 8),
    batch=6.0,
    clip=1.0,
    noise=(1.0,),
)
LEAVES = [{"stay": 2}, {"stay": 3, "leave": "thinning"}, {"stay": 9}, {}]


def whole(schedule: Schedule, block: int) -> float:
    """ε of a unit of the block, by Rényi curves: quick, and the same order as the best accountant's here."""
    total = events.repeat(events.compose(schedule.events(block)), schedule.tasks_per_unit)
    return epsilon.epsilon(total, BUDGET.delta, Adjacency.ADD_OR_REMOVE, epsilon.Method.RDP)


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("mode", ["union", "average", "each", "block"])
def test_what_is_billed_is_what_is_read(mode: Any, leave: dict[str, Any]) -> None:
    """Task by task and part by part, the readings of a block are its events, as often as there are readers."""
    schedule = six(mode=mode, readers=(1, 1, 2, 1, 0, 1), tasks_per_unit=2, seed=3, **leave)
    for block in range(6):
        for part in schedule.parts:
            stays = 6 if part is None else part
            read = [
                one.plan.event_at(one.rates[block], min(2, len(one.rates)))
                for task in range(block + 1, min(6, block + stays + 1))
                for one in schedule.readings(task)
                for _ in range(schedule.readers_of(task))
                if block in one.rates
            ]
            assert read == schedule.events(block, part)
        longest = Counter(events.to_json(event) for event in schedule.events(block))
        for part in schedule.parts:
            assert not Counter(events.to_json(event) for event in schedule.events(block, part)) - longest


@pytest.mark.parametrize("leave", LEAVES)
def test_the_expected_batch_is_the_one_that_is_wanted(leave: dict[str, Any]) -> None:
    schedule = six(**leave)
    for task in range(1, 6):
        (one,) = schedule.readings(task)
        held = {block: share(schedule, task, block) for block in one.rates}
        assert sum(one.rates[block] * schedule.sizes[block] * part for block, part in held.items()) == pytest.approx(6)
        assert list(held) == list(range(max(0, task - (schedule.stay or task)), task))


def share(schedule: Schedule, task: int, block: int) -> float:
    """Which share of a block's records is held in a task: those in parts that stay long enough."""
    stays = [part is None or block + part >= task for part in schedule.parts]
    return sum(stays) / len(stays)


def test_thinning_holds_ever_fewer() -> None:
    schedule = six(stay=4, leave="thinning")
    assert schedule.parts == (1, 2, 3, 4)
    assert [share(schedule, task, 0) for task in range(1, 6)] == [1, 0.75, 0.5, 0.25, 0]
    assert [schedule.leaving(task) for task in (0, 1, 2, 5)] == [
        [],
        [(0, 1)],
        [(1, 1), (0, 2)],
        [(4, 1), (3, 2), (2, 3), (1, 4)],
    ]


@pytest.mark.parametrize("leave", [*LEAVES, {"stay": 3, "leave": "thinning", "readers": (1, 2, 1, 1, 2, 1)}])
def test_who_enters_and_leaves_adds_up(leave: dict[str, Any]) -> None:
    schedule = six(**leave)
    inside = 0.0
    for task in range(6):
        said = schedule.expected(task)
        assert said.held == pytest.approx(inside)
        reads = [one.plan.steps * 6 * schedule.readers_of(task) for one in schedule.readings(task)]
        assert said.read == pytest.approx(sum(reads))
        inside += said.admitted - said.retired
    assert six(stay=2).expected(4).retired == 24.0 and six().expected(4).retired == 0
    assert six().expected(5).admitted == 0  # nothing reads it any more


def endless(**said: Any) -> Schedule:
    return six(**{"sizes": (40.0, 60.0, 24.0), "steps": (6, 9, 5), "endless": True, "stay": 4} | said)


def unrolled(schedule: Schedule, tasks: int) -> Schedule:
    """The first tasks of an endless schedule, as a finite one."""

    def again(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(values[n % len(values)] for n in range(tasks)) if values else ()

    return replace(
        schedule, endless=False, sizes=again(schedule.sizes), steps=again(schedule.steps),
        readers=again(schedule.readers), classes=again(schedule.classes),
        noise=again(schedule.noise) if len(schedule.noise) > 1 else schedule.noise,
    )  # fmt: skip


EVERY = {"readers": (1, 2), "classes": ((0, 1), (2, 3), (0, 2))}


@pytest.mark.parametrize("mode", ["union", "average", "each"])
@pytest.mark.parametrize("leave", ["together", "thinning"])
@pytest.mark.parametrize("more", [{}, EVERY])
def test_an_endless_schedule_is_a_finite_one_that_goes_on(mode: Any, leave: Any, more: dict[str, Any]) -> None:
    forever = endless(mode=mode, leave=leave, **more)
    long = unrolled(forever, 40)
    assert forever.period == (6 if more else 3)
    for block in range(30):
        assert forever.events(block) == long.events(block)
        assert forever.readings(block) == long.readings(block)
        assert forever.expected(block) == long.expected(block)
        if block >= forever.stay + forever.period:  # all that comes is like one of those that were looked at
            assert forever.events(block) == forever.events(block - forever.period)


def test_a_millionth_task_takes_no_longer_than_the_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(schedule_module, "GradientPlan", lambda **plan: made.append(1) or GradientPlan(**plan))
    counts = []
    for task in (10, 10**6):
        made.clear()
        forever = endless(leave="thinning", **EVERY)
        forever.readings(task), forever.events(task), forever.expected(task), forever.leaving(task)
        counts.append(len(made))
    assert counts[0] == counts[1] <= 5 * 4


@pytest.mark.parametrize(("mode", "more"), [("union", {}), ("average", {"readers": (1, 2)})])
def test_noise_for_ever_is_found_from_the_first_blocks(mode: Any, more: dict[str, Any]) -> None:
    found = calibrated(BUDGET, endless(mode=mode, sizes=(40.0, 24.0), steps=(6, 5), stay=2, leave="thinning", **more))
    costs = [price(found, block) for block in range(8)]
    assert max(costs) <= BUDGET.epsilon and max(costs) > 0.999 * BUDGET.epsilon
    assert costs[2:4] == costs[4:6] == costs[6:]


def test_the_first_of_all_blocks_costs_most() -> None:
    """Where few others are beside them, records are read more often."""
    forever = endless(sizes=(40.0,), steps=(5,), leave="thinning")
    assert whole(forever, 0) > whole(forever, 1) > whole(forever, 3) == whole(forever, 9)


@cache
def priced(listed: str) -> float:
    return epsilon.epsilon(events.from_json(listed), BUDGET.delta, Adjacency.ADD_OR_REMOVE)


def price(schedule: Schedule, block: int) -> float:
    return priced(events.to_json(events.compose(schedule.events(block))))


def test_blocks_that_leave_by_themselves_have_their_own_noise_for_ever() -> None:
    found = calibrated(BUDGET, endless(mode="each", stay=1))
    assert len(found.noise) == 3
    costs = [price(found, block) for block in range(9)]
    assert max(costs) <= BUDGET.epsilon and min(costs) > 0.99 * BUDGET.epsilon


def test_no_block_costs_more_than_those_that_are_looked_at() -> None:
    rng = np.random.default_rng(0)
    for trial in range(8):
        stay = int(rng.integers(1, 5))
        schedule = Schedule(
            mode="union" if trial % 2 else "average", sizes=tuple(rng.integers(20, 60, 7).astype(float).tolist()),
            steps=tuple(rng.integers(2, 9, 7).tolist()), readers=tuple(rng.integers(1, 3, 7).tolist()), stay=stay,
            leave="thinning" if trial % 3 else "together", batch=5.0, clip=1.0, noise=(1.0,),
            tasks_per_unit=1 + trial % 2, endless=trial >= 4,
        )  # fmt: skip
        blocks = range(7 + stay if schedule.endless else 7)
        costs = {block: whole(schedule, block) for block in blocks if schedule.events(block)}
        assert max(costs.values()) == max(costs[block] for block in most_read(schedule))


def test_one_size_and_one_reader_need_one_look() -> None:
    assert most_read(six(sizes=(40.0,) * 6, steps=(5,) * 6, stay=2)) == [0]
    assert most_read(endless(sizes=(40.0,), steps=(5,), leave="thinning")) == [0]


def test_widened_knows_who_stays() -> None:
    four = {"sizes": (40.0,) * 4, "steps": (6,) * 4, "noise": (2.0,), "other_tasks_per_draw": 1}
    found = widened(BUDGET, six(**four, stay=1))
    assert 0.99 * BUDGET.epsilon < price(found, 0) <= BUDGET.epsilon
    assert found.batch > widened(BUDGET, six(**four)).batch


def test_by_class_the_rates_are_higher_and_the_turns_fewer() -> None:
    labels = ((0, 1), (2, 3), (0, 4), (1, 2), (0, 1), (0, 1))
    schedule = six(classes=labels, stay=2, batch=2.0)
    assert [schedule.places(task) for task in (0, 1, 2, 3)] == [(), (0, 1), (0, 1, 2, 3), (0, 2, 3, 4)]
    (one,) = schedule.readings(3)
    assert one.plan.classes == 4 and one.plan.places == (0, 2, 3, 4)
    assert one.rates == {1: 4 * 2 / (60 * 2), 2: 4 * 2 / (24 * 2)}
    assert schedule.events(1)[1] == events.poisson_gaussian(4 * 2 / 120, 1.0, math.ceil(7 / 4))
    assert schedule.expected(3).read == pytest.approx(2.0 * 7)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"endless": True}, "add up without bound; set stay"),
        ({"leave": "thinning"}, "set stay to a whole number"),
        ({"stay": 0}, "stay must be a whole number ≥ 1, got 0; None keeps records for all tasks"),
        ({"leave": "slowly"}, "leave must be 'together' or 'thinning', got 'slowly'"),
        ({"mode": "block", "endless": True, "stay": 2}, "cannot be planned for an endless stream"),
        ({"mode": "block", "classes": ((0,),) * 6}, "cannot cycle through the labels"),
        ({"readers": (1, 2)}, "readers has 2 entries for 6 tasks"),
        ({"readers": (1, -1, 1, 1, 1, 1)}, "whole numbers ≥ 0"),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(said: dict[str, Any], words: str) -> None:
    with pytest.raises(LearnerError, match=words):
        six(**said)


# In the vault.


def task(vault: Vault, number: int, size: float) -> Any:
    rng = np.random.default_rng(number)
    n = int(size)
    declared = Declared(
        stream="s", task=f"t{number}", budget=Budget(epsilon=1e9, delta=1e-5), size=n, labels=(0, 1), public=True
    )
    return vault.admit((rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 2, n)), declared)


@pytest.mark.parametrize("mode", ["union", "average", "each", "block"])
@pytest.mark.parametrize("leave", LEAVES)
def test_the_grants_of_all_readers_use_up_what_was_committed(mode: Any, leave: dict[str, Any]) -> None:
    by_class = {} if mode == "block" else {"classes": ((0, 1),) * 6}
    schedule = six(mode=mode, readers=(1, 1, 2, 1, 0, 1), seed=1, steps=(2, 3, 2, 3, 2, 3), **by_class, **leave)
    vault, model = Vault(Ledger.throwaway()), nn.Linear(4, 2)
    planned = [TaskInfo(name=f"t{n}", number=n, labels=(0, 1), size=int(size)) for n, size in enumerate(schedule.sizes)]
    facts = StreamInfo(name="s", shape=(4,), tasks=tuple(planned), public=True)
    memory = ReplayMemory(stream=facts, share=0.5, schedule=schedule)
    for number, size in enumerate(schedule.sizes):
        for reader in range(schedule.readers_of(number)):
            references = memory.grants(number, vault, model, cross_entropy, {}, reader=f"learner {reader}")
            for step in range(schedule.steps[number]) if references else ():
                references.gradient(step)
        block = task(vault, number, size)
        memory.add(number, block, vault)
        memory.retire(block, facts.tasks, vault)
    statement = vault.ledger.statement(1)
    read = Counter((block, event) for grant in statement.grants for block, event in grant.reads)
    assert read == Counter((block.row.id, event) for block in statement.blocks for event in block.events)
    over = {(block.row.task, block.row.part) for block in statement.blocks if block.row.state == "retired"}
    ends = [one for number in range(6) for one in schedule.leaving(number) if schedule.events(*one)]
    named = {(f"t{block}", str(part) if len(schedule.parts) > 1 else "all") for block, part in ends}
    assert over == named
    if schedule.readings(5):
        with pytest.raises((BudgetExceeded, LearnerError, LedgerError)):
            memory.grants(5, vault, model, cross_entropy, {"again": True})
