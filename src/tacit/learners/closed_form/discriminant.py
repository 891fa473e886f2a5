"""A linear classifier from noisy class means and a noisy second moment, regularised by the known noise alone.

Scores are m_oᵀAx/√(m_oᵀAm_o) with A = (G₊ + λI)⁻¹: the cosine in the metric of the released second moment G, its
eigenvalues clipped at 0. λ → ∞ is the cosine classifier, λ → 0 linear discriminant analysis. λ = c · (edge of the
spectrum of the noise in G), and c is found without data: fresh public noise η·E added to G and −E/η to a copy makes two
independent noisy versions of the same G (likewise of the means); one gives the classifier, the other its expected
squared margin over its variance, without bias. Of the c within one standard error, or a twentieth, of the best the
largest is taken: errors of many labels add up in the largest score.

Lengths m_oᵀAm_o are debiased for noise of known mean, and shrunk towards the mean of all labels according to their
uncertainty (normal empirical Bayes). Rows that are noisier than most are shrunk towards the overall mean.
"""

import math

import torch
from torch import Tensor

from tacit.learners.closed_form.class_means import Means
from tacit.learners.closed_form.noisy_moment import Moment, centred, eigen, symmetric

GRID = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 25.0, 100.0)
SPLITS, SPREAD = 4, 0.5
"""How many pairs of noisy copies, and η."""


def discriminant(means: Means, moment: Moment, seed: int) -> Tensor:
    """Weights, (labels, features); the rows of absent labels are 0."""
    out = torch.zeros_like(means.rows)
    here = means.present.nonzero().squeeze(1)
    if len(here) == 0:
        return out
    rows, noise = means.rows[here], means.noise[here]
    values, basis = eigen(moment.value)
    rows, left = _steadied(rows, noise, basis, _filter(values, 1.0, moment))
    c = _trust(rows, left, moment, seed)
    sharp = _filter(values, c, moment)
    along, raw = rows @ basis, means.rows[here] @ basis
    out[here] = (along * sharp) @ basis.T / _lengths(raw, noise, sharp)[:, None]
    return out


def _filter(values: Tensor, c: float, moment: Moment) -> Tensor:
    return 1 / (values.clamp(min=0) + c * moment.edge + moment.least)


def _trust(rows: Tensor, noise: Tensor, moment: Moment, seed: int) -> float:
    """The largest c whose margin is about as good as the best; the largest of all where none is sure."""
    generator = torch.Generator().manual_seed(seed)
    width, std = rows.shape[1], noise.sqrt()[:, None]
    margins, variances, errors = (torch.empty(SPLITS, len(GRID), dtype=torch.float64) for _ in range(3))
    judged = moment.std * math.sqrt(1 + SPREAD**-2)
    for split in range(SPLITS):
        e = moment.std * symmetric(width, generator)
        z = std * torch.randn(rows.shape, generator=generator, dtype=torch.float64)
        values, basis = eigen(moment.value + SPREAD * e)
        judge = moment.value - e / SPREAD
        fitted, held = centred(rows + SPREAD * z) @ basis, centred(rows - z / SPREAD) @ basis
        for place, c in enumerate(GRID):
            w = fitted * _filter(values, c, moment)
            turned = (w @ basis.T).float()
            margins[split, place] = (w * held).sum()
            variances[split, place] = ((turned @ judge) * turned).sum()
            square = w @ w.T if len(w) < width else w.T @ w
            errors[split, place] = judged * square.norm()  # of the variance, by the noise in `judge`
    sure = (variances.mean(0) > 2 * errors.mean(0)) & (margins.mean(0) > 2 * _error(margins))
    if not bool(sure.any()):
        return GRID[-1]
    ratios = margins.clamp(min=0).square() / variances.mean(0).clamp(min=1e-300)
    mean = torch.where(sure, ratios.mean(0), -torch.inf)
    best = int(mean.argmax())
    room = torch.maximum(_error(ratios - ratios[:, best : best + 1]), 0.05 * mean[best])
    return GRID[int((mean >= mean[best] - room).nonzero().max())]


def _error(found: Tensor) -> Tensor:
    """Standard error of the mean over splits."""
    return found.std(0) / math.sqrt(SPLITS)


def _steadied(rows: Tensor, noise: Tensor, basis: Tensor, sharp: Tensor) -> tuple[Tensor, Tensor]:
    """Shrinks noisy rows towards the overall mean; returns them and the noise that is left in them.

    Only rows with less than half of the median signal share are shrunk."""
    sure = 1 / noise
    centre = (rows * sure[:, None]).sum(0) / sure.sum()
    excess = ((rows - centre) @ basis).square() @ sharp - noise * sharp.sum()
    between = ((excess * sure).sum() / sure.sum()).clamp(min=1e-6 * float((centre @ basis).square() @ sharp))
    trust = between / (between + noise * sharp.sum())
    trust = (2 * trust / trust.median()).clamp(max=1)
    return centre + trust[:, None] * (rows - centre), trust.square() * noise


def _lengths(along: Tensor, noise: Tensor, sharp: Tensor) -> Tensor:
    """√(mᵀAm) of each label, debiased for noise and shrunk by its own uncertainty."""
    square = along.square() @ sharp - noise * sharp.sum()
    signal = (along.square() - noise[:, None]).clamp(min=0)
    variance = 2 * noise.square() * sharp.square().sum() + 4 * noise * (signal @ sharp.square())
    sure = variance.clamp(min=1e-12 * float(square.abs().max())).reciprocal()
    mean = ((square * sure).sum() / sure.sum()).clamp(min=1e-12)
    excess = (square - mean).square() - variance
    spread = ((excess * sure.square()).sum() / sure.square().sum()).clamp(min=0)  # one wild label says little
    trust = spread / (spread + variance).clamp(min=1e-300)
    return (mean + trust * (square - mean)).clamp(min=0.05 * float(mean)).sqrt()
