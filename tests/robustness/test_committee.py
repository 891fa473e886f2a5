"""Learners with several networks: whose expected scores decide, what is certified of them, and what is refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.fixed_models import separable, trained_noisy
from support.small_world import ROOMY, facts, fixed, records, split_facts, take
from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError
from tacit.learners.base.weights import trained
from tacit.learners.baselines.centralised import Centralised
from tacit.learners.baselines.naive import NaiveDPSGD
from tacit.learners.experts.ensemble import PEFTEnsemble
from tacit.learners.experts.experts import RoutedExperts
from tacit.learners.pool.pool import Pool
from tacit.models.lowrank import adapted
from tacit.models.noisy import Noisy
from tacit.robustness.attacks import Attack, attack
from tacit.robustness.certified_accuracy import bounds, certify, pixeldp, why_not
from tacit.robustness.committee import Committee, committee


def noisy_network(info: StreamInfo) -> nn.Module:
    made = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, len(info.labels)))
    return Noisy(made, norm="l2", radius=0.2, epsilon=1.0, delta=0.05, draws=8)


def learned(learner: Any, info: StreamInfo, tasks: int = 2) -> Any:
    """After some tasks of the small world."""
    learner.start(info)
    vault = fixed()
    for number in range(tasks):
        own = records(number, first=2 * number if info.name == "split" else 0)
        learner.learn(info.tasks[number], take(vault, info, number, own, learner.budget), vault)
    return learner


def ensemble(**settings: Any) -> PEFTEnsemble:
    """Two networks that know the records of their own task from each other."""
    made = PEFTEnsemble(network=noisy_network, noise=1.0, batch=30, epochs=1, budget=ROOMY, **settings)
    made.start(split_facts(2))
    made.tasks_ = made.stream_.tasks
    for task in made.tasks_:
        x, y = (torch.from_numpy(one) for one in records(task.number, first=2 * task.number))
        other = torch.from_numpy(records(1 - task.number)[0])
        model = made.build()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        torch.manual_seed(task.number)
        for _ in range(80):  # records of the other task are spread over all labels: an unsure answer
            optimizer.zero_grad()
            unsure = -model(other).log_softmax(1).mean()
            (nn.functional.cross_entropy(model(x), made.positions(y.numpy())) + unsure).backward()
            optimizer.step()
        made.experts_.append(trained(model))
    return made


def test_the_largest_of_expected_scores_is_certified_as_one_network_is() -> None:
    learner = ensemble()
    x = torch.from_numpy(np.concatenate([records(0, 30, part=1)[0], records(1, 30, part=1)[0]]))
    y = torch.cat([torch.from_numpy(records(n, 30, part=1)[1]) + 2 * n for n in (0, 1)])
    found = certify(learner, x, norm="l2", draws=400)
    assert found.accuracy(y, 0.05) > 0.6, "there is something to beat"
    with learner.seeded_randomness(5):
        answers = sum(learner.scores(x).softmax(1) for _ in range(20)).argmax(1)  # type: ignore[union-attr]
    sure = found.radius > 0
    assert torch.equal(answers[sure], found.predicted[sure])
    radius = float(found.radius[sure].median())
    changed = attack(learner, x, y, Attack(norm="l2", radius=radius, steps=15, draws=4, range=None))
    again = certify(learner, changed, norm="l2", draws=400, seed=1).predicted
    held = found.radius >= radius
    assert torch.equal(again[held], found.predicted[held])


def test_bounds_are_those_of_every_member_together() -> None:
    """Against the formula, by hand: the error is shared by the members, and a label has its own member's bounds."""
    learner = ensemble()
    x = torch.from_numpy(records(0, 5, part=1)[0])
    who = committee(learner)
    assert isinstance(who, Committee) and who.rule == "largest"
    assert [member.labels.tolist() for member in who.members] == [[0, 1], [2, 3]]
    sums = []
    with learner.seeded_randomness(0), torch.no_grad():
        for state, own in zip(learner.experts_, ([0, 1], [2, 3]), strict=True):
            model = learner.build()
            model.load_state_dict(dict(state), strict=False)
            assert isinstance(model, Noisy)
            sums.append(sum(one.double().softmax(1)[:, own] for one in model.eval().evaluations(x, 60)))
    each = [bounds(one.numpy(), 60, 0.05 / 2, "soft") for one in sums]  # type: ignore[union-attr]
    low, high = (np.concatenate([one[side] for one in each], axis=1) for side in (0, 1))
    best = torch.cat(sums, 1).argmax(1).numpy()  # type: ignore[arg-type]
    others = np.array([np.delete(row, place).max() for row, place in zip(high, best, strict=True)])
    expected = pixeldp(low[np.arange(5), best], others) * 0.2 * math.sqrt(2 * math.log(1.25 / 0.05))
    assert certify(learner, x, norm="l2", draws=60).radius.numpy() == pytest.approx(expected, abs=1e-6)


def test_the_weights_are_as_before() -> None:
    learner = ensemble()
    before = trained(learner.model_)
    certify(learner, torch.from_numpy(records(0, 5)[0]), draws=10)
    assert all(torch.equal(value, before[name]) for name, value in trained(learner.model_).items())


@pytest.mark.parametrize("aggregate", ["median", "entropy"])
def test_rules_that_use_more_than_each_score_are_refused(aggregate: Any) -> None:
    learner = ensemble(aggregate=aggregate)
    assert f"with aggregate = '{aggregate}' weighs or shifts" in str(why_not(learner))
    assert why_not(learner, learner.tasks_[1]) is None  # its own network alone
    found = certify(learner, torch.from_numpy(records(1, 10)[0]), learner.tasks_[1], draws=50)
    assert set(found.predicted.tolist()) <= {2, 3}
    learner.tasks_, learner.experts_ = learner.tasks_[:1], learner.experts_[:1]
    assert why_not(learner) is None
    learner.experts_ = []
    assert why_not(learner) is None


def test_routed_experts_are_certified_where_the_task_is_given() -> None:
    learner = learned(RoutedExperts(network=noisy_network, budget=ROOMY, steps=5, batch=30, noise=1.0), facts())
    assert "reads the record without noise; give the task at test" in str(why_not(learner))
    first, second, new = facts().tasks
    x = torch.from_numpy(records(1, 20, part=1)[0])
    found = certify(learner, x, second, norm="l2", draws=200)
    with learner.seeded_randomness(3):
        mean = sum(learner.scores(x, second).softmax(1) for _ in range(30))
    sure = found.radius > 0
    assert torch.equal(mean.argmax(1)[sure], found.predicted[sure])  # type: ignore[union-attr]
    assert not torch.equal(certify(learner, x, first, norm="l2", draws=200).radius, found.radius)  # another expert
    assert why_not(learner, new) is None
    by_scores = learned(
        RoutedExperts(network=noisy_network, budget=ROOMY, steps=2, batch=30, noise=1.0, router="scores"), facts()
    )
    assert "weighs experts by confidence" in str(why_not(by_scores))
    one = learned(RoutedExperts(network=noisy_network, budget=ROOMY, steps=2, batch=30, noise=1.0), facts(), tasks=1)
    assert why_not(one) is None


def pool(**settings: Any) -> Any:
    made = Pool(
        network=noisy_network, budget=ROOMY, tasks_per_learner=1, steps=5, batch=30, noise=1.0, memory_batch=8,
        memory_noise=1.0, **settings,
    )  # fmt: skip
    return made


def test_the_mean_vote_of_a_pool_is_certified() -> None:
    learner = learned(pool(), facts())
    x = torch.from_numpy(records(1, 40, part=1)[0])
    who = committee(learner)
    assert isinstance(who, Committee) and who.rule == "mean" and len(who.members) == 2
    found = certify(learner, x, norm="l2", draws=300)
    with learner.seeded_randomness(3):
        mean = sum(learner.scores(x).exp() for _ in range(40))
    sure = found.radius > 0
    assert torch.equal(mean.argmax(1)[sure], found.predicted[sure])  # type: ignore[union-attr]
    alone = [committee(learner, task) for task in facts().tasks[:2]]
    states = [one.members[0].state for one in alone if isinstance(one, Committee) and len(one.members) == 1]
    assert states[0] is learner.pool_[0] and states[1] is learner.pool_[1]
    assert "are chosen by their confidence" in str(why_not(learned(pool(vote="confident"), facts())))
    gone = learned(pool(finished=1), split_facts(3), tasks=3)
    assert "the learner of this task is gone" in str(why_not(gone, gone.tasks_[0])) and why_not(gone) is None


def test_a_mean_of_networks_is_as_stable_as_each() -> None:
    """Two linear networks that look at different directions: where both turn is known, and nothing is certified
    beyond it, however many networks there are."""
    learner = learned(pool(), facts())
    rows = []
    for number, direction in enumerate((0, 1)):
        v = torch.zeros(6)
        v[direction] = 1.0
        state = {name: torch.zeros_like(value) for name, value in learner.pool_[number].items()}
        state["first.weight"] = torch.stack([v, -v, *torch.zeros(6, 6)]) / math.sqrt(2)
        state["rest.1.weight"][0, 0] = state["rest.1.weight"][1, 1] = 50.0
        learner.pool_[number] = state
    for length in (0.1, 0.2, 0.4):
        rows.append(torch.tensor([length, length, 0, 0, 0, 0]))
    found = certify(learner, torch.stack(rows), norm="l2", draws=4000, bound="smoothing")
    # Both networks turn together along (1, 1)/√2; the mean of two equal scores turns where each does.
    true = torch.tensor([0.1, 0.2, 0.4])
    assert bool((found.radius <= true * math.sqrt(2)).all()) and float(found.radius[1]) > 0.1


def test_centralised_networks_answer_for_their_own_task() -> None:
    learner = learned(Centralised(network=noisy_network, epochs=2, scope="task"), facts())
    x = torch.from_numpy(records(0, 20, part=1)[0])
    tasks = learner.stream_.tasks
    asked = [committee(learner, task) for task in (tasks[0], tasks[1], tasks[2], None)]
    states = [one.members[0].state for one in asked if isinstance(one, Committee)]
    assert states[0] is learner.alone_[0] and states[1] is learner.alone_[1] and states[2] is states[3] is None
    assert len(certify(learner, x, tasks[0], draws=20).radius) == 20
    assert why_not(learned(Centralised(network=noisy_network, epochs=1), facts(), tasks=1)) is None


def test_an_answer_of_ones_own_is_not_known() -> None:
    class Own(NaiveDPSGD):
        def scores(self, x: Tensor, task: Any = None) -> Tensor:
            return super().scores(x, task) + x.flatten(1).sum(1, keepdim=True)

    learner = Own(network=noisy_network)
    learner.start(facts())
    assert "Own predicts in a way of its own, which may bypass its noise layer" in str(why_not(learner))
    with pytest.raises(ConfigError, match="nothing can be certified: Own predicts in a way of its own"):
        certify(learner, torch.zeros(1, 6))
    found = attack(learner, *(torch.from_numpy(one) for one in records(0, 4)), Attack(range=None))
    assert found.shape == (4, 6)


def test_a_way_around_the_first_layer_is_refused() -> None:
    learner = trained_noisy()
    learner.model_ = adapted(learner.model_, 2)
    assert "the reach of this LowRank is not known" in str(why_not(learner))
    with pytest.raises(ConfigError, match="the reach of this LowRank"):
        certify(learner, separable(2, 0)[0])


def test_a_given_task_in_a_committee_leaves_its_labels_only() -> None:
    learner = ensemble()
    task = replace(learner.tasks_[0], labels=(1,))
    found = certify(learner, torch.from_numpy(records(0, 6)[0]), task, draws=30)
    assert found.predicted.tolist() == [1] * 6
