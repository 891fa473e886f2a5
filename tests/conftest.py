"""Secrets in tests come from the test's name: whatever noise a test meets, it meets again in the next run.

Noise is a function of the keys and of a grant's name, so both are drawn here. Users' keys come from the operating
system (tests/privacy/randomness/test_keys.py runs without this). Processes that a test starts draw theirs as users do,
so no assertion may depend on their draws.
"""

import os
import secrets as real
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer import testing

from support import session_cache
from support.named_secrets import TOLD
from tacit.privacy.ledger import grants
from tacit.privacy.randomness import keys

pytest_plugins = ["support.fixtures"]
torch.set_num_threads(1)  # small problems are faster so, and there is a worker for every core

# The tree of commands is built once for a process, as for a user, and not again for each command that a test calls.
testing._get_command = cache(testing._get_command)

# Ledgers are synced to the disk at every charge. In memory that takes no time; set TMPDIR to choose another folder.
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

# tacit stores per user which entry of a ledger was the newest; tests have a folder of their own for it.
_STATE = tempfile.TemporaryDirectory(prefix="tacit-state-")
os.environ["TACIT_STATE"] = _STATE.name

# Made by the first process of a session, and passed on to its workers.
_SHARED = tempfile.TemporaryDirectory(prefix="tacit-tests-") if "TACIT_TEST_CACHE" not in os.environ else None
if _SHARED is not None:
    os.environ["TACIT_TEST_CACHE"] = _SHARED.name
session_cache.install(Path(os.environ["TACIT_TEST_CACHE"]))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[None]:
    """A fixture's secrets are its own, so that it does not matter which test asks for it first."""
    outer = TOLD.name, TOLD.numbers
    TOLD.start(f"{request.node.nodeid} {fixturedef.argname}")
    try:
        return (yield)  # type: ignore[return-value]
    finally:
        TOLD.name, TOLD.numbers = outer


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> Iterator[None]:
    TOLD.start(pyfuncitem.nodeid)
    return (yield)  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def _secrets_by_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.path.name == "test_keys.py":
        monkeypatch.setattr(keys, "secrets", real)


keys.secrets = SimpleNamespace(token_bytes=TOLD.token_bytes)  # type: ignore[assignment]
grants.uuid = SimpleNamespace(uuid4=TOLD.uuid4)  # type: ignore[attr-defined]
