"""Attacks on releases and mechanisms, compared with what they claim. Each module has a function `audit`."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.audit.batch_clipping import ClippingResult
    from tacit.audit.label_set_leakage import Leakage
    from tacit.audit.reconstruction import Reconstruction, Report
    from tacit.audit.replacement_cascade import CascadeResult

__all__ = ["CascadeResult", "ClippingResult", "Leakage", "Reconstruction", "Report"]

__getattr__, __dir__ = attach(__name__, __file__)
