# %% [markdown]
# # Your own exit of the vault
#
# An *exit* is a mechanism by which private records influence a released value: noisy gradients, noisy sums, counts. It
# carries the guarantee, so an exit does three things in a fixed order: bound what one unit contributes, charge the ledger,
# and only then compute, add noise and round. This one releases the mean of a feature that is clipped to a public range.

# %%
from tacit import Block, Budget, Declared, Ledger, SumPlan, Vault, issue
from tacit.privacy.vault.exits.access import Exit
from tacit.privacy.vault.exits.accuracy import sum_of_unit_means
from tacit.privacy.vault.exits.single_release import release_once
from tacit.privacy.vault.vault import EXITS


class MeanExit(Exit):
    """Each unit contributes (clip(x, low, high) − low) / (high − low), in [0, 1]; the sum gets Gaussian noise.

    Formal guarantees: one unit changes the exact sum by at most 1; the release costs it `plan.event`.
    """

    def __call__(self, block: Block, plan: SumPlan, *, feature: int, low: float, high: float) -> float:
        records = self._access.records(block)

        def scaled(index):
            values = records.features(index).flatten(1)[:, feature].double()
            return (values.nan_to_num(low, low, low).clamp(low, high) - low) / (high - low)

        total = release_once(  # charges the ledger, then computes, adds noise once and rounds to the public grid
            self._access,
            "mean",
            block,
            plan,
            lambda: sum_of_unit_means(records, scaled, self._access.max_batch),
            shape=(1,),
            bound=1.0,
            detail={"feature": feature, "low": low, "high": high},
        )
        return low + (high - low) * float(total) / block.size  # divided by the public nominal size


EXITS["mean"] = MeanExit  # in tacit itself: one line in the class Vault

# %% [markdown]
# Two thousand blood pressures, one release:

# %%
import numpy as np

rng = np.random.default_rng(0)
pressure = rng.normal(loc=120, scale=15, size=(2000, 1))
budget = Budget(epsilon=1.0, delta=1e-5)
with Ledger("pressure.ledger") as ledger:
    vault = Vault(ledger)
    facts = Declared(stream="visits", task="2026-01", budget=budget, size=2000, labels=[0])
    block = vault.admit((pressure, np.zeros(2000, int)), facts)
    noisy = vault.mean(block, SumPlan.for_budget(budget), feature=0, low=80.0, high=200.0)
    certificate = issue(ledger, block, method="mean")
print(f"noisy mean {noisy:.1f} (true mean {pressure.mean():.1f}), certified ε = {certificate.epsilon:.3g}")

# %% [markdown]
# The noise is as large as the budget needs, and the ledger has the event. It also knows that nothing is left for a second
# release of these records, in a new process as well:

# %%
from tacit.errors import TacitError

with Ledger("pressure.ledger") as ledger:
    vault = Vault(ledger)
    facts = Declared(stream="visits", task="2026-01", budget=budget, size=2000, labels=[0])
    try:
        block = vault.admit((pressure, np.zeros(2000, int)), facts)
        vault.mean(block, SumPlan.for_budget(budget), feature=0, low=90.0, high=180.0)
    except TacitError as error:
        print(type(error).__name__, error)

# %% [markdown]
# An exit of tacit has a contract as well, whose tests check its charge, noise, sensitivity, grid and resuming:
# [adding an exit](../adding-an-exit.md).
