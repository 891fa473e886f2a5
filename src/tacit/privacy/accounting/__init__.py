"""Accounting: budgets, events, the accountants that price them, and calibration."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.privacy.accounting.budget import Adjacency, Budget, ClaimAdjacency, Unit
    from tacit.privacy.accounting.calibrate import fits, gaussian_noise, gradient_noise, gradient_rate, gradient_steps
    from tacit.privacy.accounting.epsilon import Method, rdp_curve
    from tacit.privacy.accounting.filters import RenyiFilter

__all__ = [
    "Adjacency",
    "Budget",
    "ClaimAdjacency",
    "Method",
    "RenyiFilter",
    "Unit",
    "fits",
    "gaussian_noise",
    "gradient_noise",
    "gradient_rate",
    "gradient_steps",
    "rdp_curve",
]

__getattr__, __dir__ = attach(__name__, __file__)
