"""From a name or a file to a configuration: presets, YAML files, run folders, declarations of one's own data.

`--set key=value` changes one key (dotted) before anything is checked; values are read as YAML. A method, network or
scenario that is set this way leaves out the settings of the one it replaces that it does not have itself.
`learner=NAME` sets the method; in a sweep, that of every cell.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tacit.errors import ConfigError
from tacit.experiment.config import (
    Accumulation,
    Config,
    DataSection,
    LearnerSection,
    ModelSection,
    Open,
    Sweep,
    learner_name,
    validated,
)
from tacit.experiment.own import for_declaration
from tacit.experiment.settings import parameters
from tacit.words import nearest

PRESETS = Path(__file__).parent / "presets"
REFERENCE = "reference"
"""The name of the file with a paper's own tables, among its presets."""
DECLARES = {"files", "labels", "columns"}
"""Keys that a declaration of data has and a configuration has not."""
HEADS: dict[str, tuple[str, type[Open]]] = {
    "data": ("scenario", DataSection),
    "learner": ("method", LearnerSection),
    "model": ("network", ModelSection),
}
"""In each open section, the key that decides which others there are."""

Plain = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One line of `tacit presets`."""

    name: str
    description: str
    needs: tuple[str, ...]
    """Data sets."""
    missing: tuple[str, ...]


def presets() -> list[Preset]:
    """What comes with tacit, and whether its data is here."""
    return [_preset(name) for name in preset_names()]


def preset_names() -> list[str]:
    files = (path for path in PRESETS.rglob("*.yaml") if path.stem != REFERENCE)
    return sorted(path.relative_to(PRESETS).with_suffix("").as_posix() for path in files)


def load(what: str | Path | Mapping[str, Any], sets: Sequence[str] = ()) -> Config | Accumulation | Sweep:
    """The configuration of a preset, a file, a run folder, a declaration, or plain values; each key checked."""
    values = deepcopy(dict(what)) if isinstance(what, Mapping) else plain(what)
    return checked(override(values, parsed(sets)))


def checked(values: Mapping[str, Any]) -> Config | Accumulation | Sweep:
    """Plain values as the configuration of their kind."""
    kinds: dict[str, type[Config | Accumulation | Sweep]] = {
        "run": Config,
        "accumulation": Accumulation,
        "sweep": Sweep,
    }
    kind = values.get("kind", "run")
    if kind not in kinds:
        raise ConfigError(f"kind = {kind!r} is not a kind of configuration; {nearest(str(kind), kinds)}")
    return validated(kinds[kind], values)


def for_seed(config: Config, seed: int) -> Config:
    """The configuration with the settings of one seed."""
    if not config.per_seed:
        return config
    own = config.per_seed[config.seeds.index(seed)]
    found = checked(override(config.plain() | {"per_seed": []}, list(own.items())))
    assert isinstance(found, Config)
    return found


def plain(what: str | Path) -> Plain:
    """What a preset, a file or a run folder says, unchecked."""
    path = Path(what)
    if path.is_dir() and (path / "config.yaml").exists():
        return _read(path / "config.yaml")
    if path.is_file():
        return _from_file(path)
    name = str(what).removesuffix(".yaml")
    if name in preset_names():
        return _read(PRESETS / f"{name}.yaml")
    raise ConfigError(
        f"there is no preset, configuration file or run folder {str(what)!r}; {nearest(name, preset_names())}"
    )


def parsed(sets: Sequence[str]) -> list[tuple[str, Any]]:
    """All settings of a call: each `key=value`, or `@FILE` with many of them."""
    found: list[tuple[str, Any]] = []
    for one in sets:
        found += _read(Path(one[1:])).items() if one.startswith("@") else [parse(one)]
    return found


def parse(setting: str) -> tuple[str, Any]:
    """`learner.steps=100` → the key and the value, read as YAML."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value, such as learner.steps=100, got {setting!r}")
    return key.strip(), value_of(text)


def value_of(text: str) -> Any:
    """A value as YAML reads it; a text that is no YAML stays a text."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def override(values: Plain, sets: Sequence[tuple[str, Any]]) -> Plain:
    """The values with some keys set; the given mapping is left as it is."""
    changed = _spelled_out(values)
    sets = [("learner.method", value) if _names_learner(key, value) else (key, value) for key, value in sets]
    for key, value in sets:
        *path, last = key.split(".")
        at = changed
        for step in path:
            at = at.setdefault(step, {})
            if not isinstance(at, dict):
                raise ConfigError(f"{key} = {value!r} cannot be set: {step} holds a value, not keys")
        at[last] = value
    explicit = {key for key, _ in sets}
    for section, (head, model) in HEADS.items():
        before, now = values.get(section), changed.get(section)
        if isinstance(before, dict) and isinstance(now, dict) and f"{section}.{head}" in explicit:
            known = _known(model, now)
            changed[section] = {k: v for k, v in now.items() if k in known or f"{section}.{k}" in explicit}
    return changed


def named_learner(sets: Sequence[tuple[str, Any]]) -> str | None:
    """The learner that is set by its name alone, if one is."""
    return next((learner_name(value) for key, value in reversed(sets) if _names_learner(key, value)), None)


def left_out(values: Plain, sets: Sequence[tuple[str, Any]]) -> list[str]:
    """Settings of the learner that another one, set by its name, does not have."""
    before, now = (each.get("learner", {}) for each in (_spelled_out(values), override(values, sets)))
    return [key for key in before if key not in now]


def with_learner(plan: Plain, name: str) -> Plain:
    """A sweep with one learner: its own cells if it has any, else all, without what they say of their learners. Cells
    that become equal are one."""
    cells: list[Plain] = list(plan.get("cells", ())) or [{}]
    own = [cell for cell in cells if named_learner([("learner", cell.get("learner.method"))]) == name]
    bare = [{key: value for key, value in cell.items() if key.split(".")[0] not in _OF_LEARNER} for cell in cells]
    kept = own or [{"learner.method": name, **cell} for cell in bare]
    known = {f"learner.{key}" for key in _known(LearnerSection, {"method": name}) - {"method"}}
    wanted = {key: value for key, value in (plan.get("baseline") or {}).items() if key != "learner.method"}
    return {
        **plan,
        "cells": [cell for place, cell in enumerate(kept) if cell not in kept[:place]],
        "grid": {k: v for k, v in plan.get("grid", {}).items() if k.split(".")[0] != "learner" or k in known},
        "baseline": wanted or None,
    }


_OF_LEARNER = ("learner", "tuned")
"""Sections of a cell that speak of its learner: which one, its settings, and how they were chosen."""


def _names_learner(key: str, value: Any) -> bool:
    return key == "learner" and isinstance(value, str)


def _spelled_out(values: Plain) -> Plain:
    """A copy in which a learner that is a name has become a section."""
    copied = deepcopy(values)
    if isinstance(copied.get("learner"), str):
        copied["learner"] = {"method": copied["learner"]}
    return copied


def _known(model: type[Open], now: Plain) -> set[str]:
    """The keys of a section under its new head."""
    fixed = {name: now[name] for name in model.model_fields if name in now}
    _, make, _ = model.model_construct(**fixed).target()
    return {*model.model_fields, *parameters(make)}


def _from_file(path: Path) -> Plain:
    values = _read(path)
    if DECLARES & set(values):
        return for_declaration(path)
    data = values.get("data")
    if isinstance(data, dict) and isinstance(source := data.get("source"), str) and source.endswith((".yaml", ".yml")):
        beside = path.parent / source
        data["source"] = str((beside if beside.exists() else Path(source)).absolute())
    if isinstance(data, dict) and isinstance(features := data.get("features"), str):
        file, colon, name = features.partition(":")
        if (path.parent / file).exists():  # a file or directory that lies beside; otherwise a name
            data["features"] = str((path.parent / file).absolute()) + colon + name
    return values


def _read(path: Path) -> Plain:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not a text'}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{path} is not valid YAML{line}; check its indentation and quotes") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no keys; a configuration is a mapping such as 'name: …'")
    return values


def _preset(name: str) -> Preset:
    from tacit.data.named import find

    values = _read(PRESETS / f"{name}.yaml")
    base = values
    while "base" in base:
        base = plain(base["base"]) if isinstance(base["base"], str) else base["base"]
    sources = base.get("data", {}).get("source", ())
    needs = (sources,) if isinstance(sources, str) else tuple(sources)
    return Preset(
        name=name,
        description=values.get("description", ""),
        needs=needs,
        missing=tuple(one for one in needs if find(one) is None),
    )
