"""Networks with interval bounds in their loss: the bounds are bounds, and outside training nothing has changed."""

import re
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.gradients import cross_entropy
from tacit.models import build
from tacit.models.interval import Interval, box, robust_loss, with_bounds, with_progress


def made(**options: object) -> Interval:
    torch.manual_seed(0)
    network = build("interval", (1, 4, 5), 3, **{"options": {"hidden": [8, 6]}, "radius": 0.2, **options})
    assert isinstance(network, Interval)
    return network


def records(count: int = 20) -> Tensor:
    return (1.5 * torch.rand(count, 1, 4, 5, generator=torch.Generator().manual_seed(1)) - 0.25).clamp(0, 1)


def test_outside_training_it_is_the_plain_network() -> None:
    torch.manual_seed(0)
    plain = build("mlp", (1, 4, 5), 3, hidden=[8, 6])
    network = made().eval()
    assert torch.equal(network(records()), plain(records()))
    logits, _, weight = made()(records())
    assert torch.equal(logits, plain(records())) and bool((weight == 0.5).all())


@pytest.mark.parametrize("wraps", ["mlp", "linear", "cnn", "cnn_patches"])
@pytest.mark.parametrize("span", [(0.0, 1.0), None])
def test_no_record_of_the_box_is_above_the_bounds(wraps: str, span: tuple[float, float] | None) -> None:
    torch.manual_seed(0)
    network = build("interval", (1, 16, 16), 3, wraps=wraps, radius=0.1, range=span, centre=0.3, scale=2.0).double()
    x = (1.5 * torch.rand(10, 1, 16, 16, dtype=torch.float64) - 0.25).clamp(0, 1)
    _, bounds, _ = network(x)
    low, high = box(x, 0.1, span)
    network.eval()
    for attempt in range(30):
        inside = torch.where(torch.rand_like(x) < 0.5, low, high) if attempt % 2 else low.lerp(high, torch.rand_like(x))
        logits = network(inside)
        assert bool((logits[:, None, :] - logits[:, :, None] <= bounds + 1e-9).all())
    assert bool((bounds.diagonal(dim1=1, dim2=2) == 0).all())


def test_a_linear_network_is_bounded_exactly() -> None:
    torch.manual_seed(0)
    network = build("interval", (6,), 3, wraps="linear", radius=0.1, range=None).double()
    layer = network.layers[-1]
    assert isinstance(layer, nn.Linear)
    x = torch.rand(4, 6, dtype=torch.float64)
    _, bounds, _ = network(x)
    apart = layer.weight[2] - layer.weight[0]
    worst = (x + 0.1 * apart.sign()) @ apart + layer.bias[2] - layer.bias[0]
    torch.testing.assert_close(bounds[:, 0, 2], worst)


def test_radius_and_weight_grow_over_the_ramp() -> None:
    network, x, y = made(ramp=0.5), records(), torch.arange(20) % 3
    loss = robust_loss(network, cross_entropy)
    losses, widths = [], []
    for step in with_progress(network, iter(range(8)), 8):
        assert network.progress == step / 8
        losses.append(float(loss(network(x), y).detach().sum()))
        widths.append(float(network(x)[1].detach().sum()))
    assert network.progress == 1.0
    assert all(one < other for one, other in pairwise(widths[:5])) and widths[4] == widths[7]
    network.eval()
    assert losses[0] == pytest.approx(float(cross_entropy(network(x), y).detach().sum()))
    network.train()
    worst = network(x)[1][torch.arange(20), y]
    clean = network(x)[0]
    expected = 0.5 * cross_entropy(clean, y) + 0.5 * cross_entropy(worst, y)
    torch.testing.assert_close(loss(network(x), y), expected)
    assert losses[7] == pytest.approx(float(expected.detach().sum()))


def test_progress_is_reset_where_steps_are_left() -> None:
    network = made()
    steps = with_progress(network, iter(range(8)), 8)
    next(steps)
    assert network.progress == 0.0
    steps.close()
    assert network.progress == 1.0
    assert list(with_progress(nn.Linear(1, 1), iter(range(3)), 3)) == [0, 1, 2]
    assert robust_loss(nn.Linear(1, 1), cross_entropy) is cross_entropy


def test_the_box_is_within_the_range_where_the_record_is() -> None:
    x = torch.tensor([[0.05, 0.5, 0.97, -0.3, 1.4]])
    low, high = box(x, 0.1, (0.0, 1.0))
    torch.testing.assert_close(low, torch.tensor([[0.0, 0.4, 0.87, -0.3, 1.3]]))
    torch.testing.assert_close(high, torch.tensor([[0.15, 0.6, 1.0, -0.2, 1.4]]))


def test_what_has_no_bounds_is_refused_when_the_network_is_made() -> None:
    for layer, words in (
        (nn.GroupNorm(1, 4), "no interval bounds through this GroupNorm"),
        (nn.Conv2d(4, 4, 3, groups=2), "no interval bounds through this Conv2d"),
        (nn.GELU(), "use Linear, Conv2d without groups"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            with_bounds(layer)
    for options, words in (
        ({"wraps": "bilstm"}, "interval bounds go through one of mlp, linear,"),
        ({"radius": 0.0}, "radius of interval bounds must be a number > 0, got 0.0"),
        ({"weight": 1.5}, "weight of interval bounds must be from 0 to 1, got 1.5"),
        ({"ramp": -0.1}, "ramp of interval bounds must be from 0 to 1, got -0.1"),
        ({"range": [1.0, 0.0]}, "range of interval bounds must be a smaller and a larger number"),
        ({"options": {"depth": 3}}, "mlp has no option 'depth'"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            made(**options)
    with pytest.raises(ConfigError, match="the last layer of a network with interval bounds must be a Linear"):
        Interval(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), radius=0.1, weight=0.5, ramp=0.5, span=None)
