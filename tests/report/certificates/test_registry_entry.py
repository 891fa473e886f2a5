"""The registry's entry: it matches the registry's fields, says what is not stated, and carries no markup of names."""

from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from report.certificates.conftest import MARKUP, STATED
from tacit import Certificate
from tacit.errors import CertificateError
from tacit.privacy.ledger.limits.deployment import Deployment
from tacit.report.certificates.registry_entry import NOT_STATED, file_name, registry_entry, registry_yaml, schema

FIELDS = {
    "basic": "name data_curators intended_use data_product_type data_product_region description publication_date "
    "data_product_sector",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details data_source_type "
    "data_source_type_details access_type access_type_details",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "sources notes registry_authors",
}
"""The registry's fields at commit 3e9c812 of 2026-07-15."""


def deployment_of(entry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dict(entry["deployment"])


def checked(text: str) -> dict[str, Any]:
    """The YAML as the registry's own check reads it: the schema, no folded texts, no doubled backslash."""
    values = yaml.safe_load(text)
    assert list(Draft7Validator(schema(), format_checker=Draft7Validator.FORMAT_CHECKER).iter_errors(values)) == []
    styles = {token.style for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)}
    assert styles <= {None, "|", '"', "'"}
    for section in values["deployment"].values():
        for value in section.values():
            assert not isinstance(value, str) or "\\\\" not in value
    return dict(values)


def test_the_copy_has_the_fields_of_the_registry() -> None:
    sections = schema()["properties"]["deployment"]["properties"]
    assert {name: set(one["properties"]) for name, one in sections.items()} == {
        name: set(fields.split()) for name, fields in FIELDS.items()
    }
    assert not any(one.get("additionalProperties", True) for one in (schema(), *sections.values()))


def test_what_is_not_declared_is_not_stated(certificate: Certificate) -> None:
    entry = registry_entry(certificate)
    checked(registry_yaml(entry))
    basic = deployment_of(entry)["basic"]
    assert entry["tier"] == 1 and entry["status"] == "Draft" and file_name(entry) == "models_of_the_stream_visits.yaml"
    assert basic["intended_use"] == NOT_STATED and basic["data_curators"] == [NOT_STATED]
    assert "data_product_sector" not in basic and basic["publication_date"] == certificate.created[:10]


def test_everything_declared_is_in_the_entry(certificate: Certificate) -> None:
    entry = registry_entry(certificate, later=Deployment.model_validate(STATED), utility="accuracy 80 %")
    text = registry_yaml(entry)
    assert checked(text) == entry and entry["tier"] == 3 and NOT_STATED.lower() not in text.lower()
    said = deployment_of(entry)
    assert said["basic"]["data_product_sector"] == "Healthcare" and said["basic"]["name"] == "Ward triage"
    assert said["privacy_loss"]["privacy_parameters"] == {"epsilon": certificate.epsilon, "delta": 1e-5}
    assert "µ-GDP: at most µ = 0.25" in said["privacy_loss"]["privacy_parameters_details"]
    assert said["deployment_model"]["release_type"] == "One release" and "80" in said["administrative"]["notes"]
    flat = " ".join(str(value) for section in said.values() for value in section.values())
    for value in STATED.values():
        for one in value if isinstance(value, list) else [value]:
            for part in one.values() if isinstance(one, dict) else [one]:
                assert part in flat


def test_some_fields_make_the_second_tier(certificate: Certificate) -> None:
    basic = {name: STATED[name] for name in ("description", "intended_use", "curators", "region")}
    assert registry_entry(certificate, later=Deployment.model_validate(basic))["tier"] == 2


def test_hostile_names_are_no_markup(hostile: Certificate) -> None:
    entry = registry_entry(hostile)
    text = registry_yaml(entry)
    checked(text)
    details = deployment_of(entry)["privacy_loss"]["privacy_unit_details"]
    assert "<script" not in text.replace("\\<script", "") and r"\#panic" in details and r"\[a\](" in details
    assert MARKUP not in text
    assert all(letter in "abcdefghijklmnopqrstuvwxyz0123456789_" for letter in entry["url_slug"])


def test_nothing_is_registered_where_nothing_is_certified(certificate: Certificate) -> None:
    body = certificate.model_dump(mode="json") | {"mode": "uncertified"}
    body["claims"]["certified"] |= {"epsilon": None, "reason": "raw records were released"}
    with pytest.raises(CertificateError, match=r"no finite ε is certified .*no private deployment to register"):
        registry_entry(Certificate.model_validate(body))


def test_a_date_that_is_none_is_refused(certificate: Certificate) -> None:
    with pytest.raises(CertificateError, match="which is no date"):
        registry_entry(certificate.model_copy(update={"created": "yesterday"}))
