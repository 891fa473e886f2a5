"""The command: what a person types, and what comes back."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tacit import Budget, Declared, Ledger, SumPlan, Vault
from tacit.cli import app

PASSPHRASE = "correct horse battery"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:
        vault = Vault(ledger)
        budget = Budget(epsilon=1.0, delta=1e-5)
        declared = Declared(stream="scans", task="2026-01", budget=budget, size=10, labels=range(2))
        block = vault.admit((np.ones((10, 2)), np.zeros(10)), declared)
        vault.sums(block, SumPlan.for_budget(budget))
        vault.certificate(block, method="sums").save(tmp_path / "c.json")
    return path


def tacit(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def test_show_and_verify(book: Path) -> None:
    assert "scans" in tacit("ledger", "show", "--ledger", book).output
    shown = json.loads(tacit("ledger", "show", "--ledger", book, "--json").output)
    assert shown["streams"][0]["epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert "in order" in tacit("ledger", "verify", "--ledger", book).output
    assert "in order" in tacit("ledger", "verify", "--ledger", book, "--certificate", book.parent / "c.json").output


def test_a_certificate_of_another_ledger_is_noticed(book: Path, tmp_path: Path) -> None:
    with Ledger(tmp_path / "other"):
        pass
    output = tacit(
        "ledger", "verify", "--ledger", tmp_path / "other", "--certificate", tmp_path / "c.json", code=1
    ).output
    assert "rolled back, or is another ledger" in output


def test_no_ledger_is_one_sentence(tmp_path: Path) -> None:
    output = tacit("ledger", "show", "--ledger", tmp_path / "none", code=1).output
    assert output.count("\n") == 1 and "there is no ledger" in output
    assert not (tmp_path / "none").exists()


def test_keys_can_be_backed_up_and_restored(book: Path, tmp_path: Path) -> None:
    sealed = tmp_path / "sealed"
    tacit("keys", "backup", sealed, "--ledger", book, "--passphrase", PASSPHRASE)
    assert sealed.stat().st_mode & 0o077 == 0
    assert "exists" in tacit("keys", "backup", sealed, "--ledger", book, "--passphrase", PASSPHRASE, code=1).output
    keys = Path(f"{book}.keys")
    before = keys.read_bytes()
    assert (
        "never overwritten"
        in tacit("keys", "restore", sealed, "--ledger", book, "--passphrase", PASSPHRASE, code=1).output
    )
    keys.unlink()
    assert "tacit keys restore" in tacit("ledger", "show", "--ledger", book, code=1).output
    assert "wrong" in tacit("keys", "restore", sealed, "--ledger", book, "--passphrase", "x" * 20, code=1).output
    tacit("keys", "restore", sealed, "--ledger", book, "--passphrase", PASSPHRASE)
    assert json.loads(keys.read_bytes()) == json.loads(before)
    tacit("ledger", "verify", "--ledger", book)


def test_rotation_keeps_the_ledger_working(book: Path) -> None:
    assert "generation 2" in tacit("keys", "rotate", "--ledger", book).output
    tacit("ledger", "verify", "--ledger", book)
    with Ledger(book) as ledger:
        assert ledger.keys.generation == 2


def test_sign_and_verify(book: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "officer", tmp_path / "c.json"
    tacit("keys", "signing", key)
    assert "not signed" in tacit("certificate", "verify", certificate, "--key", f"{key}.pub", code=1).output
    tacit("certificate", "sign", certificate, "--key", key)
    assert "genuine" in tacit("certificate", "verify", certificate, "--key", f"{key}.pub").output
    certificate.write_text(certificate.read_text().replace('"method": "sums"', '"method": "magic"'))
    assert "changed" in tacit("certificate", "verify", certificate, "--key", f"{key}.pub", code=1).output


def test_show_certificate_and_schema(book: Path, tmp_path: Path) -> None:
    text = tacit("certificate", "show", tmp_path / "c.json").output
    assert "PRIVACY CERTIFICATE" in text and "ε = 1" in text
    assert json.loads(tacit("certificate", "show", tmp_path / "c.json", "--json").output)["method"] == "sums"
    assert json.loads(tacit("certificate", "schema").output)["title"] == "Certificate"


def test_policy(book: Path, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('may_raise = ["officer"]\n')
    tacit("policy", "adopt", file, "--ledger", book, "--by", "officer", "--why", "review")
    assert json.loads(tacit("policy", "show", "--ledger", book).output)["may_raise"] == ["officer"]
    file.write_text("may_rais = []\n")
    assert "may_raise" in tacit("policy", "adopt", file, "--ledger", book, "--by", "o", "--why", "w", code=1).output


def test_raise_reanchor_and_version(book: Path, tmp_path: Path) -> None:
    words = ("ledger", "raise", "scans", "--ledger", book, "--epsilon", 2.0, "--by", "officer", "--why", "consent")
    assert "may_raise" in tacit(*words, code=1).output
    (tmp_path / "policy.toml").write_text('may_raise = ["officer"]\n')
    tacit("policy", "adopt", tmp_path / "policy.toml", "--ledger", book, "--by", "officer", "--why", "review")
    assert "1 → 2" in tacit(*words).output
    Path(f"{book}.anchor").unlink()
    assert "reanchor" in tacit("ledger", "show", "--ledger", book, code=1).output
    tacit("ledger", "reanchor", "--ledger", book, "--by", "officer", "--why", "disk crash")
    tacit("ledger", "verify", "--ledger", book)
    assert tacit("--version").output.strip() == "0.1.0"


def test_keys_of_another_ledger_are_not_restored(book: Path, tmp_path: Path) -> None:
    with Ledger(tmp_path / "other") as other:
        (tmp_path / "sealed").write_bytes(other.keys.backup(PASSPHRASE))
    Path(f"{book}.keys").unlink()
    words = ("keys", "restore", tmp_path / "sealed", "--passphrase", PASSPHRASE)
    assert "another ledger" in tacit(*words, "--ledger", book, code=1).output
    assert not Path(f"{book}.keys").exists()
    assert "no ledger" in tacit(*words, "--ledger", tmp_path / "none", code=1).output
