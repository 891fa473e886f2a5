"""Fixtures that several rooms share: a ledger, vaults, made-up records, a small stream and its configuration."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from support.blobs import make_blobs, make_config
from support.made_up import Admit, admit_to
from tacit import Ledger, Stream, Vault
from tacit.experiment.config.config import Config
from tacit.privacy.randomness.keys import KeyRing


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with real keys, as users have it."""
    with Ledger(tmp_path / "ledger") as book:
        yield book


@pytest.fixture
def fixed() -> Iterator[Vault]:
    """A vault whose coins and noise are the same in every run: for statistical tests, which must not be flaky."""
    with Ledger.throwaway(keys=KeyRing.for_tests(0)) as book:
        yield Vault(book)


@pytest.fixture
def vault(ledger: Ledger) -> Vault:
    return Vault(ledger)


@pytest.fixture
def admit(vault: Vault) -> Admit:
    """`admit(x, y, task=…, …)`: records under a wide budget, declared as named."""
    return partial(admit_to, vault)


@pytest.fixture
def admit_fixed(fixed: Vault) -> Admit:
    return partial(admit_to, fixed, public=True)


@pytest.fixture
def blobs() -> Callable[[int], Stream]:
    return make_blobs


@pytest.fixture
def config() -> Config:
    return make_config()
