"""A model of visits to a hospital, trained once."""

from pathlib import Path

import pytest

from support.months import config_of, declare, grow
from support.predicting import CATEGORIES
from tacit.experiment.runs.runner import run


@pytest.fixture(scope="session")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last release; nobody may change it. The private table is beside the run."""
    folder = tmp_path_factory.mktemp("visits")
    declared = declare(folder / "data", **CATEGORIES)
    grow(declared, "2026-01", "2026-02", "2026-03")
    run(config_of(declared, "NaiveDPSGD", seeds=[0], repeatable_noise=False), folder / "run", ledger=folder / "ledger")
    return next((folder / "run").glob("seeds/seed-0/releases/03-*"))
