"""Features as square roots minus their mean, a charged release of the first task: kept in releases, and worth it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from support.small_world import facts, fixed, learn, same
from tacit import Budget, CosineClassifier, MomentsClassifier, StreamInfo
from tacit.errors import LearnerError
from tacit.learners.base.frozen_features import Centred, RootAndOne, unit_root
from tacit.privacy.accounting import epsilon, events

ONE = Budget(epsilon=1.0, delta=1e-5)
KINDS = [CosineClassifier, MomentsClassifier]
WIDTH, LABELS = 24, 8


def rectified(seed: int, n: int = 3000) -> tuple[Any, Any]:
    """Features ≥ 0 with a large common mean, as pooled outputs of a network with ReLU are."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, LABELS, n)
    fixed_part = np.random.default_rng(99)
    common, means = fixed_part.uniform(2, 4, WIDTH), fixed_part.normal(size=(LABELS, WIDTH))
    x = common + 0.2 * means[y] + 0.5 * rng.normal(size=(n, WIDTH))
    return x.clip(0).astype(np.float32), y


def info(tasks: int = 2, size: int = 3000) -> StreamInfo:
    return StreamInfo.uniform("s", labels=range(LABELS), shape=(WIDTH,), size=size, tasks=tasks, public=True)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_worth_its_share(kind: Any) -> None:
    def score(share: float | None, keys: int) -> float:
        learner = kind(budget=ONE, centre=share)
        learner.start(info())
        learn(learner, fixed(keys=keys), [0, 1], rectified)
        return float(learner.score(*rectified(7)))

    gains = [score(0.05, keys) - score(None, keys) for keys in range(4)]
    assert sum(gains) > 4 * 0.01


def test_the_mean_is_that_of_the_records_or_zero_where_noise_hides_it() -> None:
    x = torch.from_numpy(rectified(0)[0])
    rows = RootAndOne(None)(x)
    assert torch.allclose(rows.norm(dim=1), torch.ones(len(x)), atol=1e-6)
    centred = Centred(WIDTH)
    centred.learn(rows.sum(0), 0.0)
    assert torch.allclose(centred.mean, unit_root(x).mean(0), atol=1e-5)
    assert torch.allclose(centred(x).mean(0), torch.zeros(WIDTH), atol=1e-5)
    centred.learn(torch.ones(WIDTH + 1), 5.0)
    assert torch.equal(centred.mean, torch.zeros(WIDTH))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 2])
def test_all_readings_together_cost_the_budget(kind: Any, times: int) -> None:
    learner = kind(budget=ONE, centre=0.05)
    learner.start(replace(info(), tasks_per_unit=times))
    losses = [epsilon.epsilon(events.compose([*one] * times), ONE.delta) for one in learner.charges()]
    assert 0.999 < max(losses) <= 1 and losses[1] < losses[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_holds_the_mean(kind: Any) -> None:
    learner = kind(budget=ONE, centre=0.1)
    learner.start(info())
    learn(learner, fixed(), [0], rectified)
    assert float(learner.tensors()["standard.mean"].norm()) > 0.5
    again = kind(budget=ONE, centre=0.1)
    again.start(info())
    again.restore(learner.tensors(), learner.tasks_)
    assert same(again.tensors(), learner.tensors())
    assert np.array_equal(again.predict(rectified(7)[0]), learner.predict(rectified(7)[0]))
    for other in (kind(budget=ONE), kind(budget=ONE, standardise=0.1)):
        other.start(info())
        with pytest.raises(LearnerError, match="standardised otherwise"):
            other.restore(learner.tensors(), learner.tasks_)


@pytest.mark.parametrize("settings", [{"centre": 0.0}, {"centre": 1.0}, {"centre": 0.1, "standardise": 0.1}])
def test_a_share_that_is_none_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(LearnerError, match="centre must be a share between 0 and 1"):
        CosineClassifier(**settings).start(facts())
