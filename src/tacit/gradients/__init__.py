"""Clipped per-example gradients, fast: one backward pass, and the weight gradient of a unit is formed only where its
places or its records may cancel."""

from tacit.gradients.clip import Automatic, ClipRule, Flat, PerLayer
from tacit.gradients.clipper import Clipper, clipped_sum
from tacit.gradients.exact import ExactSum
from tacit.gradients.validate import check_independent

__all__ = ["Automatic", "ClipRule", "Clipper", "ExactSum", "Flat", "PerLayer", "check_independent", "clipped_sum"]
