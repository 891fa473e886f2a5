"""`tacit certificate document`, `registry` and `diff` as they are typed."""

import json
import shutil
from pathlib import Path

import numpy as np
import yaml

from support.shell import tacit
from tacit import Budget, Declared, Ledger, SumPlan, Vault
from tacit.certificate.issuance import issue

OLD = Path(__file__).parent / "old_certificate"
POLICY = '[deployment]\nname = "Ward triage"\nintended_use = "triage"\ncurators = ["St Example"]\n'


def test_a_document_is_written_in_the_format_of_its_suffix(book: Path, tmp_path: Path) -> None:
    for name, begins in (("a.html", b"<!DOCTYPE html>"), ("a.pdf", b"%PDF-")):
        output = tacit("certificate", "document", tmp_path / "c.json", "--out", tmp_path / name).output
        assert name in output and (tmp_path / name).read_bytes().startswith(begins)
    assert (
        "use one of .html, .pdf"
        in tacit("certificate", "document", tmp_path / "c.json", "--out", "a.txt", code=1).output
    )
    lost = tacit("certificate", "document", tmp_path / "c.json", "--out", tmp_path / "no" / "a.html", code=1).output
    assert "cannot write" in lost and "--out" in lost


def test_a_policy_declares_what_the_certificate_and_its_document_say(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    tacit(
        "policy",
        "adopt",
        tmp_path / "policy.toml",
        "--ledger",
        tmp_path / "l",
        "--why",
        "first",
        "--by",
        "owner",
        "--new",
    )
    with Ledger(tmp_path / "l") as ledger:
        vault, budget = Vault(ledger), Budget(epsilon=1.0, delta=1e-5)
        facts = Declared(stream="scans", task="2026-01", budget=budget, size=10, labels=range(2))
        block = vault.admit((np.ones((10, 2)), np.zeros(10)), facts)
        vault.sums(block, SumPlan.for_budget(budget))
        issue(ledger, block, method="sums").save(tmp_path / "c.json")
    tacit("certificate", "verify", tmp_path / "c.json", "--ledger", tmp_path / "l")
    assert "intended use: triage" in tacit("certificate", "show", tmp_path / "c.json").output
    tacit("certificate", "document", tmp_path / "c.json", "--out", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "Ward triage" in page and "St Example" in page and "Not stated:" in page
    # The declaration is covered by the signature, and compared with the ledger.
    forged = (tmp_path / "c.json").read_text().replace("triage", "advertising")
    (tmp_path / "c.json").write_text(forged)
    assert "policy" in tacit("certificate", "verify", tmp_path / "c.json", "--ledger", tmp_path / "l", code=1).output


def test_fields_may_be_given_beside_the_certificate(book: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    words = ("certificate", "document", tmp_path / "c.json", "--out", tmp_path / "a.html", "--policy")
    tacit(*words, tmp_path / "policy.toml")
    assert "no signature covers it" in (tmp_path / "a.html").read_text()
    (tmp_path / "policy.toml").write_text("allow_unsafe = false\n")
    assert "declares no [deployment]" in tacit(*words, tmp_path / "policy.toml", code=1).output


def test_no_document_of_numbers_that_do_not_follow(book: Path, tmp_path: Path) -> None:
    body = json.loads((tmp_path / "c.json").read_text())
    body["claims"]["certified"]["epsilon"] = 0.01
    (tmp_path / "c.json").write_text(json.dumps(body))
    for command, name in (("document", "x.html"), ("registry", "x.yaml")):
        output = tacit("certificate", command, tmp_path / "c.json", "--out", tmp_path / name, code=1).output
        assert "do not rely on it" in output and not (tmp_path / name).exists()


def test_a_certificate_of_an_earlier_version_is_filed_like_any_other(tmp_path: Path) -> None:
    for name in ("a.html", "a.pdf"):
        tacit("certificate", "document", OLD, "--out", tmp_path / name)
    tacit("certificate", "registry", OLD, "--out", tmp_path / "e.yaml")
    assert yaml.safe_load((tmp_path / "e.yaml").read_text())["status"] == "Draft"
    assert "as µ-GDP" in tacit("certificate", "show", OLD).output
    assert "These are the same certificate" in tacit("certificate", "diff", OLD, OLD).output


def test_the_registrys_entry_is_validated_and_named(book: Path, tmp_path: Path) -> None:
    output = tacit("certificate", "registry", tmp_path / "c.json", "--out", tmp_path / "e.yaml").output
    assert "draft, tier 1" in output and "declare them in [deployment]" in output
    entry = yaml.safe_load((tmp_path / "e.yaml").read_text())
    assert entry["deployment"]["basic"]["data_product_type"] == "Machine learning model"
    wrong = tacit("certificate", "registry", tmp_path / "c.json", "--out", tmp_path / "e.pdf", code=1).output
    assert "has no known suffix; use one of .yaml, .yml" in wrong and not (tmp_path / "e.pdf").exists()


def test_the_help_names_the_table_of_the_policy() -> None:
    for command in ("document", "registry"):
        assert "`deployment`" in tacit("certificate", command, "--help").output


def test_the_difference_of_two_certificates(book: Path, tmp_path: Path) -> None:
    output = tacit("certificate", "diff", OLD, tmp_path / "c.json").output
    assert output.startswith("These certificates are of different ledgers")
    assert "ε fell from 2 to" in output and "attacker's advantage, at most" in output and "→" in output
    found = json.loads(tacit("certificate", "diff", OLD, tmp_path / "c.json", "--json").output)
    assert found["warnings"] and {one["name"] for one in found["numbers"]} >= {"ε", "δ", "tasks"}
    shutil.copy(tmp_path / "c.json", tmp_path / "same.json")
    assert "nothing changed" in tacit("certificate", "diff", tmp_path / "c.json", tmp_path / "same.json").output
    assert "no file or folder" in tacit("certificate", "diff", OLD, tmp_path / "none.json", code=1).output
