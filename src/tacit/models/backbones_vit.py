"""Vision Transformers through `transformers`: a local directory, or an id of the Hugging Face hub.

The feature is the class token after the final LayerNorm, without the pooler: what Tobaben et al. 2025 put heads on
(ViT-B/16 of ImageNet-21k, 768 features). Weights are read from safetensors files only.
"""

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.models.backbone_parts import Parts
from tacit.models.parts import whole
from tacit.models.preprocess import HALF, Constants, Preprocess
from tacit.plugins import extra

MODELS = {"vit": "ViTModel", "deit": "DeiTModel", "dinov2": "Dinov2Model"}
"""Kinds whose first token, after the final LayerNorm, stands for the picture."""
FILES = ["config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json"]


class ClassToken(nn.Module):
    """The first token of the last hidden state, which `transformers` normalises."""

    def __init__(self, net: nn.Module, other_size: bool) -> None:
        super().__init__()
        self.net = net
        self.options = {"interpolate_pos_encoding": True} if other_size else {}

    def forward(self, x: Tensor) -> Tensor:
        token: Tensor = self.net(pixel_values=x, **self.options).last_hidden_state[:, 0]
        return token


def vit(name: str, size: int | None = None) -> Parts:
    """The ViT in a directory or of this hub id. At another size than its own, position codes are interpolated."""
    transformers = extra("transformers", f"the ViT {name!r}", "vit")
    folder = _folder(name)
    config = _read(folder / "config.json", name)
    kind, own, patch = (config.get(key) for key in ("model_type", "image_size", "patch_size"))
    if kind not in MODELS:
        raise ConfigError(
            f"{name} is of the kind {kind!r} and not one of {', '.join(MODELS)}; wrap it in a module of your own that "
            "returns features (file.py:Class)"
        )
    if not isinstance(own, int) or not isinstance(patch, int):
        raise ConfigError(f"{name} does not read square pictures; wrap it in a module of your own (file.py:Class)")
    side = own if size is None else whole("size", size)
    if side % patch:
        raise ConfigError(f"size must be a multiple of the patches of {name}, {patch} pixels, got {size}")
    net = _load(transformers, MODELS[kind], folder, name)
    other = side != own and kind != "dinov2"  # which interpolates by itself
    prepare = Preprocess(side, _constants(folder))
    return Parts(body=ClassToken(net, other), prepare=prepare, width=int(config["hidden_size"]))


def _load(transformers: Any, kind: str, folder: Path, name: str) -> nn.Module:
    options = {} if kind == "Dinov2Model" else {"add_pooling_layer": False}
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # the weights of the pooler are not used, on purpose
    transformers.logging.disable_progress_bar()
    try:
        made: nn.Module = getattr(transformers, kind).from_pretrained(
            folder, use_safetensors=True, local_files_only=True, **options
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ConfigError(
            f"the weights of {name} cannot be read from {folder} ({type(error).__name__}); a directory needs "
            "config.json and model.safetensors"
        ) from None
    finally:
        transformers.logging.set_verbosity(before)
        transformers.logging.enable_progress_bar()
    return made


def _folder(name: str) -> Path:
    """Where the files of a ViT lie, fetched from the hub the first time."""
    if Path(name).is_dir():
        return Path(name)
    hub = extra("huggingface_hub", f"the ViT {name!r}", "vit")
    try:
        here = Path(hub.snapshot_download(name, allow_patterns=FILES, local_files_only=True))
        if any(here.glob("*.safetensors")):
            return here
    except (OSError, ValueError):  # not fetched yet, or no id of the hub
        pass
    try:
        hub.HfApi().model_info(name, timeout=10)  # says at once when there is no way to the hub
        return Path(hub.snapshot_download(name, allow_patterns=FILES))
    except Exception as error:  # the hub's client raises what its transport raises
        raise ConfigError(
            f"there is no directory {name!r}, and the hub did not give a model of that id ({type(error).__name__}); "
            "give a directory with config.json and model.safetensors, or fetch it where there is a network"
        ) from None


def _constants(folder: Path) -> Constants:
    """Mean and standard deviation that the weights were trained with, where the files say so."""
    file = folder / "preprocessor_config.json"
    said = _read(file, str(folder)) if file.exists() else {}
    mean, std = said.get("image_mean"), said.get("image_std")
    return (mean, std) if mean and std else HALF


def _read(file: Path, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError(f"{name} holds no {file.name} that can be read; give the directory of a ViT") from None
    return found
