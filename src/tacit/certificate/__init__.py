"""Certificates: what is claimed and what is certified about a release, issued from the ledger."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.certificate.certificate import Certificate
    from tacit.certificate.claims import Claim
    from tacit.certificate.issuance import issue
    from tacit.certificate.repricing import reprice
    from tacit.certificate.sections import Audit, Observer
    from tacit.certificate.signing import new_key, sign, verify

__all__ = ["Audit", "Certificate", "Claim", "Observer", "issue", "new_key", "reprice", "sign", "verify"]

__getattr__, __dir__ = attach(__name__, __file__)
