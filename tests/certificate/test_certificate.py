"""A certificate states what its ledger supports; anyone can check it with the file and a public key."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from support.made_up import Admit
from tacit import Budget, Certificate, Declared, GradientPlan, Ledger, Policy, Read, SumPlan, Vault
from tacit.certificate import claims, signing
from tacit.certificate.issuance import issue
from tacit.certificate.sections import Audit
from tacit.errors import CertificateError, PolicyError
from tacit.gradients.losses import cross_entropy
from tacit.privacy.accounting import epsilon, events
from tacit.privacy.ledger import LedgerView, StreamTerms
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault.intake.feature_map import FeatureMap

BUDGET = Budget(epsilon=2.0, delta=1e-5)


@pytest.fixture
def trained(vault: Vault, admit: Admit) -> Any:
    plan = GradientPlan.for_budget(BUDGET, rate=0.1, steps=20)
    for task in ("january", "february"):
        n = 20 + len(task)
        block = admit(np.ones((n, 2)), np.zeros(n), task=task, budget=BUDGET, labels=range(3))
        grant = vault.grant(block, plan, nn.Linear(2, 3), cross_entropy)
        for _ in grant:
            grant.gradient()
    return block


def test_it_states_the_bound_and_its_terms(vault: Vault, trained: Any) -> None:
    certificate = issue(vault.ledger, trained, method="DP-SGD")
    assert certificate.mode == "certified"
    assert certificate.epsilon == pytest.approx(2.0, abs=0.01) and certificate.epsilon <= 2.0
    assert {task.task for task in certificate.claims.certified.tasks} == {"january", "february"}
    rules = {rule.rule: rule for rule in certificate.claims.certified.over_tasks}
    assert [name for name, rule in rules.items() if rule.applies] == ["parallel"]
    assert rules["basic"].epsilon == pytest.approx(2 * certificate.epsilon)
    assert rules["basic"].delta == pytest.approx(2e-5)
    assert certificate.epsilon < rules["accountant"].epsilon < rules["basic"].epsilon  # type: ignore[operator]
    assert rules["adaptive filter"].epsilon >= rules["accountant"].epsilon  # type: ignore[operator]
    assert len(certificate.mechanisms) == 2
    assert certificate.claims.certified.curve[1][0] == certificate.epsilon
    assert {one.state for one in certificate.assumptions} == {"checked", "declared"}


def test_recurring_units_get_the_accountant(vault: Vault, admit: Admit) -> None:
    plan = SumPlan.for_budget(BUDGET, tasks_per_unit=3)
    for task in range(4):
        n = 5 + task
        block = admit(np.ones((n, 1)), np.zeros(n), task=str(task), budget=BUDGET, tasks_per_unit=3)
        vault.sums(block, plan)
    certificate = issue(vault.ledger, block, method="sums")
    applies = [rule for rule in certificate.claims.certified.over_tasks if rule.applies]
    assert [rule.rule for rule in applies] == ["accountant"] and applies[0].tasks == 3
    assert certificate.epsilon == applies[0].epsilon == pytest.approx(2.0, abs=0.01)
    assert certificate.claims.certified.tasks[0].epsilon < 2.0  # type: ignore[operator]


def test_open_blocks_certify_their_filter_not_what_was_spent(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((5, 1)), np.zeros(5), budget=BUDGET, open=True)
    vault.count(block, SumPlan(noise=100.0))
    assert issue(vault.ledger, block, method="m").epsilon == pytest.approx(2.0, abs=0.01)


def test_a_split_costs_the_worse_part(vault: Vault, admit: Admit) -> None:
    block = admit(np.arange(40)[:, None], np.zeros(40), budget=BUDGET)
    train, memory = vault.split(block, {"train": 0.5, "memory": 0.5})
    vault.count(train, SumPlan(noise=10.0))
    vault.count(memory, SumPlan(noise=5.0))
    certificate = issue(vault.ledger, train, method="m")
    assert certificate.epsilon == pytest.approx(epsilon.epsilon(events.gaussian(5.0), 1e-5), rel=1e-6)
    assert certificate.claims.certified.tasks[0].part == "memory"


def test_a_claim_stands_beside_and_is_never_merged(vault: Vault, trained: Any) -> None:
    claim = claims.desai_dp_cl(train=0.85, reference=1.47, delta=1e-4, task=1, tasks=17)
    certificate = issue(vault.ledger, trained, method="DP-CL", claims=[claim])
    (paper,) = certificate.claims.paper
    assert paper.epsilon == pytest.approx(2.32) and paper.adjacency == "continual"
    assert certificate.epsilon == pytest.approx(2.0, abs=0.01)
    assert "not certified" in str(certificate)


def test_test_keys_are_loud() -> None:
    with Ledger.throwaway(keys=KeyRing.for_tests(0)) as ledger:
        vault = Vault(ledger)
        facts = {"stream": "s", "task": "t", "budget": BUDGET, "size": 5, "labels": range(2)}
        block = vault.admit((np.ones((5, 1)), np.zeros(5)), Declared(**facts, public=True))
        vault.sums(block, SumPlan.for_budget(BUDGET))
        certificate = issue(vault.ledger, block, method="m")
    assert certificate.epsilon is None and certificate.mode == "uncertified"
    assert "test keys" in certificate.claims.certified.reason
    assert "no finite epsilon is certified" in str(certificate)
    assert any(one.state == "violated" for one in certificate.assumptions)


def test_test_keys_are_forbidden_for_private_data(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", keys=KeyRing.for_tests(0)) as ledger, pytest.raises(PolicyError, match="test"):
        Vault(ledger).admit(
            (np.ones((5, 1)), np.zeros(5)), Declared(stream="s", task="t", budget=BUDGET, size=5, labels=range(2))
        )


def test_an_audit_above_the_bound_stops_everything(vault: Vault, trained: Any) -> None:
    audit = Audit(
        design="canary",
        runs=1000,
        delta=1e-5,
        confidence=0.95,
        epsilon_lower_bound=2.5,
        observer="noisy gradients",
        date="2026-11-15",
        verdict="refuted",
    )
    with pytest.raises(CertificateError, match="an audit found"):
        issue(vault.ledger, trained, method="m", audits=[audit])
    fine = audit.model_copy(update={"epsilon_lower_bound": 1.2, "verdict": "consistent"})
    assert "1.2" in str(issue(vault.ledger, trained, method="m", audits=[fine]))


def test_uncharged_tuning_needs_the_policy(vault: Vault, trained: Any, ledger: Ledger) -> None:
    with pytest.raises(PolicyError, match="allow_uncharged_tuning"):
        issue(vault.ledger, trained, method="m", tuning="not accounted")
    ledger.adopt(Policy(allow_uncharged_tuning=True), by="officer", why="benchmark")
    certificate = issue(vault.ledger, trained, method="m", tuning="not accounted")
    assert "hyper-parameter tuning on private data" in certificate.not_accounted


def test_json_round_trip_and_schema(vault: Vault, trained: Any, tmp_path: Path) -> None:
    certificate = issue(vault.ledger, trained, method="m")
    certificate.save(tmp_path / "c.json")
    assert Certificate.load(tmp_path / "c.json") == certificate
    schema = Certificate.model_json_schema()
    assert set(schema["required"]) >= {"claims", "unit", "adjacency", "observer", "assumptions", "ledger"}
    with pytest.raises(CertificateError, match="cannot read"):
        Certificate.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"format": 1}')
    with pytest.raises(CertificateError, match="not a certificate"):
        Certificate.load(tmp_path / "bad.json")


def test_signing_and_verifying_with_the_public_key_alone(vault: Vault, trained: Any, tmp_path: Path) -> None:
    public = signing.new_key(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    signing.sign(issue(vault.ledger, trained, method="m"), tmp_path / "key").save(tmp_path / "c.json")
    signing.verify(Certificate.load(tmp_path / "c.json"), public)
    other = signing.new_key(tmp_path / "other")
    with pytest.raises(CertificateError, match="another key"):
        signing.verify(Certificate.load(tmp_path / "c.json"), other)
    with pytest.raises(CertificateError, match="never overwritten"):
        signing.new_key(tmp_path / "key")
    with pytest.raises(CertificateError, match="not an Ed25519 private key"):
        signing.sign(issue(vault.ledger, trained, method="m"), public)


@pytest.mark.parametrize(
    "path", [("claims", "certified", "epsilon"), ("method",), ("ledger", "head_hash"), ("claims", "certified", "delta")]
)
def test_any_change_breaks_the_signature(path: tuple[str, ...], vault: Vault, trained: Any, tmp_path: Path) -> None:
    public = signing.new_key(tmp_path / "key")
    body = json.loads(signing.sign(issue(vault.ledger, trained, method="m"), tmp_path / "key").to_json())
    place = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = 0.5 if isinstance(place[path[-1]], float) else "other"
    with pytest.raises(CertificateError, match="was changed"):
        signing.verify(Certificate.model_validate(body), public)
    with pytest.raises(CertificateError, match="not signed"):
        signing.verify(issue(vault.ledger, trained, method="m"), public)


def test_a_signed_number_that_its_events_do_not_support_is_refused(vault: Vault, trained: Any, tmp_path: Path) -> None:
    public = signing.new_key(tmp_path / "key")
    body = json.loads(issue(vault.ledger, trained, method="m").to_json())
    body["claims"]["certified"]["tasks"][0]["epsilon"] = 0.5
    with pytest.raises(CertificateError, match="its events cost"):
        signing.verify(signing.sign(Certificate.model_validate(body), tmp_path / "key"), public)
    body = json.loads(issue(vault.ledger, trained, method="m").to_json())
    body["claims"]["certified"]["epsilon"] = 0.5
    with pytest.raises(CertificateError, match="but one task costs"):
        signing.verify(signing.sign(Certificate.model_validate(body), tmp_path / "key"), public)


def test_a_certificate_cannot_be_signed_below_its_tasks_and_mechanisms(
    vault: Vault, admit: Admit, tmp_path: Path
) -> None:
    signing.new_key(tmp_path / "key")
    plan = SumPlan.for_budget(BUDGET, tasks_per_unit=2)
    for task in range(2):
        n = 5 + task
        block = admit(np.ones((n, 1)), np.zeros(n), task=str(task), budget=BUDGET, tasks_per_unit=2)
        vault.sums(block, plan)
    true = json.loads(issue(vault.ledger, block, method="m").to_json())
    signing.sign(Certificate.model_validate(true), tmp_path / "key")
    single = true["claims"]["certified"]["tasks"][0]["epsilon"]
    for change in ({"epsilon": single}, {"epsilon": 0.001, "tasks": []}):
        forged = json.loads(json.dumps(true))
        forged["claims"]["certified"] |= change
        with pytest.raises(CertificateError, match="but"):
            signing.sign(Certificate.model_validate(forged), tmp_path / "key")


def test_an_accepted_roll_back_certifies_nothing(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.stream(StreamTerms(name="s", budget=BUDGET))
    (tmp_path / "l.anchor").unlink()
    Ledger.reanchor(tmp_path / "l", by="admin", why="disk crash")
    with Ledger(tmp_path / "l") as ledger:
        certificate = issue(ledger, 1, method="m")
    assert certificate.epsilon is None and "disk crash" in certificate.claims.certified.reason


def test_reading_the_certificate_changes_nothing(vault: Vault, trained: Any, ledger: Ledger) -> None:
    head = ledger.head
    first, second = (issue(vault.ledger, trained, method="m") for _ in range(2))
    assert first.epsilon == second.epsilon and ledger.head == head


def test_a_reserved_grant_counts_and_a_void_one_does_not(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(np.ones((5, 2)), np.zeros(5), budget=BUDGET, labels=range(3))
    plan = GradientPlan.for_budget(BUDGET, rate=0.1, steps=5)
    grant = vault.grant([Read(block=block)], plan, nn.Linear(2, 3), cross_entropy)
    assert issue(ledger, block.stream_id, method="m").epsilon == pytest.approx(2.0, abs=0.02)
    grant.close()
    certificate = issue(ledger, block.stream_id, method="m")
    assert certificate.epsilon == 0 and certificate.mechanisms == ()


def test_test_keys_are_known_without_the_keys(tmp_path: Path) -> None:
    """A view of the ledger certifies no more than the ledger itself."""
    path = tmp_path / "test.ledger"
    with Ledger(path, policy=Policy(allow_test_keys=True), keys=KeyRing.for_tests(0)) as ledger:
        vault = Vault(ledger)
        facts = Declared(stream="s", task="t", budget=BUDGET, size=20, labels=(0,))
        block = vault.admit((np.ones((20, 2)), np.zeros(20)), facts)
        vault.sums(block, SumPlan.for_budget(BUDGET))
    with LedgerView(path) as view:
        certificate = issue(view, block.stream_id, method="sums")
    assert certificate.epsilon is None and "test keys" in (certificate.claims.certified.reason or "")
    assert {one.name: one.state for one in certificate.assumptions}["secure noise"] == "violated"


@pytest.mark.parametrize("how", ["admitted through", "read through", "sums through", "sums", "gradients"])
def test_an_assumption_on_feature_maps_is_stated_where_one_was_used(how: str, vault: Vault) -> None:
    flat = nn.Flatten().eval()
    through = FeatureMap(flat, key="flat", width=2, shape=(2,)) if how == "admitted through" else None
    facts = Declared(stream="s", task="t", budget=BUDGET, size=20, labels=(0, 1))
    block = vault.admit((np.ones((20, 2)), np.zeros(20)), facts, through=through)
    if "sums" in how:
        vault.sums(block, SumPlan.for_budget(BUDGET), through=flat if how == "sums through" else None)
    else:
        read = Read(block, through=flat if how == "read through" else None)
        plan = GradientPlan.for_budget(BUDGET, rate=0.5, steps=1)
        vault.grant(read, plan, nn.Linear(2, 2), cross_entropy).gradient()
    names = {one.name for one in issue(vault.ledger, block, method="m").assumptions}
    assert ("feature maps" in names) == ("through" in how)
