"""No case writes to the user's cache, asks the network, or finds a ledger by accident."""

import pytest


@pytest.fixture(autouse=True)
def _own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TACIT_TRACEBACK", "1")  # a failing case says where
    monkeypatch.delenv("TACIT_LEDGER", raising=False)
