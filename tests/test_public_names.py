"""The public names: about 30 at the top of `tacit`, the rest in each room, imported on first use."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tacit

ROOMS = [
    "tacit", "tacit.audit", "tacit.certificate", "tacit.data", "tacit.experiment", "tacit.learners", "tacit.privacy",
    "tacit.robustness",
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
