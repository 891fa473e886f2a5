"""The exit `vault.accuracy`: the noisy accuracy of a released model on private records.

Mechanism: each unit contributes the share of its records that are classified correctly, a number in [0, 1]; the sum
gets Gaussian noise of standard deviation `plan.std`, and is divided by the public nominal size.

Formal guarantees
  * Adding or removing one unit changes the exact sum by at most 1; contributions are rounded down to a public grid.
  * The release costs each unit of the block `plan.event`.

Conditions: the predictor classifies each row by itself. It is tested on synthetic rows before the charge.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tacit.data.label_positions import positions
from tacit.gradients.exact import BITS, ROOM
from tacit.privacy.randomness.grid import ExactNumbers
from tacit.privacy.vault.exits import single_release
from tacit.privacy.vault.exits.access import Exit
from tacit.privacy.vault.exits.plans import SumPlan
from tacit.privacy.vault.intake.batches import batches
from tacit.privacy.vault.intake.blocks import Block, label_space
from tacit.privacy.vault.intake.fingerprint import fingerprint
from tacit.privacy.vault.intake.isolation import guarded, unchanged
from tacit.privacy.vault.intake.records import Records
from tacit.privacy.vault.intake.row_checks import check_predictor


class AccuracyExit(Exit):
    """`vault.accuracy(block, predict, plan)`."""

    def __call__(self, block: Block, predict: Callable[[Tensor], Tensor], plan: SumPlan) -> float:
        """Releases the noisy accuracy of a model on a block.

        Args:
            block: The block that is read.
            predict: A released model that maps a batch of features to label positions. Where it returns one score per
                label, the largest score counts.
            plan: The noise multiplier; `clip` is not used, since one unit counts at most 1.

        Returns:
            The noisy number of correct units divided by the public nominal size. It may lie outside [0, 1].

        Raises:
            VaultError: If the predictor mixes rows, is in training mode or has a noise layer, or if the block has no
                label set or its records are not held.
            BudgetExceeded: If the charge does not fit in the block's budget.
        """
        records = self._access.records(block)
        answer = check_predictor(records, predict)
        y = torch.from_numpy(positions(records.y, label_space(block)))

        def correct(index: Tensor) -> Tensor:
            return guarded(lambda: answer(records.features(index)).cpu() == y[index])

        def total_correct() -> ExactNumbers:
            with unchanged(predict):
                return sum_of_unit_means(records, correct, self._access.max_batch)

        total = single_release.release_once(
            self._access,
            "accuracy",
            block,
            plan,
            total_correct,
            shape=(1,),
            bound=1.0,
            detail={"predict": fingerprint(predict=predict)},
        )
        return float(total) / block.size


def sum_of_unit_means(records: Records, value: Callable[[Tensor], Tensor], max_batch: int) -> ExactNumbers:
    """The exact sum over units of the mean over the unit's records of a value in [0, 1]."""
    total, step = 0, 2.0**-BITS
    for index, group in batches(records, torch.arange(records.units), min(max_batch, ROOM)):
        values = torch.nan_to_num(value(index).double(), 0.0, 0.0, 0.0).clamp(0, 1)
        counts = torch.bincount(group).clamp(min=1).double()
        means = torch.zeros_like(counts).index_add_(0, group, values) / counts
        total += int((means.clamp_(max=1.0) / step).floor().sum())
    return ExactNumbers([total], step)
