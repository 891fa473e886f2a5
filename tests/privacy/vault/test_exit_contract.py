"""Every exit of the vault has a contract and fulfils it; see tests/support/exit_contracts.py and exit_properties.py."""

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import get_type_hints

import pytest

from support.exit_contracts import CONTRACTS, Contract
from support.exit_properties import PROPERTIES
from tacit.privacy import Vault
from tacit.privacy.vault import exits
from tacit.privacy.vault.exits.access import Exit
from tacit.privacy.vault.exits.count import CountExit
from tacit.privacy.vault.vault import EXITS


def subclasses(base: type[Exit]) -> set[type[Exit]]:
    own = base.__subclasses__()
    return {*own, *(deeper for one in own for deeper in subclasses(one))}


def unregistered() -> set[type[Exit]]:
    """The exits that files in the folder of exits define and no vault offers."""
    inside = f"{exits.__name__}."
    for file in iter_modules(exits.__path__, inside):
        import_module(file.name)
    return {exit for exit in subclasses(Exit) if exit.__module__.startswith(inside)} - set(EXITS.values())


def test_every_exit_that_a_file_defines_is_registered() -> None:
    assert unregistered() == set()


def test_an_exit_that_is_not_registered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(EXITS, "count")
    assert unregistered() == {CountExit}


@pytest.mark.parametrize("check", PROPERTIES, ids=[check.__name__ for check in PROPERTIES])
@pytest.mark.parametrize("contract", [pytest.param(contract, id=name) for name, contract in CONTRACTS.items()])
def test_an_exit_fulfils_its_contract(
    contract: Contract,
    check: Callable[[Contract, Path, pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check(contract, tmp_path, monkeypatch)


def test_every_exit_is_registered_bound_and_has_a_contract(vault: Vault) -> None:
    bound = {name for name, value in vars(vault).items() if isinstance(value, Exit)}
    assert set(EXITS) == set(CONTRACTS) == bound == set(get_type_hints(Vault))
    assert all(type(getattr(vault, name)) is EXITS[name] for name in EXITS)
    files = [inspect.getsourcefile(exit) for exit in EXITS.values()]
    assert len(set(files)) == len(files), "an exit is a file"


def test_the_repr_of_an_exit_is_the_name_that_a_learner_uses(vault: Vault) -> None:
    assert repr(vault.sums) == "<vault.sums>"
    assert [repr(getattr(vault, name)) for name in EXITS] == [f"<vault.{name}>" for name in EXITS]


@pytest.mark.parametrize("exit", EXITS.values(), ids=EXITS)
def test_an_exit_states_its_guarantee_and_documents_its_call(exit: type[Exit]) -> None:
    module = inspect.getmodule(exit)
    guarantees, _, conditions = str(module.__doc__).partition("\n\nConditions")
    assert re.search(r"^Formal guarantees.*\n  \* ", guarantees, re.M)
    assert re.match(r"(:|\n  \*) \w", conditions), "an exit states under which conditions its guarantee holds"
    text = str(inspect.getdoc(exit.__call__))  # type: ignore[attr-defined]
    assert "Args:" in text and "Raises:" in text
    for name in list(inspect.signature(exit.__call__).parameters)[1:]:  # type: ignore[attr-defined]
        assert f"{name}:" in text, name


@pytest.mark.parametrize("name", [name for name, contract in CONTRACTS.items() if not contract.takes_code])
def test_an_exit_whose_contract_takes_no_user_code_takes_none(name: str) -> None:
    hints = get_type_hints(EXITS[name].__call__)  # type: ignore[attr-defined]
    assert not any("Callable" in str(hint) or "Module" in str(hint) for hint in hints.values())
