"""Features standardised by what the first task tells privately: charged, noisy, kept in the release, and worth it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from support import made_up
from support.small_world import facts, fixed, learn, of_people, person_facts, same
from tacit import Budget, CosineClassifier, MomentsClassifier, StreamInfo
from tacit.errors import LearnerError
from tacit.learners.base.frozen_features import Spread, Standard
from tacit.privacy.accounting import epsilon, events
from tacit.privacy.accounting.budget import Unit

ONE = Budget(epsilon=1.0, delta=1e-5)
KINDS = [CosineClassifier, MomentsClassifier]
WIDTH, LABELS = 12, 4


def uneven(seed: int, n: int = 4000) -> tuple[Any, Any]:
    """One loud feature with a large mean hides eleven quiet ones that tell the label."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, LABELS, n)
    means = np.random.default_rng(99).normal(size=(LABELS, WIDTH))
    x = 0.02 * (means[y] + rng.normal(size=(n, WIDTH)))
    x[:, 0] = 0.5 + 0.3 * rng.normal(size=n)
    return x.astype(np.float32), y


def info(tasks: int = 2, size: int = 4000) -> StreamInfo:
    return StreamInfo.uniform("s", labels=range(LABELS), shape=(WIDTH,), size=size, tasks=tasks, public=True)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_worth_its_share(kind: Any) -> None:
    def score(share: float | None, keys: int) -> float:
        learner = kind(budget=ONE, standardise=share)
        learner.start(info())
        learn(learner, fixed(keys=keys), [0, 1], uneven)
        return float(learner.score(*uneven(7)))

    gains = [score(0.1, keys) - score(None, keys) for keys in range(4)]
    assert min(gains) > 0 and sum(gains) > 4 * 0.03


def test_mean_and_spread_are_those_of_the_records() -> None:
    x = torch.from_numpy(uneven(0)[0]).clamp(-1, 1)
    standard = Standard(WIDTH)
    standard.learn(Spread()(x).sum(0), 0.0)
    assert torch.allclose(standard.mean, x.mean(0), atol=1e-4)
    assert torch.allclose(standard.spread, x.std(0), rtol=0.01, atol=1e-3)
    assert float(Spread()(torch.full((1, WIDTH), 9.0)).norm()) == pytest.approx(1)
    assert float(Spread()(x).norm(dim=1).max()) <= 1 + 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 2])
def test_all_readings_together_cost_the_budget(kind: Any, times: int) -> None:
    learner = kind(budget=ONE, standardise=0.2)
    learner.start(replace(info(), tasks_per_unit=times))
    losses = [epsilon.epsilon(events.compose([*one] * times), ONE.delta) for one in learner.charges()]
    assert 0.999 < max(losses) <= 1 and losses[1] < losses[0]


def test_what_leaves_has_the_noise_of_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record: the sum is noise alone, and what is learned of it is finite."""
    seen = []
    honest = Standard.learn
    monkeypatch.setattr(Standard, "learn", lambda self, sums, std: (seen.append(sums.clone()), honest(self, sums, std)))
    wide = StreamInfo.uniform("s", labels=range(2), shape=(400,), size=50, tasks=1, public=True)
    learner = CosineClassifier(budget=ONE, standardise=0.1)
    learner.start(wide)
    learn(learner, fixed(), [0], lambda _: (np.zeros((0, 400), dtype=np.float32), np.zeros(0, dtype=np.int64)))
    made_up.assert_scale(seen[0], learner.spread_plan(wide.tasks[0])[0].std)
    assert learner.features_.standard is not None and torch.isfinite(learner.features_.standard.spread).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_holds_what_standardises(kind: Any) -> None:
    learner = kind(budget=ONE, standardise=0.1)
    learner.start(info())
    learn(learner, fixed(), [0], uneven)
    again = kind(budget=ONE, standardise=0.1)
    again.start(info())
    again.restore(learner.tensors(), learner.tasks_)
    assert same(again.tensors(), learner.tensors())
    assert np.array_equal(again.predict(uneven(7)[0]), learner.predict(uneven(7)[0]))
    plain = kind(budget=ONE)
    plain.start(info())
    with pytest.raises(LearnerError, match="standardised otherwise"):
        plain.restore(learner.tensors(), learner.tasks_)


def test_people_are_standardised_as_wholes() -> None:
    """A person with many records weighs no more than one: ratios do not depend on the weights."""
    budget = replace(Budget(epsilon=1e6, delta=1e-5), unit=Unit.PERSON)
    learner = CosineClassifier(budget=budget, standardise=0.5)
    learner.start(replace(person_facts(), tasks_per_unit=1))
    x, y, ids = of_people(0)
    learn(learner, fixed(), [0], lambda _: (x.clip(-1, 1), y, ids))
    assert learner.features_.standard is not None
    assert torch.allclose(learner.features_.standard.mean, torch.from_numpy(x.clip(-1, 1).mean(0)), atol=0.1)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(LearnerError, match="share between 0 and 1"):
        CosineClassifier(standardise=share).start(facts())
