"""What the tests of presets share: a sweep by its name, and its cells; no data is read."""

from pathlib import Path

from tacit.experiment.config.config import Sweep
from tacit.experiment.config.loading import load
from tacit.experiment.sweeps.cell import Cell
from tacit.experiment.sweeps.sweep import cells_of


def plan(name: str) -> Sweep:
    found = load(name)
    assert isinstance(found, Sweep)
    return found


def cells(name: str) -> list[Cell]:
    return cells_of(plan(name), Path("nowhere"))
