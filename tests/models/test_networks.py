"""Every network: its size, its gradients against one example at a time in float64, and what it refuses."""

import inspect
import re

import numpy as np
import pytest
import torch
from torch import nn

from support.reference import by_hand, compare, cross_entropy, flat
from tacit.errors import ConfigError
from tacit.gradients import check_independent, clipped_sum
from tacit.models import NETWORKS, build

PLAIN = [
    name for name in NETWORKS if name not in ("pretrained", "noisy", "interval", "smoothed")
]  # these have tests of their own
PAPER = {  # shape in the paper, classes, number of parameters
    "linear": ((784,), 10, 784 * 10 + 10),
    "mlp": ((784,), 10, 269_322),
    "tabular_mlp": ((90,), 18, 90 * 128 + 128 + 128 * 64 + 64 + 64 * 18 + 18),
    "cnn": ((3, 32, 32), 10, 999_466),
    "cnn_patches": ((1, 28, 28), 10, 832 + 51_264 + 153_696 + (96 * 16 * 512 + 512) + (512 * 10 + 10)),
    "cnn_strided": ((1, 28, 28), 10, 26_010),
    "reduced_resnet18": ((3, 32, 32), 100, 1_109_240),
    "resnet18_lai": ((3, 32, 32), 10, 2_225_610),
    "har_cnn": ((100, 3), 5, 160 + 8_256 + 24_672 + (96 * 12 * 3 * 128 + 128) + (128 * 5 + 5)),
    "bilstm": ((100, 3), 5, 2 * 4 * 64 * (3 + 64 + 2) + (128 * 128 + 128) + (128 * 5 + 5)),
    "cnn1d": ((100, 3), 5, 512 + 10_304 + 30_816 + (96 * 12 * 128 + 128) + (128 * 5 + 5)),
    "cnn_ignatov": ((100, 3), 5, 196 * 3 * 12 + 196 + ((196 * 25 + 40) * 1024 + 1024) + (1024 * 5 + 5)),
}
SMALL: dict[str, tuple[tuple[int, ...], dict[str, object]]] = {  # the same code, few numbers
    "linear": ((2, 3), {}),
    "mlp": ((1, 3, 3), {"hidden": [5, 4]}),
    "tabular_mlp": ((6,), {"hidden": [5]}),
    "cnn": ((2, 9, 8), {"features": [6, 5, 4], "hidden": 8}),
    "cnn_patches": ((2, 9, 8), {"features": [6, 5, 4], "hidden": 8}),
    "cnn_strided": ((2, 18, 17), {"hidden": 6}),
    "reduced_resnet18": ((2, 25, 32), {"features": [5, 10, 5, 10]}),
    "resnet18_lai": ((2, 17, 16), {"features": [4, 8, 8, 8, 16], "hidden": 8, "groups": 2}),
    "har_cnn": ((17, 3), {"features": [6, 5, 4], "hidden": 8}),
    "bilstm": ((17, 3), {"features": 4, "hidden": 8}),
    "cnn1d": ((17, 3), {"features": [6, 5, 4], "hidden": 8, "kernel": 3}),
    "cnn_ignatov": ((17, 3), {"features": 6, "hidden": 8, "kernel": 4}),
}


def small(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    shape, options = SMALL[name]
    torch.manual_seed(0)
    return build(name, shape, 3, **options).double(), shape


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_every_network_is_tested() -> None:
    assert set(PAPER) == set(SMALL) == set(PLAIN)


@pytest.mark.parametrize("name", PLAIN)
def test_size_and_output(name: str) -> None:
    shape, classes, parameters = PAPER[name]
    model = build(name, shape, classes)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model(torch.zeros(2, *shape)).shape == (2, classes)
    assert not any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules())


@pytest.mark.parametrize("name", PLAIN)
def test_clipped_gradients_are_those_of_one_example_at_a_time(name: str) -> None:
    model, shape = small(name)
    compare(model, draw(5, *shape), torch.arange(5) % 3, loss=cross_entropy)
    compare(model, draw(6, *shape), torch.arange(6) % 3, loss=cross_entropy, groups=torch.tensor([0, 0, 1, 2, 2, 2]))


@pytest.mark.parametrize("name", PLAIN)
def test_batches_of_one_and_of_none(name: str) -> None:
    model, shape = small(name)
    compare(model, draw(1, *shape), torch.tensor([2]), loss=cross_entropy)
    want = by_hand(model, cross_entropy, draw(1, *shape), torch.tensor([2]), flat(0.01))
    norm = torch.cat([value.flatten() for value in want.values()]).norm()
    assert float(norm) == pytest.approx(0.01)  # it was clipped
    none = clipped_sum(model, cross_entropy, draw(0, *shape), torch.zeros(0).long(), clip=1.0)
    assert list(none) == list(want) and not any(bool(value.any()) for value in none.values())


@pytest.mark.parametrize("name", PLAIN)
def test_examples_do_not_meet(name: str) -> None:
    model, shape = small(name)
    check_independent(model.float(), cross_entropy, torch.zeros(4, *shape), torch.arange(4) % 3)


@pytest.mark.parametrize("name", PLAIN)
def test_it_learns(name: str) -> None:
    """Nine examples by heart: no layer is dead or cut off."""
    model, shape = small(name)
    x, y = draw(9, *shape), torch.arange(9) % 3
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        loss = cross_entropy(model(x), y).mean()
        optimizer.zero_grad()
        loss.backward()
        assert losses or all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_the_statistics_of_ignatovs_network() -> None:
    x = draw(2, 20, 3)
    network = build("cnn_ignatov", (20, 3), 5).double()[0]
    found = network.described(x).detach()
    assert found.shape == (2, 40)
    assert torch.allclose(found[:, :3], x.mean(1)) and torch.allclose(found[:, 3:6], x.std(1, unbiased=False))
    assert torch.allclose(found[:, 6:9], (x - x.mean(1, keepdim=True)).abs().mean(1))
    assert torch.allclose(found[:, 9], x.norm(dim=2).mean(1))
    for axis in range(3):
        counts = np.histogram(x[1, :, axis].numpy(), 10)[0] / 20
        assert np.allclose(found[1, 10 + 10 * axis : 20 + 10 * axis], counts)
    shift = torch.tensor([1.0, -2.0, 3.0]).double()
    featureless = build("cnn_ignatov", (20, 3), 5, statistics=False).double()
    assert torch.allclose(featureless(x), featureless(x + shift))  # it reads a window less its mean


def test_the_same_seed_gives_the_same_network() -> None:
    one, other = (small("resnet18_lai")[0].state_dict() for _ in range(2))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_options_reach_the_network() -> None:
    assert sum(p.numel() for p in build("mlp", (4,), 2, hidden=[3]).parameters()) == 4 * 3 + 3 + 3 * 2 + 2
    assert any(isinstance(layer, nn.Tanh) for layer in build("cnn", (1, 8, 8), 2, activation="tanh"))
    assert build("mlp", (np.int64(4),), np.int64(2))(torch.zeros(1, 4)).shape == (1, 2)


@pytest.mark.parametrize(
    ("name", "shape", "options", "sentence"),
    [
        ("mpl", (4,), {}, "there is no network 'mpl'; did you mean mlp"),
        ("resnet18", (3, 32, 32), {}, r"'resnet18'; did you mean resnet18_lai, reduced_resnet18\?"),
        ("mlp", (4,), {"hiden": [3]}, "mlp has no option 'hiden'; did you mean hidden"),
        ("linear", (4,), {"hidden": [3]}, "linear has no option 'hidden'; there is zero"),
        ("mlp", (4,), {"hidden": 3}, r"hidden must be a list of whole numbers, such as \[256, 256\], got 3"),
        ("mlp", (4,), {"hidden": [3, 0]}, "each of hidden must be a whole number >= 1, got 0"),
        ("mlp", (4,), {"activation": "gelu"}, "activation must be one of relu, tanh, got 'gelu'"),
        ("mlp", (0, 4), {}, r"each number of the shape \(0, 4\) must be a whole number >= 1, got 0"),
        ("cnn", (64,), {}, r"cnn reads images of \(channels, height, width\), got records of shape \(64,\); use mlp"),
        ("cnn", (1, 8, 7), {}, "cnn needs at least 8 pixels a side .* got 7"),
        ("cnn", (1, 8, 8), {"hidden": 2.5}, "hidden must be a whole number >= 1, got 2.5"),
        ("reduced_resnet18", (3, 24, 24), {}, "at least 25 pixels a side"),
        ("reduced_resnet18", (3, 32, 32), {"features": [20, 40]}, "features must have 4 numbers"),
        ("reduced_resnet18", (3, 32, 32), {"features": [20, 41, 80, 160]}, "a multiple of 5 .* got 41"),
        ("resnet18_lai", (3, 32, 32), {"groups": 7}, "a multiple of groups = 7, got 64"),
        ("resnet18_lai", (3, 4, 4), {}, "at least 8 pixels a side, got 4"),
        ("har_cnn", (1, 28, 28), {}, r"har_cnn reads sensor windows of \(time, axes\)"),
        ("har_cnn", (7, 3), {}, "at least 8 samples a window"),
        ("cnn1d", (7, 3), {}, "at least 8 samples a window"),
        ("cnn1d", (100, 3), {"kernel": 4}, "kernel must be odd.* got 4; use 5"),
        ("cnn_ignatov", (3, 3), {}, "at least 4 samples a window"),
        ("tabular_mlp", (4, 4), {}, "tabular_mlp reads rows of columns"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    name: str, shape: tuple[int, ...], options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        build(name, shape, 10, **options)
    assert "\n" not in str(refused.value) and not re.search(r"\.\s", str(refused.value))


def test_wrong_numbers_of_classes() -> None:
    for classes in (0, -1, 2.0, True):
        with pytest.raises(ConfigError, match="classes must be a whole number >= 1"):
            build("linear", (4,), classes)  # type: ignore[arg-type]


def test_every_network_has_the_same_first_arguments_and_a_docstring() -> None:
    for name, make in NETWORKS.items():
        parameters = list(inspect.signature(make).parameters.values())
        assert [p.name for p in parameters[:2]] == ["shape", "classes"]
        assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters[2:]), name
        assert make.__doc__


def test_records_are_rescaled_one_by_one() -> None:
    x = torch.rand(4, 2, 3) + 1
    rows = build("mlp", (2, 3), 3, centred=True, length=8.0)[1](x.flatten(1))
    assert torch.allclose(rows.norm(dim=1), torch.full((4,), 8.0))
    assert torch.allclose(rows.mean(1), torch.zeros(4), atol=1e-5)
    centred = build("mlp", (2, 3), 3, centred=True)[1](x.flatten(1))
    assert torch.allclose(rows, 8 * centred / centred.norm(dim=1, keepdim=True), atol=1e-5)
    flat = build("mlp", (2, 3), 3, length=2.0)
    assert torch.isfinite(flat(torch.zeros(1, 2, 3))).all()  # a blank record has no direction, and stays blank
    assert [type(one).__name__ for one in build("mlp", (2, 3), 3)][:2] == ["Flatten", "Linear"]
    torch.manual_seed(0)
    model = build("mlp", (3, 3), 3, hidden=[5], centred=True, length=8.0).double()
    compare(model, draw(5, 3, 3), torch.arange(5) % 3, loss=cross_entropy)


@pytest.mark.parametrize("length", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_length_is_refused(length: float) -> None:
    with pytest.raises(ConfigError, match="length must be a number > 0"):
        build("mlp", (2, 3), 3, length=length)
