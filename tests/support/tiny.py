"""Tiny random Vision Transformers and convolutional backbones, in the layout of the real ones."""

from pathlib import Path

import torch
from torch import Tensor, nn


def vit_folder(place: Path, *, seed: int = 0) -> Path:
    """A directory as the hub has it: 12 features, two layers, pictures of 8×8 in patches of 4."""
    from transformers import ViTConfig, ViTModel
    from transformers.utils import logging

    torch.manual_seed(seed)
    config = ViTConfig(
        hidden_size=12, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4
    )
    logging.disable_progress_bar()
    ViTModel(config, add_pooling_layer=False).save_pretrained(place)
    return place


class Convolutions(nn.Module):
    """With BatchNorm, whose statistics are not those of a fresh one."""

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(channels, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.c2, self.n2 = nn.Conv2d(6, 5, 3, stride=2, groups=1, bias=False), nn.BatchNorm2d(5)
        with torch.no_grad():
            for norm in (self.n1, self.n2):
                norm.running_mean.uniform_(-0.2, 0.2)
                norm.running_var.uniform_(0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.n2(self.c2(torch.relu(self.n1(self.c1(x))))).mean((2, 3))
