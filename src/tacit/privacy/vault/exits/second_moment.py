"""The exit `vault.second_moment`: a noisy second-moment matrix of features.

Mechanism: each unit's Σφφᵀ is scaled down to Frobenius norm ≤ clip²; the matrices are added exactly. With
s = plan.std · clip², the diagonal gets Gaussian noise of standard deviation s and every entry above it s/√2; the
released matrix is symmetric.

Formal guarantees
  * Adding or removing one unit changes the exact matrix by at most clip² in the Frobenius norm, after every rounding.
    An entry above the diagonal stands for two entries of the matrix, so it counts twice in the squared norm.
  * The release costs each unit of the block `plan.event`.
  * Records with a non-finite feature add nothing, and are not counted.

Conditions
  * The feature map treats each row by itself. It is tested on synthetic rows before the charge.
  * The feature map and the clipping norm are public, or chosen from released values.
  * In a series (a horizon other than 1) a unit is in at most `plan.participations` of its tasks. A plan that covers
    fewer than the stream allows a unit is refused.
"""

import math

import torch
from torch import Tensor, nn

from tacit.gradients.exact import FACTOR_BITS, ROOM, ExactSum
from tacit.gradients.rows import AT_A_TIME, squares
from tacit.privacy.vault.exits import single_release
from tacit.privacy.vault.exits.access import Exit
from tacit.privacy.vault.exits.plans import SumPlan
from tacit.privacy.vault.intake.batches import batches, feature_count, kept_features
from tacit.privacy.vault.intake.blocks import Block
from tacit.privacy.vault.intake.fingerprint import described_map
from tacit.privacy.vault.intake.records import Records
from tacit.privacy.vault.intake.row_checks import check_map


class SecondMomentExit(Exit):
    """`vault.second_moment(block, plan)`."""

    def __call__(self, block: Block, plan: SumPlan, *, through: nn.Module | None = None) -> Tensor:
        """Releases the noisy second-moment matrix Σφφᵀ of the features.

        Args:
            block: The block that is read.
            plan: Noise multiplier, and the clipping norm: a unit's Σφφᵀ is scaled to Frobenius norm ≤ clip².
            through: A frozen feature map that is applied inside the vault.

        Returns:
            A symmetric matrix of shape (features, features).

        Raises:
            VaultError: If the block's records are not held, or the feature map mixes rows.
            BudgetExceeded: If the charge does not fit in the block's budget.
        """
        records = self._access.records(block)
        check_map(records, through)
        size = feature_count(records, through)
        above = size * (size - 1) // 2
        noisy = single_release.release_once(
            self._access,
            "second moment",
            block,
            plan,
            lambda: second_moment(records, through, plan.clip, self._access.max_batch),
            shape=(size + above,),
            bound=plan.clip**2,
            detail=described_map(through),
            quieter=above,
        )
        row, column = torch.triu_indices(size, size, 1)
        out = torch.diag(noisy[:size])
        out[row, column] = noisy[size:]
        out[column, row] = noisy[size:]
        return out


def second_moment(records: Records, through: nn.Module | None, clip: float, max_batch: int) -> ExactSum:
    """The exact sum over units of Σφφᵀ, scaled down to Frobenius norm ≤ clip²: the diagonal, then the entries above it.

    Scaled rows √w·φ are rounded towards zero to multiples of a power of two, `cut`, and their products are added
    exactly. A rounded row is shorter, so a unit of one record keeps its bound. With m records per unit, cross terms may
    cancel less after the rounding, by at most 2·√d·cut·Σ√w‖φ‖ + m·d·cut² in the Frobenius norm. The unit is scaled
    down for it, with 2·m·d·cut² in the last term to cover the rounding of this bound itself.
    """
    size = feature_count(records, through)
    total = ExactSum(size * size, clip * clip)
    cut = math.ldexp(1.0, math.ceil(math.log2(clip)) - FACTOR_BITS)
    view = total.flat.view(size, size)
    for index, group in batches(records, torch.arange(records.units), min(max_batch, ROOM)):
        rows = single_release.finite_rows(kept_features(records, index, through))
        if len(group) == 0:
            continue
        norms = squares(rows)
        if not records.single:
            norms = _unit_norms(rows, norms, group, clip, cut)
        weight = single_release.clip_weights(norms, clip * clip).unsqueeze(1)
        scaled = torch.where(weight > 0, rows * weight.sqrt() / cut, 0.0)
        for whole in torch.split(scaled.to(torch.int64).double(), AT_A_TIME):  # the conversion rounds towards zero
            total.reserve(len(whole))
            torch.addmm(view, whole.t(), whole * (cut * cut / total.step), out=view)
    total.rearrange(_triangle(size))
    return total


def _unit_norms(rows: Tensor, lengths: Tensor, group: Tensor, clip: float, cut: float) -> Tensor:
    """For each record, the norm by which its unit is scaled: ‖Σφφᵀ‖² = Σ (φᵢ·φⱼ)², with a margin for the rounding."""
    norms = torch.empty_like(lengths)
    size = rows.shape[1]
    for unit in range(int(group[-1]) + 1):
        mine = group == unit
        own, squared = rows[mine], lengths[mine]
        if len(own) == 0:
            continue
        rounding = (size + len(own) + 8) * 2.0**-51 * float(squared.sum())
        norm = float((own @ own.T).square().sum().sqrt()) + rounding
        if not math.isfinite(norm):
            norms[mine] = math.inf
            continue
        shrunk = min(1.0, clip / math.sqrt(norm)) if norm > 0 else 1.0
        moved = 2 * math.sqrt(size) * cut * shrunk * float(squared.sqrt().sum()) + 2 * len(own) * size * cut * cut
        share = 1 / (1 + moved / clip**2)
        norms[mine] = clip**2 / (shrunk * share) ** 2 if share >= 0.5 else math.inf
    return norms


def _triangle(size: int) -> Tensor:
    """Positions of the diagonal, and then of the entries above it, in a flattened square matrix."""
    row, column = torch.triu_indices(size, size, 1)
    return torch.cat([torch.arange(size) * (size + 1), row * size + column])
