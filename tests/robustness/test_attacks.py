"""Attacks: exact on linear models, within their ball and range, on every learner, and leaving nothing behind."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.fixed_models import around, separable, small, trained_noisy
from support.small_world import ALL, facts, records, whole_run
from tacit.errors import ConfigError
from tacit.learners.base.learner import Learner
from tacit.learners.baselines.centralised import Centralised
from tacit.learners.published.l2dpml import L2DPML
from tacit.models.lipschitz import Norm
from tacit.robustness.attacks import KINDS, SURE, Attack, Kind, attack, flat, gradient, margin
from tacit.robustness.balls import distance, unit

NORMS: tuple[Norm, ...] = ("linf", "l2", "l1")


def loss(learner: Learner, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(learner.scores(x), y, reduction="none")


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_stays_in_the_ball_and_the_range_and_hurts(kind: Kind, norm: Norm) -> None:
    learner, x, y = small()
    radius = {"linf": 0.1, "l2": 0.3, "l1": 0.6}[norm]
    found = attack(learner, x, y, Attack(kind=kind, norm=norm, radius=radius))
    assert found.shape == x.shape and not found.requires_grad
    assert bool((distance(found - x, norm) <= radius * (1 + 1e-5)).all())
    assert float(found.min()) >= 0 and float(found.max()) <= 1
    assert float(loss(learner, found, y).mean()) > float(loss(learner, x, y).mean()) + 0.1


@pytest.mark.parametrize("norm", NORMS)
def test_more_steps_find_more(norm: Norm) -> None:
    learner, x, y = small()
    one, many = (attack(learner, x, y, Attack(kind=kind, norm=norm, radius=0.4)) for kind in ("fgsm", "pgd"))
    assert float(loss(learner, many, y).mean()) > float(loss(learner, one, y).mean())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_linear_model_it_finds_the_worst_there_is(kind: Kind, norm: Norm) -> None:
    """A margin falls by the radius times the dual norm of the weights."""
    torch.manual_seed(1)
    learner = around(nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), (6,), 2)
    x, y = torch.randn(20, 6), torch.arange(20) % 2
    difference = learner.model_[1].weight.detach()  # type: ignore[index]
    weights = difference[0] - difference[1]
    dual = {"linf": weights.abs().sum(), "l2": weights.norm(), "l1": weights.abs().max()}[norm]

    def margin(rows: Tensor) -> Tensor:
        scores = learner.scores(rows)
        return (scores[:, 0] - scores[:, 1]) * (1 - 2 * y)

    found = attack(learner, x, y, Attack(kind=kind, norm=norm, radius=0.3, range=None))
    assert torch.allclose(margin(x) - margin(found), (0.3 * dual).expand(20), rtol=5e-2 if kind == "pgd" else 1e-4)


def test_momentum_is_that_of_the_paper() -> None:
    """Dong et al. 2018, Algorithm 1, written out."""
    learner, x, y = small()
    found = attack(learner, x, y, Attack(kind="mim", radius=0.2, steps=3, decay=0.5))
    now, velocity = x, torch.zeros_like(x)
    for _ in range(3):
        g = gradient(learner, now, y)
        velocity = 0.5 * velocity + g / g.abs().sum((1, 2), keepdim=True)
        now = (now + 0.2 / 3 * velocity.sign()).clamp(x - 0.2, x + 0.2).clamp(0, 1)
    assert torch.allclose(found, now, atol=1e-6)


def test_a_record_outside_the_range_is_not_moved_further_than_the_radius() -> None:
    learner, x, y = small()
    x[:, 0] += 3.0
    for norm in NORMS:
        found = attack(learner, x, y, Attack(norm=norm, radius=0.2))
        assert bool((distance(found - x, norm) <= 0.2 * (1 + 1e-4)).all())
        assert not torch.equal(found, x)


OTHERS: dict[str, Any] = {
    "centralised": lambda: Centralised(network=tiny_network, epochs=2),
    "as published": lambda: L2DPML(hidden=8, low=-6.0, high=6.0, network="linear", epochs=2),
}


def tiny_network(info: object) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def any_learner(name: str) -> Learner:
    if name in OTHERS:
        learner = OTHERS[name]()
        learner.start(facts())
        return learner  # type: ignore[no-any-return]
    return whole_run(name)[0]


@pytest.mark.parametrize("name", [*ALL, *OTHERS])
@pytest.mark.parametrize("told", [False, True])
def test_every_learner_has_the_gradient_of_its_own_scores(name: str, told: bool) -> None:
    """Against differences of the scores, along the gradient."""
    learner = any_learner(name)
    x, labels = (torch.from_numpy(one) for one in records(1, 12, part=1))
    y, task = learner.positions(labels.numpy()), learner.stream_.tasks[1] if told else None
    found = gradient(learner, x, y, task)
    length = found.norm(dim=1)
    assert float(length.max()) > 0, "it can be attacked"

    sure = nn.functional.cross_entropy(learner.scores(x, task), y, reduction="none") < SURE

    def at(rows: Tensor) -> Tensor:
        scores = learner.scores(rows, task).double()
        return torch.where(sure, margin(scores, y), nn.functional.cross_entropy(scores, y, reduction="none"))

    step = 1e-2 * found / length.clamp(min=1e-12)[:, None]
    slope = (at(x + step) - at(x - step)) / 2e-2
    if name == "as published":  # it normalises over the rows asked about, so each is moved alone and moves them all
        alone = step.flatten(1)[:, None] * torch.eye(len(x))[:, :, None]
        slope = torch.stack([(at(x + one.view_as(x)) - at(x - one.view_as(x))).sum() / 2e-2 for one in alone])
    fine = length > 0.01 * length.max()
    wrong = (slope[fine] - length[fine]).abs() / length[fine]
    assert float(wrong.median()) < 0.05


@pytest.mark.parametrize("name", ["NaiveDPSGD", "experts", "ensemble", "cosine", "lifelong", "moments"])
def test_learners_of_every_kind_fall(name: str) -> None:
    learner, _, _ = whole_run(name)
    x, labels = records(0, 60, part=1)
    rows, y = torch.from_numpy(x), learner.positions(labels)

    def right(some: Tensor) -> float:
        return float((learner.scores(some).argmax(1) == y).float().mean())

    assert right(attack(learner, rows, y, Attack(norm="l2", radius=4.0, range=None))) < right(rows) - 0.3


def test_nothing_is_left_behind() -> None:
    learner = trained_noisy()
    x, y = separable(30, 1)
    learner.model_.train()
    learner.model_.rest[0].eval()  # type: ignore[index, operator]
    modes = [module.training for module in learner.model_.modules()]
    for parameter in learner.model_.parameters():
        parameter.grad = None
    torch.manual_seed(5)
    before = torch.get_rng_state()
    once = attack(learner, x, y, Attack(radius=0.2, draws=2))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert torch.equal(attack(learner, x, y, Attack(radius=0.2, draws=2)), once)
    assert not torch.equal(attack(learner, x, y, Attack(radius=0.2, draws=2), seed=1), once)
    assert [module.training for module in learner.model_.modules()] == modes
    assert all(parameter.grad is None for parameter in learner.model_.parameters())
    assert not learner.scores(x.requires_grad_()).requires_grad  # outside an attack there are no gradients


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_sure_answer_hides_nothing(kind: Kind, norm: Norm) -> None:
    """Scores that are scaled up are the same answers, with a cross-entropy of 0: they fall as before."""
    x, y = separable(60, 5)
    centres = torch.stack([x[y == label].mean(0) for label in range(3)])
    right = []
    for scale in (1.0, 1e4):
        layer = nn.Linear(8, 3)
        layer.load_state_dict({"weight": 2 * scale * centres, "bias": -scale * centres.square().sum(1)})
        learner = around(nn.Sequential(layer), (8,), 3)
        assert (float(loss(learner, x, y).max()) == 0) == (scale > 1)
        assert not bool(flat(learner, x, y).any())
        found = attack(learner, x, y, Attack(kind=kind, norm=norm, radius={"linf": 0.35, "l2": 0.8, "l1": 2.0}[norm]))
        right.append(float((learner.scores(found).argmax(1) == y).float().mean()))
    assert right[1] <= right[0] + 0.1 < 0.9  # the margin has one other label in mind, the cross-entropy all


def test_what_has_no_gradient_is_said() -> None:
    """All hidden units of a row are dead: nothing is followed, nothing is changed, and `flat` tells."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    x, y = torch.rand(6, 4), torch.arange(6) % 3
    with torch.no_grad():
        network[0].weight.abs_(), network[0].bias.fill_(-2.0)  # type: ignore[operator, union-attr]
        x[:3] *= 0.01
        x[3:] += 2
    learner = around(network, (4,), 3)
    assert flat(learner, x, y).tolist() == [True] * 3 + [False] * 3 and len(flat(learner, x[:0], y[:0])) == 0
    found = attack(learner, x, y, Attack(kind="ifgsm", range=None))
    assert torch.equal(found[:3], x[:3]) and bool((found[3:] != x[3:]).any(1).all())


def test_a_tiny_gradient_makes_a_whole_step() -> None:
    tiny = torch.tensor([[3e-25, -4e-25], [0.0, 0.0]])
    assert torch.allclose(unit(tiny, 2), torch.tensor([[0.6, -0.8], [0.0, 0.0]]))
    assert torch.allclose(unit(tiny, 1), torch.tensor([[3 / 7, -4 / 7], [0.0, 0.0]]))


def test_the_margin_is_of_finite_scores() -> None:
    scores = torch.tensor([[1.0, 3.0, 2.0], [1.0, -torch.inf, -torch.inf], [-torch.inf, 1.0, 2.0]])
    assert margin(scores, torch.tensor([1, 0, 0])).tolist() == [-1, 0, 0]


def test_more_draws_make_a_steadier_gradient() -> None:
    learner = trained_noisy(radius=0.5)
    x, y = separable(40, 2)
    spread = []
    for draws in (1, 16):
        with learner.seeded_randomness(0):
            one, other = (gradient(learner, x, y, draws=draws) for _ in range(2))
        spread.append(float((one - other).norm() / (one + other).norm()))
    assert spread[1] < 0.5 * spread[0]


def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, x, y = small()
    how = Attack(kind="ifgsm", norm="l1", radius=0.5)
    whole = attack(learner, x, y, how)
    monkeypatch.setattr("tacit.robustness.attacks.ROWS", 7)
    assert torch.allclose(attack(learner, x, y, how), whole, atol=1e-6)
    assert len(attack(learner, x[:0], y[:0], how)) == 0


def test_it_says_what_it_is() -> None:
    assert Attack().describe() == "PGD, L∞ 0.1, 40 steps of 0.00625 from a random start, features in [0, 1]"
    said = Attack(kind="mim", norm="l2", radius=1, draws=4, range=None).describe()
    assert said == "MIM, L2 1, 10 steps of 0.1 from the record, decay 1, gradients over 4 draws, no range"
    assert Attack(kind="fgsm", radius=0.3).stride == 0.3 and Attack(kind="ifgsm", radius=0.3).stride == 0.03


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kind": "cw"}, "attack must be one of fgsm, ifgsm, mim, pgd, got 'cw'"),
        ({"norm": "l3"}, "norm must be one of l1, l2, linf, got 'l3'"),
        ({"radius": -1.0}, "radius of an attack must be a number >= 0, got -1.0"),
        ({"radius": float("nan")}, "radius of an attack must be a number >= 0, got nan"),
        ({"kind": "fgsm", "steps": 3}, "fgsm takes one step, got steps = 3; use ifgsm"),
        ({"steps": 0}, "steps must be a whole number >= 1, got 0"),
        ({"draws": 0}, "draws must be a whole number >= 1, got 0"),
        ({"range": (1.0, 0.0)}, "range must be a smaller and a larger number, got [1.0, 0.0]"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        Attack(**wrong)


def test_whole_numbers_have_no_gradient() -> None:
    learner, x, y = small()
    with pytest.raises(ConfigError, match="have no gradient"):
        attack(learner, (9 * x).long(), y, Attack())
