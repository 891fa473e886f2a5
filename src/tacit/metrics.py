"""What a run is judged by: pure functions of the accuracy matrix.

`a[t, j]` is the accuracy on task j after task t was learned, both counted from 0, NaN where it was not measured; T
tasks make a T × T matrix. A number that needs an accuracy nobody measured is NaN, never a guess; so is a mean over
nothing (forgetting and transfer need two tasks). Accuracies are shares; one from a charged query is noisy and may lie
outside 0 to 1, so it is taken as it is. The names are those of the papers: other libraries mean other things by them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from tacit.errors import PlanError

Array = NDArray[np.float64]


def average_accuracy(a: ArrayLike) -> float:
    """A_T = (1/T) Σ_j a[T, j]: after the last task, the mean over all tasks (Chaudhry et al. 2018)."""
    return _mean(_matrix(a)[-1])


def forgetting(a: ArrayLike) -> float:
    """F_T = 1/(T−1) Σ_{j<T} (max_{l<T} a[l, j] − a[T, j]) (Chaudhry et al. 2018, Eq. 3); negative where it got better.

    The maximum is over every earlier row that was measured. NaN for a single task.
    """
    return _mean(_drops(a))


def forgetting_by(a: ArrayLike, groups: Sequence[Sequence[int]]) -> list[float]:
    """Forgetting of each group of tasks by itself, such as those of one learner of several: `forgetting` on its own
    rows and columns, that is after the last of them. NaN for a group of one task."""
    matrix = _matrix(a)
    for own in groups:
        if not len(own) or not all(0 <= task < len(matrix) for task in own):
            raise PlanError(f"a group names one or more of the tasks 0 to {len(matrix) - 1}, got {list(own)}")
    return [forgetting(matrix[np.ix_(sorted(own), sorted(own))]) for own in groups]


def handover_drops(a: ArrayLike, groups: Sequence[Sequence[int]]) -> list[float]:
    """Of each group after the first, such as the tasks of the next learner: how far the accuracy on its first task,
    right after that was learnt, is below that of the task before. Negative where it is above."""
    newest = np.diag(_matrix(a))
    return [float(newest[min(own) - 1] - newest[min(own)]) for own in groups[1:]]


def worst_forgetting(a: ArrayLike) -> float:
    """The largest drop of any task, the bracket of `forgetting` (A-GEM's worst-case forgetting). NaN for one task."""
    drops = _drops(a)
    return float(np.max(drops)) if len(drops) else math.nan


def backward_transfer(a: ArrayLike) -> float:
    """BWT = 1/(T−1) Σ_{j<T} (a[T, j] − a[j, j]) (Lopez-Paz & Ranzato 2017). NaN for a single task."""
    matrix = _matrix(a)
    return _mean(matrix[-1, :-1] - np.diag(matrix)[:-1])


def forward_transfer(a: ArrayLike, baseline: ArrayLike) -> float:
    """FWT = 1/(T−1) Σ_{j≥2} (a[j−1, j] − b_j) (Lopez-Paz & Ranzato 2017). NaN for a single task.

    `baseline`: the accuracy b_j of the untrained model on every task; that of the first task is not used.
    """
    matrix, untrained = _matrix(a), _accuracies("baseline", baseline, 1)
    if len(untrained) != len(matrix):
        raise PlanError(f"baseline must have one accuracy a task, {len(matrix)}, got {len(untrained)}")
    return _mean(np.diag(matrix, 1) - untrained[1:])


def lca_paper(curves: ArrayLike, beta: int = 10) -> float:
    """LCA_β as A-GEM (Chaudhry et al. 2019, Def. 3) prints it: the mean of Z_0 … Z_β, that is of β + 1 numbers.

    `curves[k, b]`: accuracy on task k after b of its mini-batches, b = 0 before any. Z_b is the mean over tasks.
    """
    return _mean(_learning_curve(curves, beta))


def lca_trapezium(curves: ArrayLike, beta: int = 10) -> float:
    """LCA_β as the authors' notebook computes it: the area under Z_0 … Z_β by trapezia, over β."""
    z = _learning_curve(curves, beta)
    if beta == 0:
        raise PlanError("the area under a curve needs beta >= 1, got 0; use lca_paper, which is Z_0 there")
    return float(np.sum((z[1:] + z[:-1]) / 2)) / beta


def a_auc(accuracies: ArrayLike) -> float:
    """A_AUC of i-Blurry (Koh et al. 2022): the mean of accuracies taken every fixed number of samples."""
    return _mean(_accuracies("accuracies", accuracies, 1))


def average_curve(a: ArrayLike) -> list[float]:
    """A_1 … A_T: after each task, the mean over the tasks learnt by then."""
    matrix = _matrix(a)
    return [_mean(matrix[t, : t + 1]) for t in range(len(matrix))]


def p_curve(a: ArrayLike, b: ArrayLike) -> list[float]:
    """For each τ = 2 … T, the p value of a two-tailed paired t-test over (A_1 … A_τ) of two runs' average-accuracy
    curves, as Lai et al. 2022 print it (Section 6, Figs. 5 and 6).

    Not evidence by itself: A_1 … A_τ share tasks and come from one training run, so they are not independent samples,
    and the p value falls with τ for any difference that lasts. `p_seeds` tests over runs that are independent.
    """
    one, other = _accuracies("a curve", a, 1), _accuracies("a curve", b, 1)
    if len(one) != len(other) or len(one) < 2:
        raise PlanError(f"two curves over the same two tasks or more are compared, got {len(one)} and {len(other)}")
    return [_paired(one[:tau] - other[:tau]) for tau in range(2, len(one) + 1)]


def p_seeds(a: ArrayLike, b: ArrayLike) -> float:
    """The p value of a two-tailed t-test over seeds, one number a seed in the same order. NaN for one seed.

    Paired by seed and not Welch's: a seed gives both runs the same permutations, class orders and initial weights, and
    the differences are free of what these share. Seeds are independent samples; few of them see large effects only.
    """
    one, other = _accuracies("one number a seed", a, 1), _accuracies("one number a seed", b, 1)
    if len(one) != len(other):
        raise PlanError(f"a test that is paired by seed needs the same seeds twice, got {len(one)} and {len(other)}")
    return _paired(one - other)


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
    """One number a seed → their mean and spread. A seed without the number (NaN) leaves none for all."""
    found = np.asarray(values, float)
    if found.ndim != 1 or not len(found):
        raise PlanError(f"summarise needs one number a seed, got an array of shape {found.shape}")
    std = float(np.std(found, ddof=1)) if len(found) > 1 else math.nan
    return Summary(mean=_mean(found), std=std, seeds=len(found))


def _drops(a: ArrayLike) -> Array:
    """max_{l<T} a[l, j] − a[T, j] for every task j before the last."""
    matrix = _matrix(a)
    earlier = matrix[:-1, :-1]
    best = np.max(np.where(np.isnan(earlier), -np.inf, earlier), axis=0, initial=-np.inf)
    return np.where(np.isinf(best), np.nan, best) - matrix[-1, :-1]


def _learning_curve(curves: ArrayLike, beta: int) -> Array:
    """Z_0 … Z_β."""
    found = _accuracies("curves", curves, 2)
    if isinstance(beta, bool) or not isinstance(beta, int) or not 0 <= beta < found.shape[1]:
        raise PlanError(
            f"beta must be a whole number from 0 to {found.shape[1] - 1}, the mini-batches measured, got {beta!r}"
        )
    return np.asarray(np.mean(found[:, : beta + 1], axis=0))


def _matrix(a: ArrayLike) -> Array:
    found = _accuracies("the accuracy matrix", a, 2)
    if found.shape[0] != found.shape[1]:
        raise PlanError(f"the accuracy matrix must be square, a row and a column for every task, got {found.shape}")
    return found


def _accuracies(name: str, values: ArrayLike, dimensions: int) -> Array:
    try:
        found = np.asarray(values, float)
    except (TypeError, ValueError):
        raise PlanError(f"{name} must be numbers in {dimensions} dimension(s), got something else") from None
    if found.ndim != dimensions or not found.size:
        raise PlanError(f"{name} must have {dimensions} dimension(s) and not be empty, got shape {found.shape}")
    return found


def _mean(values: Array) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _paired(differences: Array) -> float:
    """Two-tailed, of mean 0. Without spread: 1 where nothing differs, 0 where all differ by the same."""
    n = len(differences)
    if n < 2 or np.isnan(differences).any():
        return math.nan
    mean, spread = float(np.mean(differences)), float(np.std(differences, ddof=1))
    if spread == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * special.stdtr(n - 1, -abs(mean) / (spread / math.sqrt(n))))
