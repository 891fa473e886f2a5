"""The exit `vault.sums`: a noisy sum of features for each label.

Mechanism: each unit's (label × feature) matrix is scaled down to Frobenius norm ≤ clip; the matrices are added exactly,
and `release_once` adds Gaussian noise of standard deviation `plan.std · clip` to every coordinate.

Formal guarantees
  * Adding or removing one unit changes the exact sum by at most `plan.clip` in the Frobenius norm, after every
    rounding: each unit adds whole multiples of a public power of two.
  * The release costs each unit of the block `plan.event`. Every label of the set gets noise, also one that is absent.
  * Records with a non-finite feature or a label outside the set add nothing, and are not counted.

Conditions
  * The feature map treats each row by itself. It is tested on synthetic rows before the charge.
  * The label set, the feature map and the clipping norm are public, or chosen from released values.
  * In a series (a horizon other than 1) a unit is in at most `plan.participations` of its tasks. A plan that covers
    fewer than the stream allows a unit is refused.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.label_positions import positions
from tacit.data.stream import Label
from tacit.gradients.exact import ROOM, ExactSum
from tacit.gradients.rows import squares
from tacit.privacy.vault.exits import single_release
from tacit.privacy.vault.exits.access import Exit
from tacit.privacy.vault.exits.plans import SumPlan
from tacit.privacy.vault.intake.batches import batches, feature_count, kept_features
from tacit.privacy.vault.intake.blocks import Block, label_space
from tacit.privacy.vault.intake.fingerprint import described_map
from tacit.privacy.vault.intake.records import Records
from tacit.privacy.vault.intake.row_checks import check_map


class SumsExit(Exit):
    """`vault.sums(block, plan)`."""

    def __call__(
        self,
        block: Block,
        plan: SumPlan,
        *,
        labels: Sequence[Label] | None = None,
        by_label: bool = True,
        through: nn.Module | None = None,
    ) -> Tensor:
        """Releases the noisy sum of features of each label.

        Args:
            block: The block that is read.
            plan: Noise multiplier and clipping norm of one unit.
            labels: The labels to sum over; the block's own label set by default.
            by_label: Whether each label has a row of its own. If false, one row sums all records.
            through: A frozen feature map that is applied inside the vault.

        Returns:
            A tensor of shape (labels, features), or (1, features) if `by_label` is false.

        Raises:
            VaultError: If the block has no label set, its records are not held, or the feature map mixes rows.
            BudgetExceeded: If the charge does not fit in the block's budget.
        """
        records = self._access.records(block)
        space = label_space(block, labels) if by_label else ()
        check_map(records, through)
        return single_release.release_once(
            self._access,
            "sums",
            block,
            plan,
            lambda: label_sums(records, space, through, plan.clip, self._access.max_batch),
            shape=(max(1, len(space)), feature_count(records, through)),
            bound=plan.clip,
            detail={"labels": list(space), **described_map(through)},
        )


def label_sums(
    records: Records, labels: tuple[Label, ...], through: nn.Module | None, clip: float, max_batch: int
) -> ExactSum:
    """The exact sum over units of the unit's (label × feature) matrix, scaled down to Frobenius norm ≤ clip.

    Without labels, the matrix has one row for all records.
    """
    kinds = max(1, len(labels))
    size = feature_count(records, through)
    total = ExactSum(kinds * size, clip)
    view = total.flat.view(kinds, size)
    label_of = torch.from_numpy(positions(records.y, labels) if labels else np.zeros(len(records.y), dtype=np.int64))
    for index, group in batches(records, torch.arange(records.units), min(max_batch, ROOM)):
        rows = single_release.finite_rows(kept_features(records, index, through))
        label = label_of[index]
        inside = label >= 0
        rows, label, unit = rows[inside], label[inside], group[inside]
        if len(rows) == 0:
            continue
        unique, inverse = np.unique((unit * kinds + label).numpy(), return_inverse=True)
        cells, cell = torch.from_numpy(unique), torch.from_numpy(inverse)
        sums = torch.zeros(len(cells), size, dtype=torch.float64).index_add_(0, cell, rows)
        owner = cells // kinds
        norms = torch.zeros(int(group.max()) + 1, dtype=torch.float64).index_add_(0, owner, squares(sums))
        weight = single_release.clip_weights(norms.sqrt(), clip)[owner, None] / total.step
        total.reserve(len(norms))
        # Finite rows may add up to infinity: such a unit has weight 0, and 0 · ∞ would be NaN.
        view.index_add_(0, cells % kinds, torch.where(weight > 0, sums * weight, 0.0).round_())
    return total
