"""Tables and figures of the papers by name: `reproduce(find("desai2021/table-1"), folder)` runs what is missing.

Each is a preset (`presets/reproduction.yaml`) in a folder of its own. A folder is resumed, and a finished one is read;
a preset that makes several items is run once, because items share the folder of their preset. Where it runs (`FREE`)
can be set, and is no part of a cell's name, so that the same cells are found without it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tacit.errors import ConfigError
from tacit.experiment.config.changes import override, parsed
from tacit.experiment.config.config import Accumulation, Sweep
from tacit.experiment.config.loading import load, plain, presets
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
FREE = ("device", "threads")
"""The settings that `tacit reproduce --set` takes: where a preset is run, not what."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A table or figure of a paper."""

    name: str
    preset: str
    about: str
    shows: sweep_figure.Shows | Literal["curves"] = "accuracy"
    also: tuple[str, ...] = ()
    """Other tables and figures of the paper that it makes."""
    beside: tuple[str, ...] = ()
    """Other presets, whose rows are run and shown with its own."""

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

    @property
    def others(self) -> tuple["Item", ...]:
        """The presets beside it, each as an item."""
        return tuple(Item(name=self.name, preset=one, about=self.about, shows=self.shows) for one in self.beside)

    def figure(self, parent: Path) -> Path:
        return self.folder(parent) / f"{self.name.partition('/')[2]}.png"

    def state(self, parent: Path) -> State:
        """How much of it has been run."""
        every = {self._own_state(parent), *(one.state(parent) for one in self.others)}
        return every.pop() if len(every) == 1 else "in part"

    def _own_state(self, parent: Path) -> State:
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
    beside: tuple["Reproduced", ...] = ()
    """What was found for the presets beside it, without figures."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to run."""
        cells = self.cells or ()
        done = all(cell.status == DONE and cell.not_attacked is None for cell in cells)
        return done and all(one.finished for one in self.beside)


def catalogue() -> list[Item]:
    """All items, in the order of the papers."""
    return [
        Item(name=name, **{**facts, **{key: tuple(facts.get(key, ())) for key in ("also", "beside")}})
        for name, facts in _entries().items()
        if "preset" in facts
    ]


def _entries() -> dict[str, Mapping[str, Any]]:
    """What `presets/reproduction.yaml` says of each table and figure."""
    papers = read(PRESETS / f"{REPRODUCTION}.yaml")
    return {f"{paper}/{name}": facts for paper, items in papers.items() for name, facts in items.items()}


def find(name: str) -> Item:
    """An item by its name, or by that of another table or figure that it makes.

    Raises:
        ConfigError: There is none, it has no experiment, or it has parts, of which one is to be named.
    """
    items = {name: item for item in catalogue() for name in item.names}
    if name in items:
        return items[name]
    if why := _entries().get(name, {}).get("no_experiment"):
        raise ConfigError(f"{name} has no experiment: {why}")
    if parts := [one for one in items if re.fullmatch(rf"{re.escape(name)}([a-z]|-[a-z0-9]+)", one)]:
        raise ConfigError(f"{name} has parts, each with a command of its own: {', '.join(parts)}")
    raise ConfigError(f"there is no table or figure {name!r}; {nearest(name, items)}")


def missing_data() -> dict[str, tuple[str, ...]]:
    """The presets whose data is not on this machine, and which data."""
    return {preset.name: preset.missing for preset in presets() if preset.missing}


def reproduce(
    item: Item,
    parent: Path,
    *,
    sets: Sequence[str] = (),
    processes: int | None = None,
    limit_minutes: float | None = None,
    progress: OnEvent = ignore,
    stop: Stop | None = None,
) -> Reproduced:
    """Run what is missing of an item, and draw its figure.

    Args:
        item: The table or figure.
        parent: The folder of all reproductions; the item's preset has a folder in it.
        sets: Changes such as `device=cuda`. A cell that was begun goes on as it was begun.
        processes: How many runs go on at a time.
        limit_minutes: No run is started after this time.
        progress: Receives events.
        stop: Stops between two steps.

    Raises:
        ConfigError: Data is missing, the figure cannot be drawn, or a change is not one of `FREE`. What was run is
            kept.
    """
    folder, plan = item.folder(parent), _changed(item.plan, sets)
    if isinstance(plan, Accumulation):
        file = folder / CURVES
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            curves = plan.target()[1](folder, **plan.options, progress=progress)
            write_json(file, json.loads(json.dumps(curves, default=str)))
        curves = read_json(file)
        drawn = next((Path(one) for one in curves["files"] if str(one).endswith(".png")), None)
        return Reproduced(cells=None, curves=curves, figure=drawn)
    assert item.shows != "curves"
    beside = []
    for each, of in ((item, plan), *((one, _changed(one.plan, sets)) for one in item.others)):
        assert isinstance(of, Sweep)
        cells = sweep(
            of, each.folder(parent), processes=processes, limit_minutes=limit_minutes, as_begun=True,
            progress=progress, stop=stop,
        )  # fmt: skip
        beside.append(Reproduced(cells=cells, curves=None, figure=None))
    own, *others = beside
    every = [cell for one in beside for cell in one.cells or ()]
    figure = sweep_figure.draw(every, item.figure(parent), item.shows, title=item.about, reference=plan.reference)
    return replace(own, figure=figure, beside=tuple(others))


def _changed(plan: Sweep | Accumulation, sets: Sequence[str]) -> Sweep | Accumulation:
    """The plan, to be run on another device or with other threads."""
    changes = parsed(sets)
    for key, value in changes:
        if key not in FREE:
            jobs = "; for runs side by side, use --jobs" if key in ("jobs", "processes") else ""
            raise ConfigError(
                f"tacit reproduce makes what the paper shows, so --set takes {' and '.join(FREE)}, got {key} = "
                f"{value!r}{jobs or f'; for other settings, use tacit sweep {plan.name} --set {key}=…'}"
            )
    if isinstance(plan, Accumulation) or not changes:  # curves follow from plans, on any device
        return plan
    base = plain(plan.base) if isinstance(plan.base, str) else plan.base
    return plan.model_copy(update={"base": override(base, changes)})
