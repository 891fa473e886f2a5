"""Keys: from the operating system, owner-only, backed up encrypted, rotated, never overwritten."""

from pathlib import Path

import pytest

from tacit.errors import LedgerError, PlanError
from tacit.privacy.randomness.keys import KeyRing

PASSPHRASE = "correct horse battery"


def test_the_file_is_owner_only_and_comes_back(tmp_path: Path) -> None:
    ring = KeyRing.create(tmp_path / "keys")
    assert (tmp_path / "keys").stat().st_mode & 0o077 == 0
    again = KeyRing.load(tmp_path / "keys")
    assert again.identity("a") == ring.identity("a")
    assert again.derive("noise", 1, "g") == ring.derive("noise", 1, "g")


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    KeyRing.create(tmp_path / "keys")
    before = (tmp_path / "keys").read_bytes()
    with pytest.raises(LedgerError, match="never overwritten"):
        KeyRing.create(tmp_path / "keys")
    assert (tmp_path / "keys").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


def test_backup_and_restore(tmp_path: Path) -> None:
    ring = KeyRing.create(tmp_path / "keys")
    sealed = ring.backup(PASSPHRASE)
    assert (tmp_path / "keys").read_bytes() not in sealed
    restored = KeyRing.restore(sealed, PASSPHRASE, tmp_path / "other")
    assert restored.derive("sampler", 1, "x") == ring.derive("sampler", 1, "x")
    with pytest.raises(LedgerError, match="passphrase is wrong"):
        KeyRing.restore(sealed, PASSPHRASE + "!", tmp_path / "third")
    with pytest.raises(LedgerError, match="damaged"):
        KeyRing.restore(sealed[:-1] + b"x", PASSPHRASE, tmp_path / "third")
    with pytest.raises(LedgerError, match="not a backup"):
        KeyRing.restore(b"hello", PASSPHRASE, tmp_path / "third")
    assert not (tmp_path / "third").exists()


def test_a_short_passphrase_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="12 characters"):
        KeyRing.create(None).backup("short")


def test_rotation_destroys_what_nobody_needs(tmp_path: Path) -> None:
    ring = KeyRing.create(tmp_path / "keys")
    identity, old = ring.identity("x"), ring.derive("noise", 1, "g")
    assert ring.rotate({1}) == 2
    assert ring.derive("noise", 1, "g") == old
    assert ring.derive("noise", 2, "g") != old
    assert ring.rotate(set()) == 3
    again = KeyRing.load(tmp_path / "keys")
    assert again.identity("x") == identity and again.generation == 3
    with pytest.raises(LedgerError, match="destroyed by a rotation"):
        again.derive("noise", 1, "g")


def test_test_keys_are_reproducible_and_marked() -> None:
    assert KeyRing.for_tests(0).derive("noise", 1) == KeyRing.for_tests(0).derive("noise", 1)
    assert KeyRing.for_tests(0).test and not KeyRing.create(None).test


def test_the_mark_of_test_keys_is_for_ever(tmp_path: Path) -> None:
    ring = KeyRing.restore(KeyRing.for_tests(0).backup(PASSPHRASE), PASSPHRASE, tmp_path / "keys")
    ring.rotate(set())
    assert ring.test and KeyRing.load(tmp_path / "keys").test


def test_secrets_do_not_show_in_repr() -> None:
    ring = KeyRing.create(None)
    shown = repr(ring) + repr(ring._generations)
    assert ring._generations[1].noise.hex() not in shown and repr(ring._generations[1].noise) not in shown


def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("{}")
    with pytest.raises(LedgerError, match="damaged"):
        KeyRing.load(tmp_path / "keys")
