"""Certificates for the tests of documents: a true one, and one in which every text is hostile."""

from typing import Any

import numpy as np
import pytest

from support.made_up import Admit
from support.report_folders import HOSTILE, LONG, RIGHT_TO_LEFT
from tacit import Budget, Certificate, SumPlan, Vault
from tacit.certificate.issuance import issue
from tacit.privacy.ledger.limits.deployment import Deployment

STATED: dict[str, Any] = {
    "name": "Ward triage",
    "description": "A classifier of visits",
    "intended_use": "Suggests which visits a nurse looks at first",
    "curators": ["St Example Hospital"],
    "contact": "privacy@hospital.example",
    "region": "Switzerland",
    "sector": "Healthcare",
    "data_domain": "Tables of visits",
    "chosen_by": "The ethics board",
    "why_epsilon": "Nobody is found with certainty",
    "actors": [{"name": "Engineers", "trust": "see raw visits"}],
    "unprotected": ["the label set", "opening hours"],
    "preprocessing": "None",
    "post_processing": "Rounding",
    "retention": "90 days",
    "access": "Two engineers",
    "when_spent": "Training stops",
}
MARKUP = '#panic("typst") *bold* $x$ [a](https://x.example) `code` {{ 7 * 7 }} \\ & </style>'
ATTACKS = [HOSTILE, LONG, RIGHT_TO_LEFT, MARKUP]


@pytest.fixture
def certificate(vault: Vault, admit: Admit) -> Certificate:
    block = admit(np.ones((9, 2)), np.zeros(9), budget=Budget(epsilon=2.0, delta=1e-5), stream="visits", task="january")
    vault.sums(block, SumPlan(noise=4.0))
    return issue(vault.ledger, block, method="sums")


@pytest.fixture
def hostile(certificate: Certificate) -> Certificate:
    """Every free text is an attack, and there are many of them."""
    body = certificate.model_dump(mode="json")
    texts = [f"{attack} {number}" for number, attack in enumerate(ATTACKS * 6)]
    said = {name: (texts[3] + LONG)[:1900] for name, field in Deployment.model_fields.items() if field.default is None}
    said |= {"curators": [MARKUP, HOSTILE], "unprotected": ["漢字" * 900, "z\u0301\u0302\u0303" * 100]}
    said["actors"] = [{"name": HOSTILE, "trust": MARKUP}]
    body |= {"method": MARKUP + HOSTILE + LONG, "not_accounted": texts, "beside": texts, "tuning": LONG}
    body["assumptions"] = [{"name": text[:20], "state": "declared", "says": text} for text in texts]
    body["ledger"] |= {"stream": HOSTILE + MARKUP, "raised": texts, "policy": {"deployment": said}}
    body["claims"]["certified"]["reason"] = texts[0] + LONG
    audit = {
        "design": HOSTILE + LONG, "runs": 9, "delta": 1e-5, "confidence": 0.95, "epsilon_lower_bound": 0.1,
        "observer": MARKUP, "date": "2026-01-01", "verdict": "consistent",
    }  # fmt: skip
    body["audit"] = [audit] * 5
    return Certificate.model_validate(body)
