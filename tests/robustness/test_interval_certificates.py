"""Certificates by interval bounds: of one network, of votes, and of routed experts with their router."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.fixed_models import around, separable, small, trained_noisy
from support.small_world import ROOMY, facts, fixed, records, split_facts, take
from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError, LearnerError
from tacit.learners.base.networks import NamedNetwork
from tacit.learners.experts.ensemble import PEFTEnsemble
from tacit.learners.experts.experts import RoutedExperts
from tacit.learners.pool.pool import Pool
from tacit.models.interval import Interval, box
from tacit.robustness import interval_certificates
from tacit.robustness.attacks import Attack, attack
from tacit.robustness.certified_ball import CertifiedBall, certify_by_intervals
from tacit.robustness.interval_bounds import SINGLE, Bounds, above, after, plain_layers
from tacit.robustness.interval_certificates import holds, router_weights, uncertifiable

NETWORK = NamedNetwork(
    name="interval", options={"options": {"hidden": [12]}, "radius": 0.3, "range": None, "ramp": 0.3}
)


def corners(x: Tensor, radius: float, times: int) -> Any:
    """Random corners of the balls, and points within."""
    g = torch.Generator().manual_seed(0)
    for attempt in range(times):
        drawn = 2 * torch.rand(x.shape, generator=g) - 1
        yield x + radius * (drawn.sign() if attempt % 2 else drawn)


def holds_under_attack(learner: Any, x: Tensor, radius: float, span: Any = None, times: int = 40) -> Tensor:
    """Checks that no change that is found alters a certified prediction; returns which are certified."""
    found = certify_by_intervals(learner, x, radius=radius, range=span)
    certified = found.radius == radius
    assert bool(((found.radius == 0) | certified).all()) and found.norm == "linf"
    changed = [
        attack(learner, x, found.predicted, Attack(kind="pgd", radius=radius, steps=20, range=span)),
        *(one if span is None else torch.maximum(torch.minimum(one, box(x, radius, span)[1]), box(x, radius, span)[0])
          for one in corners(x, radius, times)),
    ]  # fmt: skip
    for one in changed:
        assert torch.equal(learner.scores(one).argmax(1)[certified], found.predicted[certified])
    return certified


@pytest.mark.parametrize("span", [None, (0.0, 1.0)])
def test_no_change_turns_a_certified_prediction(span: Any) -> None:
    learner, x, _ = small()
    shares = [float(holds_under_attack(learner, x, radius, span).double().mean()) for radius in (1e-3, 0.01, 0.1)]
    assert shares[0] > 0.9 and shares[0] >= shares[1] >= shares[2] and shares[2] < 1


def test_of_a_linear_network_all_that_holds_is_certified() -> None:
    torch.manual_seed(0)
    learner = around(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), (12,), 3)
    x, layer = torch.rand(400, 12), learner.model_[1]
    logits = learner.scores(x).double()
    best = logits.argmax(1)
    apart = (layer.weight[best][:, None] - layer.weight[None]).double().abs().sum(2)
    margin = logits.gather(1, best[:, None]) - logits - 0.05 * apart
    least = margin.scatter(1, best[:, None], math.inf).amin(1)
    found = certify_by_intervals(learner, x, radius=0.05, range=None).radius > 0
    sure = least.abs() > 1e-4
    assert torch.equal(found[sure], (least > 0)[sure])
    assert 40 < int(found.sum()) < 360


def test_bounds_contain_float32_and_float64() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(27, 9), nn.Tanh(), nn.Linear(9, 3),
    )  # fmt: skip
    layers = plain_layers(network)
    assert not isinstance(layers, str)
    x = torch.rand(6, 1, 12, 12)
    low, high = box(x.double(), 0.05, (0.0, 1.0))
    with torch.no_grad():
        bounds, values = Bounds.of(low, high), low.lerp(high, torch.rand_like(low)).float()
        true = values.double()
        for layer in layers:
            bounds, values, true = after(layer, bounds), layer(values), layer.double()(true)
            layer.float()
            assert bool(((true - bounds.centre).abs() <= bounds.radius).all())
            assert bool(((values.double() - true).abs() <= bounds.error).all())
            assert float(bounds.error.max()) < 1e-3


def test_a_margin_below_the_error_of_float32_is_not_certified() -> None:
    """Weights that cancel: float32 may give the other label, so exact arithmetic alone does not certify."""
    layer = nn.Linear(2, 2, bias=False)
    large = 2.0**26
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[large, -large], [large, -large + 8]]))
    x = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    bounds = above([layer], x, x, torch.tensor([1]))
    assert float(bounds[0, 0]) > 0 > -8
    assert float(bounds[0, 0]) < 8 * large * SINGLE * 8


def learned(learner: Any, info: StreamInfo, tasks: int = 3) -> Any:
    learner.start(info)
    vault = fixed()
    for number in range(tasks):
        own = records(number, first=2 * number if info.name == "split" else 0)
        learner.learn(info.tasks[number], take(vault, info, number, own, learner.budget), vault)
    return learner


def experts(info: StreamInfo, **settings: Any) -> RoutedExperts:
    """After all tasks of a stream."""
    made = RoutedExperts(network=NETWORK, steps=60, batch=60, lr=0.2, noise=0.5, budget=ROOMY, **settings)
    found: RoutedExperts = learned(made, info, len(info.tasks))
    return found


def held_out(info: StreamInfo, tasks: int = 3) -> tuple[Tensor, Tensor]:
    parts = [records(n, 40, part=1, first=2 * n if info.name == "split" else 0) for n in range(tasks)]
    return torch.from_numpy(np.concatenate([x for x, _ in parts])), torch.from_numpy(
        np.concatenate([y for _, y in parts])
    )


@pytest.mark.parametrize("world", [facts, split_facts])
@pytest.mark.parametrize("router", ["mean", "prototypes"])
def test_routed_experts_are_certified_with_their_router(world: Any, router: Any) -> None:
    learner = experts(world(3), router=router, sharpness=300.0)
    x, y = held_out(learner.stream_)
    certified = holds_under_attack(learner, x, 0.3)
    assert float(certified.double().mean()) > 0.6
    assert certify_by_intervals(learner, x, radius=0.3, range=None).accuracy(y, 0.3) > 0.6
    chosen = learner.trust(x).argmax(1)
    low, high = box(x.double(), 0.3, None)
    for task in range(3):
        rows = chosen == task
        weights = router_weights(learner, task, low[rows], high[rows])
        for one in corners(x[rows], 0.3, 30):
            trust = learner.trust(one)
            ratio = trust / trust[:, task, None]
            assert bool((ratio[weights > 0] <= weights[weights > 0]).all()), "a weight is above its bound"
            assert bool((trust[weights == 0] < 1e-3).all()), "an expert that was left out has a weight"
    unsure = experts(world(3), router=router, sharpness=5.0)
    few = certify_by_intervals(unsure, x, radius=0.3, range=None).radius > 0
    assert int(few.sum()) <= int(certified.sum())


def test_experts_that_agree_are_certified_whichever_is_chosen() -> None:
    """The router cannot be certified; the same expert for every task answers the same."""
    learner = experts(facts(3), sharpness=300.0)
    learner.experts_ = [learner.experts_[0]] * 3
    x = torch.from_numpy(records(0, 40, part=1)[0])
    one = certify_by_intervals(learner, x, learner.tasks_[0], radius=0.3, range=None).radius > 0
    learner.sums_ = [learner.sums_[0]] * 3  # all weights are a third
    same = certify_by_intervals(learner, x, radius=0.3, range=None).radius > 0
    assert torch.equal(one, same) and int(one.sum()) > 20


@pytest.mark.parametrize(("weight", "holding"), [(0.0, True), (10.0, True), (998.0, True), (2000.0, False)])
def test_an_expert_that_may_be_left_out_does_not_count(
    weight: float, holding: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chosen expert is sure, another one is wrong by a little and may have 2,000 times its weight."""
    learner = experts(facts(2), sharpness=300.0)
    x, _ = held_out(learner.stream_, 1)
    label = learner.scores(x).argmax(1)
    chosen = learner.trust(x).argmax(1)
    assert bool((chosen == chosen[0]).all())

    def weights(learner: Any, task: int, low: Tensor, high: Tensor) -> Tensor:
        return torch.full((len(low), 2), weight, dtype=low.dtype).index_fill_(1, torch.tensor([task]), 1.0)

    def known(member: Any, low: Tensor, high: Tensor, label: Tensor) -> Tensor:
        same = member.state is learner.experts_[int(chosen[0])]
        return torch.full((len(low), 2), 1.0 if same else -1e-4, dtype=low.dtype)

    monkeypatch.setattr(interval_certificates, "router_weights", weights)
    monkeypatch.setattr(interval_certificates, "gaps", known)
    assert bool(holds(learner, x, label, None, 0.1, None).all()) is holding


def test_where_entropies_route_all_experts_must_agree() -> None:
    learner = experts(facts(3), router="scores")
    x, _ = held_out(learner.stream_)
    certified = holds_under_attack(learner, x, 0.05)
    for number in range(3):
        alone = certify_by_intervals(learner, x, learner.tasks_[number], radius=0.05, range=None).radius > 0
        assert not bool((certified & ~alone).any())


@pytest.mark.parametrize("settings", [{}, {"tasks_per_learner": 1}])
def test_a_pool_and_its_vote(settings: Any) -> None:
    made = Pool(
        network=NETWORK,
        steps=40,
        batch=60,
        lr=0.2,
        noise=0.5,
        memory_batch=8,
        memory_noise=2.0,
        budget=ROOMY,
        **settings,
    )
    learner = learned(made, facts(3))
    assert len(learner.pool_) == (3 if settings else 1)
    x, _ = held_out(learner.stream_)
    certified = holds_under_attack(learner, x, 0.1)
    assert int(certified.sum()) > 10
    with_task = certify_by_intervals(learner, x, learner.tasks_[0], radius=0.1, range=None)
    assert int((with_task.radius > 0).sum()) > 0


def test_what_interval_bounds_cannot_certify_says_why() -> None:
    noisy = trained_noisy()
    x, _ = separable(20, 3)
    assert "its network is a Noisy, which is no sequence of layers" in str(uncertifiable(noisy))
    with pytest.raises(ConfigError, match="nothing can be certified: its network is a Noisy"):
        certify_by_intervals(noisy, x)
    plain, records_, _ = small()
    with pytest.raises(ConfigError, match="radius must be a number > 0, got 0"):
        certify_by_intervals(plain, records_, radius=0.0)
    for wrong, words in (
        (nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.GELU(), nn.Linear(4, 3)), "through its GELU"),
        (nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.ReLU()), "its last layer is not linear"),
    ):
        assert words in str(uncertifiable(around(wrong, (3, 4), 3)))
    with pytest.raises(LearnerError, match="PEFTEnsemble has a loss of its own"):
        PEFTEnsemble(network=NETWORK).start(facts(2))
    with pytest.raises(LearnerError, match="low-rank updates have no interval bounds and no noisy copies, got rank=2"):
        RoutedExperts(network=NETWORK, rank=2, batch=60).start(facts(2))


def test_the_bound_auto_is_that_of_the_network() -> None:
    ball = CertifiedBall(norm="l2", radius=0.05, bound="auto", draws=50, range=(0.0, 1.0))
    noisy, (x, _) = trained_noisy(), separable(20, 3)
    assert ball.resolved(noisy).bound == "smoothing" and ball.why_not(noisy) is None
    assert ball.certify(noisy, x).norm == "l2" and ball.largest_radius(noisy) is not None
    plain, records_, _ = small()
    assert ball.resolved(plain).bound == "ibp" and ball.largest_radius(plain) is None
    found = ball.certify(plain, records_)
    assert found.norm == "l2" and set(found.radius.tolist()) <= {0.0, 0.05}
    assert "it holds for the whole predictor as it is released" in ball.resolved(plain).describe()
    assert "features in [0, 1]" in ball.resolved(plain).describe()


def test_learners_train_by_the_bounds() -> None:
    """The loss that the vault clips is that of the worst case, and progress follows the steps."""
    learner = experts(facts(2), sharpness=300.0)
    assert isinstance(learner.model_, Interval) and learner.model_.progress == 1.0
    plain = RoutedExperts(
        network=NamedNetwork(name="mlp", options={"hidden": [12]}),
        steps=60, batch=60, lr=0.2, noise=0.5, budget=ROOMY, sharpness=300.0,
    )  # fmt: skip
    learned(plain, facts(2), tasks=2)
    x, y = held_out(facts(2), 2)
    shares = [certify_by_intervals(one, x, radius=0.6, range=None).accuracy(y, 0.6) for one in (learner, plain)]
    assert shares[0] >= shares[1]
