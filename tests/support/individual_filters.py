"""Small individual filters: records whose gradients have chosen lengths, and a filter that is kept in a store."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from support.made_up import BUDGET
from tacit import Block, Declared, Ledger, Vault
from tacit.privacy.vault import FilterPlan, IndividualFilter

TWICE = FilterPlan(rho=12_000.0)
"""With noise 0.01 a gradient as long as the clip costs 5,000: it is used twice."""
QUIET = {"noise": 0.01, "clip": 1.0}


def sum_loss(output: Tensor, y: Tensor) -> Tensor:
    """Its gradient with respect to a bias-free linear layer is the input itself."""
    return output.sum(1)


def linear(features: int, outputs: int = 1) -> nn.Module:
    return nn.Linear(features, outputs, bias=False)


def lengths(*values: float) -> np.ndarray:
    """Records whose gradients have these lengths, each along a coordinate of its own."""
    return np.diag(np.asarray(values, dtype=np.float32))


def read(meter: IndividualFilter, units: int, **said: float) -> list[float]:
    """How much each record of `lengths` added to a sum that is divided by the number of units."""
    return (meter.gradient(linear(units), sum_loss, **{**QUIET, **said})["weight"][0] * units).tolist()


def world(ledger: Ledger, folder: Path) -> tuple[Vault, Block, IndividualFilter]:
    vault = Vault(ledger, folder)
    facts = Declared(stream="s", task="t", budget=BUDGET, size=2, labels=[0])
    block = vault.admit((lengths(1.0, 0.5).astype(np.float32), np.zeros(2)), facts)
    return vault, block, vault.individual_filter(block, TWICE)


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
