# %% [markdown]
# # Your own method in one file
#
# A learner sees public facts and a *handle* to the private records, never the records. Whatever it computes from what the
# vault releases is post-processing, so a bug in it cannot weaken the guarantee. This one is DP-SGD that, after each task,
# averages the new weights with earlier ones.

# %%
from pathlib import Path

_ = Path("averaged.py").write_text('''
from dataclasses import dataclass
from typing import ClassVar

import torch

from tacit.learners import GradientLearner


@dataclass(kw_only=True, eq=False)
class AveragedDPSGD(GradientLearner):
    """DP-SGD, started in each task from a running average of the released weights.

    Reference: this tutorial.
    Claim: none.
    Certified: for a record, the DP-SGD plan of its own task, since the average is post-processing.
    """

    earlier: float = 0.5
    """Weight of the earlier average."""

    reference: ClassVar[str] = "this tutorial"
    certifies: ClassVar[str] = "a record: the DP-SGD plan of its own task, once"

    def fit(self, task, block, vault):
        before = [parameter.detach().clone() for parameter in self.model_.parameters()]

        # One grant charges all steps of the task before the first record is read.
        grant = vault.grant(block, self.plan(task), self.model_, self.loss_, work=self.settings())
        optimizer = self.optimizer(task)
        for _ in self.training_steps(grant, task):
            self.update(optimizer, grant.gradient())  # Poisson sample, clip, sum, noise; then a step

        if task.number > 0:  # released weights: free
            with torch.no_grad():
                for parameter, old in zip(self.model_.parameters(), before, strict=True):
                    parameter.lerp_(old, self.earlier)
        vault.drop(block)
''')

# %% [markdown]
# It runs like the built-in learners, beside which it is compared here on three tasks of permuted digits (public data that
# comes with scikit-learn). Settings are dataclass fields: `--set learner.earlier=0.9` changes one.

# %%
from tacit import run

base = {
    "data": {"source": "digits", "scenario": "permuted", "tasks": 3},
    "budget": {"epsilon": 2.0, "delta": 1e-5},
    "seeds": 1,
}
settings = {"steps": 60, "batch": 200, "lr": 0.5}
for method in ("averaged.py:AveragedDPSGD", "NaiveDPSGD"):
    name = method.rpartition(":")[2]
    summary = run({"name": name, **base, "learner": {"method": method, **settings}}, f"runs/{name}")
    metrics = {key: summary.metrics[key]["mean"] for key in ("average_accuracy", "forgetting")}
    print(f"{name:14} accuracy {metrics['average_accuracy']:.1%}, forgetting {metrics['forgetting']:.1%}")

# %% [markdown]
# The certificate of your learner comes from the ledger, not from what its file says. It states the ε of what was charged:

# %%
from tacit import Certificate

last = sorted(Path("runs/AveragedDPSGD").glob("seeds/*/releases/*"))[-1]
certificate = Certificate.load(last / "certificate.json")
print(certificate.method, "certified ε =", round(certificate.epsilon, 4), "δ =", certificate.claims.certified.delta)

# %% [markdown]
# A request that exceeds the budget is refused before a record is read, whatever the learner wants:

# %%
from tacit import Budget, Declared, GradientPlan, Ledger, Vault
from tacit.errors import TacitError
from tacit.gradients import cross_entropy

import numpy as np
import torch

rng = np.random.default_rng(0)
budget = Budget(epsilon=1.0, delta=1e-5)
with Ledger("strict.ledger") as ledger:
    vault = Vault(ledger)
    facts = Declared(stream="s", task="t", budget=budget, size=500, labels=range(2))
    block = vault.admit((rng.normal(size=(500, 3)).astype(np.float32), rng.integers(0, 2, 500)), facts)
    greedy = GradientPlan(rate=0.5, steps=1000, noise=0.5)
    try:
        vault.grant(block, greedy, torch.nn.Linear(3, 2), cross_entropy)
    except TacitError as error:
        print(type(error).__name__, error)

# %% [markdown]
# To share a learner, register it as an entry point of your package, or add it to tacit:
# [Contributing](../../CONTRIBUTING.md#add-a-learner).
