# %% [markdown]
# # Auditing
#
# A certificate is an upper bound by proof; an audit is a lower bound by attack. Where the lower bound exceeds what was
# stated, the statement is wrong. No audit proves privacy.
#
# **Published rules.** What one record changes if the gradient of a *batch* is clipped and not that of each record (the code
# of Desai et al. 2021, Algorithm 2 of Hassanpour et al. 2022):

# %%
# !tacit audit batch-clipping --runs 4000

# %% [markdown]
# *REFUTED* means that the attack alone shows more than was stated. The control, which clips each record, is consistent.
#
# **Label sets.** Does the list of labels that a model knows reveal who was in the data? If it was read from the data, yes:

# %%
# !tacit audit label-space --seed 0

# %% [markdown]
# **Your own mechanism.** The same tools measure any pair of worlds: run it with and without one record, score each run,
# and compare. Here, a noisy sum whose noise is calibrated to ε = 1; then thirty of them, of which somebody charged one.

# %%
import numpy as np

from tacit import Budget, SumPlan
from tacit.audit.membership import lower_bound

budget = Budget(epsilon=1.0, delta=1e-5)
noise = SumPlan.for_budget(budget).noise
rng = np.random.default_rng(0)
runs = 100_000
for released in (1, 30):
    worlds = [rng.normal(present, noise, (runs, released)).mean(1) for present in (1.0, 0.0)]
    print(f"{released:2} releases, ε = 1 charged once: an attacker shows ε ≥ {lower_bound(*worlds):.2f}")

# %% [markdown]
# Every exit of the vault is attacked in this way by `tests/privacy/vault/test_exit_contract.py`. To audit the code itself,
# in an afternoon, read it in the order of [the audit guide](../audit.md).
