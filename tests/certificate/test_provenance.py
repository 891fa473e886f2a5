"""Which source runs: its commit, and whether files differ from it."""

import subprocess
from pathlib import Path

import pytest

from tacit.certificate.provenance import Checkout, checkout, library


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=e@x.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a.py").write_text("1\n")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def test_a_clean_checkout_and_what_lies_beside(root: Path) -> None:
    (root / "run.csv").write_text("untracked\n")
    assert checkout(root) == Checkout(commit=git(root, "rev-parse", "HEAD"), dirty=False)


def test_changed_files_make_it_dirty(root: Path) -> None:
    (root / "a.py").write_text("2\n")
    assert checkout(root).dirty is True
    (root / "a.py").write_text("1\n")
    assert checkout(root).dirty is True  # asked for once in a process


def test_without_git_nothing_is_known(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checkout(tmp_path_factory.mktemp("plain")) == Checkout(commit=None, dirty=None)
    monkeypatch.setenv("PATH", "")
    assert checkout(root) == Checkout(commit=None, dirty=None)


def test_a_checkout_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert checkout(tmp_path) == Checkout(commit=None, dirty=None)


def test_certificates_name_the_same_commit() -> None:
    assert library().git_commit == checkout().commit
