"""The classifier of noisy means and a noisy second moment: between the cosine and linear discriminant analysis."""

import pytest
import torch
from torch import Tensor

from tacit.learners.closed_form import discriminant as module
from tacit.learners.closed_form.class_means import Means
from tacit.learners.closed_form.discriminant import discriminant
from tacit.learners.closed_form.noisy_moment import Moment, symmetric

LABELS, WIDTH, EACH = 8, 40, 400


def world(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Labels that differ in quiet directions, under loud ones that all share: cosine fails, the moment helps."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.zeros(LABELS, WIDTH)
    means[:, 10:] = torch.randn(LABELS, WIDTH - 10, generator=generator) * 0.35
    spread = torch.cat([torch.full((10,), 3.0), torch.full((WIDTH - 10,), 0.5)])
    x = means.repeat_interleave(EACH, 0) + spread * torch.randn(LABELS * EACH, WIDTH, generator=generator)
    return torch.nn.functional.normalize(x, dim=1), torch.arange(LABELS).repeat_interleave(EACH)


def noisy(x: Tensor, y: Tensor, row: float, std: float, seed: int = 1) -> tuple[Means, Moment]:
    generator = torch.Generator().manual_seed(seed)
    sums = torch.zeros(LABELS, WIDTH).index_add_(0, y, x).double()
    length = sums.norm(dim=1, keepdim=True)
    rows = sums / length + row * torch.randn(LABELS, WIDTH, generator=generator, dtype=torch.float64)
    moment = x.T @ x + std * symmetric(WIDTH, generator)
    means = Means(rows=rows, noise=torch.full((LABELS,), row**2).double(), present=torch.ones(LABELS, dtype=torch.bool))
    return means, Moment(value=moment.float(), std=std, records=float(len(x)))


def right(w: Tensor, x: Tensor, y: Tensor) -> float:
    return float(((x.double() @ w.T).argmax(1) == y).double().mean())


def test_it_beats_the_cosine_where_the_moment_is_known() -> None:
    (x, y), (tx, ty) = world(), world(0)
    means, moment = noisy(x, y, 1e-4, 1e-3)
    cosine = right(torch.nn.functional.normalize(means.rows, dim=1), tx, ty)
    assert right(discriminant(means, moment, 0), tx, ty) > cosine + 0.1


def test_it_falls_back_to_the_cosine_where_the_moment_is_noise() -> None:
    x, y = world()
    means, moment = noisy(x, y, 0.01, 1e6)
    w = torch.nn.functional.normalize(discriminant(means, moment, 0), dim=1)
    assert float((w * torch.nn.functional.normalize(means.rows, dim=1)).sum(1).min()) > 0.9


def test_where_nothing_is_sure_nothing_is_trusted() -> None:
    x, y = world()
    for row, std in ((0.01, 1e6), (100.0, 1.0)):
        means, moment = noisy(x, y, row, std)
        assert module._trust(means.rows, means.noise, moment, 0) == module.GRID[-1]
    means, moment = noisy(x, y, 0.01, 10.0)
    assert module._trust(means.rows, means.noise, moment, 0) < module.GRID[-1]


def test_lengths_are_without_the_noise() -> None:
    """E‖m + z‖² is ‖m‖² + width · noise; the second part is taken off."""
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(200, 300, generator=generator, dtype=torch.float64) * torch.linspace(0.5, 2, 200)[:, None]
    seen = true + 0.5 * torch.randn(200, 300, generator=generator, dtype=torch.float64)
    sharp, noise = torch.ones(300, dtype=torch.float64), torch.full((200,), 0.25).double()
    found = module._lengths(seen, noise, sharp)
    assert float(((found - true.norm(dim=1)) / true.norm(dim=1)).mean().abs()) < 0.03


def test_one_wild_label_does_not_blur_the_others() -> None:
    x, y = world()
    means, moment = noisy(x, y, 0.01, 1.0)
    before = right(discriminant(means, moment, 0), x[y < 7], y[y < 7])
    rows, noise = means.rows.clone(), means.noise.clone()
    rows[7] = 3 * torch.randn(WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    noise[7] = 9.0
    wild = Means(rows=rows, noise=noise, present=means.present)
    assert right(discriminant(wild, moment, 0), x[y < 7], y[y < 7]) > before - 0.05


def test_absent_labels_and_few_labels() -> None:
    x, y = world()
    means, moment = noisy(x, y, 0.01, 1.0)
    for many in (0, 1, 2):
        present = torch.arange(LABELS) < many
        w = discriminant(Means(rows=means.rows, noise=means.noise, present=present), moment, 0)
        assert torch.equal(w.abs().sum(1) > 0, present)


def test_the_public_noise_has_the_law_of_the_vaults() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([symmetric(20, generator) for _ in range(3000)])
    assert torch.equal(drawn, drawn.transpose(1, 2))
    variance = drawn.var(0)
    assert float(torch.diagonal(variance).mean()) == pytest.approx(1.0, rel=0.05)
    assert float((variance.sum() - variance.trace()) / 380) == pytest.approx(0.5, rel=0.05)
