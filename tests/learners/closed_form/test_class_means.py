"""Means of labels from noisy sums over tasks: disjoint or spread, the noise is what the formula says."""

import pytest
import torch
from torch import Tensor

from tacit.learners.closed_form.class_means import Means, class_means
from tacit.privacy.accounting import toeplitz

TASKS, LABELS, WIDTH, STD = 6, 12, 300, 4.0


def released(counts: Tensor, seed: int = 0, std: float = STD) -> tuple[Tensor, Tensor]:
    """Noisy sums of labels with these counts per (task, label), as the vault makes them; and the true directions."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.nn.functional.normalize(torch.randn(counts.shape[1], WIDTH, generator=generator), dim=1)
    z = std * torch.randn(TASKS, counts.shape[1], WIDTH, generator=generator, dtype=torch.float64)
    noise = torch.linalg.solve(mixing(), z.flatten(1)).view_as(z)
    return counts[:, :, None] * means + noise, means


def mixing(tasks: int = TASKS) -> Tensor:
    return torch.tensor(toeplitz.mixing(TASKS, tasks, 1), dtype=torch.float64)


def disjoint(size: float) -> Tensor:
    counts = torch.zeros(TASKS, LABELS)
    counts[torch.arange(LABELS) % TASKS, torch.arange(LABELS)] = size
    return counts


def angles(found: Means, means: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(found.rows, means.double())


def test_a_label_of_one_task_is_read_from_that_task_alone() -> None:
    """As well as if the task were known: signal ‖C e_t‖·n = ‖Ce_0‖·n over noise std, in every task."""
    sums, means = released(disjoint(100.0))
    found = class_means(sums, mixing(), STD)
    assert found.present.all()
    length = 100.0 * toeplitz.sensitivity(TASKS, 1)
    best = length / (length**2 + WIDTH * STD**2) ** 0.5
    assert float(angles(found, means).mean()) == pytest.approx(best, abs=0.01)
    plain = torch.nn.functional.cosine_similarity(sums.sum(0), means.double())
    assert float(angles(found, means).mean()) > float(plain.mean()) + 0.03


def test_a_label_of_all_tasks_is_read_from_their_sum() -> None:
    sums, means = released(torch.full((TASKS, LABELS), 25.0))
    found = class_means(sums, mixing(), STD)
    length = 25.0 * float((mixing() @ torch.ones(TASKS, dtype=torch.float64)).norm())
    best = length / (length**2 + WIDTH * STD**2) ** 0.5
    assert found.present.all()
    assert float(angles(found, means).mean()) == pytest.approx(best, abs=0.01)
    alone = torch.nn.functional.cosine_similarity(sums[0], means.double())
    assert float(angles(found, means).mean()) > float(alone.mean()) + 0.2


def test_a_label_of_some_tasks_is_read_from_those() -> None:
    counts = disjoint(100.0)
    counts[:, 0] = torch.tensor([0, 80.0, 0, 80, 0, 0])
    sums, means = released(counts)
    length = float((mixing() @ counts[:, 0].double()).norm())
    best = length / (length**2 + WIDTH * STD**2) ** 0.5
    assert float(angles(class_means(sums, mixing(), STD), means)[0]) > best - 0.02


def test_the_noise_of_a_row_is_what_it_says() -> None:
    """Rows are about unit vectors plus noise: ‖row‖² ≈ 1 + width · noise."""
    for counts in (disjoint(100.0), torch.full((TASKS, LABELS), 25.0)):
        sums, means = released(counts)
        found = class_means(sums, mixing(), STD)
        assert float(found.rows.square().sum(1).mean()) == pytest.approx(
            float((1 + WIDTH * found.noise).mean()), rel=0.1
        )
        error = (found.rows - means).square().sum(1) / (WIDTH * found.noise)
        assert float(error.mean()) == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_absent_labels_are_not_seen(seed: int) -> None:
    counts = disjoint(100.0)
    counts[:, 6:] = 0
    found = class_means(released(counts, seed)[0], mixing(), STD)
    assert found.present.tolist() == [True] * 6 + [False] * 6


def test_labels_too_weak_to_be_told_apart_are_all_seen_together() -> None:
    """Each label alone is lost in noise; that all of them are there is not."""
    sums, _ = released(torch.full((TASKS, LABELS), 5.0), std=3.0)
    assert class_means(sums, mixing(), 3.0).present.all()


def test_public_label_sets_are_used() -> None:
    counts = disjoint(15.0)
    sums, means = released(counts)
    told, untold = class_means(sums, mixing(), STD, counts > 0), class_means(sums, mixing(), STD)
    assert float(angles(told, means).mean()) > float(angles(untold, means).mean())
    nowhere = counts > 0
    nowhere[:, 3] = False
    assert not class_means(sums, mixing(), STD, nowhere).present[3]


def test_after_one_task_there_is_nothing_to_weigh() -> None:
    sums, means = released(disjoint(100.0))
    found = class_means(sums[:1], mixing(1), STD)
    assert found.present.tolist() == [label % TASKS == 0 for label in range(LABELS)]
    assert float(angles(found, means)[0]) > 0.7
