"""A small world: a ledger in a file, a vault, and blocks of made-up records."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tacit import Block, Budget, Declared, Ledger, Vault
from tacit.privacy.keys import KeyRing

BUDGET = Budget(epsilon=1e9, delta=1e-5)
"""As good as none: exits are made nearly noiseless to look at their other parts."""


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


Admit = Callable[..., Block]


@pytest.fixture
def admit(vault: Vault) -> Admit:
    """`admit(x, y, task=…, …)`: records under a wide budget, declared as named."""
    return partial(admit_to, vault)


@pytest.fixture
def admit_fixed(fixed: Vault) -> Admit:
    return partial(admit_to, fixed, public=True)


def admit_to(vault: Vault, x: Any, y: Any, ids: Any = None, **declared: Any) -> Block:
    facts = {"stream": "s", "task": "t", "budget": BUDGET, "size": max(1, len(y)), "labels": range(10)} | declared
    source = (np.asarray(x, dtype=np.float32), np.asarray(y))
    return vault.admit(source if ids is None else (*source, np.asarray(ids)), Declared(**facts))


def scale_is(values: Any, std: float, confidence: float = 1e-6) -> bool:
    """Two-sided chi-square test of the standard deviation of mean-zero normals."""
    x = np.asarray(values, dtype=np.float64).ravel()
    statistic = float((x**2).sum()) / std**2
    return bool(stats.chi2.ppf(confidence / 2, x.size) < statistic < stats.chi2.ppf(1 - confidence / 2, x.size))


def assert_scale(values: Any, std: float) -> None:
    """The true scale passes; 30 % off, either way, fails. A test that cannot fail would be no test."""
    assert scale_is(values, std)
    assert not scale_is(values, std * 1.3)
    assert not scale_is(values, std * 0.7)


def rate_is(hits: int, draws: int, rate: float, confidence: float = 1e-6) -> bool:
    return bool(stats.binomtest(hits, draws, rate).pvalue > confidence)
