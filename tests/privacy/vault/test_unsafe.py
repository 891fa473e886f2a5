"""Every exit without a guarantee is refused on private data, unless the policy allows it, and marks the certificate."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.made_up import Admit, admit_to
from tacit import Block, Ledger, Vault
from tacit.certificate.issuance import issue
from tacit.errors import PolicyError
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.vault import FunctionalPlan
from tacit.privacy.vault.exits.unsafe import UnsafeExits

X = np.random.default_rng(0).random((6, 4)).astype(np.float32)
Y = np.arange(6) % 3
PLAN = FunctionalPlan(
    epsilon1=0.5, epsilon2=0.25, batch=2, delta_r=20, delta_l=10, input=(4,), hidden=(3,), output=(5,)
)
METHODS = [name for name in vars(UnsafeExits) if not name.startswith("_")]
CALLS: Mapping[str, Callable[[UnsafeExits, Block], Any]] = {
    "records": lambda unsafe, block: unsafe.records(block, "a baseline"),
    "labels": lambda unsafe, block: unsafe.labels(block),
    "perturbed": lambda unsafe, block: unsafe.perturbed(block, PLAN),
}
"""A call of each public method of `vault.unsafe`; a new method needs an entry."""


@pytest.mark.parametrize("name", METHODS)
def test_it_is_refused_on_private_data(name: str, vault: Vault, admit: Admit, ledger: Ledger) -> None:
    private = admit(X, Y)
    with pytest.raises(PolicyError, match="without public data"):
        vault.unsafe  # noqa: B018
    admit(X + 1, Y, stream="benchmark", public=True)
    with pytest.raises(PolicyError, match="allow_unsafe"):
        CALLS[name](vault.unsafe, private)
    assert ledger.statement(private.stream_id).exposures == ()
    assert issue(ledger, private, method="m").mode != "uncertified"


@pytest.mark.parametrize("name", METHODS)
def test_it_marks_the_certificate_where_it_is_allowed(name: str, tmp_path: Path) -> None:
    with Ledger(tmp_path / "loose", policy=Policy(allow_unsafe=True)) as ledger:
        vault = Vault(ledger)
        block = admit_to(vault, X, Y)
        CALLS[name](vault.unsafe, block)
        certificate = issue(ledger, block, method="m")
        assert ledger.epsilon(block.stream_id) == np.inf
        assert certificate.epsilon is None and certificate.mode == "uncertified"
        assert certificate.claims.certified.reason
