"""An exit of your own: the noisy mean of one feature, clipped to a public range.

An exit is part of the vault, so it carries the guarantee: it bounds what one unit contributes, and its noise and its
charge come from one plan. This file adds one from outside to show the parts. docs/adding-an-exit.md explains how one
is added to tacit, with the contract tests that check its charge, noise, sensitivity and resuming.
"""

import sys
from pathlib import Path

import numpy as np
from torch import Tensor

from tacit import Block, Budget, Declared, Ledger, SumPlan, Vault, issue
from tacit.privacy.vault.exits.access import Exit
from tacit.privacy.vault.exits.accuracy import sum_of_unit_means
from tacit.privacy.vault.exits.single_release import release_once
from tacit.privacy.vault.vault import EXITS


class MeanExit(Exit):
    """`vault.mean(block, plan, feature=…, low=…, high=…)`.

    Mechanism: each unit contributes the mean over its records of (clip(x, low, high) − low) / (high − low), a number in
    [0, 1]. The sum gets Gaussian noise and is divided by the public nominal size.

    Formal guarantees:
      * Adding or removing one unit changes the exact sum by at most 1.
      * The release costs each unit of the block `plan.event`.
    """

    def __call__(self, block: Block, plan: SumPlan, *, feature: int, low: float, high: float) -> float:
        records = self._access.records(block)

        def scaled(index: Tensor) -> Tensor:
            values = records.features(index).flatten(1)[:, feature].double()
            return (values.nan_to_num(low, low, low).clamp(low, high) - low) / (high - low)

        # Charges the ledger, then computes the exact sum, adds noise once and rounds to the public grid.
        total = release_once(
            self._access,
            "mean",
            block,
            plan,
            lambda: sum_of_unit_means(records, scaled, self._access.max_batch),
            shape=(1,),
            bound=1.0,
            detail={"feature": feature, "low": low, "high": high},
        )
        return low + (high - low) * float(total) / block.size


EXITS["mean"] = MeanExit  # in tacit itself: one line in the class Vault

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "own-exit")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    x, y = rng.normal(loc=120, scale=15, size=(2000, 1)), np.zeros(2000, int)

    budget = Budget(epsilon=1.0, delta=1e-5)
    with Ledger(folder / "pressure.ledger") as ledger:
        vault = Vault(ledger)
        block = vault.admit((x, y), Declared(stream="visits", task="2026-01", budget=budget, size=2000, labels=[0]))
        mean = vault.mean(block, SumPlan.for_budget(budget), feature=0, low=80.0, high=200.0)
        certificate = issue(ledger, block, method="mean")
    print(f"noisy mean {mean:.1f} (true mean {x.mean():.1f}), certified ε = {certificate.epsilon:.3g}")
