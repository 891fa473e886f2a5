"""What tests of the vault share: blocks of made-up records, and tests of a scale and of a rate with two sides."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from tacit import Block, Budget, Declared, Vault

BUDGET = Budget(epsilon=1e9, delta=1e-5)
"""As good as none: exits are made nearly noiseless to look at their other parts."""
Admit = Callable[..., Block]


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
