"""The noise layer: its reach is bounded by construction, its noise is fresh, and its gradients are clipped rightly."""

import itertools
import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.reference import compare, cross_entropy
from tacit.errors import ConfigError, UnsupportedModel
from tacit.gradients import check_independent
from tacit.models import build
from tacit.models.lipschitz import NORMS, ORDER, SLACK, Norm, operator_bound
from tacit.models.lowrank import adapted
from tacit.models.noisy import Noisy, noisy

CONVOLUTIONS = [  # channels, outputs, kernel, stride, padding, picture
    (1, 4, (3, 3), (1, 1), (1, 1), (6, 5)),
    (2, 3, (5, 5), (2, 2), (2, 2), (7, 8)),
    (3, 2, (2, 3), (1, 2), (0, 1), (5, 6)),
    (1, 2, (3, 3), (4, 3), (0, 0), (9, 9)),
    (2, 6, (4, 2), (3, 1), (3, 0), (4, 4)),
]


def matrix(layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """The linear part of a layer, written out."""
    unit = torch.eye(math.prod(shape), dtype=torch.float64).view(-1, *shape)
    with torch.no_grad():
        return (layer(unit) - layer(torch.zeros_like(unit))).flatten(1).T


def true_reach(of: Tensor, norm: Norm) -> float:
    if norm == "l1":
        return float(of.norm(dim=0).max())
    if norm == "l2":
        return float(torch.linalg.matrix_norm(of, 2))
    signs = torch.randint(0, 2, (4000, of.shape[1]), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    if of.shape[1] <= 12:
        signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=of.shape[1])))
    return float((signs.double() @ of.T).norm(dim=1).max())


def found_reach(layer: Any, shape: tuple[int, ...], norm: Norm) -> float:
    x = torch.zeros(1, *shape, dtype=torch.float64)
    return float(operator_bound(layer, norm, x, layer(x)))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [(9, 4), (5, 12)])
def test_the_reach_of_a_dense_layer(norm: Norm, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(*size).double()
    found, true = found_reach(layer, size[:1], norm), true_reach(matrix(layer, size[:1]), norm)
    assert found >= true
    assert found <= (2 if norm == "linf" else SLACK + 1e-9) * true


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_the_reach_of_a_convolution(norm: Norm, case: tuple[Any, ...]) -> None:
    channels, outputs, kernel, stride, padding, picture = case
    torch.manual_seed(0)
    layer = nn.Conv2d(channels, outputs, kernel, stride=stride, padding=padding).double()
    shape = (channels, *picture)
    found, true = found_reach(layer, shape, norm), true_reach(matrix(layer, shape), norm)
    assert found >= true
    assert found <= {"l1": 1.5, "l2": 1.5, "linf": 4.0}[norm] * true


def furthest(model: Noisy, norm: Norm, shape: tuple[int, ...]) -> float:
    """How far a change of a record goes where the noise is added, over its length: along the direction of the largest
    reach (by power iteration), and along random ones."""
    x, change = torch.rand(1, *shape), torch.randn(50, *shape)
    for _ in range(20):
        leaf = change.clone().requires_grad_()
        reach = (model.hidden(x + leaf) - model.hidden(x)).flatten(1)
        (change,) = torch.autograd.grad(reach.square().sum(), leaf)
        change = change / change.flatten(1).norm(dim=1).view(-1, *[1] * len(shape))
    both = torch.cat([change, torch.randn(50, *shape), torch.randn(50, *shape).sign()])
    apart = (model.hidden(x + both) - model.hidden(x)).detach().flatten(1).norm(dim=1)
    return float((apart / torch.linalg.vector_norm(both.flatten(1), ORDER[norm], dim=1)).max())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("wraps", ["mlp", "cnn_patches"])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_two_records_are_no_further_apart_where_the_noise_is_added(norm: Norm, wraps: Any, scale: float) -> None:
    """Whatever the weights are."""
    torch.manual_seed(0)
    options = {"hidden": [20]} if wraps == "mlp" else {"features": [4], "hidden": 5}
    model = noisy((1, 6, 6), 3, wraps=wraps, options=options, norm=norm)
    assert isinstance(model, Noisy)
    with torch.no_grad():
        model.first.weight.mul_(scale)  # type: ignore[operator, union-attr]
    found = furthest(model, norm, (1, 6, 6))
    assert (0.2 if norm != "l1" else 0.01) <= found <= 1 + 1e-5


@pytest.mark.parametrize("norm", NORMS)
def test_the_bound_holds_after_training_and_after_loading(norm: Norm) -> None:
    """Steps that blow the weights up change nothing; without the division the same weights are caught."""
    torch.manual_seed(0)
    model = noisy((5,), 3, options={"hidden": [7]}, norm=norm)
    assert isinstance(model, Noisy)
    optimizer = torch.optim.SGD(model.parameters(), lr=50.0)
    x, y = torch.rand(30, 5), torch.arange(30) % 3
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    again = noisy((5,), 3, options={"hidden": [7]}, norm=norm)
    assert isinstance(again, Noisy)
    again.load_state_dict({name: 10 * value for name, value in model.state_dict().items()})
    for one in (model, again, again.eval()):
        assert furthest(one, norm, (5,)) <= 1 + 1e-5
    unbounded = nn.Module()
    unbounded.hidden = again.first  # type: ignore[assignment]
    assert furthest(unbounded, norm, (5,)) > 1  # type: ignore[arg-type]


def test_every_network_that_it_goes_into_has_a_first_layer_of_known_reach() -> None:
    for wraps, shape in {"tabular_mlp": (5,), "cnn": (1, 8, 8), "reduced_resnet18": (3, 25, 25),
                         "resnet18_lai": (3, 8, 8)}.items():  # fmt: skip
        model = noisy(shape, 4, wraps=wraps)  # type: ignore[arg-type]
        assert isinstance(model, Noisy) and model(torch.rand(2, *shape)).shape == (2, 4)
        assert furthest(model, "l2", shape) <= 1 + 1e-5


def test_noise_is_fresh_and_has_the_papers_size() -> None:
    torch.manual_seed(0)
    model = noisy((4,), 3, options={"hidden": [50]}, radius=0.2, epsilon=0.5, delta=0.01)
    assert isinstance(model, Noisy)
    assert model.std == pytest.approx(math.sqrt(2 * math.log(1.25 / 0.01)) * 0.2 / 0.5)
    model.rest = nn.Sequential()
    x = torch.rand(400, 4)
    model.requires_grad_(False)
    one, other = model.evaluations(x, 2)
    noise = one - model.hidden(x)
    assert float(noise.std()) == pytest.approx(model.std, rel=0.02) and float(noise.mean().abs()) < 0.03
    assert float(torch.corrcoef(torch.stack([noise.flatten(), (other - model.hidden(x)).flatten()]))[0, 1].abs()) < 0.03
    rows = torch.corrcoef(noise[:2])  # each record has its own
    assert float(rows[0, 1].abs()) < 0.5


def test_an_answer_is_the_mean_probability() -> None:
    torch.manual_seed(0)
    model = noisy((4,), 3, options={"hidden": [5]}, radius=0.5, draws=7).eval()
    assert isinstance(model, Noisy)
    x = torch.rand(6, 4)
    torch.manual_seed(1)
    found = model(x)
    torch.manual_seed(1)
    mean = torch.stack([logits.softmax(1) for logits in model.evaluations(x, 7)]).mean(0)
    assert torch.allclose(found.exp(), mean, atol=1e-6) and not torch.equal(model(x), found)
    assert not torch.allclose(model.train()(x).exp().sum(1), torch.ones(6))  # logits of one draw, to be trained


@pytest.mark.parametrize("wraps", ["mlp", "cnn", "cnn_patches"])
def test_clipped_gradients_are_those_of_one_example_at_a_time(wraps: Any) -> None:
    """Without noise to speak of, since the reference draws its own; with noise, rows stay independent."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"hidden": [5]} if wraps == "mlp" else {"features": [4, 3], "hidden": 6}
    x, y = torch.randn(5, 2, 8, 8, dtype=torch.float64), torch.arange(5) % 3
    still = noisy((2, 8, 8), 3, wraps=wraps, options=options, radius=1e-13).double()
    compare(still, x, y, loss=cross_entropy)
    check_independent(noisy((2, 8, 8), 3, wraps=wraps, options=options).double(), cross_entropy, x, y)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"epsilon": 1.5}, "epsilon of the noise layer must be > 0 and at most 1, where its formula holds, got 1.5"),
        ({"delta": 0.0}, "delta of the noise layer must be between 0 and 1, got 0.0"),
        ({"radius": -0.1}, "radius of the noise layer must be between 0 and inf, got -0.1"),
        ({"norm": "l7"}, "norm must be one of l1, l2, linf, got 'l7'"),
        ({"draws": 0}, "draws must be a whole number >= 1, got 0"),
        (
            {"wraps": "resnet"},
            "noise goes into one of mlp, tabular_mlp, cnn, cnn_patches, reduced_resnet18, resnet18_lai, got",
        ),
        ({"options": {"hiden": [3]}}, "mlp has no option 'hiden'; did you mean hidden?"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        build("noisy", (4,), 3, **wrong)


def test_layers_whose_reach_is_not_known_are_refused() -> None:
    settings: dict[str, Any] = {"norm": "l2", "radius": 0.1, "epsilon": 1.0, "delta": 0.05, "draws": 1}
    for first in (nn.Conv2d(2, 2, 3, groups=2), nn.Conv2d(1, 2, 3, dilation=2), nn.Conv1d(1, 2, 3), nn.LayerNorm(4),
                  nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular")):  # fmt: skip
        with pytest.raises(ConfigError, match="is not known; the first layer must be"):
            Noisy(nn.Sequential(first, nn.Flatten()), **settings)
    with pytest.raises(ConfigError, match="has no place for noise"):
        Noisy(nn.Sequential(nn.Flatten()), **settings)
    low = adapted(noisy((4,), 3), rank=2)  # a low-rank change goes round the first layer's bound
    with pytest.raises((ConfigError, UnsupportedModel), match="the reach of this LowRank is not known"):
        low(torch.zeros(1, 4))
