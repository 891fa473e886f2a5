"""Certified accuracy: records whose prediction no change within a radius can alter (PixelDP, Lecuyer et al. 2019).

The network has Gaussian noise of standard deviation σ after a first layer with Δ_{p,2} ≤ 1 (`models.noisy`). With
f_j(x) the expected score of label j, bounded from a number of draws, the prediction j holds within radius L if
E_lb(f_j) ≥ e^{2ε} max_{i≠j} E_ub(f_i) + (1 + e^ε) δ   (Proposition 2)
for some (ε, δ) that the noise gives at that radius: σ = √(2 ln(1.25/δ)) L/ε, ε ≤ 1. `radius` takes the best of them.
bound="smoothing" uses the noise's being Gaussian in full: L = σ/2 · (Φ⁻¹(E_lb) − Φ⁻¹(E_ub)) (Cohen et al. 2019; for
scores in [0, 1] Salman et al. 2019), which is never smaller. If several networks predict, f_j is the mean or the
maximum of their expected scores, which is as stable as each of them (`committee`).

The certificate of a record is right with probability at least 1 − `error` over the draws, whatever the other records
are: the bounds hold for both sides of all labels together, so the prediction may be chosen from the same draws. It is
about the expected scores (votes="soft": mean probabilities, bounded by Hoeffding; "hard": shares of votes, bounded by
Clopper–Pearson), which the learner's own predictions estimate from fewer draws.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor

from tacit.data.stream import TaskInfo
from tacit.errors import ConfigError
from tacit.learners.base.inference import answering
from tacit.learners.base.learner import Learner
from tacit.models.lipschitz import Norm, known_norm, within
from tacit.models.parts import whole
from tacit.robustness.attacks import ROWS
from tacit.robustness.committee import Committee, Member, committee

Array = NDArray[np.float64]
Votes = Literal["soft", "hard"]
Bound = Literal["pixeldp", "smoothing"]
DELTAS = tuple(np.geomspace(1e-8, 0.3, 200).tolist())
"""The values of δ that are tried. The formula of the noise is proved up to about 0.4."""


@dataclass(frozen=True, kw_only=True)
class CertifiedRadii:
    """The prediction and the certified radius of each record."""

    predicted: Tensor
    """The index of the label with the largest expected score."""
    radius: Tensor
    """No change up to this radius, in `norm`, alters the prediction; 0 if nothing is certified."""
    norm: Norm

    def accuracy(self, y: Tensor, radius: float) -> float:
        """The share of records that are classified correctly under every change within the radius."""
        robust = (self.predicted == y) & (self.radius > 0) & (self.radius >= radius)
        return float(robust.double().mean())


def why_not(learner: Learner, task: TaskInfo | None = None) -> str | None:
    """Why the learner's predictions (for a given task) cannot be certified; None if they can.

    Args:
        learner: The learner.
        task: The records' task, if it is given at test time.

    Returns:
        One sentence, or None.
    """
    members = committee(learner, task)
    return members if isinstance(members, str) else None


def certify(
    learner: Learner,
    x: Tensor,
    task: TaskInfo | None = None,
    *,
    norm: Norm = "linf",
    draws: int = 1000,
    error: float = 0.05,
    votes: Votes = "soft",
    bound: Bound = "pixeldp",
    seed: int = 0,
) -> CertifiedRadii:
    """Predict each record, and certify a radius within which the prediction holds.

    Args:
        learner: A learner whose networks have noise layers.
        x: The records.
        task: The records' task, if it is given at test time.
        norm: The norm of the radius.
        draws: The number of noise draws.
        error: For each record, the probability that its certificate is wrong.
        votes: "soft" (mean probabilities) or "hard" (shares of votes).
        bound: "pixeldp" or "smoothing".
        seed: The seed of the noise.

    Returns:
        The predictions, with a radius each.

    Raises:
        ConfigError: The learner cannot be certified, or an argument is out of range.
    """
    voters = committee(learner, task)
    if isinstance(voters, str):
        raise ConfigError(f"nothing can be certified: {voters}; the learner can still be attacked")
    _check(draws, error, votes, bound)
    known_norm(norm)
    with learner.seeded_randomness(seed), answering(learner.model_):
        parts = [_totals(member, x, learner.device, draws, votes) for member in voters.members]
    expected, low, high = _together(voters, parts, draws, error, votes)
    best = expected.argmax(1)
    lower, upper = _best_and_next(low, high, best)
    radius = torch.from_numpy(STABLE[bound](lower, upper) / _moved(voters, norm, math.prod(x.shape[1:])))
    return CertifiedRadii(predicted=voters.labels[torch.from_numpy(best)], radius=radius, norm=norm)


def largest_radius(
    learner: Learner,
    task: TaskInfo | None = None,
    *,
    norm: Norm = "linf",
    draws: int = 1000,
    error: float = 0.05,
    votes: Votes = "soft",
    bound: Bound = "pixeldp",
) -> float:
    """An upper bound of every radius that `certify` finds with these settings: that of a record for which one label has
    the whole score in all draws. It depends on the noise and the draws, not on weights or records.

    Raises:
        ConfigError: The learner cannot be certified, or an argument is out of range.
    """
    voters = committee(learner, task)
    if isinstance(voters, str):
        raise ConfigError(f"nothing can be certified: {voters}; the learner can still be attacked")
    _check(draws, error, votes, bound)
    sums = (draws * np.eye(1, len(member.labels)) for member in voters.members)
    sides = [bounds(total, draws, error / len(voters.members), votes) for total in sums]
    lower = np.array([max(float(low[0, 0]) for low, _ in sides)])
    upper = np.array([min(float(high[0, 1:].max(initial=0.0)) for _, high in sides)])
    stable = STABLE[bound](lower, upper)
    return float(stable[0]) / _moved(voters, known_norm(norm), math.prod(learner.stream_.shape))


def bounds(totals: Array, draws: int, error: float, votes: Votes) -> tuple[Array, Array]:
    """Lower and upper bounds of the expected scores, from their sums over draws, with shape (records, labels).

    All bounds of a record hold together with probability at least 1 − error.
    """
    each = error / (2 * totals.shape[1])
    if votes == "soft":
        reach = math.sqrt(math.log(1 / each) / (2 * draws))
        return np.clip(totals / draws - reach, 0, 1), np.clip(totals / draws + reach, 0, 1)
    low = np.where(totals > 0, stats.beta.ppf(each, np.maximum(totals, 1), draws - totals + 1), 0.0)
    high = np.where(totals < draws, stats.beta.isf(each, totals + 1, np.maximum(draws - totals, 1)), 1.0)
    return low, high


def pixeldp(lower: Array, upper: Array) -> Array:
    """The largest L/σ that Proposition 2 certifies over all (ε, δ), or 0.

    For each δ the condition is quadratic in t = e^ε: upper·t² + δt + δ − lower ≤ 0.
    """
    best = np.zeros_like(lower)
    denominator = np.maximum(upper, 1e-12)
    for delta in DELTAS:
        t = (np.sqrt(delta**2 + 4 * denominator * np.maximum(lower - delta, 0)) - delta) / (2 * denominator)
        epsilon = np.minimum(np.log(np.maximum(t, 1)), 1)
        best = np.maximum(best, epsilon / math.sqrt(2 * math.log(1.25 / delta)))
    return best


def smoothing(lower: Array, upper: Array) -> Array:
    """The largest L/σ by Gaussian smoothing, or 0."""
    radius = (special.ndtri(lower) - special.ndtri(upper)) / 2
    return np.asarray(np.maximum(np.nan_to_num(radius, nan=0.0, posinf=0.0), 0))


STABLE: Mapping[Bound, Callable[[Array, Array], Array]] = {"pixeldp": pixeldp, "smoothing": smoothing}


def _moved(voters: Committee, norm: Norm, size: int) -> float:
    """How far a change of length 1 in `norm` moves what the noise is added to, divided by σ; at most, of any member.

    A change of length r in `norm` has length at most r · within(…) in the layer's norm.
    """
    layers = [one.noise_layer for one in voters.members]
    return max(within(norm, layer.norm, size) / layer.std for layer in layers)


def _totals(member: Member, x: Tensor, device: str, draws: int, votes: Votes) -> Array:
    """The sums of a member's scores over draws, with shape (records, its labels)."""
    columns = member.labels.to(device)
    parts = [torch.zeros(0, len(columns), dtype=torch.float64)]
    with member.loaded():
        network = member.noise_layer
        for rows in torch.split(x, ROWS):
            total = torch.zeros(len(rows), len(columns), dtype=torch.float64, device=device)
            for logits in network.evaluations(rows.to(device), draws):
                if votes == "soft":
                    total += logits.double().softmax(1)[:, columns]
                else:
                    total.scatter_add_(1, logits[:, columns].argmax(1, keepdim=True), torch.ones_like(total[:, :1]))
            parts.append(total.cpu())
    return torch.cat(parts).numpy()


def _together(
    voters: Committee, totals: Sequence[Array], draws: int, error: float, votes: Votes
) -> tuple[Array, Array, Array]:
    """The committee's estimated scores, and lower and upper bounds, with shape (records, labels of any member).

    The bounds of all members hold together with probability at least 1 − error for each record.
    """
    member_bounds = [bounds(total, draws, error / len(totals), votes) for total in totals]
    known = voters.labels
    columns = [torch.searchsorted(known, member.labels).numpy() for member in voters.members]

    def combined(scores: Sequence[Array]) -> Array:
        aligned = np.zeros((len(scores), len(scores[0]), len(known)))
        for index, (member_scores, labels) in enumerate(zip(scores, columns, strict=True)):
            aligned[index][:, labels] = member_scores
        result: Array = aligned.mean(0) if voters.rule == "mean" else aligned.max(0)
        return result

    return (
        combined([total / draws for total in totals]),
        combined([b[0] for b in member_bounds]),
        combined([b[1] for b in member_bounds]),
    )


def _best_and_next(low: Array, high: Array, best: NDArray[np.intp]) -> tuple[Array, Array]:
    """The lower bound of the best label, and the largest upper bound of the others, or 0."""
    rows = np.arange(len(best))
    others = high.copy()
    others[rows, best] = 0.0
    return low[rows, best], others.max(1, initial=0.0)


def _check(draws: int, error: float, votes: str, bound: str) -> None:
    whole("draws", draws)
    if not 0 < error < 1:
        raise ConfigError(f"error must be between 0 and 1, got {error}; 0.05 is usual")
    if votes not in ("soft", "hard"):
        raise ConfigError(f"votes must be 'soft' or 'hard', got {votes!r}")
    if bound not in ("pixeldp", "smoothing"):
        raise ConfigError(f"bound must be 'pixeldp' or 'smoothing', got {bound!r}")
