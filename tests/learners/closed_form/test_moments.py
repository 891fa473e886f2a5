"""The moments classifier: what it reads, what it pays, and that it beats the cosine, disjoint or spread."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support import made_up
from support.small_world import fixed, learn, of_people, person_facts, records, same, split_facts
from tacit import Budget, CosineClassifier, MomentsClassifier, StreamInfo
from tacit.errors import LearnerError
from tacit.learners.base.learner import Learner
from tacit.learners.base.release import Release
from tacit.privacy.accounting import epsilon as accounting
from tacit.privacy.accounting import events, toeplitz
from tacit.privacy.accounting.budget import Unit

ONE = Budget(epsilon=1.0, delta=1e-5)
LABELS, WIDTH, TASKS = 20, 48, 5


class Counting(nn.Module):
    """A backbone that counts the rows it is given."""

    rows = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 6)

    def forward(self, x: Tensor) -> Tensor:
        type(self).rows += len(x)
        found: Tensor = self.layer(x)
        return found


def test_two_releases_of_a_task_embed_each_record_once() -> None:
    x, y, _, _ = world()

    def embedded(n: int) -> int:
        Counting.rows = 0
        backbone = Counting()
        learner = MomentsClassifier(stream=stream(), budget=ONE, backbone=backbone)
        learner.partial_fit(x[:n], y[:n])
        after_one = Counting.rows
        learner.partial_fit(x[600 : 600 + n], y[600 : 600 + n])
        assert (learner.predict(x[:5]) >= 0).all()
        return after_one

    assert embedded(600) - embedded(100) == 500  # what is synthetic is the same in both


def world(seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Unit features of labels under shared loud directions: 3,000 to learn from, 1,000 for tests."""
    rng = np.random.default_rng(seed)
    means = np.concatenate([np.full((LABELS, 1), 2.0), rng.normal(size=(LABELS, WIDTH - 1)) * 0.5], 1)
    y = rng.integers(0, LABELS, 4000)
    loud = np.r_[np.full(8, 1.6), np.full(WIDTH - 8, 0.45)]
    x = (means[y] + loud * rng.normal(size=(4000, WIDTH))).astype(np.float32)
    return x[:3000], y[:3000], x[3000:], y[3000:]


def stream(**said: Any) -> StreamInfo:
    return StreamInfo.uniform("s", labels=range(LABELS), shape=(WIDTH,), size=600, tasks=TASKS, public=True, **said)


def right(learner: Learner, how: str, keys: int = 0) -> float:
    """Accuracy after all tasks: of labels that come four at a time, or of records in random tasks."""
    x, y, tx, ty = world()
    of = y * TASKS // LABELS if how == "disjoint" else np.random.default_rng(1).integers(0, TASKS, len(y))
    learner.start(stream())
    learn(learner, fixed(keys=keys), range(TASKS), lambda number: (x[of == number], y[of == number]))
    return learner.score(tx, ty)


@pytest.mark.parametrize("how", ["disjoint", "spread"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0, 1e4])
def test_it_beats_the_cosine_in_every_order(how: str, epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-5)
    moments, cosine = (right(kind(budget=budget), how) for kind in (MomentsClassifier, CosineClassifier))
    assert moments > cosine + 0.02


def test_early_gives_spread_records_most_of_what_separate_ones_have() -> None:
    """Mean of three draws of noise; the same learner without it is the control."""

    def mean(how: str, early: float | None) -> float:
        return float(np.mean([right(MomentsClassifier(budget=ONE, early=early), how, keys) for keys in range(3)]))

    together, spread, plain = mean("disjoint", 0.2), mean("spread", 0.2), mean("spread", None)
    assert spread > plain + 0.01
    assert together - spread < 0.05


def test_early_is_for_several_tasks_with_units_in_one_each() -> None:
    for info in (person_facts(), split_facts(1)):
        with pytest.raises(LearnerError, match=r"early = 0\.3 is for streams of several tasks"):
            MomentsClassifier(early=0.3).start(info)


def test_what_it_releases_has_the_noise_of_its_plans() -> None:
    """No record at all: sums and second moment are noise of the planned scale, in every task and for every label."""
    learner = MomentsClassifier(budget=ONE)
    info = StreamInfo.uniform("s", labels=range(10), shape=(60,), size=50, tasks=3, public=True)
    learner.start(info)
    empty = np.zeros((0, 60), dtype=np.float32), np.zeros(0, dtype=np.int64)
    learn(learner, fixed(), [0, 1, 2], lambda _: empty)
    white = np.asarray(toeplitz.mixing(3, 3, 1)) @ np.stack([one.numpy().ravel() for one in learner.sums_])
    for row in white:
        made_up.assert_scale(row, learner.plan(info.tasks[0]).std)
    row, column = np.triu_indices(60, 1)
    std = learner.moment_plan().std * toeplitz.total_noise(3, 3, 1)
    made_up.assert_scale(learner.moment_.numpy()[row, column] * math.sqrt(2), std)


def test_both_releases_together_cost_the_budget() -> None:
    learner, info = MomentsClassifier(budget=ONE), split_facts()
    learner.start(info)
    both = events.compose([learner.plan(info.tasks[0]).event, learner.moment_plan().event])
    assert accounting.epsilon(both, 1e-5) == pytest.approx(1.0, abs=2e-3)
    vault = fixed()
    learn(learner, vault, [0], lambda number: records(number, first=2 * number))
    assert vault.ledger.epsilon(1) == pytest.approx(1.0, abs=2e-3)


def test_people_in_several_tasks_are_priced_together() -> None:
    info = person_facts()
    learner = MomentsClassifier(budget=Budget(epsilon=2.0, delta=1e-5, unit=Unit.PERSON))
    learner.start(info)
    assert learner.plan(info.tasks[0]).participations == 2
    vault = fixed()
    learn(learner, vault, [0, 1, 2], of_people)
    assert 1.9 < vault.ledger.epsilon(1) <= 2.0


def test_one_task_needs_no_series() -> None:
    learner = MomentsClassifier(budget=Budget(epsilon=50.0, delta=1e-5))
    learner.start(StreamInfo.uniform("s", labels=(0, 1), shape=(6,), size=120, tasks=1, public=True))
    learn(learner, fixed(), [0])
    x, y = records(0, part=1)
    assert learner.score(x, y) > 0.9


def test_a_release_answers_and_goes_on() -> None:
    """What is saved is enough: the same answers, and the same next task."""
    budget = Budget(epsilon=8.0, delta=1e-5)
    whole, half = MomentsClassifier(budget=budget), MomentsClassifier(budget=budget)
    whole.start(stream()), half.start(stream())
    x, y, tx, _ = world()
    parts = [(x[n::TASKS], y[n::TASKS]) for n in range(TASKS)]
    releases: list[Release] = learn(whole, fixed(), range(TASKS), lambda n: parts[n])
    vault = fixed()
    learn(half, vault, range(3), lambda n: parts[n])
    again = MomentsClassifier(budget=budget)
    again.start(stream())
    again.restore(half.tensors(), stream().tasks[:3], vault)
    assert torch.equal(again.scores(torch.from_numpy(tx)), half.scores(torch.from_numpy(tx)))
    learn(again, vault, range(3, TASKS), lambda n: parts[n])
    assert same(again.tensors(), releases[-1].tensors)


def test_public_label_sets_of_tasks_are_used() -> None:
    learner = MomentsClassifier(budget=Budget(epsilon=50.0, delta=1e-5))
    learner.start(split_facts())
    learn(learner, fixed(), [0], lambda number: records(number, first=2 * number))
    _, seen = learner.classifier()
    assert not seen[2:].any()


def test_wrong_settings_and_wrong_releases_are_refused() -> None:
    with pytest.raises(LearnerError, match="moment_share"):
        MomentsClassifier(moment_share=1.0).start(stream())
    one, other = MomentsClassifier(), MomentsClassifier()
    one.start(stream()), other.start(split_facts())
    learn(one, fixed(), [0], lambda _: world()[:2])
    with pytest.raises(LearnerError, match="moments of these labels"):
        other.restore(one.tensors(), split_facts().tasks[:1])


def test_nothing_learned_answers_all_alike() -> None:
    learner = MomentsClassifier()
    learner.start(stream())
    assert learner.scores(torch.randn(3, WIDTH)).abs().sum() == 0
