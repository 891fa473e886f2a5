"""Remembered records leave by a public schedule: for good, once the release of their last task is kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.small_world import (
    Stopped,
    facts,
    fixed,
    given,
    learn,
    make,
    records,
    same,
    started,
    stop_at,
    uncommitted,
)
from tacit import Ledger, Vault
from tacit.errors import LearnerError
from tacit.learners.base.public_figures import Consumption
from tacit.learners.base.release import Release
from tacit.learners.base.task_loop import admit
from tacit.privacy.randomness.keys import KeyRing

TASKS = 4
THIN = {"stay": 2, "leave": "thinning"}
NAMES = ["DPCL union", "DPCL block", "DPAGEM average", "DPAGEM each", "DPER", "NaiveGaussian"]


def begin(name: str = "DPCL union", **settings: Any) -> Any:
    return started(name, facts(TASKS), **given(name, **settings))


def one_task(learner: Any, vault: Vault, number: int) -> Release:
    """Learned, and its release kept for good."""
    with vault.until_saved():
        (release,) = learn(learner, vault, [number])
    learner.on_saved(vault.find(learner.stream_.name, learner.stream_.tasks[number].name), vault)
    return release


def alive(vault: Vault) -> set[tuple[str, str]]:
    """(task, part) of every part of a memory that was not retired."""
    blocks = [block.row for block in vault.ledger.statement(1).blocks]
    return {(row.task, row.part) for row in blocks if row.state == "live" and row.part.startswith("memory")}


def files(store: Path) -> int:
    return len(list((store / "blocks").iterdir()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("leave", [{"stay": 1}, THIN])
def test_all_that_was_planned_is_read_and_then_retired(name: str, leave: dict[str, Any], tmp_path: Path) -> None:
    vault, learner = fixed(tmp_path), begin(name, **leave)
    for number in range(TASKS):
        one_task(learner, vault, number)
        schedule = learner.memory_.schedule
        held = {(block, part) for block, parts in learner.memory_.blocks.items() for part in parts}
        assert all(block + part > number for block, part in held)
        assert files(tmp_path) == len(held) <= 3
    assert uncommitted(vault) == {}
    over = {f"task-{n + 1}" for n in range(TASKS) if n + schedule.stay <= TASKS - 1}
    assert over.isdisjoint({task for task, _ in alive(vault)} & {"task-1"}) and "task-1" in over
    vault.ledger.verify()


def test_the_share_that_stays_falls_step_by_step(tmp_path: Path) -> None:
    vault, learner = fixed(tmp_path), begin(**THIN)
    one_task(learner, vault, 0)
    assert alive(vault) == {("task-1", "memory/1"), ("task-1", "memory/2")}
    one_task(learner, vault, 1)
    assert alive(vault) == {("task-1", "memory/2"), ("task-2", "memory/1"), ("task-2", "memory/2")}
    one_task(learner, vault, 2)
    assert alive(vault) == {("task-2", "memory/2"), ("task-3", "memory/1"), ("task-3", "memory/2")}


def test_nothing_goes_before_the_release_is_kept(tmp_path: Path) -> None:
    vault, learner = fixed(tmp_path), begin(stay=1)
    one_task(learner, vault, 0)
    learn(learner, vault, [1])
    assert ("task-1", "memory") in alive(vault) and files(tmp_path) == 2
    learner.on_saved(vault.find("blobs", "task-2"), vault)
    assert alive(vault) == {("task-2", "memory")} and files(tmp_path) == 1
    learner.on_saved(vault.find("blobs", "task-2"), vault)  # once more: nothing happens
    assert alive(vault) == {("task-2", "memory")}


@pytest.mark.parametrize("leave", [{"stay": 1}, THIN])
@pytest.mark.parametrize("step", [0, 3])
def test_a_crash_in_the_last_task_that_reads_them_changes_nothing(
    leave: dict[str, Any], step: int, tmp_path: Path
) -> None:
    ends = []
    for crash in (False, True):
        store = tmp_path / str(crash)
        vault = fixed(store)
        learner = begin(**leave)
        before = [one_task(learner, vault, number) for number in range(2)][-1]
        if crash:
            learner.callback = stop_at(2, step)
            with pytest.raises(Stopped):
                one_task(learner, vault, 2)
            vault = Vault(vault.ledger, store)
            learner = begin(**leave)
            learner.restore(before.tensors, before.tasks, vault)
        ends.append([one_task(learner, vault, number).tensors for number in (2, 3)])
        assert uncommitted(vault) == {}
    assert all(same(one, two) for one, two in zip(*ends, strict=True))


def test_a_later_process_holds_what_is_still_to_be_read_and_retires_the_rest(tmp_path: Path) -> None:
    """The kill came after the release was kept and before its records were retired."""
    vault, learner = fixed(tmp_path), begin(**THIN)
    one_task(learner, vault, 0)
    with vault.until_saved():
        (release,) = learn(learner, vault, [1])
    assert files(tmp_path) == 4
    later, again = Vault(vault.ledger, tmp_path), begin(**THIN)
    again.restore(release.tensors, release.tasks, later)
    held = {(block, part) for block, parts in again.memory_.blocks.items() for part in parts}
    assert held == {(0, 2), (1, 1), (1, 2)}
    again.on_saved(later.find("blobs", "task-2"), later)
    assert ("task-1", "memory/1") not in alive(later) and files(tmp_path) == 3
    one_task(again, later, 2)
    assert uncommitted(later).total() == 3  # what the last task will read: a part of task 2 and both of task 3


def test_when_all_is_learned_nothing_is_held_again(tmp_path: Path) -> None:
    vault, learner = fixed(tmp_path), begin(**THIN)
    release = [one_task(learner, vault, number) for number in range(TASKS)][-1]
    again = begin(**THIN)
    again.restore(release.tensors, release.tasks, Vault(vault.ledger, tmp_path))
    assert again.memory_.blocks == {}


def test_who_stays_is_decided_by_ones_own_tag_alone() -> None:
    """One record more: every other one is in the part that it was in."""
    parts = []
    x, y = records(0)
    for more in (0, 1):
        vault, learner = Vault(Ledger.throwaway(keys=KeyRing.for_tests(0))), begin(stay=3, leave="thinning")
        source = (np.vstack([x, np.full((more, 6), 9, dtype=np.float32)]), np.append(y, np.ones(more, y.dtype)))
        learn(learner, vault, [0], lambda _, source=source: source)
        held = learner.memory_.blocks[0]
        parts.append({part: set(vault._admission.records(block).names.tolist()) for part, block in held.items()})
    assert all(len(parts[1][part] - parts[0][part]) <= 1 and parts[0][part] <= parts[1][part] for part in parts[0])
    sizes = [len(names) for names in parts[0].values()]
    assert sum(sizes) > 5 and max(sizes) < sum(sizes)


# Without end.


def forever(learner: Any, vault: Vault, numbers: range) -> None:
    for number in numbers:
        task = learner.stream_.task(number)
        with vault.until_saved():
            learner.learn(task, admit(vault, records(number), learner.stream_, task, learner.budget), vault)
        learner.on_saved(vault.find(learner.stream_.name, task.name), vault)


@pytest.mark.parametrize("name", ["DPCL union", "DPAGEM average", "DPAGEM each"])
@pytest.mark.parametrize("leave", [{"stay": 2}, THIN])
def test_nothing_grows_on_an_endless_stream(name: str, leave: dict[str, Any], tmp_path: Path) -> None:
    info = replace(facts(2), endless=True)
    vault, learner = fixed(tmp_path), started(name, info, **given(name, **leave, steps=2))
    sizes = []
    for number in range(9):
        forever(learner, vault, range(number, number + 1))
        held = sum(len(parts) for parts in learner.memory_.blocks.values())
        sizes.append((held, files(tmp_path), len(vault._admission._records)))
    assert len(set(sizes[2:])) == 1
    assert learner.consumption(info.task(7)) == learner.consumption(info.task(9))

    again = started(name, info, **given(name, **leave, steps=2))
    later = Vault(vault.ledger, tmp_path)
    again.restore(learner.tensors(), learner.tasks_, later)
    assert {k: set(v) for k, v in again.memory_.blocks.items()} == {
        k: set(v) for k, v in learner.memory_.blocks.items()
    }
    forever(again, later, range(9, 11))


def test_the_noise_for_ever_is_enough(tmp_path: Path) -> None:
    """Found from the budget before the first task, it is never refused."""
    info = replace(facts(2), endless=True)
    learner = make("DPCL union", steps=3, **THIN)
    learner.start(info)
    vault = fixed(tmp_path)
    forever(learner, vault, range(5))
    assert vault.ledger.epsilon(1) <= learner.budget.epsilon


def test_an_endless_memory_needs_to_let_go() -> None:
    info = replace(facts(2), endless=True)
    with pytest.raises(LearnerError, match="add up without bound; set stay"):
        started("DPCL union", info, **given("DPCL union"))
    with pytest.raises(LearnerError, match="cannot be planned for an endless stream"):
        started("DPCL block", info, **given("DPCL block", stay=2))
    with pytest.raises(LearnerError, match="has no last one"):
        started("DPER", info, **given("DPER", stay=2))


def test_consumption_is_what_is_expected_from_public_facts() -> None:
    learner = begin(stay=2, memory_batch=8)
    said = [learner.consumption(task) for task in learner.stream_.tasks]
    assert said[0] == Consumption(trained=5 * 30, admitted=12.0)
    assert said[2] == Consumption(trained=150, read=5 * 8, admitted=12.0, retired=12.0, held=24.0)
    assert said[3].admitted == 0  # nothing comes after it
    plain = started("NaiveDPSGD", facts(TASKS), **given("NaiveDPSGD"))
    assert plain.consumption(plain.stream_.tasks[1]) == Consumption(trained=150)
    assert started("cosine").consumption(facts().tasks[0]) is None
