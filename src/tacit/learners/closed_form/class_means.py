"""The mean features of each label, from noisy sums per (task, label): empirical Bayes with noise of known size.

The vault released Y_t = S_t + (noise correlated over tasks), S_t the sums of task t. Times `toeplitz.mixing` the noise
is white: X_o = C n_o m_oᵀ + Z for each label o, with n_o ≥ 0 the unknown numbers of its records in each task, m_o its
mean and Z ~ N(0, std²). That is one direction over tasks, u_o = C n_o / ‖C n_o‖, times one over features. Given u_o,
the best row is X_oᵀ u_o: signal ‖C n_o‖ m_o, noise `std`, whatever the number of tasks.

Which u_o? With a random direction of m_o the D columns of X_o are draws of N(0, std² (I + θ u uᵀ)), so log p(X_o | u,
θ) = −D/2 · log(1 + θ) + θ/(1 + θ) · uᵀX_oX_oᵀu / (2 std²). Candidates: the label is in one task (one candidate for
each), in all alike, spread as all labels together are, or as the label's own sums say it (n ≥ 0 that fits best, with a
penalty of ½(t − 1) log D for being fitted). A label that is absent has θ = 0. The weights of candidates and strengths
are those that all labels make likeliest (EM): where classes come one task at a time, single tasks win and a cell
without records costs nothing; where records are spread over all tasks, their sum does. Nothing is tuned, and all is
post-processing of what was released.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDS, POWER = 100, 40
WEAKEST = 0.005
"""The smallest θ of a label that counts as present."""
CLEAR = 5.0
"""Standard deviations √(2/D) of θ under noise alone, above which a label counts as present."""
FAINT = 0.1
"""A label that is not clear counts as absent if its θ is below this share of the strongest one: where all are weak
alike, records are spread thin; where others are strong, there are none."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """Estimated class means: rows of about unit norm plus noise."""

    rows: Tensor
    """(labels, features)."""
    noise: Tensor
    """Variance of the noise in every entry of a row, one value for each label."""
    present: Tensor
    """Mask of the labels estimated to be present; the other rows are undefined."""


def class_means(sums: Tensor, mixing: Tensor, std: float, support: Tensor | None = None) -> Means:
    """Estimate the class means from sums of shape (tasks, labels, features).

    `support` (tasks, labels) is the mask of each task's public label set, if it is known."""
    tasks, labels, width = sums.shape
    inside = torch.ones(tasks, labels, dtype=torch.bool) if support is None else support
    mix = mixing.double()
    white = torch.einsum("ij,jkd->kid", mix, sums.double()) / std
    gram = white @ white.transpose(1, 2)
    shapes, price = _candidates(gram, mix, inside.T, width)
    along = torch.einsum("kpi,kij,kpj->kp", shapes, gram, shapes)
    reachable = shapes.norm(dim=2) > 0
    nothing, by_shape, strength = _posterior(along, reachable, price, width)
    u = _unit(torch.einsum("kp,kpi->ki", by_shape, shapes))
    theta = (1 - nothing) * strength
    clear = theta >= CLEAR * math.sqrt(2 / width)
    present = clear | ((theta >= FAINT * theta.max()) & (theta > WEAKEST))
    length = (width * strength.clamp(min=WEAKEST)).sqrt()
    rows = torch.einsum("ki,kid->kd", u, white) / length[:, None]
    return Means(rows=rows, noise=length**-2, present=present & inside.any(0))


def _candidates(gram: Tensor, mix: Tensor, inside: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Unit directions over tasks, (labels, candidates, tasks), zero where impossible; and what each has to pay."""
    tasks = inside.shape[1]
    allowed = inside.double()
    single = torch.eye(tasks, dtype=torch.float64) * allowed[:, None]
    if tasks == 1:
        return _unit(single @ mix.T), torch.zeros(1, dtype=torch.float64)
    signal = gram - width * torch.eye(tasks, dtype=torch.float64)
    pooled = profile(signal.mean(0, keepdim=True), mix, allowed.any(0, keepdim=True).double(), width)
    separate = profile(signal, mix, allowed, width)
    counts = torch.cat([single, allowed[:, None], (pooled * allowed)[:, None], separate[:, None]], 1)
    price = torch.zeros(counts.shape[1], dtype=torch.float64)
    price[-1] = (tasks - 1) / 2 * math.log(width)
    return _unit(counts @ mix.T), price


def profile(signal: Tensor, mix: Tensor, allowed: Tensor, width: int) -> Tensor:
    """Numbers n ≥ 0 that make uᵀ·signal·u largest for u along C n: projected power iteration from two starts."""
    tasks = len(mix)
    # A shift by the reach of pure noise makes the largest eigenvalue the largest in size.
    shifted = signal + 2 * math.sqrt(width * tasks) * torch.eye(tasks, dtype=torch.float64)
    top, bottom = mix.T @ shifted @ mix, mix.T @ mix
    step = torch.linalg.solve(bottom, top)
    alone = torch.diagonal(top, dim1=1, dim2=2) / torch.diagonal(bottom)
    first = torch.nn.functional.one_hot((alone - 1e30 * (1 - allowed)).argmax(1), tasks).double()
    best, value = allowed, torch.full((len(signal),), -math.inf, dtype=torch.float64)
    for start in (allowed, first):
        n = start
        for _ in range(POWER):
            moved = torch.einsum("kij,kj->ki", step, n).clamp(min=0) * allowed
            size = moved.norm(dim=1, keepdim=True)
            n = torch.where(size > 0, moved / size.clamp(min=1e-300), n)
        quotient = torch.einsum("ki,kij,kj->k", n, top, n) / torch.einsum("ki,ij,kj->k", n, bottom, n).clamp(min=1e-12)
        best = torch.where((quotient > value)[:, None], n, best)
        value = torch.maximum(value, quotient)
    return best


def _posterior(along: Tensor, reachable: Tensor, price: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each label: the probability that it is absent, of each candidate, and the expected θ where it is there."""
    most = max(10.0, 2 * float(along.max()) / width)
    theta = torch.logspace(math.log10(2 * WEAKEST), math.log10(most), 50, dtype=torch.float64)
    likely = along[:, :, None] * (theta / (1 + theta)) / 2 - width / 2 * torch.log1p(theta) - price[:, None]
    likely = likely.masked_fill(~reachable[:, :, None], -math.inf).flatten(1)
    likely = torch.cat([torch.zeros(len(along), 1, dtype=torch.float64), likely], 1)
    weight = (likely - likely.amax(1, keepdim=True)).exp()
    share = torch.full((weight.shape[1],), 1 / weight.shape[1], dtype=torch.float64)
    for _ in range(ROUNDS):
        cells = weight * share
        cells = cells / cells.sum(1, keepdim=True)
        share = cells.mean(0)
    present = cells[:, 1:].reshape(*along.shape, len(theta))
    strength = (present.sum(1) * theta).sum(1) / present.sum((1, 2)).clamp(min=1e-12)
    return cells[:, 0], present.sum(2), strength


def _unit(rows: Tensor) -> Tensor:
    size = rows.norm(dim=-1, keepdim=True)
    return torch.where(size > 0, rows / size.clamp(min=1e-300), torch.zeros_like(rows))
