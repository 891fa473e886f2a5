"""The worked example of docs/adding-an-exit.md is an exit that fulfils the contract of all exits."""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support import exit_contracts
from support.exit_contracts import Contract
from support.exit_properties import PROPERTIES
from tacit.privacy import Vault
from tacit.privacy.vault import vault as vault_module

PAGE = Path(__file__).parents[3] / "docs" / "adding-an-exit.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contract:
    """The exit of the page, registered as the page says."""
    text = PAGE.read_text(encoding="utf-8")
    source, contract = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    file = tmp_path / "bounded_mean.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location("tacit_bounded_mean", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(vault_module.EXITS, "bounded_mean", module.BoundedMeanExit)
    names = {**vars(exit_contracts), "CONTRACTS": {}}
    exec(contract, names)
    made: Contract = names["CONTRACTS"]["bounded_mean"]
    return made


@pytest.mark.parametrize("check", PROPERTIES, ids=[check.__name__ for check in PROPERTIES])
def test_the_example_fulfils_the_contract(
    example: Contract,
    check: Callable[[Contract, Path, pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check(example, tmp_path, monkeypatch)


def test_a_vault_has_the_registered_exits_only() -> None:
    assert "bounded_mean" not in vars(Vault) and "bounded_mean" not in vault_module.EXITS
