"""The exit `vault.label_set`: the labels whose noisy count reaches a public threshold.

Mechanism: a unit with m labels (at most `labels_per_unit`; the rest are skipped) adds 1/√m to the count of each, so its
contribution has Euclidean norm at most 1. Each count gets Gaussian noise of standard deviation `plan.std`.

Formal guarantees
  * With public candidates, every candidate gets a noisy count: a Gaussian mechanism of sensitivity 1.
  * Without candidates, only labels that occur get a noisy count (a stable histogram). `plan.delta` bounds the
    probability that a label of one unit alone is released, and is charged as an additive δ.
  * The release costs each unit of the block `plan.event`.
"""

import hashlib
import math

from tacit.data.stream import Label
from tacit.gradients.exact import BITS
from tacit.privacy.randomness import grid
from tacit.privacy.randomness.grid import ExactNumbers
from tacit.privacy.vault.exits.access import Exit
from tacit.privacy.vault.exits.plans import LabelPlan
from tacit.privacy.vault.exits.single_release import bill_once
from tacit.privacy.vault.intake.blocks import Block
from tacit.privacy.vault.intake.fingerprint import checksum
from tacit.privacy.vault.intake.isolation import guarded
from tacit.privacy.vault.intake.records import Records


class LabelSetExit(Exit):
    """`vault.label_set(block, plan)`."""

    def __call__(self, block: Block, plan: LabelPlan) -> tuple[Label, ...]:
        """Releases the labels whose noisy count reaches the plan's threshold.

        Use `vault.with_labels` to put the block under the set.

        Args:
            block: The block that is read.
            plan: Noise multiplier, candidates or additive δ, and the bound of labels per unit.

        Returns:
            The labels, in the order of the candidates, or sorted where there are none. It may be empty.

        Raises:
            VaultError: If the block's records are not held.
            BudgetExceeded: If the charge does not fit in the block's budget.
        """
        records, keys = self._access.records(block), self._access.ledger.keys
        bill = bill_once(self._access, "label set", block, plan.event, plan.describe())
        counts = guarded(lambda: label_counts(records, plan.labels_per_unit, keys.identity_key))
        # Without candidates the labels are sorted, so that their order says nothing about the records.
        names = sorted(counts, key=repr) if plan.candidates is None else plan.candidates
        total = ExactNumbers([counts.get(name, 0) for name in names], 2.0**-BITS)
        noisy = grid.noisy(total, slice(0, len(names)), [(1.0, self._access.noise_key(bill.ticket))], plan.std)
        bill.journal.leave(0, checksum(noisy))
        released = tuple(name for name, count in zip(names, noisy.tolist(), strict=True) if count >= plan.cut)
        bill.release()
        return released


def label_counts(records: Records, labels_per_unit: int, key: bytes) -> dict[Label, int]:
    """For each label that occurs, the sum over units of 1/√m in multiples of 2⁻³⁸, rounded down.

    Which labels of a unit beyond the bound are skipped depends on the unit and the key alone.
    """
    counts: dict[Label, int] = {}
    for unit in range(records.units):
        own = records.y[records.starts[unit] : records.starts[unit + 1]]
        # Whole numbers are integers: a label's first spelling among the records must not be how it is released.
        labels = {int(label) if isinstance(label, float) and label.is_integer() else label for label in own.tolist()}
        salt = records.names[unit].tobytes()
        hashed = {label: hashlib.blake2b(repr(label).encode(), key=key, salt=salt).digest() for label in labels}
        counted = sorted(labels, key=hashed.__getitem__)[:labels_per_unit]
        for label in counted:
            counts[label] = counts.get(label, 0) + math.isqrt(2 ** (2 * BITS) // len(counted))
    return counts
