"""A public backbone with a few trained parameters: what Tobaben et al. 2025 train with DP-SGD on every task.

Noise grows with every trained parameter, so few are: the head alone (`last-layer`), with the scales and shifts of the
normalisations (`film`, Perez et al. 2018), or with low-rank changes of the attention (`lora`, Hu et al. 2022). Every
head starts at zero.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.models.backbone_parts import OFFLINE
from tacit.models.backbones import Backbone
from tacit.models.backbones import backbone as find
from tacit.models.parts import whole, zeroed
from tacit.plugins import extra

Adapter = Literal["last-layer", "film", "lora"]
ADAPTERS = ("last-layer", "film", "lora")
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)
ATTENTION = ("q_proj", "v_proj", "query", "value")
"""Layers with low-rank updates: queries and values, as in the LoRA paper."""


class Pretrained(nn.Module):
    """A frozen backbone and a linear head. What is trained is exactly the adapter and the head.

    It stays in evaluation mode below the head, so that BatchNorm is a fixed scale and shift of each example by itself.
    """

    def __init__(self, backbone: Backbone, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = zeroed(nn.Linear(backbone.width, whole("classes", classes)))

    def forward(self, x: Tensor) -> Tensor:
        adapted = any(parameter.requires_grad for parameter in self.backbone.parameters())
        # Records that require a gradient are being attacked: it has to pass through the backbone.
        with nullcontext() if adapted or x.requires_grad else torch.no_grad():
            features = self.backbone(x)
        logits: Tensor = self.head(features)
        return logits


def pretrained(
    shape: Sequence[int],
    classes: int,
    *,
    backbone: str | nn.Module = OFFLINE,
    adapter: Adapter = "film",
    rank: int = 8,
    size: int | None = None,
) -> nn.Module:
    """A public backbone, an adapter and a head that starts at zero; reads pictures in [0, 1].

    Args:
        shape: Shape of one picture: (channels, height, width).
        classes: Number of outputs.
        backbone: The backbone, or its name; see `backbones.backbone`.
        adapter: What is trained besides the head: nothing ("last-layer"), the scales and shifts of normalisations
            ("film"), or low-rank changes of the attention ("lora").
        rank: Rank of the changes of "lora", which are zero at the start.
        size: Side of the pictures that the backbone reads; see `backbones.backbone`.

    Returns:
        The network, of which only the adapter and the head are trainable.

    Raises:
        ConfigError: The adapter is unknown or does not fit the backbone, or the backbone does not read such pictures.
    """
    if adapter not in ADAPTERS:
        raise ConfigError(f"adapter must be one of {', '.join(ADAPTERS)}, got {adapter!r}")
    made = deepcopy(backbone) if isinstance(backbone, Backbone) else find(backbone, size=size, shape=shape)
    made.check(shape)
    if adapter == "film":
        _film(made)
    elif adapter == "lora":
        _lora(made, whole("rank", rank))
    return Pretrained(made, classes)


def _film(backbone: Backbone) -> None:
    """Train the scale and shift of every normalisation; statistics stay as they are."""
    norms = [module for module in backbone.modules() if isinstance(module, NORMS)]
    trained = [parameter for norm in norms for parameter in norm.parameters(recurse=False)]
    if not trained:
        raise ConfigError(
            f"film trains scales and shifts, and {backbone.name} has no LayerNorm, GroupNorm or BatchNorm with them; "
            "use adapter='last-layer'"
        )
    for parameter in trained:
        parameter.requires_grad_(True)


def _lora(backbone: Backbone, rank: int) -> None:
    """Add low-rank updates to the queries and values of every attention layer, with `peft`."""
    targets = [
        name
        for name, module in backbone.body.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] in ATTENTION
    ]
    if not targets:
        raise ConfigError(
            f"lora changes the queries and values of attention, and {backbone.name} has none; use adapter='film'"
        )
    peft: Any = extra("peft", "adapter='lora'", "lora")
    config = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=targets, lora_dropout=0.0, bias="none")
    peft.inject_adapter_in_model(config, backbone.body)
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_("lora_" in name)
    backbone.eval()
