"""Robust DP-CL as printed: lines 7 to 18, Eq. 6, spent records and learners in turn."""

from typing import Any

import pytest
import torch
from torch import nn

from support.made_up import assert_scale
from support.small_world import ROOMY, facts, fixed, learn, records, take, tiny
from tacit import Budget, StreamInfo
from tacit.certificate.claims import LEARNER_ORDER, moments_accountant
from tacit.errors import LearnerError
from tacit.learners import AGEM, PublishedRobustDPCL
from tacit.learners.published.published_robust_dpcl import enters

QUIET = 1e-12


def make(info: StreamInfo | None = None, **settings: Any) -> PublishedRobustDPCL:
    common: dict[str, Any] = {"network": tiny, "batch": 10, "memory_per_class": 4, "efficient_memory": False}
    learner = PublishedRobustDPCL(**common | {"steps": 4} | settings)
    learner.start(info or facts())
    return learner


def coins(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(task: int = 0, n: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = records(task, n)
    return torch.from_numpy(x), torch.from_numpy(y)


def flat(gradient: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in gradient.values()])


def test_a_batch_is_clipped_as_one_and_divided_by_its_size() -> None:
    plain = flat(AGEM.gradient(make(), *batch(), coins()))
    for clip in (0.05, 100.0):
        mine = flat(make(clip=clip, noise=QUIET).gradient(*batch(), coins()))
        assert torch.allclose(mine, plain / max(1.0, float(plain.norm()) / clip) / 10, atol=1e-8)
    learner, quiet = make(clip=0.5, noise=4.0), make(clip=0.5, noise=QUIET)
    clipped = flat(quiet.gradient(*batch(), coins()))
    noises = [flat(learner.gradient(*batch(), coins(seed))) - clipped for seed in range(20)]
    assert_scale(torch.cat(noises).numpy(), 4.0 * 0.5 / 10)  # σC/m


def test_what_is_subtracted_has_no_clip_and_no_noise() -> None:
    """Line 16, where g and g_ref conflict: the same records with the other labels."""
    learner = make(clip=0.05, noise=QUIET, by_class=False)
    x, y = batch()
    memory = (x, 1 - y)
    learner.uses_ = torch.zeros(10, dtype=torch.int64)
    g, raw = (flat(AGEM.gradient(learner, x, labels, coins())) for labels in (y, 1 - y))
    noisy, reference = g * 0.05 / g.norm() / 10, raw * 0.05 / raw.norm() / 10
    dot = float(noisy @ reference)
    assert dot < 0
    wanted = noisy - dot / float(reference @ reference) * raw
    assert torch.allclose(flat(learner.direction(x, y, memory, coins())), wanted, rtol=1e-4, atol=1e-6)
    agreeing = flat(learner.direction(x, y, (x, y), coins()))
    assert torch.allclose(agreeing, noisy, atol=1e-7)  # no conflict, no projection


def test_reference_gradients_have_the_labels_of_the_batch_and_reads_are_counted() -> None:
    learner = make(facts(1), memory_batch=3)
    learn(learner, fixed(), [0])
    memory = learner._memory()
    assert memory is not None and memory[1].tolist().count(1) == 4
    assert learner.uses_.tolist() == [1] * 8  # its own task's network has read each once
    for seed in range(5):
        _, labels = learner.remembered(memory, torch.tensor([1, 1]), coins(seed))
        assert labels.tolist() == [1, 1, 1]
    assert int(learner.uses_.sum()) == 8 + 15 and set(learner.uses_[memory[1] == 0].tolist()) == {1}


def test_a_record_may_be_read_as_often_as_the_accountant_says() -> None:
    task = facts().tasks[0]
    assert make().reads_allowed(task) == float("inf")
    for rate, noise in ((None, 1.0), (1.0, 4.0)):
        learner = make(record_budget=3.0, charged_rate=rate, noise=noise, budget=Budget(epsilon=3.0, delta=1e-5))
        q = 10 / 120 if rate is None else rate
        reads = int(learner.reads_allowed(task))
        below, above = (moments_accountant(q, noise, n, 1e-5, LEARNER_ORDER) for n in (reads, reads + 1))
        assert reads > 0 and below <= 3.0 < above


def test_spent_records_are_replaced_by_others_of_their_task_and_label_while_there_are_any() -> None:
    learner = make(facts(2), record_budget=2.0, charged_rate=1.0, budget=Budget(epsilon=2.0, delta=1e-5))
    learn(learner, fixed(), [0])
    task = learner.stream_.tasks[0]
    allowed = int(learner.reads_allowed(task))
    (before, labels), (spare, spare_labels) = learner.kept_[0], learner.spare_[0]
    assert len(spare) == len(before) == 8
    learner.uses_[:] = allowed  # not more than they may be read
    learner._replace_spent(task, coins())
    assert torch.equal(learner.kept_[0][0], before)
    learner.uses_[0] = allowed + 1
    learner._replace_spent(task, coins())
    after, same_labels = learner.kept_[0]
    assert torch.equal(after[1:], before[1:]) and torch.equal(same_labels, labels) and learner.uses_[0] == 0
    assert torch.equal(after[0], spare[spare_labels == labels[0]][0]) and len(learner.spare_[0][1]) == 7
    for _ in range(5):  # three are left of its label
        learner.uses_[0] = allowed + 1
        learner._replace_spent(task, coins())
    assert len(learner.kept_[0][1]) == len(learner.uses_) < 8 and not (learner.spare_[0][1] == labels[0]).any()


def test_a_replacement_must_meet_the_robustness_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line 26, as line 33: judged by the network in training, for the record's own task."""
    learner = make(facts(2), record_budget=2.0, charged_rate=1.0, budget=Budget(epsilon=2.0, delta=1e-5))
    learn(learner, fixed(), [0])
    learner.efficient_memory, task = True, learner.stream_.tasks[0]
    (_, labels), (spare, spare_labels) = learner.kept_[0], learner.spare_[0]
    alike = (spare_labels == labels[0]).nonzero().flatten()
    asked: list[tuple[int, str]] = []

    def only(good: torch.Tensor) -> None:
        def margins(x: torch.Tensor, y: torch.Tensor, of: Any) -> torch.Tensor:
            asked.append((len(x), of.name))
            return torch.tensor([1.0 if any(torch.equal(row, one) for one in good) else -1.0 for row in x])

        monkeypatch.setattr(learner, "_margins", margins)

    only(spare[alike[2:3]])
    learner._replace_spent(task, coins())
    assert not asked  # none is spent
    learner.uses_[0] = int(learner.reads_allowed(task)) + 1
    learner._replace_spent(task, coins())
    assert asked == [(8, task.name)]  # those left of the task, in a batch
    assert torch.equal(learner.kept_[0][0][0], spare[alike[2]]) and len(learner.kept_[0][1]) == 8
    only(spare[:0])
    learner.uses_[0] = int(learner.reads_allowed(task)) + 1
    learner._replace_spent(task, coins())
    assert len(learner.kept_[0][1]) == len(learner.uses_) == 7 and len(learner.spare_[0][1]) == 7  # no one meets it


def test_margins_are_of_the_network_in_training() -> None:
    learner = make(facts(3), tasks_per_learner=1)
    learn(learner, fixed(), [0, 1])
    (x, y), task = batch(), learner.stream_.tasks[0]
    chances = learner.model_(x).softmax(1)
    own = chances.gather(1, y[:, None]).flatten()
    wanted = own - (chances.sum(1) - own)  # two labels
    assert torch.allclose(learner._margins(x, y, task), wanted, atol=1e-6)
    assert learner.answers_for(task) == 0  # who answers for it is not asked
    assert not torch.allclose(learner.scores(x, task).softmax(1), chances, atol=1e-6)


def test_who_enters_is_decided_by_the_others_of_the_batch() -> None:
    assert enters(torch.tensor([0.7, 0.1])).tolist() == [True, False]  # the sigmoid of 0.4 is 0.599
    assert enters(torch.full((3,), 0.66)).all()
    assert not enters(torch.tensor([0.66, 0.66, 0.66, 1.0]))[:3].any()
    untrained, trained = make(facts(1), efficient_memory=True, lr=1e-9), make(
        facts(1), efficient_memory=True, lr=5.0, noise=QUIET, clip=10.0, steps=100
    )  # fmt: skip
    for learner in (untrained, trained):
        learn(learner, fixed(), [0])
    assert len(untrained.kept_[0][1]) < len(trained.kept_[0][1]) <= 8


def test_the_layers_noise_is_drawn_once() -> None:
    plain, noisy, again = make(), make(layer_noise=0.5), make(layer_noise=0.5)
    (w, b), (w_noisy, b_noisy), (_, b_again) = (list(one.model_.parameters())[:2] for one in (plain, noisy, again))
    assert torch.equal(w, w_noisy) and torch.equal(b_noisy, b_again) and not torch.allclose(b, b_noisy, atol=0.01)
    with pytest.raises(LearnerError, match="first layer has a bias"):
        make(layer_noise=0.5, network=nn.Sequential(nn.Linear(6, 2, bias=False)))


def test_learners_take_turns_and_each_claims_its_own_budget() -> None:
    learner = make(facts(3), tasks_per_learner=2, early_start=True, budget=ROOMY)
    learn(learner, fixed(), [0, 1])
    assert sorted(learner.pool_) == [0, 1]  # the second has begun in task 2, which the first answers for
    assert learner.answers_for(learner.stream_.tasks[1]) == 0
    learn(learner, fixed(), [2])
    assert learner.groups() == [range(2), range(2, 3)]
    claimed = learner.claimed()
    assert claimed is not None
    assert claimed.total == pytest.approx(moments_accountant(10 / 120, 4.0, 8, ROOMY.delta, LEARNER_ORDER))


def test_new_networks_begin_on_held_out_tasks() -> None:
    vault, held = fixed(), facts(1)
    block = take(vault, held, 0, records(0), ROOMY)
    learner = make(facts(2), fine_tune="public", fine_tune_lr=0.5, lr=1e-9)
    with pytest.raises(LearnerError, match="held-out tasks, which are missing"):
        learn(learner, fixed(), [0])
    begun = make(facts(2), fine_tune="public", fine_tune_lr=0.5, lr=1e-9)
    begun.receive_held_out([block], vault)
    assert begun.held_out_access == "public" and make().held_out_access is None
    begun._begin(0, begun.stream_.tasks[0], vault)
    x, y = batch(0, 100)
    assert float((begun.scores(x).argmax(1) == y).float().mean()) > 0.9
