"""Robustness of learners to changed inputs: attacks that find such changes, and certificates that exclude them."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.robustness.attacks import Attack, attack
    from tacit.robustness.certified_accuracy import CertifiedRadii, certify, why_not
    from tacit.robustness.certified_ball import CertifiedBall, certify_by_intervals

__all__ = ["Attack", "CertifiedBall", "CertifiedRadii", "attack", "certify", "certify_by_intervals", "why_not"]

__getattr__, __dir__ = attach(__name__, __file__)
