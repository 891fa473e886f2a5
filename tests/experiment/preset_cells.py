"""What the tests of presets share: a sweep by its name, and its cells; no data is read."""

from pathlib import Path

from tacit.experiment.config import Sweep
from tacit.experiment.loading import load
from tacit.experiment.sweep import Cell, cells_of


def plan(name: str) -> Sweep:
    found = load(name)
    assert isinstance(found, Sweep)
    return found


def cells(name: str) -> list[Cell]:
    return cells_of(plan(name), Path("nowhere"))
