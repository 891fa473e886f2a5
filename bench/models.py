"""The networks of the benches, plain PyTorch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp(width: int = 256, inputs: int = 784, classes: int = 10) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)
    )


class Basic(nn.Module):
    """A basic residual block with GroupNorm."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.GroupNorm(b // 5, b)
        self.c2, self.n2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.GroupNorm(b // 5, b)
        same = a == b and stride == 1
        self.skip: nn.Module = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.GroupNorm(b // 5, b))
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.n2(self.c2(F.relu(self.n1(self.c1(x)))))
        return F.relu(h + self.skip(x))


def reduced_resnet18(classes: int = 10, widths: tuple[int, ...] = (20, 40, 80, 160)) -> nn.Module:
    """ResNet-18 of the continual-learning literature: 3×3 stem, no max-pool, widths 20/40/80/160."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.GroupNorm(4, widths[0]), nn.ReLU()]
    before = widths[0]
    for stage, width in enumerate(widths):
        layers += [Basic(before, width, 1 if stage == 0 else 2), Basic(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(before, classes))


def cnn(classes: int = 10) -> nn.Module:
    """Three 5×5 convolutions with 2×2 pools and one hidden layer of 512, on 3×32×32."""
    layers: list[nn.Module] = []
    for a, b in ((3, 32), (32, 64), (64, 96)):
        layers += [nn.Conv2d(a, b, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(96 * 16, 512), nn.ReLU(), nn.Linear(512, classes))


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
