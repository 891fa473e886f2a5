"""An entry for the OpenDP Deployments Registry, from a certificate and what its curator declares.

The registry takes YAML files that match its schema (https://github.com/opendp/deployments-registry-data). The names,
types and choices of its fields were copied from `schemas/deployments-schema.yaml` at commit 3e9c812 of 2026-07-15 into
`assets/deployments_registry.json`, without the descriptions; an entry is validated against that copy. What the registry
asks for in later versions is not known here: its own check (`scripts/check.py`) runs on every pull request.

The registry renders texts as Markdown with LaTeX. Names of streams and methods are therefore escaped; what the curator
declares is theirs to format, except that HTML is escaped.
"""

import json
import re
from datetime import date
from functools import cache
from typing import Any

import yaml

from tacit.certificate import Certificate
from tacit.certificate.attack_text import attack_words
from tacit.certificate.certificate_text import EXACT_ARITHMETIC, REAL_ARITHMETIC
from tacit.certificate.declared_fields import Deployment, declared
from tacit.errors import CertificateError
from tacit.report.certificate_words import observer, protected
from tacit.report.page import ASSETS
from tacit.words import counted

NOT_STATED = "Not stated"
_TIER_3 = ("data_domain", "unprotected", "actors", "post_processing", "preprocessing", "why_epsilon")
_BASIC = ("description", "intended_use", "curators", "region")
_MARKDOWN = re.compile(r"([`*_\[\]$|#~!{}<>])")


def registry_entry(certificate: Certificate, *, utility: str = "", later: Deployment | None = None) -> dict[str, Any]:
    """The entry as plain values, which match the registry's schema.

    Args:
        certificate: The certificate.
        utility: How useful the models are, in a sentence.
        later: Declared fields that replace those of the certificate.

    Returns:
        The entry.

    Raises:
        CertificateError: No finite ε is certified, so there is nothing to register.
    """
    words, certified = attack_words(certificate), certificate.claims.certified
    if words is None:
        raise CertificateError(
            f"no finite ε is certified ({certified.reason}), so there is no private deployment to register"
        )
    said = later or declared(certificate)
    stream, tasks = certificate.ledger.stream, certified.all_tasks
    name = said.name or f"Models of the stream {stream}"
    rule = next((one for one in certified.over_tasks if one.applies), None)
    many = tasks > 1
    bounds = (
        f"µ-GDP: {words.gaussian}. Attacker's advantage at most {words.groups[0][2]}; true positives at most "
        f"{words.groups[0][3]} at 1 % and {words.groups[0][4]} at 0.1 % false positives. Upper bounds, by "
        f"{words.computed}."
    )
    exact = EXACT_ARITHMETIC if certificate.arithmetic == "exact" else REAL_ARITHMETIC
    sector = [one for one in _choices("basic", "data_product_sector") if one.lower() == (said.sector or "").lower()]
    entry: dict[str, Any] = {
        "url_slug": _slug(name),
        "status": "Draft",
        "tier": _tier(said),
        "deployment": {
            "basic": {
                "name": _text(said.name) if said.name else _escaped(name),
                "data_curators": [_text(one) for one in said.curators] or [NOT_STATED],
                "description": _text(said.description)
                or f"{counted(tasks, 'release')} of a model by {_escaped(certificate.method)}",
                "intended_use": _text(said.intended_use) or NOT_STATED,
                "data_product_type": "Machine learning model",
                "data_product_region": _text(said.region) or NOT_STATED,
                "publication_date": _day(certificate.created),
                **({"data_product_sector": sector[0]} if sector else {}),
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": _text(said.data_domain) or NOT_STATED,
                "unprotected_quantities": "; ".join(map(_text, said.unprotected)) or NOT_STATED,
            },
            "privacy_loss": {
                "privacy_unit": str(certificate.unit.kind),
                "privacy_unit_details": _escaped(protected(certificate)),
                "privacy_parameters": {"epsilon": certified.epsilon, "delta": certified.delta},
                "privacy_parameters_details": bounds,
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": observer(certificate),
                "actors": "; ".join(f"{_text(one.name)}: {_text(one.trust)}" for one in said.actors) or NOT_STATED,
                "release_type": "Many releases" if many else "One release",
                "release_type_details": f"{counted(tasks, 'task')}. A ledger refuses what exceeds the budget. When it "
                f"is spent: {_text(said.when_spent) or NOT_STATED.lower()}. Retention: "
                f"{_text(said.retention) or NOT_STATED.lower()}.",
                "data_source_type": "Dynamic" if many else "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": _text(said.post_processing) or NOT_STATED,
                "composition": f"{_escaped(certified.accountant)}; over tasks: "
                + (f"{rule.rule}, for {rule.holds_for}" if rule else certified.reason),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"Tuning: {_escaped(certificate.tuning)}. Preprocessing: "
                f"{_text(said.preprocessing) or NOT_STATED.lower()}. Not accounted: "
                f"{_escaped('; '.join(certificate.not_accounted))}.",
                "mechanisms": f"{_kinds(certificate)}, by {certificate.library.name} {certificate.library.version}; "
                f"{exact}. Access to the data: {_text(said.access) or NOT_STATED.lower()}.",
                "justification": f"ε: {_text(said.why_epsilon) or NOT_STATED.lower()}. Chosen by: "
                f"{_text(said.chosen_by) or NOT_STATED.lower()}.",
            },
            "administrative": {
                "notes": f"Certificate {certificate.id}. Contact: {_text(said.contact) or NOT_STATED.lower()}."
                + (f" Utility: {_escaped(utility)}." if utility else ""),
                "registry_authors": [_text(one) for one in said.curators] or [NOT_STATED],
            },
        },
    }
    _check(entry)
    return entry


def registry_yaml(entry: dict[str, Any]) -> str:
    """An entry as YAML that the registry's own check accepts.

    Args:
        entry: The entry.

    Returns:
        YAML.
    """
    return yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=100)


def file_name(entry: dict[str, Any]) -> str:
    """The name under which the registry takes an entry: lower-case letters, digits and underscores."""
    return f"{entry['url_slug']}.yaml"


def _check(entry: dict[str, Any]) -> None:
    from jsonschema import Draft7Validator

    validator = Draft7Validator(schema(), format_checker=Draft7Validator.FORMAT_CHECKER)
    if (error := next(iter(validator.iter_errors(entry)), None)) is not None:
        where = ".".join(map(str, error.path))
        raise CertificateError(f"the entry does not match the registry's schema at {where}: {error.message[:200]}")


@cache
def schema() -> dict[str, Any]:
    """The registry's schema: names, types and choices of fields."""
    found: dict[str, Any] = json.loads((ASSETS / "deployments_registry.json").read_text(encoding="utf-8"))
    return found


def _choices(section: str, field: str) -> list[str]:
    found: list[str] = schema()["properties"]["deployment"]["properties"][section]["properties"][field]["enum"]
    return found


def _tier(said: Deployment) -> int:
    if not all(getattr(said, name) for name in _BASIC):
        return 1
    return 3 if all(getattr(said, name) for name in _TIER_3) else 2


def _kinds(certificate: Certificate) -> str:
    kinds = sorted({one.kind for one in certificate.mechanisms} | set(certificate.other_mechanisms))
    return _escaped(f"Mechanisms: {', '.join(kinds) or 'none was charged'}")


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:60].strip("_") or "deployment"


def _day(created: str) -> str:
    try:
        return date.fromisoformat(created[:10]).isoformat()
    except ValueError:
        raise CertificateError(f"the certificate was issued on {created[:40]!r}, which is no date") from None


def _text(said: str | None) -> str:
    """A declared text: Markdown as its author wrote it, without HTML or doubled backslashes (the registry's check)."""
    return re.sub(r"\\{2,}", r"\\", " ".join((said or "").split())).replace("<", "&lt;").rstrip(".")


def _escaped(text: str) -> str:
    """A text in which nothing is Markdown, LaTeX or HTML."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.replace("\\", "/").split()))[:4_000]
