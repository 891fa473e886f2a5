"""Provenance: the version of tacit, and the git commit of its source."""

import subprocess
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from tacit.certificate.sections import Library


@cache
def library() -> Library:
    """The running version of tacit; determined once per process."""
    return Library(name="tacit", version=metadata.version("tacit"), git_commit=checkout().commit)


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """The git checkout that the running source belongs to; all None outside a checkout."""

    commit: str | None = None
    dirty: bool | None = None
    """Whether tracked files differ from the commit."""


@cache
def checkout(root: Path = Path(__file__).parents[3]) -> Checkout:
    """The checkout at `root`; determined once per process."""
    if not (root / ".git").exists():
        return Checkout()
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    # Without optional locks, so that the query never blocks work in the checkout.
    changes = _git(root, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no")
    return Checkout(commit=commit, dirty=None if commit is None or changes is None else changes != "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return None
    return done.stdout.strip() if done.returncode == 0 else None
