"""The networks of the benches: those of `tacit.models` at the sizes of the papers, and vision transformers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit import models


def mlp() -> nn.Module:
    return models.mlp((784,), 10)


def reduced_resnet18() -> nn.Module:
    return models.reduced_resnet18((3, 32, 32), 10)


def cnn() -> nn.Module:
    return models.cnn((3, 32, 32), 10)


class Layer(nn.Module):
    """One layer of a vision transformer, pre-norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class ViT(nn.Module):
    """A plain vision transformer with a class token."""

    def __init__(self, width: int, depth: int, heads: int, patch: int = 16, pixels: int = 224, classes: int = 10):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, (pixels // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(len(h), -1, -1), h], 1) + self.position
        return self.head(self.norm(self.layers(h))[:, 0])


def film(model: nn.Module) -> nn.Module:
    """Train only the scales and shifts of the LayerNorms, and the head."""
    for p in model.parameters():
        p.requires_grad_(False)
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm) or name == "head":
            for p in module.parameters():
                p.requires_grad_(True)
    return model


def vit_tiny() -> nn.Module:
    return film(ViT(192, 12, 3))


def vit_base() -> nn.Module:
    return film(ViT(768, 12, 12))
