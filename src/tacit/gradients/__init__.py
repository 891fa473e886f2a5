"""Sums of clipped per-example gradients in one backward pass.

The weight gradient of a unit is formed only where contributions of its positions or records may cancel.
"""

from tacit.gradients.clip import Automatic, ClipRule, Flat, PerLayer
from tacit.gradients.clipper import Clipper, clipped_sum
from tacit.gradients.exact import ExactSum
from tacit.gradients.losses import cross_entropy
from tacit.gradients.validate import check_independent

__all__ = [
    "Automatic",
    "ClipRule",
    "Clipper",
    "ExactSum",
    "Flat",
    "PerLayer",
    "check_independent",
    "clipped_sum",
    "cross_entropy",
]
