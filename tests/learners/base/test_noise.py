"""What leaves the vault for a learner carries the planned noise, each draw its own, and nobody exceeds the clip.

Tasks without records release noise alone, so its scale can be seen. Every test has mutants that it must catch.
"""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from support import made_up
from support.small_world import Watched, facts, fixed, given, learn, nothing, same, started
from tacit import Budget
from tacit.gradients import Flat
from tacit.learners.base.learner import Learner
from tacit.privacy.randomness.keys import NOISE, KeyRing
from tacit.privacy.vault import GradientPlan
from tacit.privacy.vault.exits import gradient_exit

CLIP, TRAIN, MEMORY = 0.7, 1.3, 2.1
"""Clip and the two noise multipliers."""


def empty_run(name: str, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[Learner, Watched]:
    """Three tasks without a record: all that leaves is noise."""
    seen = Watched(monkeypatch)
    own: dict[str, Any] = {"steps": 40, "clip": CLIP, "noise": TRAIN}
    if name != "DPER":
        own |= {"memory_noise": MEMORY}
    learner = started(name, **given(name, **own | settings))
    learn(learner, fixed(), [0, 1, 2], lambda _: nothing())
    return learner, seen


PLANNED = {
    "DPCL union": MEMORY * CLIP / 8,
    "DPCL block": MEMORY * CLIP / 8,
    "DPAGEM average": MEMORY * CLIP / (8 * math.sqrt(2)),
    "DPAGEM each": MEMORY * CLIP / (8 * math.sqrt(2)),
}


@cache
def honest(name: str) -> Watched:
    """What leaves when nothing is wrong."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return empty_run(name, monkeypatch)[1]


@pytest.mark.parametrize("name", PLANNED)
def test_reference_gradients_have_the_planned_noise(name: str) -> None:
    """In the third task, where two blocks are read."""
    seen = honest(name)
    made_up.assert_scale(seen.references[1], PLANNED[name])
    training = [values for _, values in seen.of_training()]
    assert len(training) == 3
    for values in training:
        made_up.assert_scale(values, TRAIN * CLIP / 30)


def test_each_blocks_own_gradient_has_the_planned_noise() -> None:
    seen = honest("DPAGEM each")
    alone = [values for _, values in seen.of_memory()]
    assert len(alone) == 3  # one in the second task, two in the third
    for values in alone:
        made_up.assert_scale(values, MEMORY * CLIP / 8)
    assert independent(alone[1], alone[2])


def test_replay_has_one_draw_over_the_whole_batch() -> None:
    for number, (grant, values) in enumerate(honest("DPER").of_training()):
        expected = 30 + (10 if number else 0)
        assert grant.expected_batch == pytest.approx(expected)
        made_up.assert_scale(values, TRAIN * CLIP / expected)


@pytest.mark.parametrize(("name", "factor"), [("DPCL union", 0.7), ("DPCL union", 1.3), ("DPAGEM average", 1.3)])
def test_a_wrong_scale_would_be_caught(name: str, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = GradientPlan.std.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(GradientPlan, "std", property(lambda plan: factor * honest(plan)))
    _, seen = empty_run(name, monkeypatch)
    assert not made_up.scale_is(seen.references[1], PLANNED[name])


def independent(one: Tensor, other: Tensor) -> bool:
    """No correlation that could not be chance (of 2,960 pairs: below 0.09)."""
    return abs(float(np.corrcoef(one.flatten(), other.flatten())[0, 1])) < 5 / math.sqrt(one.numel())


@pytest.mark.parametrize("name", ["DPCL union", "DPAGEM average"])
def test_gradient_and_reference_have_their_own_draws(name: str) -> None:
    seen = honest(name)
    training, memory = [list(kind) for kind in (seen.of_training(), seen.of_memory())]
    assert independent(training[1][1], memory[0][1]) and independent(training[2][1], memory[1][1])
    assert independent(training[0][1], training[1][1]) and independent(memory[0][1], memory[1][1])
    steps = memory[1][1]
    assert independent(steps[:-1], steps[1:])


def test_a_shared_draw_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = KeyRing.derive

    def shared(ring: KeyRing, purpose: str, generation: int, *context: str) -> bytes:
        return honest(ring, purpose, generation, *(() if purpose == NOISE else context))

    monkeypatch.setattr(KeyRing, "derive", shared)
    _, seen = empty_run("DPCL union", monkeypatch)
    training, memory = [list(kind) for kind in (seen.of_training(), seen.of_memory())]
    assert not independent(training[1][1], memory[0][1])


# One record more or less moves the sum by at most the clip.


def with_one_huge_record(name: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """By how much the one record of the memory moves the sums of the second task, in all modes read at rate 1."""
    seen = Watched(monkeypatch)
    nearly_none = {"noise": 1e-3, "memory_noise": 1e-3, "budget": Budget(epsilon=1e9, delta=1e-5)}
    sizes = {"steps": 3, "memory_share": 0.9, "batch": 1, "memory_batch": 108}
    learner = started(name, facts(2), clip=CLIP, **nearly_none, **sizes)
    huge = np.full((1, 6), 1e4, dtype=np.float32), np.zeros(1, dtype=np.int64)
    learn(learner, fixed(), [0, 1], lambda number: nothing() if number else huge)
    ((grant, values),) = seen.of_memory()
    assert [sampled.records.units for sampled in grant._reads] == [1]  # its coin put it in the memory
    return float((values * grant.expected_batch).norm(dim=1).max())


@pytest.mark.parametrize("name", ["DPCL union", "DPAGEM each"])
def test_a_record_of_the_memory_moves_the_sum_by_the_clip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.9 * CLIP < with_one_huge_record(name, monkeypatch) < 1.05 * CLIP


def test_a_missing_clip_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_exit, "clip_rule", lambda plan, model: Flat(norm=1e9))
    assert with_one_huge_record("DPCL union", monkeypatch) > 1.05 * CLIP


@pytest.mark.parametrize("name", ["DPCL block", "DPER"])
def test_the_learner_itself_draws_no_noise(name: str) -> None:
    """All randomness of training is the vault's: torch's own generator does not matter and is not moved."""
    ends = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        learner = started(name, **given(name))
        learn(learner, fixed(), [0, 1])
        assert torch.equal(torch.get_rng_state(), before)
        ends.append(learner.tensors())
    assert same(*ends)
