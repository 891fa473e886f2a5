"""A whole step of the vault over a plain step: secret Poisson draw from 55,000 records, clip, noise, journal, update.

    python bench/vault.py

MLP 784-256-256-10, expected batch 100; the plain step draws 100 random rows of the same array. Median of paired rounds.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
import torch.nn.functional as F

import models
from _timing import rounds
from tacit import Budget, Declared, GradientPlan, Ledger, Vault
from tacit.gradients.losses import cross_entropy

RECORDS, BATCH = 55_000, 100


def main() -> None:
    torch.set_num_threads(2)
    x = np.random.default_rng(0).normal(size=(RECORDS, 784)).astype(np.float32)
    y = np.arange(RECORDS) % 10
    budget = Budget(epsilon=1e6, delta=1e-5)
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        declared = Declared(stream="s", task="t", budget=budget, size=RECORDS, labels=range(10), public=True)
        private, plain = models.mlp(), models.mlp()
        plan = GradientPlan(rate=BATCH / RECORDS, steps=1_000_000, noise=1.0)
        grant = vault.grant(vault.admit((x, y), declared), plan, private, cross_entropy)
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (private, plain)]
        rows, labels = torch.from_numpy(x), torch.from_numpy(y)

        def vault_step() -> None:
            grant.backward()
            optimizers[0].step()

        def plain_step() -> None:
            index = torch.randint(0, RECORDS, (BATCH,))
            optimizers[1].zero_grad()
            F.cross_entropy(plain(rows[index]), labels[index]).backward()
            optimizers[1].step()

        timed = rounds({"plain": plain_step, "vault": vault_step}, count=15, seconds=0.2, base="plain")
        grant.close()
    print(f"vault step ÷ plain step: {timed['vault']['ratio']:.2f}")


if __name__ == "__main__":
    main()
