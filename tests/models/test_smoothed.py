"""Networks that are trained on noisy copies and answer with the mean over noise."""

import re
from typing import Any

import pytest
import torch
from torch import nn

from support.fixed_models import around, separable
from support.reference import agree, by_hand, cross_entropy, each_gradient, flat, norm_of
from support.small_world import ROOMY, facts, fixed, records, take
from tacit.errors import ConfigError
from tacit.gradients import Clipper, check_independent
from tacit.learners.base.networks import NamedNetwork
from tacit.learners.experts.experts import RoutedExperts
from tacit.models import build
from tacit.models.smoothed import Smoothed, each_copy, smoothed_loss
from tacit.robustness.attacks import Attack, attack
from tacit.robustness.certified_accuracy import certify, largest_radius, why_not


def made(shape: tuple[int, ...] = (12,), **options: Any) -> Smoothed:
    torch.manual_seed(0)
    network = build("smoothed", shape, 3, **{"options": {"hidden": [8]}, "std": 0.3, **options})
    assert isinstance(network, Smoothed)
    return network


class SameNoise(nn.Module):
    """Noise that does not depend on the batch, so that one example can be looked at alone: it is a function of x."""

    def __init__(self, network: Smoothed) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ones = torch.arange(1, self.network.copies + 1, dtype=x.dtype).view(1, -1, *(1,) * (x.dim() - 1))
        state = x.unsqueeze(1) + 0.3 * torch.sin(37 * ones * (x.unsqueeze(1) + 1))
        for layer in self.network.layers:
            state = each_copy(layer, state)
        return state


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((12,), {"copies": 4}),
        ((12,), {"copies": 1}),
        ((1, 12, 12), {"wraps": "cnn_patches", "options": {"features": [3, 4, 5], "hidden": 6}, "copies": 3}),
        ((1, 8, 8), {"wraps": "cnn", "options": {"features": [3, 4], "hidden": 6}, "copies": 2}),
    ],
)
def test_the_gradient_of_the_mean_over_copies_is_clipped_once(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    network = made(shape, **options).double()
    model, loss = SameNoise(network), smoothed_loss(network, cross_entropy)
    x, y = torch.rand(9, *shape, dtype=torch.float64), torch.arange(9) % 3
    norms = sorted(norm_of(g) for g in each_gradient(model, loss, x, y))
    clip = norms[4]
    agree(Clipper(model, loss, clip).sum(x, y), by_hand(model, loss, x, y, flat(clip)), 1e-3)
    groups = torch.arange(9) // 2
    agree(Clipper(model, loss, clip).sum(x, y, groups), by_hand(model, loss, x, y, flat(clip), groups), 1e-3)


def test_noise_is_fresh_and_has_its_deviation() -> None:
    network = made((2000,), wraps="linear", options={}, copies=3)
    with torch.no_grad():
        network.layers[-1].weight.copy_(torch.eye(3, 2000))  # type: ignore[union-attr, operator]
        network.layers[-1].bias.zero_()  # type: ignore[union-attr, operator]
    out = network(torch.ones(4000, 2000))
    assert out.shape == (4000, 3, 3)
    out = out.detach()
    assert float(out.std()) == pytest.approx(0.3, rel=0.03) and float(out.mean()) == pytest.approx(1, abs=0.01)
    flat_ = out.flatten(1)
    assert float((torch.corrcoef(flat_.T) - torch.eye(9)).abs().max()) < 0.08
    network.eval()
    answers = network(torch.ones(5, 2000))
    torch.testing.assert_close(answers.exp().sum(1), torch.ones(5))


def test_rows_are_independent_and_learners_learn() -> None:
    network = made()
    check_independent(network, smoothed_loss(network, cross_entropy), torch.rand(4, 12), torch.arange(4) % 3)
    settings: dict[str, Any] = {"options": {"hidden": [12]}, "std": 0.4, "copies": 3, "draws": 8}
    learner = RoutedExperts(
        network=NamedNetwork(name="smoothed", options=settings),
        steps=60, batch=60, lr=0.2, noise=0.5, budget=ROOMY,
    )  # fmt: skip
    info = facts(2)
    learner.start(info)
    vault = fixed()
    learner.learn(info.tasks[0], take(vault, info, 0, records(0), learner.budget), vault)
    x, y = (torch.from_numpy(one) for one in records(0, 60, part=1))
    assert float((learner.scores(x, info.tasks[0]).argmax(1) == y).double().mean()) > 0.9
    found = certify(learner, x, info.tasks[0], norm="l2", draws=400, votes="hard", bound="smoothing")
    assert found.accuracy(y, 0.4) > 0.6, "the records are 3 from the border, and σ is 0.4"
    assert float(found.radius.max()) <= largest_radius(
        learner, info.tasks[0], norm="l2", draws=400, votes="hard", bound="smoothing"
    )


def test_certificates_hold_under_attack() -> None:
    torch.manual_seed(0)
    network = made((8,), std=0.25, copies=2, draws=32, options={"hidden": [12]})
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    x, y = separable(300, 0)
    loss = smoothed_loss(network, cross_entropy)
    for _ in range(150):
        optimizer.zero_grad()
        loss(network(x), y).mean().backward()
        optimizer.step()
    learner = around(network, (8,), 3)
    assert why_not(learner) is None
    x, y = separable(60, 5)
    found = certify(learner, x, norm="l2", draws=1000, votes="hard", bound="smoothing")
    assert found.accuracy(y, 0.1) > 0.5
    changed = attack(learner, x, y, Attack(norm="l2", radius=0.1, steps=15, draws=4, range=None))
    again = certify(learner, changed, norm="l2", draws=1000, votes="hard", bound="smoothing", seed=1)
    held = found.radius >= 0.1
    assert torch.equal(again.predicted[held], found.predicted[held])


def test_wrong_settings_are_refused() -> None:
    for options, words in (
        ({"std": 0.0}, "std of the smoothing noise must be a number > 0, got 0.0"),
        ({"copies": 0}, "copies must be a whole number >= 1, got 0"),
        ({"draws": 0}, "draws must be a whole number >= 1, got 0"),
        ({"wraps": "bilstm"}, "smoothing noise goes into one of mlp, linear,"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            made(**options)
    with pytest.raises(ConfigError, match="noisy copies do not go through this GroupNorm"):
        Smoothed(nn.Sequential(nn.GroupNorm(1, 2)), std=0.1, copies=1, draws=1)
