"""Turns the arguments of `tacit run`, `tacit sweep` and `tacit tune` into a configuration."""

from pathlib import Path
from typing import Any

from tacit.commands.console import err
from tacit.errors import ConfigError
from tacit.experiment.config.changes import (
    left_out,
    named_learner,
    of_some_cells,
    override,
    parsed,
    value_of,
    with_learner,
    with_settings_of_its_own,
)
from tacit.experiment.config.config import Accumulation, Config, Sweep, learner_name
from tacit.experiment.config.loading import load, plain
from tacit.experiment.config.setting_types import MISSING, looked_up
from tacit.experiment.sweeps.sweep import cells_of


def settings_from_options(
    sets: list[str] | None,
    method: str | None,
    epsilon: float | None,
    seeds: int | None,
    *,
    accept_large_delta: bool = False,
) -> list[str]:
    """The settings of a call, as `KEY=VALUE` lines: those of `--set`, then those of the shorthand options.

    An option takes precedence over a settings file (`--set @FILE`).

    Raises:
        ConfigError: An option contradicts a `--set KEY=VALUE`.
    """
    shorthands = {
        "--method": ("learner.method", method),
        "--epsilon": ("budget.epsilon", epsilon),
        "--seeds": ("seeds", seeds),
        "--accept-large-delta": ("budget.accept_large_delta", accept_large_delta or None),
    }
    lines = list(sets or [])
    for option, (key, value) in shorthands.items():
        if value is not None:
            _refuse_contradiction(option, key, value, sets or [])
            lines.append(f"{key}={str(value).lower() if value is True else value}")
    return lines


def load_config(target: str, sets: list[str]) -> Config | Accumulation | Sweep:
    """The configuration of a preset or file with the settings applied.

    A sweep without a paper's reference table that has a single cell once its learner is chosen becomes that one run.
    """
    values = plain(target)
    if values.get("kind") != "sweep":
        _report_dropped_settings(target, values, sets)
        return load(target, sets)
    sweep = load_sweep(target, [], sets)
    if named_learner(parsed(sets)) is None or sweep.reference is not None:
        return sweep
    cells = cells_of(sweep, Path())
    return cells[0].config if len(cells) == 1 else sweep


def load_base_config(target: str, sets: list[str]) -> Config | Accumulation | Sweep:
    """As `load_config`, but for a sweep the configuration that its cells are based on."""
    values = plain(target)
    if values.get("kind") != "sweep":
        return load_config(target, sets)
    base = _base_values(values)
    _report_dropped_settings(target, base, sets)
    return load(base, sets)


def load_sweep(target: str, grid: list[str], sets: list[str]) -> Sweep:
    """The sweep of a preset or file, or a new one over the grid; options take precedence over the file."""
    points = _parse_grid(grid, sets)
    values = plain(target)
    changes = parsed(sets)
    if values.get("kind") != "sweep":
        _report_dropped_settings(target, values, sets)
        base = override(values, changes)
        values = {"kind": "sweep", "name": f"{base.get('name', target)}-sweep", "base": base, "grid": points}
    else:
        base = _base_values(values)
        _report_dropped_settings(target, base, sets)
        if name := named_learner(changes):
            values = with_learner(values, name)
        if "learner.method" in points or "learner" in points:
            values, points = _cells_by_learner(values, points)
        cells = [dict(cell) for cell in values.get("cells", ())]
        partial, notes = of_some_cells(override(base, changes), cells, changes)
        for note in notes:
            err.print(f"{note}: the other learners of {target} have no such setting", style="dim")
        values["base"] = override(base, [(key, value) for key, value in changes if key not in partial])
        load(values["base"])  # reports a wrong key or value before the first cell
        # Settings of the call override those of the cells, except the learner, by which the cells were chosen.
        overridden = {key for key, _ in changes} - {"learner.method"}
        cells = [with_settings_of_its_own(_without(cell, overridden), partial) for cell in cells]
        values["cells"] = [cell for index, cell in enumerate(cells) if not partial or cell not in cells[:index]]
        values["grid"] = _without(values.get("grid", {}), overridden) | points
    sweep = load(values)
    assert isinstance(sweep, Sweep)
    return sweep


def _parse_grid(grid: list[str], sets: list[str]) -> dict[str, Any]:
    """The values of each key in `--grid KEY=A,B,…`."""
    points: dict[str, Any] = {}
    for line in grid:
        key, equals, text = line.partition("=")
        if not key or not equals:
            raise ConfigError(f"--grid takes key=value,value,…, such as learner.noise=1,2, got {key!r}")
        points[key] = tuple(value_of(f"[{text}]"))
    for key, values in points.items():
        if not values:
            raise ConfigError(f"--grid {key}= has no values; separate them by commas, such as {key}=1,2")
    for setting in _without_files(sets):
        if (key := parsed([setting])[0][0]) in points:
            raise ConfigError(f"--grid {key} and --set {setting} contradict each other; omit one of them")
    return points


def _cells_by_learner(values: dict[str, Any], points: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replaces a grid over learners by the cells of each, whose settings differ; returns the rest of the grid."""
    keys = {"learner", "learner.method"}
    names = [name for key in sorted(keys) for name in points.get(key, ())]
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise ConfigError(f"--grid learner.method takes names of learners, got {wrong[0]!r}")
    cells = [cell for name in names for cell in with_learner(values, learner_name(name))["cells"]]
    return {**values, "cells": cells}, _without(points, keys)


def _without(values: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _base_values(sweep: dict[str, Any]) -> dict[str, Any]:
    return sweep["base"] if isinstance(sweep["base"], dict) else plain(sweep["base"])


def _report_dropped_settings(target: str, values: dict[str, Any], sets: list[str]) -> None:
    """Prints which settings that the user wrote to a file the chosen learner does not have.

    Settings of presets, declarations and run folders are defaults, and are dropped in silence; those of `--set` are
    refused when the configuration is checked."""
    changes = parsed(sets)
    written = Path(target).is_file() and values.get("data", {}).get("source") != str(Path(target).absolute())
    if written and (name := named_learner(changes)) and (dropped := left_out(values, changes)):
        err.print(f"{name} has no setting {', '.join(dropped)}: what {target} says of it is not used", style="yellow")


def _refuse_contradiction(option: str, key: str, value: Any, sets: list[str]) -> None:
    for setting in _without_files(sets):
        other = looked_up(override({}, parsed([setting])), key)
        if other is not MISSING and _canonical(key, other) != _canonical(key, value):
            shown = f" {value:g}" if isinstance(value, float) else "" if value is True else f" {value}"
            raise ConfigError(f"{option}{shown} and --set {setting} contradict each other; omit one of them")


def _without_files(sets: list[str]) -> list[str]:
    return [setting for setting in sets if not setting.startswith("@")]


def _canonical(key: str, value: Any) -> Any:
    """One form of a value that can be written in several ways."""
    if key == "learner.method" and isinstance(value, str):
        return learner_name(value)
    if key == "seeds" and isinstance(value, int):
        return list(range(value))
    try:
        return float(value) if key == "budget.epsilon" else value
    except (TypeError, ValueError):
        return value
