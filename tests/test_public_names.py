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
from tacit.learners import Learner
from tacit.privacy import FilterPlan, LabelPlan, TuningPlan

ROOMS = [
    "tacit", "tacit.audit", "tacit.certificate", "tacit.data", "tacit.experiment", "tacit.learners", "tacit.privacy",
    "tacit.report", "tacit.robustness",
]  # fmt: skip
OTHER_PACKAGES = ["tacit.gradients", "tacit.memory", "tacit.models"]
"""Packages whose public functions are for authors of learners; importing them imports torch."""


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


FINGERPRINTED = {"cross_entropy"}
"""Functions whose docstring is part of the fingerprint of unfinished work, so that it stays as it is."""


def _undocumented(function: Any) -> list[str]:
    """The sections that a function's docstring lacks."""
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)
    names = [name for name in signature.parameters if name not in ("self", "cls", "learner")]
    lacks = [name for name in names if not re.search(rf"^    {name}: ", text, re.MULTILINE)]
    returned = signature.return_annotation
    lacks += ["Returns"] if returned not in (None, "None", inspect.Parameter.empty) and "Returns:" not in text else []
    raising = re.search(r"^ +raise \w", inspect.getsource(function), re.MULTILINE)
    return lacks + (["Raises"] if raising and "Raises:" not in text else [])


@pytest.mark.parametrize("room", [*ROOMS, *OTHER_PACKAGES])
def test_public_functions_document_arguments_results_and_errors(room: str) -> None:
    package = import_module(room)
    functions = [value for name in package.__all__ if inspect.isfunction(value := getattr(package, name))]
    functions = [function for function in functions if function.__name__ not in FINGERPRINTED]
    assert {function.__name__: lacks for function in functions if (lacks := _undocumented(function))} == {}


DOCUMENTED: list[type] = [
    tacit.Vault, tacit.Ledger, tacit.Policy, tacit.Stream, tacit.StreamInfo, tacit.Certificate, tacit.GradientPlan,
    tacit.SumPlan, FilterPlan, LabelPlan, TuningPlan, Learner,
]  # fmt: skip
"""Classes whose public methods, inherited ones included, document arguments, results and errors."""


@pytest.mark.parametrize("owner", DOCUMENTED, ids=lambda owner: owner.__name__)
def test_public_methods_document_arguments_results_and_errors(owner: type) -> None:
    methods = {
        name: method
        for base in owner.__mro__
        if base.__module__.startswith("tacit.")
        for name, value in vars(base).items()
        if not name.startswith("_") and inspect.isfunction(method := getattr(value, "__func__", value))
    }
    assert methods
    assert {name: lacks for name, method in methods.items() if (lacks := _undocumented(method))} == {}
