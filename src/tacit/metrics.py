"""Metrics of continual learning: pure functions of the accuracy matrix.

`a[t, j]` is the accuracy on task j after task t was learned, both counted from 0, and NaN where it was not measured; T
tasks make a T × T matrix. A metric that needs an accuracy that was not measured is NaN, and so is a mean over nothing
(forgetting and transfer need two tasks). Weights of tasks are 1 unless given: where the tasks' test sets are parts of
one test set, as in blurry scenarios, they are the numbers of test rows, so that A_T is the accuracy on the whole set,
with each class once; a task of weight 0 is left out. Accuracies are fractions; those of charged queries are noisy and
may lie outside [0, 1], and are not clipped. Names follow the papers; other libraries use some of them differently.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from tacit.errors import PlanError

Array = NDArray[np.float64]


def average_accuracy(a: ArrayLike, weights: ArrayLike | None = None) -> float:
    """A_T = (1/T) Σ_j a[T, j]: after the last task, the mean over all tasks (Chaudhry et al. 2018)."""
    matrix = _matrix(a)
    return _weighted(matrix[-1], _weights(weights, len(matrix)))


def forgetting(a: ArrayLike, weights: ArrayLike | None = None) -> float:
    """F_T = 1/(T−1) Σ_{j<T} (max_{l<T} a[l, j] − a[T, j]) (Chaudhry et al. 2018, Eq. 3); negative after improvement.

    The maximum is over all earlier rows that were measured. NaN for a single task.
    """
    drops = _drops(a)
    return _weighted(drops, _weights(weights, len(drops) + 1)[:-1])


def forgetting_by(a: ArrayLike, groups: Sequence[Sequence[int]]) -> list[float]:
    """The forgetting of each group of tasks, such as those of one learner of a pool, after the last task of the group.

    NaN for a group of one task.
    """
    matrix = _matrix(a)
    for group in groups:
        if not len(group) or not all(0 <= task < len(matrix) for task in group):
            raise PlanError(f"a group must contain tasks from 0 to {len(matrix) - 1}, got {list(group)}")
    return [forgetting(matrix[np.ix_(sorted(group), sorted(group))]) for group in groups]


def handover_drops(a: ArrayLike, groups: Sequence[Sequence[int]]) -> list[float]:
    """For each group of tasks after the first: the accuracy on the task before it minus that on its first task.

    Both accuracies are measured right after the task was learned.
    """
    newest = np.diag(_matrix(a))
    return [float(newest[min(group) - 1] - newest[min(group)]) for group in groups[1:]]


def worst_forgetting(a: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The largest forgetting of any task (A-GEM's worst-case forgetting). NaN for a single task."""
    drops = _drops(a)
    counted = drops[_weights(weights, len(drops) + 1)[:-1] > 0]
    return float(np.max(counted)) if len(counted) else math.nan


def backward_transfer(a: ArrayLike, weights: ArrayLike | None = None) -> float:
    """BWT = 1/(T−1) Σ_{j<T} (a[T, j] − a[j, j]) (Lopez-Paz & Ranzato 2017). NaN for a single task."""
    matrix = _matrix(a)
    return _weighted(matrix[-1, :-1] - np.diag(matrix)[:-1], _weights(weights, len(matrix))[:-1])


def forward_transfer(a: ArrayLike, baseline: ArrayLike, weights: ArrayLike | None = None) -> float:
    """FWT = 1/(T−1) Σ_{j≥2} (a[j−1, j] − b_j) (Lopez-Paz & Ranzato 2017). NaN for a single task.

    Args:
        a: The accuracy matrix.
        baseline: The accuracy b_j of the untrained model on each task; that of the first task is not used.
        weights: The weight of each task.
    """
    matrix, untrained = _matrix(a), _accuracies("baseline", baseline, 1)
    if len(untrained) != len(matrix):
        raise PlanError(f"baseline must have {len(matrix)} accuracies, one for each task, got {len(untrained)}")
    return _weighted(np.diag(matrix, 1) - untrained[1:], _weights(weights, len(matrix))[1:])


def lca_paper(curves: ArrayLike, beta: int = 10) -> float:
    """LCA_β as defined by A-GEM (Chaudhry et al. 2019, Def. 3): the mean of the β + 1 numbers Z_0 … Z_β.

    Args:
        curves: `curves[k, b]` is the accuracy on task k after b of its mini-batches; Z_b is the mean over tasks.
        beta: The last mini-batch.
    """
    return _mean(_learning_curve(curves, beta))


def lca_trapezium(curves: ArrayLike, beta: int = 10) -> float:
    """LCA_β as the authors' notebook computes it: the area under Z_0 … Z_β by the trapezoidal rule, divided by β."""
    z = _learning_curve(curves, beta)
    if beta == 0:
        raise PlanError("the area under a curve needs beta >= 1, got 0; use lca_paper, which is Z_0 there")
    return float(np.sum((z[1:] + z[:-1]) / 2)) / beta


def a_auc(accuracies: ArrayLike) -> float:
    """A_AUC of i-Blurry (Koh et al. 2022): the mean of accuracies measured every fixed number of samples."""
    return _mean(_accuracies("accuracies", accuracies, 1))


def average_curve(a: ArrayLike, weights: ArrayLike | None = None) -> list[float]:
    """A_1 … A_T: after each task, the mean accuracy over the tasks learned so far; NaN before the first one counts."""
    matrix = _matrix(a)
    each = _weights(weights, len(matrix))
    return [_weighted(matrix[t, : t + 1], each[: t + 1]) for t in range(len(matrix))]


def p_curve(a: ArrayLike, b: ArrayLike) -> list[float]:
    """p values of two-tailed paired t-tests over (A_1 … A_τ) of two runs, for τ = 2 … T (Lai et al. 2022, Section 6).

    These are not evidence by themselves: A_1 … A_τ share tasks and come from one training run, so they are not
    independent samples, and p falls with τ for any lasting difference. `p_seeds` compares independent runs.
    """
    first, second = _accuracies("a curve", a, 1), _accuracies("a curve", b, 1)
    if len(first) != len(second) or len(first) < 2:
        raise PlanError(f"the two curves must have the same length, at least 2, got {len(first)} and {len(second)}")
    return [_paired_t_test(first[:tau] - second[:tau]) for tau in range(2, len(first) + 1)]


def p_seeds(a: ArrayLike, b: ArrayLike) -> float:
    """The p value of a two-tailed paired t-test over seeds; NaN for a single seed.

    The test is paired because a seed gives both runs the same permutations, class orders and initial weights. Seeds
    are independent samples; few seeds reveal only large effects.

    Args:
        a: One number for each seed.
        b: The same of the other run, in the same order of seeds.
    """
    first, second = _accuracies("the values of the seeds", a, 1), _accuracies("the values of the seeds", b, 1)
    if len(first) != len(second):
        raise PlanError(f"a test paired by seed needs the same seeds twice, got {len(first)} and {len(second)}")
    return _paired_t_test(first - second)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean and sample standard deviation (n − 1) over seeds."""

    mean: float
    std: float
    """NaN for a single seed."""
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if math.isnan(self.std) else f"{self.mean:.3f} ± {self.std:.3f}"


def summarise(values: Sequence[float]) -> Summary:
    """The mean and standard deviation of one number per seed; NaN if it is NaN for any seed."""
    numbers = np.asarray(values, float)
    if numbers.ndim != 1 or not len(numbers):
        raise PlanError(f"summarise needs one number per seed, got an array of shape {numbers.shape}")
    std = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else math.nan
    return Summary(mean=_mean(numbers), std=std, seeds=len(numbers))


def _drops(a: ArrayLike) -> Array:
    """max_{l<T} a[l, j] − a[T, j] for every task j before the last."""
    matrix = _matrix(a)
    earlier = matrix[:-1, :-1]
    best = np.max(np.where(np.isnan(earlier), -np.inf, earlier), axis=0, initial=-np.inf)
    return np.where(np.isinf(best), np.nan, best) - matrix[-1, :-1]


def _learning_curve(curves: ArrayLike, beta: int) -> Array:
    """Z_0 … Z_β."""
    checked = _accuracies("curves", curves, 2)
    last = checked.shape[1] - 1
    if isinstance(beta, bool) or not isinstance(beta, int) or not 0 <= beta <= last:
        raise PlanError(f"beta must be a whole number from 0 to {last}, the mini-batches measured, got {beta!r}")
    return np.asarray(np.mean(checked[:, : beta + 1], axis=0))


def _matrix(a: ArrayLike) -> Array:
    matrix = _accuracies("the accuracy matrix", a, 2)
    if matrix.shape[0] != matrix.shape[1]:
        raise PlanError(f"the accuracy matrix must be square, one row and column for each task, got {matrix.shape}")
    return matrix


def _accuracies(name: str, values: ArrayLike, dimensions: int) -> Array:
    try:
        accuracies = np.asarray(values, float)
    except (TypeError, ValueError):
        raise PlanError(f"{name} must be numbers in {dimensions} dimension(s), got something else") from None
    if accuracies.ndim != dimensions or not accuracies.size:
        raise PlanError(f"{name} must have {dimensions} dimension(s) and not be empty, got shape {accuracies.shape}")
    return accuracies


def _weights(weights: ArrayLike | None, tasks: int) -> Array:
    if weights is None:
        return np.ones(tasks)
    given = _accuracies("weights", weights, 1)
    if len(given) != tasks or not (given >= 0).all():
        raise PlanError(f"weights must be {tasks} numbers ≥ 0, one for each task, got {given.tolist()}")
    return given


def _weighted(values: Array, weights: Array) -> float:
    """The weighted mean of the values whose weight is not 0; NaN if there is none."""
    used = weights > 0
    return _mean(weights[used] * values[used]) / _mean(weights[used]) if used.any() else math.nan


def _mean(values: Array) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _paired_t_test(differences: Array) -> float:
    """The two-tailed p value of mean 0. Without variance: 1 if all differences are 0, otherwise 0."""
    n = len(differences)
    if n < 2 or np.isnan(differences).any():
        return math.nan
    mean, spread = float(np.mean(differences)), float(np.std(differences, ddof=1))
    if spread == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * special.stdtr(n - 1, -abs(mean) / (spread / math.sqrt(n))))
