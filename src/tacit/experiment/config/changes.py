"""What a call changes in a configuration: `--set key=value`, before anything is checked; values are read as YAML.

A method, network or scenario that is set this way leaves out the settings of the one it replaces that it does not have
itself. `learner=NAME`, or `learner.method=NAME`, sets the method; in a sweep, that of every cell. An adapter that is
set this way turns frozen features into a network: the backbone behind them, trained by that adapter.
"""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from tacit.errors import ConfigError
from tacit.experiment.config.config import ADAPTED, DataSection, LearnerSection, ModelSection, OpenSection, learner_name
from tacit.experiment.config.setting_types import parameters, wrong
from tacit.experiment.files import Plain, read
from tacit.plugins import is_own

HEADS: dict[str, tuple[str, type[OpenSection]]] = {
    "data": ("scenario", DataSection),
    "learner": ("method", LearnerSection),
    "model": ("network", ModelSection),
}
"""In each open section, the key that decides which others there are."""
_PLACES = ("data.features", "learner", "learner.method", "learner.backbone", "learner.features", "model.backbone")
"""Keys whose values may be a directory, a file, or file.py:Class."""
_OF_LEARNER = ("learner", "tuned")
"""Sections of a cell that speak of its learner: which one, its settings, and how they were chosen."""


def parsed(sets: Sequence[str]) -> list[tuple[str, Any]]:
    """All settings of a call: each `key=value`, or `@FILE` with many of them."""
    found: list[tuple[str, Any]] = []
    for one in sets:
        found += read(Path(one[1:])).items() if one.startswith("@") else [parse(one)]
    return found


def parse(setting: str) -> tuple[str, Any]:
    """`learner.steps=100` → the key and the value, read as YAML."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value, such as learner.steps=100, got {setting!r}")
    return key.strip(), placed(key.strip(), value_of(text))


def value_of(text: str) -> Any:
    """A value as YAML reads it, and None as null; a text that is no YAML stays a text."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(found, list):
        return [None if element == "None" else element for element in found]
    return None if found == "None" else found


def override(values: Plain, sets: Sequence[tuple[str, Any]]) -> Plain:
    """The values with some keys set; the given mapping is left as it is."""
    changed = _spelled_out(values)
    sets = _with_adapter(values, sets)
    sets = [("learner.method" if key == "learner" and isinstance(value, str) else key, value) for key, value in sets]
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
            if not isinstance(now[head], str):
                raise ConfigError(wrong(f"{section}.{head}", now[head], str))
            known = _known(model, now)
            changed[section] = {k: v for k, v in now.items() if k in known or f"{section}.{k}" in explicit}
    return changed


def _with_adapter(values: Plain, sets: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """`model.adapter=film` alone: on what has no adapted network yet, also the network, its backbone (the one of
    `data.features`), and no features any more."""
    from tacit.experiment.features.feature_files import is_feature_file

    said = dict(sets)
    model, data = (values.get(section) or {} for section in ("model", "data"))
    if "model.adapter" not in said or "model.network" in said or model.get("network") == ADAPTED:
        return list(sets)
    features = said.get("data.features", data.get("features"))
    if isinstance(features, str) and is_feature_file(features):
        raise ConfigError(
            f"model.adapter = {said['model.adapter']!r} trains inside a backbone, and data.features = {features!r} is "
            "a file of what one gave; set data.features to the backbone's name"
        )
    named = [] if features is None else [("model.backbone", features)]
    return [("model.network", ADAPTED), *named, *sets, ("data.features", None)]


def named_learner(sets: Sequence[tuple[str, Any]]) -> str | None:
    """The learner that is set by its name, if one is."""
    names = [value for key, value in sets if isinstance(value, str) and key in ("learner", "learner.method")]
    return learner_name(names[-1]) if names else None


def left_out(values: Plain, sets: Sequence[tuple[str, Any]]) -> list[str]:
    """Settings of the learner that another one, set by its name, does not have."""
    before, now = (each.get("learner", {}) for each in (_spelled_out(values), override(values, sets)))
    return [key for key in before if key not in now]


def with_learner(plan: Plain, name: str) -> Plain:
    """A sweep with one learner: its own cells if it has any, else all, without what they say of their learners. Cells
    that become equal are one."""
    from tacit.learners import find

    cells: list[Plain] = list(plan.get("cells", ())) or [{}]
    own = [cell for cell in cells if named_learner(list(cell.items())) == name]
    apart = _OF_LEARNER if find(name).has_network else (*_OF_LEARNER, "model")
    bare = [{key: value for key, value in cell.items() if key.split(".")[0] not in apart} for cell in cells]
    kept = own or [{"learner.method": name, **cell} for cell in bare]
    known = {f"learner.{key}" for key in _known(LearnerSection, {"method": name}) - {"method"}}
    grid, baseline = (
        {key: value for key, value in (plan.get(part) or {}).items() if key.split(".")[0] != "learner" or key in known}
        for part in ("grid", "baseline")
    )
    cells = [cell for index, cell in enumerate(kept) if cell not in kept[:index]]
    return {**plan, "cells": cells, "grid": grid, "baseline": baseline or None}


def of_some_cells(base: Plain, cells: Sequence[Plain], sets: Sequence[tuple[str, Any]]) -> tuple[Plain, list[str]]:
    """Settings of a learner that the base's has not and some cells' have: they are set in those cells; and whose."""
    said = _spelled_out(base).get("learner") or {}
    if not isinstance(said, dict):
        return {}, []  # no learner at all, which is said where the base is checked
    own = _known(LearnerSection, said)
    asked = {key: value for key, value in sets if key.startswith("learner.") and key.split(".")[1] not in own}
    methods = sorted({name for cell in cells if (name := named_learner(list(cell.items()))) is not None})
    takers = {
        key: [name for name in methods if key.split(".")[1] in _known(LearnerSection, {"method": name})]
        for key in asked
    }
    told = [f"{key} is set for {', '.join(names)}" for key, names in takers.items() if names]
    return {key: asked[key] for key, names in takers.items() if names}, told


def with_settings_of_its_own(cell: Plain, settings: Plain) -> Plain:
    """The cell with those of the settings that its learner has."""
    if not settings or (name := named_learner(list(cell.items()))) is None:
        return cell
    known = _known(LearnerSection, {"method": name})
    return {**cell, **{key: value for key, value in settings.items() if key.split(".")[1] in known}}


def placed(key: str, value: Any, beside: Path = Path()) -> Any:
    """A file or directory that lies beside, by its whole path, so that it holds in any folder; a name stays one."""
    if key not in _PLACES or not isinstance(value, str):
        return value
    file, colon, name = value.partition(":")
    if not file or not (beside / file).exists() or (not is_own(value) and _is_name(key, value)):
        return value
    return str((beside / file).absolute()) + colon + name


def _is_name(key: str, value: str) -> bool:
    """Whether something is called so, even if a directory is, too."""
    from tacit.models.backbones import NAMES

    return value in NAMES or (key.startswith("learner") and key != "learner.backbone" and "/" not in value)


def _spelled_out(values: Plain) -> Plain:
    """A copy in which a learner that is a name has become a section."""
    copied = deepcopy(values)
    if isinstance(copied.get("learner"), str):
        copied["learner"] = {"method": copied["learner"]}
    return copied


def _known(model: type[OpenSection], now: Plain) -> set[str]:
    """The keys of a section under its new head."""
    fixed = {name: now[name] for name in model.model_fields if name in now}
    _, make, _ = model.model_construct(**fixed).target()
    return {*model.model_fields, *parameters(make)}
