"""The exit `vault.label_set`: the labels whose noisy count reaches a public threshold.

Mechanism: a unit with m labels (at most `labels_per_unit`; the rest are skipped) adds 1/√m to the count of each, so its
contribution has Euclidean norm at most 1. Each count gets Gaussian noise of standard deviation `plan.std`.

Formal guarantees
  * With public candidates, every candidate gets a noisy count: a Gaussian mechanism of sensitivity 1.
  * Without candidates, only labels that occur get a noisy count (a stable histogram). `plan.delta` bounds the
    probability that a label of one unit alone is released, and is charged as an additive δ.
  * The release costs each unit of the block `plan.event`.

Conditions
  * Candidates, threshold and the bound of labels per unit are public, or chosen from released values.
  * Without candidates the block is committed: the filter of an open block admits no additive δ.
"""

import hashlib
import math
from dataclasses import asdict, dataclass

from dp_accounting import dp_event

from tacit.data.stream import Label
from tacit.errors import PlanError
from tacit.gradients.exact import BITS
from tacit.privacy.accounting import events
from tacit.privacy.randomness import grid
from tacit.privacy.randomness.grid import ExactNumbers
from tacit.privacy.vault.exits.access import Exit
from tacit.privacy.vault.exits.plans import check_noise
from tacit.privacy.vault.exits.single_release import bill_once
from tacit.privacy.vault.intake.blocks import Block, label_set
from tacit.privacy.vault.intake.fingerprint import checksum
from tacit.privacy.vault.intake.isolation import guarded
from tacit.privacy.vault.intake.records import Records


@dataclass(frozen=True, kw_only=True)
class LabelPlan:
    """A private label set: the labels whose noisy count reaches a public threshold.

    Formal guarantees
      * A unit with m labels (at most `labels_per_unit`; the rest are skipped) adds 1/√m to each count, so the counts
        have sensitivity 1. With candidates the release is a Gaussian mechanism.
      * Without candidates only labels that occur get a noisy count (a stable histogram); `delta` bounds the probability
        that a label of one unit alone is released, and is charged as an additive δ.

    Attributes:
        noise: The noise multiplier.
        labels_per_unit: The largest number of labels of one unit that count.
        candidates: The public labels to choose from; None to discover labels.
        threshold: With candidates, the smallest noisy count that is kept; 4 standard deviations by default.
        delta: Without candidates, the additive δ, from which the threshold follows.
    """

    noise: float
    labels_per_unit: int = 1
    candidates: tuple[str | int, ...] | None = None
    threshold: float | None = None
    delta: float = 0.0

    def __post_init__(self) -> None:
        check_noise(self.noise, "a private label set needs noise")
        if self.labels_per_unit < 1:
            raise PlanError(f"labels_per_unit must be ≥ 1, got {self.labels_per_unit}")
        if self.candidates is not None:  # each once: a unit would add to every copy of its label
            object.__setattr__(self, "candidates", label_set(self.candidates))
        if self.candidates is None and not 0 < self.delta < 1:
            raise PlanError(
                f"discovery without candidates needs delta in (0, 1), got {self.delta}; or name the candidates"
            )
        if self.candidates is not None and self.delta:
            raise PlanError(f"delta is only for discovery without candidates, got {self.delta}; leave it at 0")

    @property
    def event(self) -> dp_event.DpEvent:
        """The charge to the block."""
        base = events.gaussian(self.noise)
        return events.with_additive_delta(base, self.delta) if self.candidates is None else base

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each count."""
        return self.noise

    @property
    def cut(self) -> float:
        """The threshold: labels with a smaller noisy count are not released.

        For discovery, a label of one unit alone counts 1/√m if the unit has m labels; it stays below the threshold with
        probability (1−δ)^(1/m), for each m up to the bound. The rounding to the grid, less than 1/256 of the noise, is
        added.
        """
        if self.candidates is not None:
            return 4 * self.std if self.threshold is None else self.threshold
        from scipy.special import log1p, ndtri_exp

        return max(
            1 / math.sqrt(m) + self.std * (float(ndtri_exp(log1p(-self.delta) / m)) + 2.0**-8)
            for m in range(1, self.labels_per_unit + 1)
        )

    def describe(self) -> dict[str, object]:
        """The plan as it is stored in ledgers.

        Returns:
            Plain JSON values.
        """
        return {"plan": "labels", **asdict(self)}


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
