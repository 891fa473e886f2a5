"""Gaussian differential privacy (µ-GDP): which µ an event has, and the privacy profile of a µ (Dong, Roth & Su 2022).

Formal guarantees:

* What has µ = `mu_of_event` is µ-GDP: no test is better than one of N(µ, 1) against N(0, 1). Compositions add µ².
* `delta_of_mu` is rounded down, so that what is below it is µ-GDP.
"""

import math

import numpy as np
from dp_accounting import dp_event
from numpy.typing import NDArray
from scipy import special

from tacit.privacy.accounting.budget import Adjacency

Array = NDArray[np.float64]
_ROUNDING = 1e-12


def mu_of_event(event: dp_event.DpEvent, adjacency: Adjacency) -> float:
    """A µ such that the event is µ-GDP; infinite where none is known, as for adaptive events that have ρ-zCDP only.

    Sampling is left out: δ of a mixture is at most that of its parts, and far in the tail a sampled Gaussian is no
    better than an unsampled one.
    """
    match event:
        case dp_event.NoOpDpEvent():
            return 0.0
        case dp_event.GaussianDpEvent() | dp_event.LaplaceDpEvent():
            shift = (2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0) / max(float(event.noise_multiplier), 1e-300)
            return shift if isinstance(event, dp_event.GaussianDpEvent) else mu_of_pure(shift)
        case dp_event.PoissonSampledDpEvent():
            return mu_of_event(event.event, adjacency) if event.sampling_probability > 0 else 0.0
        case dp_event.SelfComposedDpEvent():
            return math.sqrt(event.count) * mu_of_event(event.event, adjacency) if event.count else 0.0
        case dp_event.ComposedDpEvent():
            return math.hypot(*(mu_of_event(one, adjacency) for one in event.events))
    return math.inf


def mu_of_pure(epsilon: float) -> float:
    """The smallest µ of everything that is (ε, 0)-DP: G_µ passes below the corner (1/(1 + e^ε), 1/(1 + e^ε))."""
    return -2 * float(special.ndtri_exp(-float(np.logaddexp(0.0, epsilon)))) * (1 + _ROUNDING)


def delta_of_mu(mu: float, epsilons: Array) -> Array:
    """δ_µ(ε), rounded down."""
    with np.errstate(over="ignore", under="ignore"):
        first = special.log_ndtr(mu / 2 - epsilons / mu)
        second = epsilons + special.log_ndtr(-mu / 2 - epsilons / mu)
        found = np.exp(first) * -np.expm1(np.minimum(0.0, second - first))
    return np.asarray(found * (1 - _ROUNDING) - 1e-14)
