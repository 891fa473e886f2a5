"""`tacit keys`."""

import json
from pathlib import Path

import pytest

from support.shell import tacit
from tacit import Ledger

PASSPHRASE = "correct horse battery"


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
    assert "tacit keys restore" in tacit("keys", "rotate", "--ledger", book, code=1).output
    assert "wrong" in tacit("keys", "restore", sealed, "--ledger", book, "--passphrase", "x" * 20, code=1).output
    tacit("keys", "restore", sealed, "--ledger", book, "--passphrase", PASSPHRASE)
    assert json.loads(keys.read_bytes()) == json.loads(before)
    tacit("ledger", "verify", "--ledger", book)


def test_without_a_terminal_the_passphrase_comes_from_the_environment(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TACIT_PASSPHRASE", raising=False)
    words = ("keys", "backup", tmp_path / "sealed", "--ledger", book)
    for asked in (words, ("keys", "restore", book, "--ledger", book)):
        assert tacit(*asked, code=1).output == (
            "error: the passphrase is read from a terminal, and there is none; set the environment "
            "variable TACIT_PASSPHRASE\n"
        )
    assert not (tmp_path / "sealed").exists()
    monkeypatch.setenv("TACIT_PASSPHRASE", PASSPHRASE)
    tacit(*words)
    assert (tmp_path / "sealed").exists()


def test_rotation_keeps_the_ledger_working(book: Path) -> None:
    assert "generation 2" in tacit("keys", "rotate", "--ledger", book).output
    tacit("ledger", "verify", "--ledger", book)
    with Ledger(book) as ledger:
        assert ledger.keys.generation == 2


def test_keys_of_another_ledger_are_not_restored(book: Path, tmp_path: Path) -> None:
    with Ledger(tmp_path / "other") as other:
        (tmp_path / "sealed").write_bytes(other.keys.backup(PASSPHRASE))
    Path(f"{book}.keys").unlink()
    words = ("keys", "restore", tmp_path / "sealed", "--passphrase", PASSPHRASE)
    assert "another ledger" in tacit(*words, "--ledger", book, code=1).output
    assert not Path(f"{book}.keys").exists()
    assert "no ledger" in tacit(*words, "--ledger", tmp_path / "none", code=1).output
