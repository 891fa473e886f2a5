"""A ledger with one stream, and its certificate beside it."""

from pathlib import Path

import numpy as np
import pytest

from tacit import Budget, Declared, Ledger, SumPlan, Vault
from tacit.certificate.issuance import issue


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:
        vault = Vault(ledger)
        budget = Budget(epsilon=1.0, delta=1e-5)
        declared = Declared(stream="scans", task="2026-01", budget=budget, size=10, labels=range(2))
        block = vault.admit((np.ones((10, 2)), np.zeros(10)), declared)
        vault.sums(block, SumPlan.for_budget(budget))
        issue(vault.ledger, block, method="sums").save(tmp_path / "c.json")
    return path
