"""The exit `vault.count`: a noisy number of units.

Formal guarantees
  * Adding or removing one unit changes the exact count by 1; the noise has standard deviation `plan.std`.
  * The release costs each unit of the block `plan.event`.

Conditions
  * Whether a unit is counted depends on this unit and on released values, on no other unit (`noisy_count`).
  * In a series (a horizon other than 1) a unit is in at most `plan.participations` of its tasks. A plan that covers
    fewer than the stream allows a unit is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tacit.privacy.randomness.grid import ExactNumbers
from tacit.privacy.vault.exits import single_release
from tacit.privacy.vault.exits.access import Access, Exit
from tacit.privacy.vault.exits.plans import SumPlan
from tacit.privacy.vault.intake.blocks import Block


class CountExit(Exit):
    """`vault.count(block, plan)`."""

    def __call__(self, block: Block, plan: SumPlan) -> float:
        """Releases the noisy number of units of a block.

        Args:
            block: The block that is read.
            plan: The noise multiplier; `clip` is not used, since one unit counts 1.

        Returns:
            The noisy number, which may be negative.

        Raises:
            VaultError: If the block's records are not held.
            BudgetExceeded: If the charge does not fit in the block's budget.
        """
        units = self._access.records(block).units
        return noisy_count(self._access, block, plan, lambda: units)


def noisy_count(
    access: Access, block: Block, plan: SumPlan, units: Callable[[], int], detail: Mapping[str, Any] | None = None
) -> float:
    """Releases a noisy number of some of the units of a block; `units` counts them after the charge."""
    compute = lambda: ExactNumbers([units()], 1.0)  # noqa: E731
    return float(
        single_release.release_once(access, "count", block, plan, compute, shape=(1,), bound=1.0, detail=detail)
    )
