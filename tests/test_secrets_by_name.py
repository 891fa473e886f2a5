"""The noise that a test meets follows from the test's name alone, so no test passes today and fails tomorrow."""

from pathlib import Path

import numpy as np
import torch

from support.made_up import admit_to
from support.named_secrets import TOLD
from tacit import Ledger, SumPlan, Vault


def test_the_noise_of_a_test_is_the_same_in_every_run(tmp_path: Path) -> None:
    released = []
    for name in ("a test", "a test", "another test"):
        TOLD.start(name)
        with Ledger(tmp_path / f"ledger {len(released)}") as ledger:
            vault = Vault(ledger)
            block = admit_to(vault, np.zeros((3, 2)), [0, 1, 0], labels=(0, 1))
            released.append(vault.sums(block, SumPlan(noise=1.0)))
    assert torch.equal(released[0], released[1])
    assert not torch.equal(released[0], released[2])
