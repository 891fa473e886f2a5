"""A-GEM's projection and what goes into it, against plain formulas."""

from typing import Any

import pytest
import torch

from support.small_world import facts, fixed, given, learn, same, started
from tacit.learners.base.gradient import Gradient, with_momentum
from tacit.learners.replay.dpcl import project, running_mean


def vectors(seed: int) -> dict[str, torch.Tensor]:
    coins = torch.Generator().manual_seed(seed)
    return {"weight": torch.randn(3, 4, generator=coins), "bias": torch.randn(3, generator=coins)}


def flat(gradient: Gradient) -> torch.Tensor:
    return torch.cat([value.flatten() for value in gradient.values()])


def conflicting() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    g = vectors(1)
    return g, {name: vectors(2)[name] - 2 * value for name, value in g.items()}


@pytest.mark.parametrize("always", [False, True])
def test_a_conflicting_gradient_becomes_orthogonal_to_the_reference(always: bool) -> None:
    g, reference = conflicting()
    assert flat(g) @ flat(reference) < 0
    projected = flat(project(g, reference, always=always))
    assert float(projected @ flat(reference)) == pytest.approx(0, abs=1e-5)
    r = flat(reference)
    assert torch.allclose(projected, flat(g) - (flat(g) @ r) / (r @ r) * r, atol=1e-6)
    assert projected.norm() < flat(g).norm()


def test_without_a_conflict_it_is_left_alone() -> None:
    g, reference = conflicting()
    agreeing = {name: -value for name, value in reference.items()}
    assert project(g, agreeing, always=False) is g
    assert float(flat(project(g, agreeing, always=True)) @ flat(agreeing)) == pytest.approx(0, abs=1e-5)


def test_the_reference_is_measured_only_where_it_is_projected_on() -> None:
    class Counted(dict[str, torch.Tensor]):
        asked = 0

        def values(self) -> Any:
            self.asked += 1
            return super().values()

    g, reference = conflicting()
    agreeing, opposed = Counted({name: -value for name, value in reference.items()}), Counted(reference)
    project(g, agreeing, always=False)
    project(g, opposed, always=False)
    assert (agreeing.asked, opposed.asked) == (0, 1)


def test_one_global_projection_not_one_for_each_tensor() -> None:
    """Two tensors, one of which conflicts: the whole decides."""
    g = {"a": torch.tensor([1.0]), "b": torch.tensor([5.0])}
    reference = {"a": torch.tensor([-1.0]), "b": torch.tensor([1.0])}
    assert project(g, reference, always=False) is g


@pytest.mark.parametrize("always", [False, True])
def test_a_reference_of_zero_changes_nothing(always: bool) -> None:
    g = vectors(1)
    assert project(g, {name: torch.zeros_like(value) for name, value in g.items()}, always=always) is g


def test_arguments_are_not_changed() -> None:
    g, reference = conflicting()
    before = {name: value.clone() for name, value in g.items()}, {n: v.clone() for n, v in reference.items()}
    project(g, reference, always=True)
    running_mean(g, reference, 0.5)
    with_momentum(g, reference, 0.5)
    assert same(g, before[0]) and same(reference, before[1])


def test_a_running_mean_and_a_velocity() -> None:
    one, two = vectors(1), vectors(2)
    assert running_mean(one, None, 0.9) is one and running_mean(one, two, 0.0) is one
    assert torch.allclose(flat(running_mean(one, two, 0.9)), 0.1 * flat(one) + 0.9 * flat(two), atol=1e-6)
    assert with_momentum(one, None, 0.9) is one and with_momentum(one, two, 0.0) is one
    assert torch.allclose(flat(with_momentum(one, two, 0.9)), flat(one) + 0.9 * flat(two), atol=1e-6)


@pytest.mark.parametrize("name", ["AGEM", "DPCL union", "DPAGEM average"])
def test_both_modes_of_projection_are_used(name: str) -> None:
    ends = []
    for mode in ("conflict", "always"):
        learner = started(name, facts(2), **given(name, project=mode))
        learn(learner, fixed(), [0, 1])
        ends.append(learner.tensors())
    assert not same(*ends)


def test_momentum_and_smoothing_are_used() -> None:
    ends = []
    for settings in ({}, {"momentum": 0.5}, {"smooth": 0.5}):
        learner = started("DPCL union", facts(2), **given("DPCL union", **settings))
        learn(learner, fixed(), [0, 1])
        ends.append(learner.tensors())
    assert not same(ends[0], ends[1]) and not same(ends[0], ends[2]) and not same(ends[1], ends[2])
