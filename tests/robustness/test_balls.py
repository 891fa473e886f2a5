"""Balls: projections against a reference, steps against linear programming, random points by their law."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from tacit.models.lipschitz import Norm, within
from tacit.robustness.balls import anywhere, distance, inside, steepest

NORMS: tuple[Norm, ...] = ("linf", "l2", "l1")


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("norm", NORMS)
def test_the_nearest_point_inside(norm: Norm) -> None:
    far, near = drawn(50, 2, 3), 1e-3 * drawn(50, 2, 3)
    found = inside(far, 0.5, norm)
    assert found.shape == far.shape and bool((distance(found, norm) <= 0.5 + 1e-12).all())
    assert torch.allclose(inside(near, 0.5, norm), near, rtol=0, atol=1e-15)
    # No point of the ball is nearer: the way out makes no sharp angle with the way to any of them (convexity).
    out = (far - found).flatten(1)
    for seed in range(20):
        other = anywhere(far, 0.5, norm, torch.Generator().manual_seed(seed))
        assert bool((((other - found).flatten(1) * out).sum(1) <= 1e-9).all())
    assert not bool(torch.isnan(inside(torch.zeros(2, 3), 0.5, norm)).any())
    assert torch.equal(inside(far, 0.0, norm), torch.zeros_like(far))


def test_the_steepest_step_in_l1_is_the_best_within_length_and_range() -> None:
    gradient, room = drawn(8, 6), drawn(8, 6).abs() / 3
    step = steepest(gradient, 0.7, "l1", room)
    assert bool((distance(step, "l1") <= 0.7 + 1e-12).all()) and bool((step.abs() <= room + 1e-12).all())
    for row, free, mine in zip(gradient.numpy(), room.numpy(), step.numpy(), strict=True):
        best = linprog(-np.abs(row), A_ub=np.ones((1, 6)), b_ub=[0.7], bounds=[(0, one) for one in free])
        assert float(row @ mine) == pytest.approx(-best.fun)


@pytest.mark.parametrize("norm", NORMS)
def test_the_steepest_step_has_its_length(norm: Norm) -> None:
    gradient = drawn(5, 2, 3)
    step = steepest(gradient, 0.3, norm, torch.full_like(gradient, 9.0))
    assert torch.allclose(distance(step, norm), torch.full((5,), 0.3, dtype=torch.float64))
    dual = {"linf": gradient.flatten(1).abs().sum(1), "l2": gradient.flatten(1).norm(dim=1),
            "l1": gradient.flatten(1).abs().amax(1)}[norm]  # fmt: skip
    assert torch.allclose((gradient * step).flatten(1).sum(1), 0.3 * dual)
    assert torch.equal(steepest(torch.zeros(2, 3), 0.3, norm, torch.ones(2, 3)), torch.zeros(2, 3))


@pytest.mark.parametrize("norm", NORMS)
def test_random_points_are_even_in_the_ball(norm: Norm) -> None:
    found = anywhere(torch.zeros(40_000, 1, 3), 2.0, norm, torch.Generator().manual_seed(0))
    lengths = distance(found, norm)
    assert float(lengths.max()) <= 2.0
    for share in (0.5, 0.8):  # the volume within a part of the radius
        assert float((lengths <= 2 * share).float().mean()) == pytest.approx(share**3, abs=0.01)
    assert float(found.mean().abs()) < 0.02


def test_one_ball_within_another() -> None:
    ball = {"l1": drawn(2000, 5), "l2": drawn(2000, 5), "linf": drawn(2000, 5).sign()}
    for one in NORMS:
        unit = ball[one] / distance(ball[one], one)[:, None]
        for other in NORMS:
            assert float(distance(unit, other).max()) <= within(one, other, 5) + 1e-12
    assert within("linf", "l2", 4) == 2 and within("linf", "l1", 4) == 4 and within("l1", "linf", 4) == 1
