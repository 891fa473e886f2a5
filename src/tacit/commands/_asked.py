"""From what a person types to a configuration: `tacit run`, `sweep` and `tune` read a call the same way."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands._shared import err
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.experiment.config import Accumulation, Config, Sweep


def asked(
    sets: list[str] | None,
    method: str | None,
    epsilon: float | None,
    seeds: int | None,
    *,
    accept_large_delta: bool = False,
) -> list[str]:
    """All settings of a call: options are short for keys. An option counts more than a file of settings, and must not
    contradict a key that the call sets itself."""
    short = {
        "--method": ("learner.method", method),
        "--epsilon": ("budget.epsilon", epsilon),
        "--seeds": ("seeds", seeds),
        "--accept-large-delta": ("budget.accept_large_delta", accept_large_delta or None),
    }
    given = {option: (key, value) for option, (key, value) in short.items() if value is not None}
    for option, (key, value) in given.items():
        _refuse_contradiction(option, key, value, sets or [])
    lines = [f"{key}={str(value).lower() if value is True else value}" for key, value in given.values()]
    return [*(sets or []), *lines]


def _refuse_contradiction(option: str, key: str, value: Any, sets: list[str]) -> None:
    """Refuse a key that is set to something else than what the option says."""
    from tacit.experiment.changes import override, parsed
    from tacit.experiment.settings import MISSING, looked_up

    for one in _own(sets):
        found = looked_up(override({}, parsed([one])), key)
        if found is not MISSING and _meant(key, found) != _meant(key, value):
            with_value = f" {value:g}" if isinstance(value, float) else "" if value is True else f" {value}"
            raise ConfigError(f"{option}{with_value} and --set {one} contradict each other; leave one of them out")


def _own(sets: list[str]) -> list[str]:
    """What a call sets itself, and not by a file."""
    return [one for one in sets if not one.startswith("@")]


def _meant(key: str, value: Any) -> Any:
    """A value of a key in one of the ways in which it can be written."""
    from tacit.experiment.config import learner_name

    if key == "learner.method" and isinstance(value, str):
        return learner_name(value)
    if key == "seeds" and isinstance(value, int):
        return list(range(value))
    try:
        return float(value) if key == "budget.epsilon" else value
    except (TypeError, ValueError):
        return value


def named(what: str, sets: list[str]) -> "Config | Accumulation | Sweep":
    """The configuration that is asked for. A sweep that comes down to one cell when its learner is set, and has no
    paper's table beside it, is that run."""
    from tacit.experiment.changes import named_learner, parsed
    from tacit.experiment.loading import load, plain
    from tacit.experiment.sweep import cells_of

    values = plain(what)
    if values.get("kind") != "sweep":
        _say_left_out(values, sets)
        return load(what, sets)
    found = plan(what, [], sets)
    if named_learner(parsed(sets)) is None or found.reference is not None:
        return found
    cells = cells_of(found, Path())
    return cells[0].config if len(cells) == 1 else found


def base(what: str, sets: list[str]) -> "Config | Accumulation | Sweep":
    """The same, but of a sweep its base."""
    from tacit.experiment.loading import load, plain

    values = plain(what)
    if values.get("kind") != "sweep":
        return named(what, sets)
    _say_left_out(_base(values), sets)
    return load(_base(values), sets)


def plan(what: str, grid: list[str], sets: list[str]) -> "Sweep":
    """The sweep of a file, or the one that the options describe; options of the call count."""
    from tacit.experiment.changes import (
        named_learner,
        of_some_cells,
        override,
        parsed,
        value_of,
        with_learner,
        with_settings_of_its_own,
    )
    from tacit.experiment.config import Sweep
    from tacit.experiment.loading import load, plain

    lines = [one.partition("=") for one in grid]
    for key, equals, _ in lines:
        if not key or not equals:
            raise ConfigError(f"--grid takes key=value,value,…, such as learner.noise=1,2, got {key!r}")
    points = {key: tuple(value_of(f"[{text}]")) for key, _, text in lines}
    for key, values_of_key in points.items():
        if not values_of_key:
            raise ConfigError(f"--grid {key}= has no values; write them with commas between, such as {key}=1,2")
    for one in _own(sets):
        if (key := parsed([one])[0][0]) in points:
            raise ConfigError(f"--grid {key} and --set {one} contradict each other; leave one of them out")
    values = plain(what)
    changes = parsed(sets)
    if values.get("kind") != "sweep":
        _say_left_out(values, sets)
        made = override(values, changes)
        values = {"kind": "sweep", "name": f"{made.get('name', what)}-sweep", "base": made, "grid": points}
    else:
        before = _base(values)
        _say_left_out(before, sets)
        if name := named_learner(changes):
            values = with_learner(values, name)
        if "learner.method" in points or "learner" in points:
            values, points = _by_learner(values, points)
        cells = [dict(cell) for cell in values.get("cells", ())]
        some, told = of_some_cells(override(before, changes), cells, changes)
        for line in told:
            err.print(f"{line}: the other learners of {what} have no such setting", style="dim")
        values["base"] = override(before, [(key, value) for key, value in changes if key not in some])
        load(values["base"])  # a wrong key or value is said before the first cell
        # What the call says counts more than what the cells say; which learner it is, the cells are chosen by.
        said = {key for key, _ in changes} - {"learner.method"}
        cells = [with_settings_of_its_own({k: v for k, v in cell.items() if k not in said}, some) for cell in cells]
        values["cells"] = [cell for place, cell in enumerate(cells) if not some or cell not in cells[:place]]
        values["grid"] = {**{k: v for k, v in values.get("grid", {}).items() if k not in said}, **points}
    found = load(values)
    assert isinstance(found, Sweep)
    return found


def _by_learner(values: dict[str, Any], points: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A grid over learners, in a sweep whose cells have settings of their own learners: cells for each of them."""
    from tacit.experiment.changes import with_learner
    from tacit.experiment.config import learner_name

    names = [name for key in ("learner", "learner.method") for name in points.get(key, ())]
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise ConfigError(f"--grid learner.method takes names of learners, got {wrong[0]!r}")
    cells = [cell for name in names for cell in with_learner(values, learner_name(name))["cells"]]
    others = {key: value for key, value in points.items() if key not in ("learner", "learner.method")}
    return {**values, "cells": cells}, others


def _base(values: dict[str, Any]) -> dict[str, Any]:
    from tacit.experiment.loading import plain

    return values["base"] if isinstance(values["base"], dict) else plain(values["base"])


def _say_left_out(values: dict[str, Any], sets: list[str]) -> None:
    """A note on the settings that a learner which is set by its name does not have."""
    from tacit.experiment.changes import left_out, named_learner, parsed

    changes = parsed(sets)
    if (name := named_learner(changes)) and (without := left_out(values, changes)):
        err.print(f"{name} has no {', '.join(without)}: left out", style="dim")
