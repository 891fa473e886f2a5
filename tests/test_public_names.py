"""The public names: about 30 at the top of `tacit`, the rest in each room, imported on first use."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tacit

ROOMS = [
    "tacit", "tacit.audit", "tacit.certificate", "tacit.data", "tacit.experiment", "tacit.learners", "tacit.privacy",
    "tacit.report", "tacit.robustness",
]  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_can_be_imported(room: str) -> None:
    package = import_module(room)
    assert package.__all__
    for name in package.__all__:
        value = getattr(package, name)
        assert getattr(value, "__name__", name) == name
        assert name in dir(package)
    with pytest.raises(AttributeError, match=f"module '{room}' has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018


@pytest.mark.parametrize("room", ROOMS)
def test_no_public_name_is_hidden_by_a_module(room: str) -> None:
    """Importing a submodule sets it as an attribute of its package, where it would replace a function of its name."""
    package = import_module(room)
    modules = {path.stem for folder in package.__path__ for path in Path(folder).iterdir()}
    assert not modules & set(package.__all__)


def test_the_top_has_about_thirty_names() -> None:
    assert 25 <= len(tacit.__all__) <= 32


def test_importing_the_rooms_imports_neither_torch_nor_the_accountants() -> None:
    code = (
        f"import sys, {', '.join(ROOMS)}; print([m for m in ('torch', 'numpy', 'dp_accounting') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.stdout == "[]\n", shown.stderr


def _undocumented(function: Any) -> list[str]:
    """The sections that a function's docstring lacks."""
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)
    names = [name for name in signature.parameters if name not in ("self", "cls", "learner")]
    lacks = [name for name in names if not re.search(rf"^    {name}: ", text, re.MULTILINE)]
    returned = signature.return_annotation
    lacks += ["Returns"] if returned not in (None, "None", inspect.Parameter.empty) and "Returns:" not in text else []
    raising = re.search(r"^ +raise \w", inspect.getsource(function), re.MULTILINE)
    return lacks + (["Raises"] if raising and "Raises:" not in text else [])


@pytest.mark.parametrize("room", ROOMS)
def test_public_functions_document_arguments_results_and_errors(room: str) -> None:
    package = import_module(room)
    functions = [value for name in package.__all__ if inspect.isfunction(value := getattr(package, name))]
    assert {function.__name__: lacks for function in functions if (lacks := _undocumented(function))} == {}


@pytest.mark.parametrize(
    "owner",
    [tacit.Vault, tacit.Ledger, tacit.Policy, tacit.Stream, tacit.Certificate],
    ids=lambda o: o.__name__,
)
def test_public_methods_document_their_arguments(owner: type) -> None:
    """One obvious argument needs no line of its own."""
    for name, value in vars(owner).items():
        method = getattr(value, "__func__", value)
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        assert inspect.getdoc(method), name
        others = [one for one in inspect.signature(method).parameters if one not in ("self", "cls", "learner")]
        if len(others) > 1:
            assert "Args:" in str(inspect.getdoc(method)), f"{owner.__name__}.{name}"
