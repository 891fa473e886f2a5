"""`tacit ledger` and `tacit policy`."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support.shell import tacit
from tacit import Ledger


def test_show_and_verify(book: Path) -> None:
    assert "scans" in tacit("ledger", "show", "--ledger", book).output
    shown = json.loads(tacit("ledger", "show", "--ledger", book, "--json").output)
    assert shown["streams"][0]["epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert "verified: 7 entries" in tacit("ledger", "verify", "--ledger", book).output
    assert "verified: " in tacit("ledger", "verify", "--ledger", book, "--certificate", book.parent / "c.json").output


def test_a_certificate_of_another_ledger_is_noticed(book: Path, tmp_path: Path) -> None:
    with Ledger(tmp_path / "other"):
        pass
    output = tacit(
        "ledger", "verify", "--ledger", tmp_path / "other", "--certificate", tmp_path / "c.json", code=1
    ).output
    assert "rolled back, or is another ledger" in output


def test_a_damaged_ledger_is_noticed_and_made_anew(book: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(book)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_blocks_stream'").fetchone()
    whole = book.read_bytes()
    book.write_bytes(whole[: page * 4096 - 60] + bytes(50) + whole[page * 4096 - 10 :])
    output = tacit("ledger", "verify", "--ledger", book, code=1).output
    assert output.count("\n") == 1 and "damaged" in output and "tacit ledger rebuild --into NEW" in output
    damaged = book.read_bytes()
    done = tacit("ledger", "rebuild", "--ledger", book, "--into", tmp_path / "new").output
    assert "rebuilt and verified: 7 entries" in done and book.read_bytes() == damaged
    assert "exists" in tacit("ledger", "rebuild", "--ledger", book, "--into", tmp_path / "new", code=1).output
    for end in ("", "-wal", "-shm"):
        Path(f"{book}{end}").unlink(missing_ok=True)
    (tmp_path / "new").rename(book)
    assert "verified: " in tacit("ledger", "verify", "--ledger", book, "--certificate", tmp_path / "c.json").output


def test_no_ledger_is_one_sentence(tmp_path: Path) -> None:
    output = tacit("ledger", "show", "--ledger", tmp_path / "none", code=1).output
    assert output.count("\n") == 1 and "there is no ledger" in output
    assert not (tmp_path / "none").exists()


def test_policy(book: Path, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('may_raise = ["officer"]\n')
    tacit("policy", "adopt", file, "--ledger", book, "--by", "officer", "--why", "review")
    assert json.loads(tacit("policy", "show", "--ledger", book).stdout)["may_raise"] == ["officer"]
    file.write_text("may_rais = []\n")
    assert "may_raise" in tacit("policy", "adopt", file, "--ledger", book, "--by", "o", "--why", "w", code=1).output


def test_raise_and_reanchor(book: Path, tmp_path: Path) -> None:
    words = ("ledger", "raise", "scans", "--ledger", book, "--epsilon", 2.0, "--by", "officer", "--why", "consent")
    assert "may_raise" in tacit(*words, code=1).output
    (tmp_path / "policy.toml").write_text('may_raise = ["officer"]\n')
    tacit("policy", "adopt", tmp_path / "policy.toml", "--ledger", book, "--by", "officer", "--why", "review")
    assert "1 → 2" in tacit(*words).output
    Path(f"{book}.anchor").unlink()
    assert "a roll-back would not be noticed" in tacit("ledger", "show", "--ledger", book).stderr
    assert "reanchor" in tacit(*words, code=1).output
    tacit("ledger", "reanchor", "--ledger", book, "--by", "officer", "--why", "disk crash")
    tacit("ledger", "verify", "--ledger", book)


def test_reanchoring_a_ledger_in_order_needs_a_word_more(book: Path) -> None:
    words = ("ledger", "reanchor", "--ledger", book, "--by", "officer", "--why", "just in case")
    output = tacit(*words, code=1).output
    assert "is in order" in output and "--anyway" in output and output.count("\n") == 1
    assert "charges may be missing" in tacit(*words, "--anyway").output


def test_a_moved_ledger_is_taken_up_by_reanchoring(book: Path, tmp_path: Path) -> None:
    for end in ("", ".keys", ".anchor"):
        shutil.copy(f"{book}{end}", tmp_path / f"moved{end}")
    output = tacit("keys", "rotate", "--ledger", tmp_path / "moved", code=1).output
    assert "copied, restored or moved" in output and "tacit ledger reanchor" in output
    told = tacit("ledger", "reanchor", "--ledger", tmp_path / "moved", "--by", "o", "--why", "new disk").output
    assert "may be used at this path" in told
    tacit("keys", "rotate", "--ledger", tmp_path / "moved")
