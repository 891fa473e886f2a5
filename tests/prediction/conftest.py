"""A model of visits to a hospital, trained once."""

from pathlib import Path

import pytest

from support.predicting import learned


@pytest.fixture(scope="session")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last release; nobody may change it. The private table is beside the run."""
    return next(learned(tmp_path_factory.mktemp("visits")).glob("seeds/seed-0/releases/03-*"))
