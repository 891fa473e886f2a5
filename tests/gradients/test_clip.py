"""The clip: every rule, never above the bound, nothing from what is not finite."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from support.reference import agree, by_hand, compare, cross_entropy, each_gradient, flat, norm_of
from tacit.errors import PlanError
from tacit.gradients import Automatic, Clipper, Flat, PerLayer, clipped_sum

D = torch.float64


def mlp(dtype=D):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)


def data(n=6, dtype=D):
    g = torch.Generator().manual_seed(1)
    return torch.randn(n, 5, generator=g, dtype=dtype), torch.arange(n) % 3


def length(sums):
    return float(torch.cat([t.flatten().double() for t in sums.values()]).norm())


def test_flat_and_float_are_one():
    x, y = data()
    agree(
        clipped_sum(mlp(), cross_entropy, x, y, clip=0.4),
        clipped_sum(mlp(), cross_entropy, x, y, clip=Flat(norm=0.4)),
    )


def test_automatic():
    x, y = data()
    want = by_hand(mlp(), cross_entropy, x, y, lambda g: dict.fromkeys(g, 0.7 / (norm_of(g) + 0.01)))
    agree(clipped_sum(mlp(), cross_entropy, x, y, clip=Automatic(norm=0.7)), want)
    assert Automatic(norm=0.7).sensitivity == 0.7


@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1, 2, 2]])
def test_per_layer(groups):
    x, y = data()
    groups = None if groups is None else torch.tensor(groups)
    norms = {"0.weight": 0.3, "0.bias": 0.1, "2.weight": 0.5, "2.bias": 9.0}
    want = by_hand(
        mlp(), cross_entropy, x, y, lambda g: {n: min(1.0, norms[n] / float(t.norm())) for n, t in g.items()}, groups
    )
    agree(clipped_sum(mlp(), cross_entropy, x, y, clip=PerLayer(norms=norms), groups=groups), want, 3e-4)
    assert PerLayer(norms=norms).sensitivity == pytest.approx(math.sqrt(sum(c * c for c in norms.values())))
    assert Clipper(mlp(), cross_entropy, PerLayer(norms=0.5)).sensitivity == pytest.approx(1.0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_clip_is_a_positive_number(value):
    for make in (lambda: Flat(norm=value), lambda: Automatic(norm=value), lambda: PerLayer(norms={"a": value})):
        with pytest.raises(PlanError, match="must be finite and > 0"):
            make()


def test_per_layer_names_are_checked():
    with pytest.raises(PlanError, match=r"'2.bias'"):
        Clipper(mlp(), cross_entropy, PerLayer(norms={"0.weight": 1.0, "0.bias": 1.0, "2.weight": 1.0}))
    with pytest.raises(PlanError, match="sensitivity"):
        _ = PerLayer(norms=1.0).sensitivity


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    scale=st.floats(-20, 15), clip=st.floats(-6, 6), seed=st.integers(0, 9), dtype=st.sampled_from([torch.float32, D])
)
def test_one_example_never_exceeds_the_clip(scale, clip, seed, dtype):
    """Inputs from 1e-20 to 1e15, clips from 1e-6 to 1e6: the length of the result, in float64, is at most the clip."""
    x = torch.randn(1, 5, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 10**scale
    for rule in (Flat(norm=10**clip), Automatic(norm=10**clip)):
        clipper = Clipper(mlp(dtype), lambda o, y: o.square().sum(1), rule)
        clipper._verified = True  # extreme numbers are not what the first look is for
        assert length(clipper.sum(x, torch.zeros(1))) <= 10**clip


@pytest.mark.parametrize("seed", range(5))
def test_cancelling_tokens_do_not_hide_a_long_gradient(seed):
    """Two huge tokens that cancel, and a gradient that remains: a Gram sum in float32 could even be negative."""
    g = torch.Generator().manual_seed(seed)
    a = torch.randn(1, 1, 40, generator=g) * 1e4
    x = torch.cat([a, a + 1e-3 * torch.randn(1, 1, 40, generator=g)], 1)
    layer = nn.Linear(40, 40, bias=False)
    clipper = Clipper(layer, lambda o, y: (o[:, 0] - o[:, 1]).sum(1) * 100, 1.0)
    clipper._verified = True
    assert length(clipper.sum(x, torch.zeros(1))) <= 1.0


def network_named(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    return {
        "mlp": (mlp(torch.float32), (5,)),
        "conv": (nn.Sequential(nn.Conv2d(2, 3, 3), nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(12, 3)), (2, 4, 4)),
        "tokens": (nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Flatten(), nn.Linear(12, 3)), (3, 5)),
        "generic": (nn.Sequential(nn.PReLU(5), nn.Linear(5, 3)), (5,)),
    }[name]


RULES = [Flat(norm=0.4), Automatic(norm=0.4), PerLayer(norms=0.2)]
REST, KEPT = torch.tensor([0, 1, 3, 4, 5]), torch.tensor([0, 3, 4, 5])
GROUPS = torch.tensor([0, 1, 1, 2, 2, 3])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("network", ["mlp", "conv", "tokens", "generic"])
def test_what_is_not_finite_counts_as_zero(bad, rule, network):
    """The other examples are as if the bad one were not there, and the result is finite."""
    model, shape = network_named(network)
    x, y = torch.randn(6, *shape, generator=torch.Generator().manual_seed(2)), torch.arange(6) % 3
    dirty = x.clone()
    dirty[2].view(-1)[1] = bad
    clipper = Clipper(model, cross_entropy, rule)
    agree(clipper.sum(dirty, y), clipper.sum(x[REST], y[REST]), 1e-5)
    # The bad one takes its whole group with it.
    agree(clipper.sum(dirty, y, GROUPS), clipper.sum(x[KEPT], y[KEPT], GROUPS[KEPT]), 1e-5)


@pytest.mark.parametrize("steep", [1e10, 1e25, 1e36, 1e38])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("network", ["mlp", "conv", "tokens", "generic"])
def test_a_gradient_whose_square_overflows_float32_is_clipped_or_left_out(steep, rule, network):
    """Nobody else is touched, and it moves the sum by at most its bound."""
    model, shape = network_named(network)
    x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(2))
    scale = torch.ones(6)
    scale[2] = steep
    ys = torch.stack([(torch.arange(6) % 3).float(), scale], 1)
    clipper = Clipper(model, lambda o, ys: cross_entropy(o, ys[:, 0].long()) * ys[:, 1], rule)
    for groups, others in ((None, REST), (GROUPS, KEPT)):
        got = clipper.sum(x, ys, groups)
        rest = clipper.sum(x[others], ys[others], None if groups is None else groups[others])
        moved = torch.cat([(got[n].double() - rest[n].double()).flatten() for n in got]).norm()
        assert float(moved) <= clipper.sensitivity * (1 + 1e-6)


def test_only_bad_examples_give_zero():
    x, y = data(3, torch.float32)
    got = clipped_sum(mlp(torch.float32), cross_entropy, x * float("nan"), y, clip=1.0)
    assert all(not t.any() for t in got.values())


def test_no_example_moves_the_others(n=5):
    """Replace one example: the sum moves by its own clipped gradients only."""
    model, (x, y) = mlp(), data(n)
    clipper = Clipper(model, cross_entropy, 0.3)
    one = {k: v.clone() for k, v in clipper.sum(x, y).items()}
    for i in range(n):
        rest = torch.arange(n) != i
        two = clipper.sum(x[rest], y[rest])
        moved = math.sqrt(sum(float((one[k] - two[k]).square().sum()) for k in one))
        mine = norm_of(each_gradient(model, cross_entropy, x[i : i + 1], y[i : i + 1])[0])
        assert moved == pytest.approx(min(0.3, mine), rel=1e-4)
        assert moved <= 0.3


@pytest.mark.parametrize("network", ["mlp", "conv", "norm"])
def test_bfloat16_autocast(network):
    torch.manual_seed(0)
    model, shape = {
        "mlp": (mlp(torch.float32), (5,)),
        "conv": (nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)), (2, 4, 4)),
        "norm": (nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.PReLU(), nn.Linear(8, 3)), (5,)),
    }[network]
    x, y = torch.randn(6, *shape, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3
    exact = by_hand(model, cross_entropy, x, y, flat(0.2))
    with torch.autocast("cpu", torch.bfloat16):
        clipper = Clipper(model, cross_entropy, 0.2)
        got = {n: t.clone() for n, t in clipper.sum(x, y).items()}
        for i in range(6):
            assert length(clipper.sum(x[i : i + 1], y[i : i + 1])) <= 0.2
    assert all(t.dtype == torch.float32 for t in got.values())
    agree(got, exact, 0.1)


@pytest.mark.parametrize("forget", ["bias", "clip", "groups", "mask"])
def test_these_tests_can_fail(forget, monkeypatch):
    """Break the code in the ways libraries were broken; the comparison must notice."""
    from tacit.gradients import clip, clipper, layers, rows

    x, y = data()
    groups = None
    if forget == "bias":
        right = layers.linear

        class Weightless(rows.Dense):
            def squared_norms(self):
                return torch.zeros_like(super().squared_norms())

        def wrong(layer, a, b, wanted):
            found = right(layer, a, b, wanted)
            return {**found, "bias": Weightless(found["bias"].dense())}

        monkeypatch.setitem(layers.RULES, nn.Linear, wrong)
        monkeypatch.setattr(clipper, "agrees", lambda *_: True)
    elif forget == "clip":
        monkeypatch.setattr(clip, "_shrink", lambda squared, bound, slack: torch.ones_like(squared))
    elif forget == "groups":
        monkeypatch.setattr(clipper, "_units", lambda *_: None)
        groups = torch.tensor([0, 0, 1, 1, 2, 2])
    else:
        monkeypatch.setattr(rows, "masked", lambda t, fine: t)
        x = x.clone()
        x[0] = float("nan")
        got = clipped_sum(mlp(), cross_entropy, x, y, clip=0.2)
        assert not all(t.isfinite().all() for t in got.values())
        return
    with pytest.raises(AssertionError):
        compare(mlp(), x, y, clip=0.2, groups=groups, loss=cross_entropy)


def test_forgetting_the_bias_is_seen_by_the_first_look(monkeypatch):
    from tacit.errors import UnsupportedModel
    from tacit.gradients import layers

    right = layers.linear
    monkeypatch.setitem(layers.RULES, nn.Linear, lambda m, a, b, w: right(m, a, b, set(w) - {"bias"}))
    with pytest.raises(UnsupportedModel, match=r"'0.bias'"):
        clipped_sum(mlp(), cross_entropy, *data(), clip=1.0)
