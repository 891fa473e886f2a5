"""Claims reproduce what papers print, refute what does not hold, and never pass for a bound of ours."""

import math
from dataclasses import fields

import numpy as np
import pytest

from tacit.certificate import claims
from tacit.certificate.claims import Claim, moments_accountant, neighbours
from tacit.errors import PlanError
from tacit.privacy.accounting import rdp
from tacit.privacy.accounting.budget import Adjacency, Budget, ClaimAdjacency
from tacit.privacy.accounting.calibrate import gaussian_noise
from tacit.privacy.accounting.epsilon import epsilon
from tacit.privacy.accounting.events import gaussian, poisson_gaussian


@pytest.mark.parametrize(
    ("steps", "printed"), [(301, 0.85), (1489, 0.90), (2675, 0.95), (3862, 1.0), (7422, 1.15), (11539, 1.30)]
)
def test_desai_training_numbers(steps: int, printed: float) -> None:
    """The steps behind the numbers that Desai et al. 2021 print: q = 100/55000, σ = 1, δ = 1e-4."""
    assert moments_accountant(100 / 55000, 1.0, steps, 1e-4, 32) == pytest.approx(printed, abs=5e-5)


def test_desai_memory_numbers() -> None:
    for size, steps in ((5614, 301), (6707, 550)):
        assert moments_accountant(50 / size, 1.0, steps, 1e-4) == pytest.approx(1.47, abs=2e-4)
    assert moments_accountant(50 / 1000, 1.0, 1, 1e-4) == pytest.approx(1.70, abs=5e-3)


def test_hassanpour_fit() -> None:
    for tasks, printed in ((9, (0.414, 0.195, 0.116)), (6, (0.348, 0.161, 0.108))):
        for noise, value in zip((2.0, 4.0, 8.0), printed, strict=True):
            claim = claims.stream_wide(1e-3, noise, 2800 * tasks, 1e-5)
            assert claim.epsilon == pytest.approx(value, abs=1.1e-3) and claim.max_order == 128


def test_kinds_of_steps_add_up_in_the_moments_accountant() -> None:
    whole = moments_accountant(1e-2, 2.0, 700, 1e-5, 128)
    assert claims.moments_of({(1e-2, 2.0): 700}, 1e-5, 128) == whole
    mixed = claims.moments_of({(1e-2, 2.0): 700, (2e-2, 3.0): 50}, 1e-5, 128)
    assert whole < mixed < claims.moments_of({(1e-2, 2.0): 700, (2e-2, 2.0): 50}, 1e-5, 128)
    bounds = [
        (700 * rdp.log_moment(1e-2, 2.0, order + 1) + 50 * rdp.log_moment(2e-2, 3.0, order + 1) + math.log(1e5)) / order
        for order in range(1, 129)
    ]
    assert mixed == pytest.approx(min(bounds))
    with pytest.raises(PlanError, match="the moments accountant needs"):
        claims.moments_of({(1e-2, 2.0): 1, (0.0, 2.0): 1}, 1e-5)


def test_learners_in_turn_claim_the_budget_of_the_one_that_spent_most() -> None:
    claim = claims.hassanpour([0.2, 0.3], None, 1e-5)
    assert (claim.epsilon, claim.adjacency, claim.max_order) == (0.3, ClaimAdjacency.STREAM, 128)
    assert claims.hassanpour([0.2, 0.3], 0.41, 1e-5).epsilon == 0.41
    assert "does not hold" in claim.source
    with pytest.raises(PlanError, match="one learner or more"):
        claims.hassanpour([], 0.41, 1e-5)


def test_the_moments_accountant_is_a_loose_bound() -> None:
    for rate, noise, steps in ((0.01, 1.0, 1000), (0.1, 4.0, 50), (1.0, 5.0, 1)):
        event = poisson_gaussian(rate, noise, steps)
        assert moments_accountant(rate, noise, steps, 1e-5, 512) >= epsilon(event, 1e-5, Adjacency.ADD_OR_REMOVE, "rdp")


def test_formulas() -> None:
    agem = claims.desai_dp_agem(0.85, 1.47, 1e-4, task=1, tasks=17)
    assert agem.epsilon == pytest.approx(0.85 + 16 * 1.47)
    assert claims.desai_dp_cl(0.85, 1.47, 1e-4, task=1, tasks=17).epsilon == pytest.approx(2.32)
    assert claims.desai_dp_cl(0.85, 1.47, 1e-4, task=1, tasks=10**6).epsilon == pytest.approx(2.32)
    gamma_x = 784 * (256 + 2) / 2500
    assert gamma_x == pytest.approx(80.9, abs=0.02)
    assert claims.lifelong(0.5, 0.5, 2.0, gamma_x).epsilon == pytest.approx(0.5 + 0.5 / gamma_x + 0.25 + 0.5)
    assert claims.lifelong(0.5, 0.5, 2.0).epsilon == pytest.approx(1.25)
    assert claims.task_wise([1.0, 0.5], [1e-5, 1e-6]).epsilon == 1.0
    recurring = claims.task_wise([0.7, 1.0, 0.5], [1e-5, 1e-6, 1e-6], tasks_per_unit=2)
    assert (recurring.epsilon, recurring.delta) == pytest.approx((1.7, 1.1e-5)) and recurring.source == "Thm 4.5"
    assert claims.task_wise([1.0, 0.5], [1e-5] * 2, tasks_per_unit=9).epsilon == pytest.approx(1.5)
    assert "DP-AGEM claims ε = 24.37, δ = 0.0001 (continual" in str(agem)
    for wrong in (0, 18):
        with pytest.raises(PlanError, match="task must be"):
            claims.desai_dp_agem(0.85, 1.47, 1e-4, task=wrong, tasks=17)
    with pytest.raises(PlanError):
        claims.task_wise([], [])
    with pytest.raises(PlanError, match="tasks_per_unit must be a whole number ≥ 1, got 0"):
        claims.task_wise([1.0], [1e-5], tasks_per_unit=0)
    with pytest.raises(PlanError):
        moments_accountant(0.0, 1.0, 1, 1e-5)


def test_a_claim_cannot_become_a_bound() -> None:
    claim = claims.desai_dp_cl(0.85, 1.47, 1e-4, task=1, tasks=17)
    assert isinstance(claim.adjacency, ClaimAdjacency) and not isinstance(claim.adjacency, Adjacency)
    assert not any(isinstance(getattr(claim, field.name), Adjacency) for field in fields(claim))
    assert not any(isinstance(value, Budget) for value in vars(claim).values())
    for adjacency in ClaimAdjacency:
        with pytest.raises(PlanError, match="adjacency"):
            epsilon(gaussian(1), 1e-5, adjacency)  # type: ignore[arg-type]
        with pytest.raises(PlanError, match="adjacency"):
            Budget(epsilon=1, delta=1e-5, adjacency=adjacency)  # type: ignore[arg-type]
    for adjacency in Adjacency:
        with pytest.raises(PlanError, match="ClaimAdjacency"):
            Claim(paper="", formula="", adjacency=adjacency, epsilon=1, delta=0, source="")  # type: ignore[arg-type]
        with pytest.raises(PlanError, match="ClaimAdjacency"):
            neighbours([], [], adjacency)  # type: ignore[arg-type]
    for bad in (-1.0, math.nan):
        with pytest.raises(PlanError):
            Claim(paper="", formula="", adjacency=ClaimAdjacency.STREAM, epsilon=bad, delta=0, source="")


C, S, L, T = ClaimAdjacency.CONTINUAL, ClaimAdjacency.STREAM, ClaimAdjacency.LIFELONG, ClaimAdjacency.TASK_WISE


@pytest.mark.parametrize(
    ("one", "other", "holds"),
    [
        ([[1, 2], [3]], [[1, 2], [3]], {C, S, L, T}),
        ([[1, 2], [3]], [[1, 2, 9], [3]], {C, S, L, T}),
        ([[1, 2], [3]], [[1], [3]], {C, S, L, T}),
        ([[1, 2], [3]], [[1, 9], [3]], {C, S, L}),  # exchanged: task-wise only adds or removes
        ([[1, 2], [3]], [[1, 9], [3, 8]], {L}),  # one in every task
        ([[1, 2], [3]], [[1], []], {L, T}),
        ([[1, 2], [3]], [[2, 1], [3]], {C, L, T}),  # order matters to a stream only
        ([[1, 2], [3]], [[3], [1, 2]], {C}),  # tasks exchanged
        ([[1, 1], [3]], [[1], [3]], {C, S, L, T}),  # multisets
        ([[1, 2], [3]], [[1, 2, 3]], {C, S}),  # another cut into tasks
        ([[1, 2, 4], [3]], [[1], [3]], set()),
        ([[]], [[]], {C, S, L, T}),
        ([[1, 2, 3]], [[2, 3, 4]], {C, L}),
    ],
)
def test_neighbours(one: list[list[int]], other: list[list[int]], holds: set[ClaimAdjacency]) -> None:
    assert {adjacency for adjacency in ClaimAdjacency if neighbours(one, other, adjacency)} == holds
    assert {adjacency for adjacency in ClaimAdjacency if neighbours(other, one, adjacency)} == holds


def test_continual_neighbours_can_differ_in_every_task() -> None:
    """Tobaben 2025, App. B, footnote 3: shift the tasks by one and add x* to the last.

    The unions differ by one sample, no task of the one is a neighbour of that task of the other, and a mechanism
    that gives every task ε = 1 (noisy sums of each D_t) loses far more between the two streams.
    """
    tasks, size = 10, 50
    stream = [[(task, k) for k in range(size)] for task in range(tasks)]
    shifted = [*stream[1:], [*stream[0], "x*"]]
    assert neighbours(stream, shifted, C)
    assert not neighbours(stream, shifted, S) and not neighbours(stream, shifted, L)
    assert not any(neighbours([a], [b], T) for a, b in zip(stream, shifted, strict=True))

    noise = gaussian_noise(Budget(epsilon=1.0, delta=1e-5))
    claimed = claims.task_wise([1.0] * tasks, [1e-5] * tasks)

    def sums(data: list[list[object]]) -> np.ndarray:
        """One unit-norm feature a sample (its task's direction): the exact sums of every task."""
        directions = np.eye(tasks + 1)
        return np.array([sum(directions[s[0] if s != "x*" else tasks] for s in task) for task in data])

    distance = float(np.linalg.norm(sums(stream) - sums(shifted)))  # type: ignore[arg-type]
    assert distance > size  # whole data sets apart, not one sample
    true_epsilon = epsilon(gaussian(noise / distance), 1e-5)  # two Gaussians that far apart: exact, for this pair
    assert true_epsilon > 1000 * claimed.epsilon
    # the control: a task-level pair costs what was claimed
    near = [[*stream[0], (0, "x*")], *stream[1:]]
    assert neighbours(stream, near, T)
    apart = float(np.linalg.norm(sums(stream) - sums(near)))  # type: ignore[arg-type]
    assert epsilon(gaussian(noise / apart), 1e-5) <= claimed.epsilon


@pytest.mark.parametrize("top", [1, 2, 3, 32, 300])
def test_the_moments_accountant_finds_the_best_order(top: int) -> None:
    """Without trying them all."""
    for rate, noise, steps in ((0.01, 1.0, 300), (0.5, 2.0, 3), (1.0, 20.0, 10), (1e-4, 8.0, 5000), (0.05, 80.0, 22)):
        every = [moments_accountant(rate, noise, steps, 1e-5, order) for order in range(1, top + 1)]
        direct = [
            (steps * (rdp.log_moment(rate, noise, k + 1) if rate < 1 else k * (k + 1) / (2 * noise**2)) + math.log(1e5))
            / k
            for k in range(1, top + 1)
        ]
        assert every[-1] == pytest.approx(min(direct), rel=1e-12) and every == sorted(every, reverse=True)
