"""Policies: nothing dangerous by default, unknown keys are errors, one digest per content."""

from pathlib import Path

import pytest

from tacit.errors import PolicyError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger.limits.deployment import Deployment
from tacit.privacy.ledger.limits.policy import Policy


def test_the_default_allows_nothing() -> None:
    policy = Policy()
    for switch in ("allow_unsafe", "allow_test_keys", "allow_uncharged_tuning"):
        with pytest.raises(PolicyError, match=f"it needs {switch} = true"):
            policy.require(switch, what="raw records")
    with pytest.raises(PolicyError, match="allows nobody"):
        policy.require_raiser("eve")
    assert policy.cap is None


def test_what_is_switched_on_is_allowed() -> None:
    policy = Policy(allow_unsafe=True, may_raise=("officer",))
    policy.require("allow_unsafe", what="raw records")
    policy.require_raiser("officer")
    with pytest.raises(PolicyError, match="may not raise"):
        policy.require_raiser("eve")


def test_load_from_toml(tmp_path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('allow_unsafe = true\nmay_raise = ["a", "b"]\n[unit_cap]\nepsilon = 3.0\ndelta = 1e-6\n')
    policy = Policy.load(file)
    assert policy.may_raise == ("a", "b")
    assert policy.cap == Budget(epsilon=3.0, delta=1e-6)
    assert Policy.parse(policy.to_dict()) == policy
    assert policy == Policy(allow_unsafe=True, may_raise=("a", "b"), unit_cap=Budget(epsilon=3.0, delta=1e-6))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("allow_unsfe = true", "unknown key 'allow_unsfe'; did you mean allow_unsafe"),
        ("[unit_cap]\nepsilon = 1.0\ndelta = 1e-5\nadjacncy = 'x'", "did you mean adjacency"),
        ("allow_unsafe = 'yes'", "wrong value for 'allow_unsafe'"),
        ("allow_unsafe = 1", "wrong value for 'allow_unsafe'"),
        ("[unit_cap]\nepsilon = -1.0\ndelta = 1e-5", "epsilon must be a finite number > 0"),
        ("[unit_cap]\nepsilon = 1.0\ndelta = 1e-5\nadjacency = 'x'", "adjacency must be one of"),
        ("allow_unsafe = ", "not valid TOML"),
        ("[deployment]\nintended_us = 'x'", "did you mean intended_use"),
        ("[[deployment.actors]]\nname = 'x'\ntrst = 'y'", "did you mean trust|Field required|field required"),
        ("[deployment]\ncurators = 'x'", "wrong value for 'deployment.curators'"),
        ("[deployment]\ncontact = ''", "must not be empty; leave the key out"),
        ("[deployment]\ncontact = 7", "wrong value for 'deployment.contact'"),
        (f"[deployment]\nretention = '{'x' * 2001}'", "at most 2000 characters"),
        (f"[deployment]\nunprotected = {['x'] * 21}", "wrong value for 'deployment.unprotected'"),
        ('[deployment]\naccess = "a\\u0007b"', "control characters"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, text: str, message: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(PolicyError, match=message) as caught:
        Policy.load(file)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path) -> None:
    with pytest.raises(PolicyError, match="cannot read the policy"):
        Policy.load(tmp_path / "none.toml")


def test_the_digest_names_the_content() -> None:
    assert Policy().digest == Policy().digest
    assert Policy().digest != Policy(allow_unsafe=True).digest


def test_a_policy_is_frozen() -> None:
    with pytest.raises(ValueError):
        Policy().allow_unsafe = True


def test_a_deployment_is_declared_once_and_kept(tmp_path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(
        '[deployment]\nintended_use = "triage"\nunprotected = ["labels"]\n'
        '[[deployment.actors]]\nname = "nurses"\ntrust = "see models"\n'
    )
    policy = Policy.load(file)
    assert policy.deployment is not None and policy.deployment.actors[0].trust == "see models"
    assert policy.to_dict()["deployment"] == {
        "intended_use": "triage", "unprotected": ["labels"], "actors": [{"name": "nurses", "trust": "see models"}]
    }  # fmt: skip
    assert Policy.parse(policy.to_dict()) == policy and policy.digest != Policy().digest


def test_policies_without_a_deployment_keep_their_digest() -> None:
    assert "deployment" not in Policy().to_dict()
    assert Policy.parse({"deployment": {}}).digest == Policy().digest


def test_the_documented_deployment_is_a_policy(tmp_path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "certificates.md").read_text(encoding="utf-8")
    file = tmp_path / "policy.toml"
    file.write_text(page.split("```toml")[1].split("```")[0], encoding="utf-8")
    deployment = Policy.load(file).deployment
    assert deployment is not None and set(deployment.to_dict()) == set(Deployment.model_fields)
