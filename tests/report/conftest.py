"""One tiny trained sweep for all tests of reports; tests that change a folder take a copy."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.report_folders import cell, tiny_sweep


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep; nobody may change it."""
    return tiny_sweep(tmp_path_factory.mktemp("report") / "tiny")


@pytest.fixture
def swept(trained: Path, tmp_path: Path) -> Path:
    """A copy of the sweep."""
    return Path(shutil.copytree(trained, tmp_path / "tiny"))


@pytest.fixture
def a_run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run of DPCL."""
    return Path(shutil.copytree(cell(trained, "DPCL"), tmp_path / "dpcl"))


@pytest.fixture
def run_of(trained: Path) -> Callable[[str], Path]:
    """The folder of a learner's run; nobody may change it."""
    return lambda method: cell(trained, method)
