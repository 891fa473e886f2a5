"""DP-FC: what it pays, that its gradients help where they carry information, and that noise alone moves nothing."""

from typing import Any

import numpy as np
import pytest
import torch

from support.small_world import fixed, learn, of_people, person_facts, split_facts
from tacit import Budget, StreamInfo
from tacit.errors import LearnerError
from tacit.learners import DPFC
from tacit.privacy.accounting import calibrate, events
from tacit.privacy.accounting.budget import Unit

LABELS, WIDTH, TASKS = 6, 12, 3


def skewed(seed: int = 0) -> tuple[Any, Any]:
    """Labels whose spreads differ, so that the discriminant of a pooled second moment is not the best border."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(LABELS, WIDTH)) * 0.4
    spread = np.exp(rng.normal(size=(LABELS, WIDTH)))
    y = rng.integers(0, LABELS, 6000)
    x = means[y] + spread[y] * np.abs(rng.normal(size=(6000, WIDTH)))
    return x.astype(np.float32), y


def stream() -> StreamInfo:
    return StreamInfo.uniform("s", labels=range(LABELS), shape=(WIDTH,), size=1500, tasks=TASKS, public=True)


def after(x: Any, y: Any, epsilon: float, **settings: Any) -> DPFC:
    learner = DPFC(budget=Budget(epsilon=epsilon, delta=1e-5), **settings)
    learner.start(stream())
    of = np.random.default_rng(1).integers(0, TASKS, len(y))
    learn(learner, fixed(), range(TASKS), lambda number: (x[of == number], y[of == number]))
    return learner


def test_gradients_help_where_there_is_little_noise() -> None:
    x, y = skewed()
    learner = after(x[:4500], y[:4500], 1e4, steps=2, lr=30.0)
    moments, seen = learner.moments_.classifier()
    assert bool(seen.all())
    unit = learner.model_(torch.from_numpy(x[4500:]))
    alone = float((unit @ moments.T).argmax(1).eq(torch.from_numpy(y[4500:])).float().mean())
    assert learner.score(x[4500:], y[4500:]) > alone + 0.02


def test_gradients_of_noise_alone_move_the_classifier_little() -> None:
    """Without records the shrinkage leaves next to nothing of the gradients; at ε = 10⁴ it leaves nearly all."""
    x, y = skewed()
    start, empty = after(x, y, 1e4), after(x[:0], y[:0], 1.0)
    kept = [one._moved().norm() / (one.lr * _whole(one).norm()) for one in (start, empty)]
    assert kept[0] > 0.9 and kept[1] < 0.2


def _whole(learner: DPFC) -> torch.Tensor:
    """What the gradients would add without shrinkage."""
    moment = learner.moments_.second_moment()
    values, basis = torch.linalg.eigh(moment.value.double())
    return learner.total_.double() @ basis / (values.clamp(min=0) + 0.5 * moment.edge + moment.least) @ basis.T


@pytest.mark.parametrize("settings", [{}, {"steps": 3, "gradient_share": 0.5}, {"centre": 0.05}])
def test_all_releases_of_a_task_cost_the_budget_together(settings: dict[str, Any]) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    learner = DPFC(budget=budget, **settings)
    learner.start(split_facts())
    first, second, _ = (events.compose(charge) for charge in learner.charges())
    assert calibrate.fits(first, budget) and calibrate.fits(second, budget)
    assert calibrate.price(first, budget) > 0.99 * calibrate.allowance(budget)


def test_people_in_several_tasks_are_priced_together() -> None:
    learner = DPFC(budget=Budget(epsilon=2.0, delta=1e-5, unit=Unit.PERSON))
    learner.start(person_facts())
    vault = fixed()
    learn(learner, vault, [0, 1, 2], of_people)
    assert 1.9 < vault.ledger.epsilon(1) <= 2.0


def test_wrong_settings_and_wrong_releases_are_refused() -> None:
    with pytest.raises(LearnerError, match="gradient_share"):
        DPFC(gradient_share=1.0).start(stream())
    learner = DPFC()
    learner.start(stream())
    with pytest.raises(LearnerError, match="no gradients of these labels"):
        learner.restore({}, stream().tasks[:1])
