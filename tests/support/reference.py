"""The slow truth: one example at a time, plain autograd, float64."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.gradients import Clipper
from tacit.gradients.clip import ClipRule


def each_gradient(model: nn.Module, loss: Callable, x: Tensor, y: Tensor) -> list[dict[str, Tensor]]:
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    rows = []
    for i in range(len(x)):
        value = loss(model(x[i : i + 1]), y[i : i + 1]).sum()
        found = torch.autograd.grad(value, list(named.values()), allow_unused=True)
        rows.append(
            {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(named.items(), found, strict=False)}
        )
    return rows


def by_hand(model, loss, x, y, weigh, groups=None) -> dict[str, Tensor]:
    """`weigh` maps the gradient of one unit (by name) to its weight (by name)."""
    rows = each_gradient(model, loss, x, y)
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    total = {n: torch.zeros_like(p) for n, p in model.named_parameters() if p.requires_grad}
    labels = list(range(len(x))) if groups is None else groups.tolist()
    for unit in sorted(set(labels)):
        g = {n: sum(r[n] for r, u in zip(rows, labels, strict=False) if u == unit) for n in names}
        w = weigh(g)
        for n in names:
            total[n] += w[n] * g[n]
    return total


def norm_of(g: dict[str, Tensor]) -> float:
    return float(torch.cat([t.flatten() for t in g.values()]).norm())


def flat(clip: float) -> Callable:
    return lambda g: dict.fromkeys(g, min(1.0, clip / max(norm_of(g), 1e-300)))


def square_loss(output: Tensor, y: Tensor) -> Tensor:
    """A loss that sees every output with another weight."""
    o = output.flatten(1)
    return (o * torch.linspace(0.3, 1.7, o.shape[1], dtype=o.dtype)).square().sum(1) + o.sum(1) * (1 + y)


TOLERANCE = 3e-5  # sums are exact multiples of a step: factors have 19 bits, and weights are rounded down by 2⁻¹⁹


def agree(got: dict[str, Tensor], want: dict[str, Tensor], tolerance: float = TOLERANCE) -> None:
    assert list(got) == list(want)
    scale = max(float(t.abs().max()) for t in want.values()) + 1e-300
    for name in want:
        assert got[name].shape == want[name].shape, name
        worst = float((got[name] - want[name]).abs().max()) / scale
        assert worst < tolerance, f"{name}: {worst:.2e}"


def compare(model, x, y=None, clip: float | None = None, groups=None, loss=square_loss, tolerance=TOLERANCE) -> None:
    """Clipped (at the median norm, so that some are clipped and some are not) against the truth."""
    y = torch.arange(len(x), dtype=torch.float64) % 3 if y is None else y
    rule: float | ClipRule
    if clip is None:
        norms = sorted(norm_of(g) for g in each_gradient(model, loss, x, y))
        clip = 0.9 * norms[len(norms) // 2] if norms else 1.0
    rule = clip
    want = by_hand(model, loss, x, y, flat(clip), groups)
    got = Clipper(model, loss, rule).sum(x, y, groups)
    agree(got, want, tolerance)


cross_entropy = lambda output, y: F.cross_entropy(output, y, reduction="none")  # noqa: E731
