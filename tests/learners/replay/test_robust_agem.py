"""Robust A-GEM: each step is held against the remembered records of one label, which come in turn."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from support.small_world import accuracies, facts, fixed, given, learn, make, records, split_facts, started
from tacit import Budget
from tacit.data.stream import StreamInfo
from tacit.errors import LearnerError
from tacit.learners.replay import dpcl
from tacit.memory import References
from tacit.privacy.accounting import calibrate, events
from tacit.privacy.vault import Grant

NAMES = ["DPCL union", "DPAGEM average", "DPAGEM each", "NaiveGaussian"]


def begin(name: str = "DPCL union", info: StreamInfo | None = None, **settings: Any) -> Any:
    return started(name, info or facts(3), **given(name, **settings))


class Steps:
    """What leaves the memory in each step, and for which label."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.places: list[int | None] = []
        self.grants: list[Grant] = []
        honest = References.gradient

        def gradient(references: References, step: int) -> dict[str, Tensor]:
            self.places.append(references.place(step))
            self.grants += [grant for _, grant in references._grants if grant not in self.grants]
            return honest(references, step)

        monkeypatch.setattr(References, "gradient", gradient)


@pytest.mark.parametrize("name", NAMES)
def test_the_labels_come_in_turn_and_are_billed_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Steps(monkeypatch)
    vault, learner = fixed(), begin(name, by_class=True, memory_batch=3)
    learn(learner, vault, [0, 1, 2])
    steps = learner.memory_.schedule.steps
    assert seen.places == [step % 2 for task in (1, 2) for step in range(steps[task])]
    assert all(grant.plan.classes == 2 for grant in seen.grants)
    held = [len(grant._reads) if name == "DPAGEM average" else 1 for grant in seen.grants]  # the average of so many
    assert [grant.expected_batch for grant in seen.grants] == pytest.approx([3 * blocks for blocks in held])
    memory = [one for one in vault.ledger.statement(1).blocks if one.row.part == "memory" and one.events]
    assert len(memory) == 2
    for block in memory:
        for one in map(events.from_json, block.events):
            assert one.count == math.ceil(5 / 2)


def test_only_records_of_the_label_pull_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise to speak of: g_ref of a step is the clipped gradient of one label's remembered records."""
    grants: list[Grant] = []
    drawn: list[list[Tensor]] = []
    honest = Grant._add_gradients

    def watched(self: Grant, total: Tensor, units: list[Tensor]) -> None:
        if self.plan.classes:
            grants.append(self)
            drawn.append([read.label_positions(one) for read, one in zip(self._reads, units, strict=True)])
        honest(self, total, units)

    monkeypatch.setattr(Grant, "_add_gradients", watched)
    learn(begin(by_class=True), fixed(), [0, 1, 2])
    assert len(drawn) == 10
    for step, reads in enumerate(drawn):
        assert all((labels == (step % 5) % 2).all() for labels in reads)
    assert sum(len(labels) for reads in drawn for labels in reads) > 20


def test_the_turns_are_those_of_labels_that_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tasks have labels of their own, no step is held against a label that nobody in memory can have."""
    seen = Steps(monkeypatch)
    learner = begin(info=split_facts(), by_class=True, steps=6)
    learn(learner, fixed(), [0, 1, 2], lambda number: records(number, first=2 * number))
    assert seen.places == [0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 0, 1]


def test_every_label_has_a_running_mean_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, Any]] = []
    honest = dpcl.running_mean

    def smoothed(new: Any, mean: Any, weight: float) -> Any:
        asked.append((mean, honest(new, mean, weight)))
        return asked[-1][1]

    monkeypatch.setattr(dpcl, "running_mean", smoothed)
    learn(begin(by_class=True, smooth=0.5), fixed(), [0, 1])
    means = [mean for mean, _ in asked]
    assert means[:2] == [None, None]
    assert all(means[step] is asked[step - 2][1] for step in range(2, 5))


def test_noise_is_found_for_the_turns_of_one_label() -> None:
    """K times the rate, in a K-th of the steps."""
    budget = Budget(epsilon=1.0, delta=1e-5)
    for by_class in (False, True):
        learner = started("DPCL union", facts(2), budget=budget, by_class=by_class, memory_batch=4, steps=8, noise=None)
        schedule = learner.memory_.schedule  # type: ignore[attr-defined]
        (event,) = schedule.events(0)
        assert calibrate.fits(event, budget)
        rate = 4 / 12 * (2 if by_class else 1)
        assert event == events.poisson_gaussian(rate, schedule.noise[0], 4 if by_class else 8)


def test_it_learns(tmp_path: Path) -> None:
    learner = make("DPCL union", by_class=True, margin=-0.5, stay=2, leave="thinning", lr=0.3)
    learner.start(facts())
    learn(learner, fixed(tmp_path), [0, 1, 2])
    assert np.mean(accuracies(learner)) > 0.75


@pytest.mark.parametrize(
    ("name", "settings", "info", "words"),
    [
        ("DPCL block", {}, facts(2), r"reads one block a step; use memory='union'"),
        ("DPCL union", {}, facts(2, records_per_unit=2), "may have 2 records in a task, so of two labels"),
        ("DPCL union", {"budget": Budget(epsilon=1e4, delta=1e-5, adjacency="replace-one")}, facts(2),  # type: ignore[arg-type]
         "protects neighbours by replace-one"),
    ],
)  # fmt: skip
def test_where_a_unit_could_have_two_turns_it_is_refused(
    name: str, settings: dict[str, Any], info: StreamInfo, words: str
) -> None:
    with pytest.raises(LearnerError, match=words):
        started(name, info, **given(name, by_class=True, **settings))
