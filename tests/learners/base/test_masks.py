"""The task id: given, it masks logits and loss; hidden, it does nothing."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from support.small_world import accuracies, facts, fixed, given, learn, records, split_facts, started
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.gradients.losses import cross_entropy as plain
from tacit.learners.base.masks import masked_cross_entropy


def of_split(number: int) -> tuple[np.ndarray, np.ndarray]:
    return records(number, first=2 * number)


def test_the_masked_loss_is_cross_entropy_over_the_tasks_labels() -> None:
    learner = started("NaiveDPSGD", split_facts(task_id="given"))
    coins = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 6, generator=coins, requires_grad=True)
    y = torch.randint(0, 6, (40,), generator=coins)
    found = learner.loss_(logits, y)
    by_hand = torch.stack([cross_entropy(logits[i, (y[i] // 2) * 2 :][None, :2], y[i][None] % 2) for i in range(40)])
    assert found.shape == (40,) and torch.allclose(found, by_hand, atol=1e-6)
    (gradient,) = torch.autograd.grad(found.sum(), logits, retain_graph=True)
    (wanted,) = torch.autograd.grad(by_hand.sum(), logits)
    assert torch.isfinite(gradient).all() and torch.allclose(gradient, wanted, atol=1e-6)
    own = (torch.arange(6)[None] // 2) == (y[:, None] // 2)
    assert (gradient[~own] == 0).all()  # no output of another task is moved


@pytest.mark.parametrize(
    "info",
    [
        split_facts(),
        facts(task_id="given"),
        StreamInfo(  # a label in tasks with different label sets: the task does not follow from it
            name="overlap", shape=(6,), public=True, task_id="given",
            tasks=(
                TaskInfo(name="a", number=0, labels=(0, 1), size=90),
                TaskInfo(name="b", number=1, labels=(1, 2), size=90),
            ),
        ),
    ],
    ids=["hidden", "one label set", "overlapping label sets"],
)  # fmt: skip
def test_otherwise_the_loss_is_plain(info: StreamInfo) -> None:
    learner = started("NaiveDPSGD", info)
    assert learner.loss_ is plain
    logits, y = torch.randn(5, 6, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, 5])
    assert torch.allclose(plain(logits, y), cross_entropy(logits, y, reduction="none"))


def test_equal_label_sets_stay_one_mask() -> None:
    """Tasks that share a label set whole, beside others: the mask follows from the label."""
    tasks = [(0, 1), (2, 3), (0, 1)]
    info = StreamInfo(
        name="again", shape=(6,), public=True, task_id="given",
        tasks=tuple(TaskInfo(name=str(n), number=n, labels=labels, size=90) for n, labels in enumerate(tasks)),
    )  # fmt: skip
    assert started("NaiveDPSGD", info).loss_.func is masked_cross_entropy  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["NaiveDPSGD", "experts", "AGEM", "DPER"])
def test_a_given_task_masks_the_scores(name: str) -> None:
    info = split_facts(task_id="given")
    learner, vault = started(name, info, **given(name)), fixed()
    learn(learner, vault, [0, 1, 2], of_split)
    x = torch.from_numpy(records(1, part=1)[0])
    for task in info.tasks:
        scores = learner.scores(x, task)
        outside = [label for label in range(6) if label not in task.labels]
        assert (scores[:, outside] == -torch.inf).all() and torch.isfinite(scores[:, list(task.labels)]).all()
        assert set(learner.predict(x, task)) <= set(task.labels)
        assert np.allclose(learner.predict_proba(x, task).sum(1), 1, atol=1e-5)
    assert learner.scores(x).isfinite().any(1).all()


@pytest.mark.parametrize(("name", "task_id"), [("NaiveDPSGD", "given"), ("experts", "given"), ("experts", "hidden")])
def test_splits_are_learned(name: str, task_id: str) -> None:
    info = split_facts(task_id=task_id)
    learner = started(name, info)
    learn(learner, fixed(), [0, 1, 2], of_split)
    for number, task in enumerate(info.tasks):
        x, y = records(number, part=1, first=2 * number)
        assert learner.score(x, y, task if task_id == "given" else None) > 0.9


def test_a_task_that_is_not_learned_yet_is_answered_from_its_labels() -> None:
    info = split_facts(task_id="given")
    learner = started("experts", info, **given("experts"))
    learn(learner, fixed(), [0], of_split)
    x = records(1, part=1)[0]
    assert set(learner.predict(x, info.tasks[1])) <= {2, 3}
    assert np.isfinite(learner.predict_proba(x, info.tasks[1])).all()


def test_places_of_labels() -> None:
    learner = started("NaiveDPSGD", split_facts())
    assert learner.positions([4, 0, 9]).tolist() == [4, 0, -1]
    assert learner.positions(np.array([5, 7])).tolist() == [5, -1]
    assert learner.mask(learner.stream_.tasks[2]).tolist() == [False] * 4 + [True] * 2
    assert len(accuracies(started("NaiveDPSGD"))) == 3
