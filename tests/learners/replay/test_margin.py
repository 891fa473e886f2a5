"""The efficient memory: a remembered record is used by its own margin under the last released model alone."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.small_world import ROOMY, Stopped, facts, fixed, given, learn, same, started, stop_at
from tacit import Declared, GradientPlan, Read, Vault
from tacit.data.stream import StreamInfo
from tacit.errors import LearnerError
from tacit.gradients.losses import cross_entropy
from tacit.learners.replay.margin import Margin, half_width, public_draws
from tacit.memory import References
from tacit.models.noisy import Noisy
from tacit.privacy.vault import Grant
from tacit.privacy.vault.exits import gradient_exit
from tacit.privacy.vault.exits.gradient_exit import GradientExit


def begin(**settings: Any) -> Any:
    return started("DPCL union", facts(3), **given("DPCL union", **settings))


def network(std: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    return Noisy(plain, norm="l2", radius=std, epsilon=1.0, delta=0.05, draws=2) if std else plain


def judged(rule: Margin, x: Tensor, y: Tensor) -> Tensor:
    return torch.func.vmap(rule)(x, y)


X, Y = torch.randn(40, 6, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 3


def test_the_margin_of_a_plain_network_is_that_of_its_probabilities() -> None:
    net = network()
    chances = net(X).softmax(1)
    others = chances.clone()
    others[torch.arange(40), Y] = -1
    margins = chances[torch.arange(40), Y] - others.max(1).values
    for threshold in (-0.2, 0.0, 0.1):
        rule = Margin(net, torch.zeros(0), threshold=threshold, confidence=0.95)
        assert torch.equal(judged(rule, X, Y), margins >= threshold)
        assert 0 < int((margins >= threshold).sum()) < 40


def test_behind_a_noise_layer_the_bounds_are_hoeffdings() -> None:
    net = network(0.1)
    draws = torch.randn(64, 1, 8, generator=torch.Generator().manual_seed(2))
    assert isinstance(net, Noisy)
    hidden = net.hidden(X)
    chances = torch.stack([net.rest(hidden + net.std * draw).softmax(1) for draw in draws]).mean(0)
    half = math.sqrt(math.log(2 * 3 / 0.05) / (2 * 64))
    lower, upper = chances - half, chances + half
    upper[torch.arange(40), Y] = -1
    margins = lower[torch.arange(40), Y] - upper.max(1).values
    threshold = float(margins.detach().median()) + 1e-4
    rule = Margin(net, draws, threshold=threshold, confidence=0.95)
    assert torch.equal(judged(rule, X, Y), margins >= threshold)
    assert 10 < int(judged(rule, X, Y).sum()) < 30
    assert half_width(64, 3, 0.95) == pytest.approx(half) and half_width(0, 3, 0.95) == 0


@pytest.mark.parametrize("std", [0.0, 0.2])
def test_one_record_more_changes_nothing_for_another(std: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the vault: who is used is the same for every other record, with and without any one of them."""
    net = network(std)
    rule = Margin(net, public_draws(net, (6,), 16, 0), threshold=-0.9 if std else 0.0, confidence=0.9)
    found: list[dict[int, bool]] = []
    honest = gradient_exit.prepare

    def prepare(*given: Any) -> Any:
        made = honest(*given)
        found.append(dict(zip(made.records.names.tolist(), made.selected.tolist(), strict=True)))
        return made

    monkeypatch.setattr("tacit.privacy.vault.exits.gradient_exit.prepare", prepare)
    for keep in (slice(0, 40), slice(1, 40), slice(0, 7)):
        vault = fixed()
        declared = Declared(stream="s", task="t", budget=ROOMY, size=40, labels=range(3), public=True)
        block = vault.admit((X[keep].numpy(), Y[keep].numpy()), declared)
        plan = GradientPlan(rate=0.5, steps=1, noise=1.0)
        vault.grant([Read(block, select=rule)], plan, nn.Linear(6, 3), cross_entropy).gradient()
    whole, *fewer = found
    assert [len(one) for one in found] == [40, 39, 7] and 0 < sum(whole.values()) < 40
    for some in fewer:
        assert some.items() <= whole.items()


def noisy(info: StreamInfo) -> nn.Module:
    plain = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, len(info.labels)))
    return Noisy(plain, norm="l2", radius=0.1, epsilon=1.0, delta=0.05, draws=2)


def selects(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The rule of every read of a memory."""
    seen: list[Any] = []
    honest = GradientExit.__call__

    def grant(self: GradientExit, blocks: Any, *more: Any, **named: Any) -> Grant:
        reads = blocks if isinstance(blocks, list) else []
        seen.extend(read.select for read in reads)
        return honest(self, blocks, *more, **named)

    monkeypatch.setattr(GradientExit, "__call__", grant)
    return seen


def test_records_are_judged_by_the_model_that_was_released_last(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = selects(monkeypatch)
    learner = begin(margin=0.1)
    releases = learn(learner, fixed(), [0, 1, 2])
    assert len(rules) == 3  # one block in the second task, two in the third; none in the first
    for rule, release in zip(rules, (releases[0], releases[1], releases[1]), strict=True):
        assert same(rule.network.state_dict(), release.tensors)
        assert not rule.network.training and not any(p.requires_grad for p in rule.parameters())


def test_the_draws_are_public_and_the_same_in_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = selects(monkeypatch)
    for seed in (0, 0, 1):
        learn(begin(margin=-1.0, network=noisy, margin_draws=8, seed=seed), fixed(), [0, 1, 2])
    draws = [rule.draws for rule in rules]
    assert draws[0].shape == (8, 1, 8)
    assert all(torch.equal(draws[0], one) for one in draws[:6]) and not torch.equal(draws[0], draws[6])


@pytest.mark.parametrize("settings", [{"by_class": True}, {"margin": 0.0}, {"margin": -1.0, "network": noisy}])
def test_a_crash_changes_nothing(settings: dict[str, Any], tmp_path: Path) -> None:
    ends = []
    for crash in (False, True):
        vault = fixed(tmp_path / str(crash))
        learner = begin(**settings)
        with vault.until_saved():
            before = learn(learner, vault, [0, 1])[-1]
        if crash:
            learner.callback = stop_at(2, 3)
            with pytest.raises(Stopped), vault.until_saved():
                learn(learner, vault, [2])
            vault = Vault(vault.ledger, tmp_path / str(crash))
            learner = begin(**settings)
            learner.restore(before.tensors, before.tasks, vault)
        ends.append(learn(learner, vault, [2])[-1].tensors)
    assert same(*ends)


def test_the_margin_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many remembered records are used falls with the threshold; secret, of course."""
    used: list[int] = []
    honest = References.gradient

    def gradient(references: References, step: int) -> dict[str, Tensor]:
        used.extend(int(read.selected.sum()) for _, grant in references._grants for read in grant._reads)
        return honest(references, step)

    monkeypatch.setattr(References, "gradient", gradient)
    for margin in (-0.999, 0.5, 0.999):
        learn(begin(margin=margin, steps=1), fixed(), [0, 1])
    assert used[0] > used[1] >= used[2] == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"margin": 1.0}, r"no record could reach a margin of 1, only less than 1; lower margin$"),
        ({"margin": -1.0}, "margin = -1 excludes no record, since no margin is below -1; use a value from 0 to 1, or"),
        ({"margin": 0.5, "network": noisy}, r"the bounds of 32 draws with confidence 0.95 take 0.52 of it"),
        ({"margin": 0.5, "margin_draws": 0}, "margin_draws must be a whole number ≥ 1, got 0"),
        (
            {"margin": 0.5, "margin_confidence": 1.0},
            "margin_confidence must be a finite number between 0 and 1, got 1.0",
        ),
    ],
)
def test_margins_that_say_nothing_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(LearnerError, match=words):
        begin(**settings)
