"""A judge of norms: who takes part in a clipped sum is decided on norms, and the others are computed and count as 0."""

import pytest
import torch
from torch import Tensor, nn

from tacit.gradients import Clipper
from tacit.gradients.losses import cross_entropy
from tacit.gradients.rows import Dense


def world() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    return model, torch.randn(6, 5), torch.arange(6) % 3


def one_by_one(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    parameters = list(model.parameters())
    grads = [torch.autograd.grad(cross_entropy(model(a[None]), b[None]).sum(), parameters) for a, b in zip(x, y)]  # noqa: B905
    return [torch.cat([g.flatten() for g in some]) for some in grads]


@pytest.mark.parametrize("grouped", [False, True])
def test_the_judge_sees_the_norms_and_decides(grouped: bool) -> None:
    model, x, y = world()
    rows = one_by_one(model, x, y)
    units = [sum(rows[i : i + 2]) for i in range(0, 6, 2)] if grouped else rows
    groups = torch.arange(6) // 2 if grouped else None
    seen: list[Tensor] = []
    takes = torch.arange(len(units)) % 2 == 0

    def judge(norms: Tensor) -> Tensor:
        seen.append(norms)
        return takes

    clip = 0.7
    found = Clipper(model, cross_entropy, clip).sum(x, y, groups, judge=judge)
    assert torch.allclose(seen[0].float(), torch.stack([u.norm() for u in units]), rtol=1e-4)  # type: ignore[union-attr]
    expected = sum(u * min(1.0, clip / float(u.norm())) for u, t in zip(units, takes, strict=True) if t)  # type: ignore[union-attr]
    assert torch.allclose(torch.cat([g.flatten() for g in found.values()]), expected, atol=1e-4)  # type: ignore[arg-type]


def test_who_is_out_adds_nothing_even_if_it_is_not_finite() -> None:
    model, x, y = world()
    x[1] = torch.nan
    clipper = Clipper(model, cross_entropy, 1.0)
    clipper.sum(*world()[1:])  # the comparison with autograd is behind it
    found = clipper.sum(x, y, judge=lambda norms: torch.arange(6) > 1)
    rest = clipper.sum(x[2:], y[2:])
    assert all(torch.allclose(found[name], rest[name], atol=1e-6) for name in rest)


def test_the_same_is_computed_whether_someone_is_out_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = world()
    clipper = Clipper(model, cross_entropy, 1.0)
    clipper.sum(x, y)
    calls = []
    honest = Dense.keep
    monkeypatch.setattr(Dense, "keep", lambda self, fine: calls.append(1) or honest(self, fine))
    counts = []
    for out in (0, 1, 6):
        calls.clear()
        clipper.sum(x, y, judge=lambda norms, out=out: torch.arange(6) >= out)  # type: ignore[misc]
        counts.append(len(calls))
    assert counts[0] == counts[1] == counts[2] > 0
