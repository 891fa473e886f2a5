"""The minimum of noisy objectives: exact without noise, careful with it, and borrowing only where tasks agree."""

import math

import pytest
import torch
from torch import Tensor

from tacit.learners.closed_form import ridge
from tacit.learners.closed_form.noisy_moment import Moment, packed, symmetric, unpacked
from tacit.learners.closed_form.ridge import Objective, minimum
from tacit.learners.closed_form.routing import Router

WIDTH, LABELS = 30, 4


def world(turn: int = 0, n: int = 3000) -> tuple[Tensor, Tensor]:
    """Unit features of some labels; `turn`: another task, with other means."""
    g = torch.Generator().manual_seed(turn)
    means = torch.randn(LABELS, WIDTH, generator=g)
    y = torch.randint(0, LABELS, (n,), generator=g)
    loud = torch.linspace(2, 0.3, WIDTH)
    return torch.nn.functional.normalize(means[y] + loud * torch.randn(n, WIDTH, generator=g), dim=1), y


def objective(x: Tensor, y: Tensor, std: float = 0.0, seed: int = 0) -> Objective:
    g = torch.Generator().manual_seed(7000 + seed)
    hot = torch.nn.functional.one_hot(y, LABELS).float()
    return Objective(
        sums=hot.T @ x + std * torch.randn(LABELS, WIDTH, generator=g),
        std=torch.full((LABELS,), std),
        moment=Moment(value=x.T @ x + std * symmetric(WIDTH, g), std=std, records=float(len(x))),
    )


def right(weights: Tensor, x: Tensor, y: Tensor) -> float:
    return float(((x @ weights.T).argmax(1) == y).float().mean())


def test_without_noise_it_is_the_ridge_solution() -> None:
    x, y = world()
    clean = objective(x, y)
    exact = torch.linalg.solve(clean.moment.value + clean.moment.least * torch.eye(WIDTH), clean.sums.T).T
    assert torch.allclose(minimum(clean, None, 0), exact, atol=1e-4)


@pytest.mark.parametrize("epochs", [1, 7, 50])
def test_epochs_are_steps_of_gradient_descent(epochs: int) -> None:
    x, y = world()
    clean = objective(x, y)
    a = clean.moment.value + clean.moment.least * torch.eye(WIDTH)
    step = 1 / torch.linalg.eigvalsh(a).max()
    w = torch.zeros(LABELS, WIDTH)
    for _ in range(epochs):
        w = w - step * (w @ a - clean.sums)
    assert torch.allclose(minimum(clean, None, 0, epochs), w, atol=1e-4)


def test_the_estimated_objective_is_unbiased() -> None:
    """Over noise, the judge's value of what the other copy fitted is the true objective there; a judge that shares the
    fit's noise flatters it."""
    x, y = world()
    clean = objective(x, y)
    gaps, flattered = [], []
    for seed in range(300):
        noisy = objective(x, y, 40.0, seed)
        fitted, judge = noisy.copies(torch.Generator().manual_seed(1000 + seed))
        (w,) = ridge._path(fitted, (0.3,), None)
        gaps.append(judge.at(w) - clean.at(w))
        flattered.append(noisy.at(w) - clean.at(w))
    for values, honest in ((gaps, True), (flattered, False)):
        found = torch.tensor(values)
        assert (abs(float(found.mean())) < 4 * float(found.std()) / math.sqrt(300)) == honest


@pytest.mark.parametrize("std", [5.0, 20.0, 60.0])
def test_the_strength_it_chooses_is_near_the_best(std: float) -> None:
    x, y = world()
    tx, ty = x[:1000], y[:1000]
    x, y = x[1000:], y[1000:]
    lost = []
    for seed in range(6):
        noisy = objective(x, y, std, seed)
        tried = [right(w.float(), tx, ty) for w in ridge._path(noisy, ridge.TRUST, None)]
        lost.append(max(tried) - right(minimum(noisy, None, seed), tx, ty))
    assert sum(lost) / len(lost) < 0.03


def test_it_borrows_from_a_task_that_is_alike_and_not_from_another() -> None:
    """A few records under much noise, six times."""
    x, y = world()
    found = []
    for seed in range(6):
        few, alike = objective(x[:60], y[:60], 30.0, seed), objective(x[60:2000], y[60:2000], 30.0, 100 + seed)
        other = objective(*world(turn=5), 30.0, 200 + seed)
        found.append([right(minimum(few, others, 0), x[2000:], y[2000:]) for others in (None, alike, other)])
    alone, helped, misled = torch.tensor(found).mean(0).tolist()
    assert helped > alone + 0.3 and misled > alone - 0.05


def test_kinship_is_by_what_tasks_have_in_common_and_by_what_is_known() -> None:
    x, y = world()
    much, more, other = (
        objective(*of, 10.0, seed) for seed, of in enumerate([(x[:900], y[:900]), (x[900:], y[900:]), world(5)])
    )
    assert ridge.kinship(much, more) > 5 * ridge.kinship(much, other)
    assert ridge.kinship(objective(x[:900], y[:900], 100.0), more) > ridge.kinship(much, more)
    nobody = Objective(sums=torch.zeros(LABELS, WIDTH), std=torch.zeros(LABELS), moment=more.moment)
    assert ridge.kinship(much, nobody) == 0


def test_sums_and_differences_keep_the_noise_right() -> None:
    x, y = world()
    one, two = objective(x, y, 3.0, 1), objective(x, y, 4.0, 2)
    both = one.plus(two, 1.0)
    assert both.moment.std == pytest.approx(5) and both.std.tolist() == pytest.approx([5.0] * LABELS)
    back = both.less(two)
    assert torch.allclose(back.sums, one.sums, atol=1e-3) and back.moment.std == pytest.approx(3)
    assert back.moment.records == one.moment.records


@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 1e-6), (torch.float16, 2e-3)])
def test_it_comes_back_from_what_is_stored(dtype: torch.dtype, off: float) -> None:
    x, y = world()
    one = objective(x, y, 3.0)
    again = Objective.of(one.tensors(dtype))
    assert float((again.moment.value - one.moment.value).abs().max()) <= off * one.moment.records
    assert (again.moment.std, again.moment.records) == (one.moment.std, one.moment.records)
    matrix = one.moment.value
    assert torch.equal(unpacked(packed(matrix), WIDTH), (matrix + matrix.T) / 2)


def test_the_router_tells_tasks_apart_and_halves_what_is_alike() -> None:
    std, router, total = 4.0, Router(), None
    tasks = [world(turn=turn) for turn in (1, 2, 2)]
    for seed, (x, y) in enumerate(tasks):
        one = objective(x[:2000], y[:2000], std, seed)
        router.add(one.sums, std, one.moment.records)
        total = one if total is None else total.plus(one, 1.0)
    assert total is not None
    trust = [router.trust(x[2000:], total.moment) for x, _ in tasks]
    assert float((trust[0].argmax(1) == 0).float().mean()) > 0.85
    alike = trust[1]
    assert float((alike.argmax(1) > 0).float().mean()) > 0.85
    assert float(alike[:, 1].mean()) == pytest.approx(float(alike[:, 2].mean()), abs=0.15)
    again = Router.of(router.tensors())
    assert torch.equal(again.trust(tasks[0][0], total.moment), router.trust(tasks[0][0], total.moment))
