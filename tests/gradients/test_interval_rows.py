"""Clipped gradients of losses with interval bounds, against one example at a time, and in rows that are formed."""

from typing import Any

import pytest
import torch
from torch import Tensor

from support.reference import agree, by_hand, cross_entropy, each_gradient, flat, norm_of
from tacit import models
from tacit.gradients import Clipper
from tacit.gradients.clip import Automatic, PerLayer
from tacit.gradients.interval_rows import Signed
from tacit.models.interval import Interval, robust_loss

D = torch.float64
CLOSE = 1e-3
"""Norms are enlarged by what the cut of the factors may add."""
NETWORKS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "mlp": ((1, 5, 6), {"options": {"hidden": [12]}}),
    "deep and scaled": ((30,), {"options": {"hidden": [12, 7, 5]}, "centre": 0.2, "scale": 3.0}),
    "tanh": ((30,), {"options": {"hidden": [9], "activation": "tanh"}, "range": None}),
    "linear": ((30,), {"wraps": "linear"}),
    "convolutions": ((2, 12, 12), {"wraps": "cnn_patches", "options": {"features": [3, 4, 5], "hidden": 6}}),
    "convolutions and pools": ((1, 8, 8), {"wraps": "cnn", "options": {"features": [3, 4], "hidden": 6}}),
}


def made(name: str, progress: float = 0.4) -> tuple[Interval, Any, Tensor, Tensor]:
    """A network, its loss and records, of which many features are at the ends of the range."""
    shape, options = NETWORKS[name]
    torch.manual_seed(0)
    network = models.build("interval", shape, 4, **options).double()
    assert isinstance(network, Interval)
    network.progress = progress
    x = (1.6 * torch.rand(11, *shape, dtype=D) - 0.3).clamp(0, 1)
    return network, robust_loss(network, cross_entropy), x, torch.arange(11) % 4


@pytest.mark.parametrize("progress", [0.4, 1.0])
@pytest.mark.parametrize("name", NETWORKS)
def test_sums_are_those_of_one_example_at_a_time(name: str, progress: float) -> None:
    network, loss, x, y = made(name, progress)
    norms = sorted(norm_of(g) for g in each_gradient(network, loss, x, y))
    clip = norms[len(norms) // 2]
    got = Clipper(network, loss, clip).sum(x, y)
    agree(got, by_hand(network, loss, x, y, flat(clip)), CLOSE)


@pytest.mark.parametrize("name", ["mlp", "convolutions"])
def test_records_of_one_person_are_added_before_the_clip(name: str) -> None:
    network, loss, x, y = made(name)
    groups = torch.arange(11) // 3
    clip = 0.5 * norm_of(each_gradient(network, loss, x, y)[0])
    got = Clipper(network, loss, clip).sum(x, y, groups)
    agree(got, by_hand(network, loss, x, y, flat(clip), groups), CLOSE)


def test_other_rules_of_clipping() -> None:
    network, loss, x, y = made("mlp")
    got = Clipper(network, loss, Automatic(norm=0.5)).sum(x, y)
    agree(got, by_hand(network, loss, x, y, lambda g: dict.fromkeys(g, 0.5 / (norm_of(g) + 0.01))), CLOSE)
    got = Clipper(network, loss, PerLayer(norms=0.3)).sum(x, y)
    each = by_hand(network, loss, x, y, lambda g: {n: min(1.0, 0.3 / float(t.norm())) for n, t in g.items()})
    agree(got, each, CLOSE)


def test_the_gradient_of_absolute_weights_counts() -> None:
    """Without the use as |W| the norm would be another one, and a record would move the sum by more than the clip."""
    network, loss, x, y = made("mlp", progress=1.0)
    clip = 1e-3
    for i in range(len(x)):
        row = Clipper(network, loss, clip).sum(x[i : i + 1], y[i : i + 1])
        assert 0.998 * clip < norm_of(row) <= clip
    layer = network.layers[1]
    assert isinstance(layer, torch.nn.Linear)
    ends = network.layers[0](x)
    alone = torch.stack([ends, ends, torch.zeros_like(ends)], 1)
    assert torch.equal(layer(alone)[:, 2], torch.zeros(11, 12, dtype=D)), "the radius has no bias"


def test_measured_rows_are_formed_rows() -> None:
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(300, 3, 40, generator=g), torch.randn(300, 3, 9, generator=g)
    signs = torch.randint(-1, 2, (9, 40), generator=g).float()
    rows = Signed(a, b, signs)
    formed = torch.einsum("nto,ntk->nok", b[:, :2], a[:, :2]) + signs * torch.einsum("no,nk->nok", b[:, 2], a[:, 2])
    torch.testing.assert_close(rows.dense(), formed)
    true, measured = formed.double().flatten(1).square().sum(1), rows.squared_norms()
    assert bool((measured >= true).all())
    # A sign of 0 counts as one, which only adds.
    without = Signed(a, b, signs.sign() + (signs == 0))
    true = without.dense().double().flatten(1).square().sum(1)
    torch.testing.assert_close(without.squared_norms(), true, rtol=2e-3, atol=0.0)


def test_rows_of_which_the_gradient_is_not_finite_are_dropped() -> None:
    network, loss, x, y = made("mlp")
    clipper = Clipper(network, loss, 1.0)
    clipper.sum(x, y)
    bad = x.clone()
    bad[3, 0, 0, 0], bad[5, 0, 1, 1] = torch.nan, torch.inf
    keep = torch.tensor([i not in (3, 5) for i in range(11)])
    agree(clipper.sum(bad, y), Clipper(network, loss, 1.0).sum(x[keep], y[keep]), 1e-9)
