"""A run on visits to a hospital, and new records for predictions of its releases."""

from pathlib import Path
from typing import Any

from support.months import MONTHS, config_of, declare, grow
from tacit.experiment.runs.runner import run

CATEGORIES: dict[str, Any] = {"features": ["age", "pulse", "visit"], "categories": {"visit": ["2026-01/1", "other"]}}
"""A declaration of the visits of `months` with a text column."""
HEADER = "pulse,visit,age,patient\n"
NEW = f"{HEADER}80,other,50,p1\n112,2026-01/1,20,p2\n,other,99,p3\n"


def learned(folder: Path) -> Path:
    """The folder of a run that has learned all months; the private table is beside it, in `data`."""
    declared = declare(folder / "data", **CATEGORIES)
    grow(declared, *MONTHS)
    run(config_of(declared, "NaiveDPSGD", seeds=[0], repeatable_noise=False), folder / "run", ledger=folder / "ledger")
    return folder / "run"
