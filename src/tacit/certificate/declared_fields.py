"""What a certificate contains of the deployment that its curator declares: see `privacy/ledger/limits/deployment.py`.

The fields are in the policy of the ledger, and a certificate contains that policy. So its signature covers them, and
`ledger_check` compares them with what the ledger records.
"""

from pydantic import ValidationError

from tacit.certificate.sections import Contents
from tacit.privacy.ledger.limits.deployment import Deployment

__all__ = ["TITLES", "Deployment", "declared", "declared_rows"]

TITLES = {
    "name": "name",
    "description": "description",
    "intended_use": "intended use",
    "curators": "curators",
    "contact": "contact",
    "region": "region",
    "sector": "sector",
    "data_domain": "data domain",
    "chosen_by": "who chose ε",
    "why_epsilon": "why this ε",
    "actors": "actors and trust",
    "unprotected": "published unprotected",
    "preprocessing": "preprocessing",
    "post_processing": "post-processing",
    "retention": "retention",
    "access": "access control",
    "when_spent": "when the budget is spent",
}
"""The declared fields, in the order in which they are shown."""


def declared(certificate: Contents) -> Deployment:
    """The declared fields of a certificate.

    Args:
        certificate: The certificate.

    Returns:
        The fields; none is stated if the certificate has none, or if they cannot be understood.
    """
    try:
        return Deployment.model_validate(certificate.ledger.policy.get("deployment") or {})
    except (ValidationError, RecursionError):
        return Deployment()


def declared_rows(certificate: Contents, instead: Deployment | None = None) -> tuple[tuple[str, str], ...]:
    """The stated fields with their titles, as text.

    Args:
        certificate: The certificate.
        instead: Fields that are shown in place of those of the certificate.

    Returns:
        Titles and texts; a field that is not stated is left out.
    """
    found = instead or declared(certificate)
    texts = {
        **{name: value for name in TITLES if isinstance(value := getattr(found, name), str)},
        "curators": "; ".join(found.curators),
        "actors": "; ".join(f"{actor.name}: {actor.trust}" for actor in found.actors),
        "unprotected": "; ".join(found.unprotected),
    }
    return tuple((title, texts[name]) for name, title in TITLES.items() if texts.get(name))
