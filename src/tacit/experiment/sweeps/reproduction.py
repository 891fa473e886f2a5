"""Tables and figures of the papers by name: `reproduce(find("desai2021/table-1"), folder)` runs what is missing.

Each is a preset (`presets/reproduction.yaml`) in a folder of its own. A folder is resumed, and a finished one is read;
a preset that makes several items is run once, because items share the folder of their preset.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tacit.errors import ConfigError
from tacit.experiment.config.config import Accumulation, Sweep
from tacit.experiment.config.loading import load, presets
from tacit.experiment.files import read, read_json, write_json
from tacit.experiment.progress import OnEvent, Stop, ignore
from tacit.experiment.sweeps import sweep_figure
from tacit.experiment.sweeps.cell import DONE, Cell
from tacit.experiment.sweeps.sweep import cells_of, sweep
from tacit.presets import PRESETS, REPRODUCTION
from tacit.words import nearest

State = Literal["done", "in part", "not run"]
CURVES = "curves.json"
"""The values of a preset that computes curves, once they are known."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A table or figure of a paper."""

    name: str
    preset: str
    about: str
    shows: sweep_figure.Shows | Literal["curves"] = "accuracy"
    also: tuple[str, ...] = ()
    """Other tables and figures of the paper that it makes."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which it is found."""
        return (self.name, *(f"{self.name.partition('/')[0]}/{name}" for name in self.also))

    @property
    def plan(self) -> Sweep | Accumulation:
        """What is run."""
        found = load(self.preset)
        assert isinstance(found, Sweep | Accumulation)
        return found

    def folder(self, parent: Path) -> Path:
        """Where its preset is run; items of one preset share it."""
        return parent / self.preset.replace("/", "-")

    def figure(self, parent: Path) -> Path:
        return self.folder(parent) / f"{self.name.partition('/')[2]}.png"

    def state(self, parent: Path) -> State:
        """How much of it has been run."""
        folder, plan = self.folder(parent), self.plan
        if not folder.is_dir():
            return "not run"
        if isinstance(plan, Accumulation):
            return "done" if (folder / CURVES).exists() else "in part"
        cells = cells_of(plan, folder)
        for cell in cells:
            cell.look()
        done = [cell.status == DONE for cell in cells]
        return "done" if all(done) else "in part" if any(done) else "not run"


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    """What was found: the cells of a sweep, or the values of curves; and the figure."""

    cells: Sequence[Cell] | None
    curves: Any
    figure: Path | None
    """None: there is nothing to draw yet."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to run."""
        cells = self.cells or ()
        return all(cell.status == DONE and cell.not_attacked is None for cell in cells)


def catalogue() -> list[Item]:
    """All items, in the order of the papers."""
    papers = read(PRESETS / f"{REPRODUCTION}.yaml")
    return [
        Item(name=f"{paper}/{name}", **{**facts, "also": tuple(facts.get("also", ()))})
        for paper, items in papers.items()
        for name, facts in items.items()
    ]


def find(name: str) -> Item:
    """An item by its name, or by that of another table or figure that it makes.

    Raises:
        ConfigError: There is none.
    """
    items = {name: item for item in catalogue() for name in item.names}
    if name not in items:
        raise ConfigError(f"there is no table or figure {name!r}; {nearest(name, items)}")
    return items[name]


def missing_data() -> dict[str, tuple[str, ...]]:
    """The presets whose data is not on this machine, and which data."""
    return {preset.name: preset.missing for preset in presets() if preset.missing}


def reproduce(
    item: Item,
    parent: Path,
    *,
    processes: int | None = None,
    limit_minutes: float | None = None,
    progress: OnEvent = ignore,
    stop: Stop | None = None,
) -> Reproduced:
    """Run what is missing of an item, and draw its figure.

    Args:
        item: The table or figure.
        parent: The folder of all reproductions; the item's preset has a folder in it.
        processes: How many runs go on at a time.
        limit_minutes: No run is started after this time.
        progress: Receives events.
        stop: Stops between two steps.

    Raises:
        ConfigError: Data is missing, or the figure cannot be drawn. What was run is kept.
    """
    folder, plan = item.folder(parent), item.plan
    if isinstance(plan, Accumulation):
        file = folder / CURVES
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            curves = plan.target()[1](folder, **plan.options, progress=progress)
            write_json(file, json.loads(json.dumps(curves, default=str)))
        curves = read_json(file)
        drawn = next((Path(one) for one in curves["files"] if str(one).endswith(".png")), None)
        return Reproduced(cells=None, curves=curves, figure=drawn)
    cells = sweep(plan, folder, processes=processes, limit_minutes=limit_minutes, progress=progress, stop=stop)
    assert item.shows != "curves"
    figure = sweep_figure.draw(cells, item.figure(parent), item.shows, title=item.about, reference=plan.reference)
    return Reproduced(cells=cells, curves=None, figure=figure)
