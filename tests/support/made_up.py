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


REJECTED = 1e-2
"""The confidence at which a wrong scale must be rejected. From 300 draws on, noise of the true scale fails with
probability 4e-5 at most, and the test of the true scale sees noise that is 30 % off with probability 0.96 or more (from
400 draws on 0.997). With the confidence of the true scale, one test of 400 draws in 90 would fail by chance."""


def assert_scale(values: Any, std: float) -> None:
    """The true scale passes; 30 % off, either way, fails. A test that cannot fail would be no test."""
    draws = np.asarray(values).size
    assert draws >= 300, f"{draws} draws do not tell 30 % from chance"
    assert scale_is(values, std)
    assert not scale_is(values, std * 1.3, REJECTED)
    assert not scale_is(values, std * 0.7, REJECTED)


def rate_is(hits: int, draws: int, rate: float, confidence: float = 1e-6) -> bool:
    return bool(stats.binomtest(hits, draws, rate).pvalue > confidence)
