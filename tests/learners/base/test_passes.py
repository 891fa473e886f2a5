"""Which batches, in which order, and how many."""

from itertools import cycle, islice

import pytest
import torch

from support.small_world import OnStep, facts, fixed, learn, same, started
from tacit.data.stream import TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import passes
from tacit.learners.base.callbacks import Step

TASKS = [TaskInfo(name=str(n), number=n, labels=(0, 1), size=100) for n in range(2)]


def coins() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_fixed_batches_are_disjoint_hold_all_and_stay() -> None:
    batches = passes.fixed(25, 10, coins())
    assert [len(rows) for rows in batches] == [10, 10, 5]
    assert sorted(torch.cat(batches).tolist()) == list(range(25))
    two = list(islice(cycle(batches), 6))
    assert all(torch.equal(one, other) for one, other in zip(two[:3], two[3:], strict=True))


def test_fresh_batches_are_shuffled_again() -> None:
    drawn = list(islice(passes.fresh(20, 10, coins()), 4))
    assert sorted(torch.cat(drawn[:2]).tolist()) == sorted(torch.cat(drawn[2:]).tolist()) == list(range(20))
    assert not torch.equal(drawn[0], drawn[2])


def test_steps_follow_from_epochs_or_are_given() -> None:
    assert passes.steps_in(TASKS[0], 7, steps=None, epochs=None) == 7
    assert passes.steps_in(TASKS[0], 7, steps=3, epochs=None) == 3
    assert [passes.steps_in(task, 7, steps=None, epochs=[5, 1]) for task in TASKS] == [35, 7]
    assert [passes.steps_in(task, 7, steps=[2, 9], epochs=None) for task in TASKS] == [2, 9]
    assert passes.steps_in(TASKS[0], 7, steps=None, epochs=0.5) == 4
    with pytest.raises(LearnerError, match="epochs must be a number > 0, got 0"):
        passes.steps_in(TASKS[0], 7, steps=None, epochs=0)
    with pytest.raises(LearnerError, match="give steps or epochs"):
        passes.check(3, 1.0)


def test_turns_are_announced_and_empty_tasks_have_no_batches() -> None:
    said: list[Step] = []
    rows = list(passes.training_steps(said.append, TASKS[0], cycle(passes.fixed(6, 4, coins())), 3))
    assert [len(one) for one in rows] == [4, 2, 4] and [one.step for one in said] == [0, 1, 2, 3]
    assert list(passes.training_steps(said.append, TASKS[0], cycle(passes.fixed(0, 4, coins())), 3)) == []
    assert len(said) == 8


def test_agem_with_epochs_and_balanced_steps() -> None:
    ends, counts = [], []
    for settings in ({}, {"epochs": 1}, {"epochs": [2, 0.5]}, {"steps": 7}, {"steps": [3, 5]}):
        learner = started("AGEM", facts(2), **settings)
        steps: list[int] = []
        learner.callback = OnStep(lambda now, steps=steps: steps.append(now.of) if now.step == 0 else None)
        learn(learner, fixed(), [0, 1])
        ends.append(learner.tensors())
        counts.append(steps)
    assert counts == [[12, 12], [12, 12], [24, 6], [7, 7], [3, 5]]
    assert same(ends[0], ends[1]) and not same(ends[0], ends[2])
    with pytest.raises(LearnerError, match="steps has 1 values and task 2 needs its own"):
        started("AGEM", facts(2), steps=[3])
