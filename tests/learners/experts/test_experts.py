"""Routed experts: the router, what is billed, merging, and experts of low rank."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from support import made_up
from support.small_world import GENEROUS, facts, fixed, given, learn, nothing, records, started
from tacit import Budget, Ledger, Vault
from tacit.errors import LearnerError, UnsupportedModel
from tacit.learners.closed_form.routing import mixture
from tacit.learners.experts.experts import RoutedExperts, shrunk, trained
from tacit.learners.experts.merging import closest, merged
from tacit.models.lowrank import LowRank, adapted
from tacit.privacy.accounting import calibrate, events
from tacit.privacy.vault import SumPlan


def experts(info: Any = None, **settings: Any) -> RoutedExperts:
    learner = started("experts", info, **settings)
    assert isinstance(learner, RoutedExperts)
    return learner


def inputs(number: int) -> torch.Tensor:
    return torch.from_numpy(records(number, part=1)[0])


# The router.


@pytest.mark.parametrize(
    "settings", [{"router": "mean"}, {"router": "prototypes"}, {"router": "scores", "sharpness": 5.0}]
)
def test_inputs_go_to_the_expert_of_their_task(settings: dict[str, Any]) -> None:
    learner = experts(**settings)
    learn(learner, fixed(), [0, 1, 2])
    for number in range(3):
        trust = learner.trust(inputs(number))
        assert trust.shape == (120, 3) and torch.allclose(trust.sum(1), torch.ones(120), atol=1e-5)
        assert (trust.argmax(1) == number).float().mean() > (0.7 if learner.router == "scores" else 0.98)
        assert bool(learner.sums_) == (learner.router != "scores")


@pytest.mark.parametrize("router", ["mean", "prototypes"])
def test_tasks_that_look_alike_are_averaged(router: str) -> None:
    learner = experts(router=router, sharpness=10.0)
    learn(learner, fixed(), [0, 1, 2], lambda _: records(0))
    trust = learner.trust(inputs(0))
    assert float(trust.max()) < 0.5 and float(trust.min()) > 0.2
    answers = torch.stack([learner.answers(inputs(0), number) for number in range(3)])
    assert torch.allclose(
        mixture(inputs(0), trust, learner.answers, len(learner.labels_)),
        (trust.T[:, :, None] * answers).sum(0),
        atol=1e-5,
    )


def test_noise_alone_points_nowhere() -> None:
    """Tasks without records: their sums are noise, shrunk to (almost) nothing, and no expert is preferred."""
    learner = experts(budget=Budget(epsilon=0.5, delta=1e-5), steps=2)
    learn(learner, fixed(), [0, 1, 2], lambda _: nothing())
    assert all(float(shrunk(one, learner.look().std).norm()) < 0.9 for one in learner.sums_)
    signal = torch.full((1, 50), 100.0)
    assert float(shrunk(signal, 0.1).norm()) == pytest.approx(1.0, abs=1e-4)
    assert float(shrunk(torch.zeros(2, 5), 1.0).norm()) == 0


def test_a_known_task_is_answered_by_its_own_expert() -> None:
    learner = experts()
    learn(learner, fixed(), [0, 1, 2])
    task = learner.stream_.tasks[1]
    wanted = learner.answers(inputs(0), 1).log()
    assert torch.allclose(learner.scores(inputs(0), task), wanted, atol=1e-5)


def test_scores_are_log_probabilities() -> None:
    learner = experts(**given("experts"))
    before = learner.scores(inputs(0))
    assert before.shape == (120, 2) and torch.isfinite(before).all()  # nothing learned: the initial network
    learn(learner, fixed(), [0, 1])
    assert torch.allclose(learner.scores(inputs(2)).exp().sum(1), torch.ones(120), atol=1e-5)
    assert np.allclose(learner.predict_proba(inputs(2)), learner.scores(inputs(2)).exp(), atol=1e-6)


def test_the_routers_sum_has_the_planned_noise() -> None:
    """Wide inputs, so that its scale shows."""
    network = lambda info: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2000, 2))  # noqa: E731
    info = type(facts()).uniform("wide", labels=(0, 1), shape=(2000,), size=120, tasks=1, public=True)
    learner = experts(info, network=network, steps=1, budget=Budget(epsilon=2.0, delta=1e-5))
    learn(learner, fixed(), [0], lambda _: (np.zeros((0, 2000), dtype=np.float32), nothing()[1]))
    made_up.assert_scale(learner.sums_[0], learner.look().noise)


# What is billed.


@pytest.mark.parametrize("router", ["mean", "prototypes", "scores"])
def test_a_block_pays_for_its_expert_and_one_gaussian(router: str) -> None:
    learner, vault = experts(router=router), fixed()
    learn(learner, vault, [0, 1, 2])
    plan, look = learner.plan(learner.stream_.tasks[0]), learner.look()
    wanted = [events.to_json(plan.event), *([] if router == "scores" else [events.to_json(look.event)])]
    statement = vault.ledger.statement(1)
    assert [sorted(block.events) for block in statement.blocks] == [sorted(wanted)] * 3
    assert Counter(grant.kind for grant in statement.grants) == (
        {"gradient": 3} if router == "scores" else {"gradient": 3, "sums": 3}
    )
    assert all(len(grant.reads) == 1 for grant in statement.grants)  # later tasks do not touch a record
    assert 0.999 * GENEROUS.epsilon < vault.ledger.epsilon(1) <= GENEROUS.epsilon


def test_the_routers_share_is_a_share_of_the_budget() -> None:
    learner = experts(router_share=0.25)
    alone = SumPlan.for_budget(GENEROUS)
    assert learner.look().noise == pytest.approx(2 * alone.noise, rel=1e-6)
    plan = learner.plan(learner.stream_.tasks[0])
    together = events.compose([plan.event, learner.look().event])
    assert calibrate.fits(together, GENEROUS)
    assert not calibrate.fits(
        events.compose([events.poisson_gaussian(plan.rate, 0.999 * plan.noise, plan.steps), learner.look().event]),
        GENEROUS,
    )


# Merging.


def test_the_two_most_alike_are_merged_by_the_tasks_they_answer() -> None:
    start = {"w": torch.zeros(2)}
    models = [{"w": torch.tensor([1.0, 0.0])}, {"w": torch.tensor([0.0, 3.0])}, {"w": torch.tensor([0.1, 1.0])}]
    assert closest(models, start) == (1, 2)
    assert torch.allclose(merged(models[1], models[2], [3, 1])["w"], torch.tensor([0.025, 2.5]))
    moved = {"w": torch.tensor([0.0, 1.0])}  # what counts is the change from the common start
    assert closest([{"w": one["w"] + 5} for one in models], {"w": start["w"] + 5}) == (1, 2)
    assert torch.equal(merged(moved, moved, [1, 1])["w"], moved["w"])


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_than_the_most_experts_are_kept(most: int) -> None:
    learner, vault = experts(facts(4), most=most, **given("experts")), fixed()
    for number in range(4):
        learn(learner, vault, [number], lambda n: records(n % 2))  # tasks 0 and 2 are alike, and 1 and 3
        assert len(learner.experts_) == min(most, number + 1)
        assert len(learner.of_task_) == len(learner.sums_) == number + 1
        assert set(learner.of_task_) == set(range(len(learner.experts_)))
    assert torch.isfinite(learner.scores(inputs(0))).all()


def test_tasks_that_are_alike_end_up_with_one_expert() -> None:
    learner = experts(facts(4), most=2)
    learn(learner, fixed(), [0, 1, 2, 3], lambda n: records(n % 2))
    assert learner.of_task_ == [0, 1, 0, 1]
    for number in (0, 1):
        assert learner.score(*records(number, part=1)) > 0.9


@pytest.mark.parametrize("setting", ["most", "rank"])
def test_numbers_of_experts_and_ranks_are_positive(setting: str) -> None:
    with pytest.raises(LearnerError, match=setting):
        learn(experts(**given("experts", **{setting: 0})), fixed(), [0])


def test_a_thousand_tasks_that_look_alike_are_still_answered() -> None:
    learner = experts(**given("experts"))
    learn(learner, fixed(), [0])
    learner.of_task_ = [0] * 1500
    learner.answers = lambda x, number: torch.full((len(x), 2), 0.5)  # type: ignore[method-assign]
    assert torch.isfinite(
        mixture(inputs(0), torch.full((120, 1500), 1 / 1500), learner.answers, len(learner.labels_))
    ).all()


# Low rank.


def test_low_rank_experts_are_small_and_share_a_released_trunk() -> None:
    network = lambda info: torch.nn.Sequential(  # noqa: E731
        torch.nn.Flatten(), torch.nn.Linear(6, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
        torch.nn.Linear(64, 2),
    )  # fmt: skip
    whole, small = experts(network=network), experts(network=network, rank=2)
    for learner in (whole, small):
        learn(learner, fixed(), [0, 1, 2])
        assert min(learner.score(*records(number, part=1)) for number in range(3)) > 0.9
    sizes = [[sum(value.numel() for value in one.values()) for one in learner.experts_] for learner in (whole, small)]
    assert set(sizes[0]) == {6 * 64 + 64 + 64 * 64 + 64 + 130} and set(sizes[1]) == {2 * 70 + 2 * 128 + 130}
    assert all(name.startswith("5.") or "down" in name or "up" in name for name in small.experts_[1])
    first = learn(experts(network=network, rank=2), fixed(), [0])[0].tensors
    trunk = {name: value for name, value in small.tensors().items() if name.startswith("base.")}
    assert trunk and all(torch.equal(value, first[name]) for name, value in trunk.items())


def test_a_low_rank_change_is_zero_at_the_start_and_trains_two_thin_layers() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    made = adapted(model, 2, seed=7)
    x = torch.randn(4, 6)
    assert torch.equal(made(x), model(x)) and isinstance(made.get_submodule("0"), LowRank)
    assert {name for name, p in made.named_parameters() if p.requires_grad} == set(trained(made))
    assert set(trained(made)) == {"0.down.weight", "0.up.weight", "2.weight", "2.bias"}
    assert all(p.requires_grad for p in model.parameters())  # the model itself is left alone
    again, other = adapted(model, 2, seed=7), adapted(model, 2, seed=8)
    down = [one.get_parameter("0.down.weight") for one in (made, again, other)]
    assert torch.equal(down[0], down[1]) and not torch.equal(down[0], down[2])
    with pytest.raises(UnsupportedModel, match="low-rank experts need a network with linear layers"):
        adapted(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)), 2)


def test_a_private_stream_pays_once_for_each_task(tmp_path: Any) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        learner = experts(facts(public=False), **given("experts"))
        spent = [release.certificate.epsilon for release in learn(learner, Vault(ledger), [0, 1, 2])]
    assert spent[0] == spent[1] == spent[2] is not None
