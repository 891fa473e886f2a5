"""The memory's plans: what they cost, how they are made, and that what is read is what was billed."""

import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from dp_accounting.dp_event import DpEvent
from scipy import stats
from torch import nn

from tacit import Budget, Declared, GradientPlan, Ledger, Vault
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import BudgetExceeded, LearnerError
from tacit.gradients.losses import cross_entropy
from tacit.memory import Mode, ReplayMemory, Schedule, calibrated, widened
from tacit.memory import read_schedule as schedule_module
from tacit.privacy.accounting import calibrate, events
from tacit.privacy.accounting import epsilon as accounting
from tacit.privacy.accounting.budget import Adjacency, Unit

MODES: tuple[Mode, ...] = ("union", "block", "average", "each")

desai = partial(Schedule, sizes=(5500.0,) * 17, steps=(301,) * 17, batch=50.0, clip=1.0, noise=(1.0,))
"""Desai et al. 2021 with a memory of 5,500 records a task: the numbers of Lemma 2's refutation are known for it."""
three = partial(Schedule, sizes=(60.0, 20.0, 40.0), steps=(6, 9, 5), batch=5.0, clip=1.0, noise=(1.0,))
uneven = partial(Schedule, sizes=(40.0, 60.0, 25.0, 50.0), steps=(6, 9, 5, 7), batch=5.0, clip=1.0, noise=(1.0,))


def epsilon(schedule: Schedule, block: int, delta: float = 1e-4) -> float:
    return accounting.epsilon(events.compose(schedule.events(block)), delta, Adjacency.ADD_OR_REMOVE)


@pytest.mark.parametrize(("mode", "known"), [("union", 0.9115), ("average", 1.131), ("each", 3.165)])
def test_the_first_block_of_17_tasks_costs_what_was_derived(mode: Mode, known: float) -> None:
    assert epsilon(desai(mode=mode), 0) == pytest.approx(known, abs=1e-3)


def test_with_two_tasks_all_modes_cost_the_same() -> None:
    for mode in MODES:
        two = desai(mode=mode, sizes=(5500.0,) * 2, steps=(301,) * 2)
        assert epsilon(two, 0) == pytest.approx(0.756, abs=1e-3)


def test_the_reads_that_coins_show_are_billed_exactly() -> None:
    schedule = desai(mode="block", seed=3)
    for block in (0, 7):
        shown = [int((schedule.coins(task) == block).sum()) for task in range(block + 1, 17)]
        billed = schedule.events(block)
        assert [event.count for event in billed] == [count for count in shown if count]
        assert {event.event for event in billed} == {events.poisson_gaussian(50 / 5500, 1.0)}
        alone = events.poisson_gaussian(50 / 5500, 1.0, sum(shown))
        whole = accounting.epsilon(alone, 1e-4, Adjacency.ADD_OR_REMOVE)
        assert epsilon(schedule, block) == pytest.approx(whole, abs=2e-3)


def test_realised_coins_cost_about_what_tossing_them_is_expected_to() -> None:
    """A block that is read with probability 1/(T − 1) at each step of task T: 1.372 at 17 tasks, log T after."""
    read = events.poisson_gaussian(50 / 5500, 1.0)
    ahead = events.compose([events.repeat(events.coin_flip(1 / blocks, read), 301) for blocks in range(1, 17)])
    expected = accounting.epsilon(ahead, 1e-4, Adjacency.ADD_OR_REMOVE)
    assert expected == pytest.approx(1.372, abs=2e-3)
    realised = [epsilon(desai(mode="block", seed=seed), 0) for seed in range(4)]
    assert all(abs(one / expected - 1) < 0.05 for one in realised) and len(set(realised)) == 4


def test_coins_come_from_the_seed_and_the_task() -> None:
    one, again, other = desai(mode="block", seed=1), desai(mode="block", seed=1), desai(mode="block", seed=2)
    for task in (2, 9, 16):
        tossed = one.coins(task)
        assert np.array_equal(tossed, again.coins(task)) and not np.array_equal(tossed, other.coins(task))
        counts = np.bincount(tossed, minlength=task)
        assert len(counts) == task and stats.chisquare(counts).pvalue > 1e-4  # earlier blocks only, all alike
    assert not np.array_equal(one.coins(9) % 9, one.coins(10) % 9)
    assert set(one.coins(1)) == {0}


@pytest.mark.parametrize("mode", MODES)
def test_every_step_reads_what_its_mode_says(mode: Mode) -> None:
    schedule = uneven(mode=mode, seed=4)
    assert schedule.readings(0) == []
    readings = schedule.readings(3)
    if mode == "union":
        assert [one.rates for one in readings] == [{0: 5 / 120, 1: 5 / 180, 2: 5 / 75}]
    if mode == "average":
        assert [one.rates for one in readings] == [{0: 5 / 40, 1: 5 / 60, 2: 5 / 25}]
        assert readings[0].plan.noise == pytest.approx(math.sqrt(3))
    if mode == "each":
        assert [one.rates for one in readings] == [{0: 5 / 40}, {1: 5 / 60}, {2: 5 / 25}]
    if mode == "block":
        used = sorted(step for one in readings for step in one.at or ())
        assert used == list(range(7))  # each step reads one block
        assert all(one.plan.steps == len(one.at or ()) for one in readings)
    else:
        assert all(one.plan.steps == 7 and one.at is None for one in readings)
    assert schedule.events(3) == []  # the last block is never read


def naive(schedule: Schedule, block: int) -> list[DpEvent]:
    """All reads of a block, task by task, as the module's text says them."""
    found = []
    for task in range(block + 1, len(schedule.sizes)):
        own = block if schedule.mode in ("block", "each") else task
        noise = schedule.noise[own] if len(schedule.noise) > 1 else schedule.noise[0]
        steps, many = schedule.steps[task], 1
        if schedule.mode == "union":
            many = task
        if schedule.mode == "average":
            noise *= math.sqrt(task)
        if schedule.mode == "block":
            drawn = np.random.default_rng([schedule.seed, task]).integers(0, task, steps)
            steps = drawn.tolist().count(block)
        shared = min(schedule.tasks_per_unit, schedule.other_tasks_per_draw + (1 if own == block else task))
        rate = min(1.0, schedule.batch / (schedule.sizes[block] * many))
        found += [events.poisson_gaussian(rate, noise / math.sqrt(shared), steps)] if steps else []
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("noise", [(1.5,), tuple(1 + 0.1 * task for task in range(12))])
def test_a_year_of_reads_is_what_was_planned_for_each_month(mode: Mode, noise: tuple[float, ...]) -> None:
    sizes = tuple(float(size) for size in np.random.default_rng(1).integers(3, 60, 12))
    steps = tuple(np.random.default_rng(2).integers(1, 9, 12).tolist())
    year = Schedule(
        mode=mode,
        sizes=sizes,
        steps=steps,
        batch=5.0,
        clip=1.0,
        noise=noise,
        tasks_per_unit=3,
        other_tasks_per_draw=1,
        seed=7,
    )
    assert [year.events(block) for block in range(12)] == [naive(year, block) for block in range(12)]
    from_readings = [
        reading.plan.event_at(reading.rates[4], min(3, len(reading.rates) + 1))
        for task in range(12)
        for reading in year.readings(task)
        if 4 in reading.rates
    ]
    assert year.events(4) == from_readings  # what is billed is what is read


@pytest.mark.parametrize("mode", MODES)
def test_the_reads_of_a_block_are_found_without_those_of_others(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(schedule_module, "GradientPlan", lambda **plan: made.append(1) or GradientPlan(**plan))
    desai(mode=mode, sizes=(5500.0,) * 129, steps=(301,) * 129).events(3)
    assert len(made) <= 125


def test_a_batch_larger_than_the_block_reads_all_of_it() -> None:
    assert uneven(mode="each", batch=30.0).readings(3)[2].rates == {2: 1.0}


BUDGET = Budget(epsilon=2.0, delta=1e-3)


def cost(schedule: Schedule, block: int) -> float:
    """What a unit that recurs as often as it may loses at most, by this block alone."""
    whole = events.repeat(events.compose(schedule.events(block)), schedule.tasks_per_unit)
    return accounting.epsilon(whole, BUDGET.delta, Adjacency.ADD_OR_REMOVE)


@pytest.mark.parametrize(("mode", "tasks_per_unit"), [("union", 2), ("block", 1), ("average", 1), ("each", 1)])
def test_calibrated_noise_fits_and_is_not_wasteful(mode: Mode, tasks_per_unit: int) -> None:
    plain = three(mode=mode, tasks_per_unit=tasks_per_unit, seed=1)
    found = calibrated(BUDGET, plain)
    assert replace(found, noise=plain.noise) == plain
    costs = [cost(found, block) for block in range(2)]
    assert max(costs) <= BUDGET.epsilon
    # With noise of its own each block is at its budget; with shared noise the costliest is.
    tight = [0, 1] if mode in ("block", "each") else [costs.index(max(costs))]
    lower = replace(found, noise=tuple(0.999 * noise for noise in found.noise))
    for block in tight:
        assert costs[block] > BUDGET.epsilon * (1 - 1e-3)
        assert cost(lower, block) > BUDGET.epsilon


def test_the_smallest_block_can_be_the_costliest() -> None:
    assert cost(three(mode="union"), 1) > cost(three(mode="union"), 0)


def test_the_noise_of_a_block_that_is_never_read_is_a_number() -> None:
    found = calibrated(BUDGET, three(mode="each"))
    assert len(found.noise) == 3 and found.noise[2] == max(found.noise[:2])
    assert calibrated(BUDGET, three(mode="union", sizes=(40.0,), steps=(6,))).noise == (1.0,)


@pytest.mark.parametrize("mode", ["union", "average"])
def test_units_that_recur_move_a_shared_draw_more_than_once(mode: Mode) -> None:
    """Where two or three blocks share the draw and a unit may be in two of them, it is charged for noise/√2."""
    alone, twice = uneven(mode=mode), uneven(mode=mode, tasks_per_unit=2)
    wanted = [noise / math.sqrt(min(2, blocks)) for noise, blocks in zip(noises(alone), (1, 2, 3), strict=True)]
    assert noises(twice) == pytest.approx(wanted)
    assert noises(replace(twice, other_tasks_per_draw=1)) == pytest.approx(
        [noise / math.sqrt(2) for noise in noises(alone)]
    )
    assert noises(uneven(mode="each", tasks_per_unit=2)) == [1.0] * 3  # a draw of its own


def noises(schedule: Schedule) -> list[float]:
    """What the first block is charged for in each later task."""
    return [event.event.event.noise_multiplier for event in schedule.events(0)]


def test_widened_is_the_largest_batch() -> None:
    plain = three(mode="union", noise=(1.5, 2.0, 1.8), other_tasks_per_draw=1, tasks_per_unit=2)
    found = widened(BUDGET, plain)
    assert replace(found, batch=plain.batch) == plain
    assert max(cost(found, block) for block in range(2)) <= BUDGET.epsilon
    assert max(cost(replace(found, batch=1.001 * found.batch), block) for block in range(2)) > BUDGET.epsilon


def test_widened_is_not_held_back_by_a_small_block() -> None:
    plain = uneven(mode="union", noise=(4.0, 4.5, 4.0, 5.0))
    found = widened(BUDGET, plain)
    assert max(cost(found, block) for block in range(3)) > 0.99 * BUDGET.epsilon


def test_a_wide_budget_does_not_read_a_record_more_often_than_always() -> None:
    found = widened(Budget(epsilon=1e4, delta=1e-3), uneven(mode="union", noise=(4.0,)))
    assert max(rate for one in found.readings(1) for rate in one.rates.values()) <= 1.0


# What is committed is what is read.


def facts(schedule: Schedule) -> StreamInfo:
    sizes = enumerate(schedule.sizes)
    tasks = (TaskInfo(name=f"t{task}", number=task, labels=(0, 1), size=int(size)) for task, size in sizes)
    return StreamInfo(name="s", shape=(4,), tasks=tuple(tasks), public=True)


def world(schedule: Schedule, ids: bool) -> tuple[Vault, ReplayMemory]:
    """A vault that holds the memory blocks of four tasks."""
    vault, memory = Vault(Ledger.throwaway()), ReplayMemory(stream=facts(schedule), share=0.5, schedule=schedule)
    budget = Budget(epsilon=1e9, delta=1e-5, unit=Unit.PERSON if ids else Unit.RECORD)
    for task, size in enumerate(schedule.sizes):
        rng = np.random.default_rng(task)
        n = int(size) * (2 if ids else 1)
        source = (rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 2, n))
        declared = Declared(
            stream="s", task=f"t{task}", budget=budget, size=int(size), labels=(0, 1), public=True,
            tasks_per_unit=schedule.tasks_per_unit, records_per_unit=2 if ids else 1,
        )  # fmt: skip
        block = vault.admit((*source, np.arange(n) // 2 + 10 * task) if ids else source, declared)
        memory.add(task, block, vault)
    return vault, memory


@pytest.mark.parametrize(("tasks_per_unit", "ids"), [(1, False), (2, True)])
@pytest.mark.parametrize("mode", MODES)
def test_the_grants_of_all_tasks_use_up_what_was_committed(mode: Mode, tasks_per_unit: int, ids: bool) -> None:
    vault, memory = world(uneven(mode=mode, seed=2, tasks_per_unit=tasks_per_unit), ids)
    model = nn.Linear(4, 2)
    shapes = {name: p.shape for name, p in model.named_parameters()}
    for task in range(4):
        references = memory.grants(task, vault, model, cross_entropy, {"task": task})
        assert bool(references) == (task > 0)
        for step in range(memory.schedule.steps[task]) if task else ():
            found = references.gradient(step)
            assert {name: value.shape for name, value in found.items()} == shapes
    statement = vault.ledger.statement(1)
    assert {grant.state for grant in statement.grants} == {"RELEASED"}
    read = Counter((block, event) for grant in statement.grants for block, event in grant.reads)
    assert read == Counter((block.row.id, event) for block in statement.blocks for event in block.events)
    with pytest.raises(BudgetExceeded):  # and nothing is left
        memory.grants(3, vault, model, cross_entropy, {"again": True})


def test_a_block_that_is_not_held_is_a_sentence() -> None:
    vault, memory = world(uneven(mode="union"), ids=False)
    memory.blocks.pop(1)
    with pytest.raises(LearnerError, match=r"the memory of task 2 is not here; restore the learner"):
        memory.grants(3, vault, nn.Linear(4, 2), cross_entropy, {})


def test_the_last_block_is_let_go() -> None:
    vault, memory = world(uneven(mode="union"), ids=False)
    assert sorted(memory.blocks) == [0, 1, 2] and vault.ledger.statement(1).blocks[3].epsilon == 0


@pytest.mark.parametrize(("mode", "blocks"), [("union", 1), ("average", 1), ("each", 3)])
def test_reference_gradients_are_averages_over_the_public_batch(mode: Mode, blocks: int) -> None:
    """Without noise to speak of, and with all records in every step, g_ref is a plain average."""
    schedule = uneven(mode=mode, sizes=(40.0,) * 4, batch=120.0 if mode == "union" else 40.0, noise=(1e-3,), clip=10.0)
    vault, memory = world(schedule, ids=False)
    model = nn.Linear(4, 2)
    references = memory.grants(3, vault, model, cross_entropy, {})
    assert len(references._grants) == blocks
    found = references.gradient(0)
    rows = [np.random.default_rng(task) for task in range(3)]
    pairs = [(rng.normal(size=(40, 4)).astype(np.float32), rng.integers(0, 2, 40)) for rng in rows]
    x = torch.from_numpy(np.concatenate([one for one, _ in pairs]))
    y = torch.from_numpy(np.concatenate([one for _, one in pairs]))
    loss = nn.functional.cross_entropy(model(x), y)
    wanted = dict(zip(found, torch.autograd.grad(loss, list(model.parameters())), strict=True))
    for name, value in found.items():
        assert torch.allclose(value, wanted[name], atol=1e-3), name


def test_calibration_and_gate_ask_the_same() -> None:
    """What was calibrated for a block is never refused by the ledger."""
    schedule = calibrated(BUDGET, three(mode="each"))
    assert calibrate.fits(events.compose(schedule.events(1)), BUDGET)
    vault = Vault(Ledger.throwaway())
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    block = vault.admit(
        (x, np.zeros(40)), Declared(stream="s", task="t", budget=BUDGET, size=40, labels=(0, 1), public=True)
    )
    vault.commit({block: schedule.events(1)})
    assert vault.ledger.epsilon(1) == pytest.approx(BUDGET.epsilon, rel=1e-3)
