"""A learning rate that falls over the steps of a task."""

from typing import Any

import pytest
import torch

from support.small_world import facts, fixed, given, learn, started
from tacit.errors import LearnerError
from tacit.learners.base.gradient import GradientLearner

STEPS = ("DPCL union", "DPER", "Joint", "NaiveDPSGD", "experts", "ensemble", "adaptive", "pool")


def rates(name: str, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> list[float]:
    """The learning rate of each step of the second task."""
    seen: list[float] = []
    update = GradientLearner.update

    def watched(learner: GradientLearner, optimizer: torch.optim.Optimizer, gradient: Any) -> None:
        seen.append(optimizer.param_groups[0]["lr"])
        update(learner, optimizer, gradient)

    learner, vault = started(name, facts(2), **given(name, **settings)), fixed()
    learn(learner, vault, [0])
    monkeypatch.setattr(GradientLearner, "update", watched)
    learn(learner, vault, [1])
    return seen


@pytest.mark.parametrize("name", STEPS)
def test_it_falls_in_a_straight_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"lr_decay": "linear", "lr": [0.1, 0.5]}
    settings |= {"steps": 4, "noise": 2.0} if name == "adaptive" else {}
    found = rates(name, monkeypatch, **settings)
    line = [0.5 * (1 - step / 5) for step in range(5)]
    if name == "adaptive":  # two segments of two steps
        line = [0.5 * (1 - step / 4) for step in range(4)]
    assert found == pytest.approx(line * (len(found) // len(line))) and found


def test_it_is_constant_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rates("experts", monkeypatch, lr=0.25) == [0.25] * 5


def test_an_unknown_decay_is_refused() -> None:
    with pytest.raises(LearnerError, match="lr_decay"):
        started("experts", lr_decay="cosine")


def test_a_loop_of_ones_own_needs_to_pass_its_optimizer() -> None:
    class Own(GradientLearner):
        def fit(self, task: Any, block: Any, vault: Any) -> None:
            grant = vault.grant(block, self.plan(task), self.model_, self.loss_, work=self.settings())
            for _ in self.training_steps(grant, task):
                pass

    with pytest.raises(LearnerError, match="pass the optimizer"):
        settings = given("NaiveDPSGD")
        learner = Own(network=lambda info: torch.nn.Linear(6, 2), lr_decay="linear", batch=30, **settings)
        learner.start(facts(1))
        learn(learner, fixed(), [0])
