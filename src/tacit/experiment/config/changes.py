"""Overrides of a configuration by `--set key=value`, applied before it is checked; values are read as YAML.

Setting a method, network or scenario removes the settings of the replaced one that the new one does not have.
`learner=NAME`, or `learner.method=NAME`, sets the method; in a sweep, that of every cell. Setting an adapter replaces
frozen features by a network: the backbone that computed them, trained through that adapter.
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
"""In each open section, the key that determines which other keys are valid."""
_PLACES = ("data.features", "learner", "learner.method", "learner.backbone", "learner.features", "model.backbone")
"""Keys whose values may be a directory, a file, or file.py:Class."""
_OF_LEARNER = ("learner", "tuned")
"""Sections of a cell that describe its learner: the method, its settings, and how they were chosen."""


def parsed(sets: Sequence[str]) -> list[tuple[str, Any]]:
    """The overrides of a command: each is `key=value`, or `@FILE`, a YAML file of several."""
    found: list[tuple[str, Any]] = []
    for one in sets:
        found += read(Path(one[1:])).items() if one.startswith("@") else [parse(one)]
    return found


def parse(setting: str) -> tuple[str, Any]:
    """Splits `learner.steps=100` into the key and the value, which is read as YAML."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value, such as learner.steps=100, got {setting!r}")
    return key.strip(), placed(key.strip(), value_of(text))


def value_of(text: str) -> Any:
    """The value as YAML, with `None` read as null; text that is not valid YAML stays a string."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(found, list):
        return [None if element == "None" else element for element in found]
    return None if found == "None" else found


def override(values: Plain, sets: Sequence[tuple[str, Any]]) -> Plain:
    """A copy of the values with some keys set."""
    changed = _spelled_out(values)
    sets = _with_adapter(values, sets)
    sets = [("learner.method" if key == "learner" and isinstance(value, str) else key, value) for key, value in sets]
    for key, value in sets:
        *path, last = key.split(".")
        at = changed
        for step in path:
            at = at.setdefault(step, {})
            if not isinstance(at, dict):
                raise ConfigError(f"{key} = {value!r} cannot be set: {step} is a single value and has no keys")
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
    """Completes `model.adapter=film` where the network is not adapted yet: also sets the network and its backbone (that
    of `data.features`), and unsets the features."""
    from tacit.experiment.features.feature_files import is_feature_file

    overrides = dict(sets)
    model, data = (values.get(section) or {} for section in ("model", "data"))
    if "model.adapter" not in overrides or "model.network" in overrides or model.get("network") == ADAPTED:
        return list(sets)
    features = overrides.get("data.features", data.get("features"))
    if isinstance(features, str) and is_feature_file(features):
        raise ConfigError(
            f"model.adapter = {overrides['model.adapter']!r} is trained inside a backbone, but data.features = "
            f"{features!r} is a file of precomputed features; set data.features to the backbone's name"
        )
    named = [] if features is None else [("model.backbone", features)]
    return [("model.network", ADAPTED), *named, *sets, ("data.features", None)]


def named_learner(sets: Sequence[tuple[str, Any]]) -> str | None:
    """The learner that the overrides name; None if they name none."""
    names = [value for key, value in sets if isinstance(value, str) and key in ("learner", "learner.method")]
    return learner_name(names[-1]) if names else None


def left_out(values: Plain, sets: Sequence[tuple[str, Any]]) -> list[str]:
    """Settings of the previous learner that are removed because the newly named learner does not have them."""
    before, now = (each.get("learner", {}) for each in (_spelled_out(values), override(values, sets)))
    return [key for key in before if key not in now]


def with_learner(plan: Plain, name: str) -> Plain:
    """The sweep restricted to one learner: its own cells if there are any, otherwise all cells with their learner
    settings removed and duplicates merged."""
    from tacit.learners import find

    cells: list[Plain] = list(plan.get("cells", ())) or [{}]
    matching = [cell for cell in cells if named_learner(list(cell.items())) == name]
    dropped = _OF_LEARNER if find(name).has_network else (*_OF_LEARNER, "model")
    bare = [{key: value for key, value in cell.items() if key.split(".")[0] not in dropped} for cell in cells]
    kept = matching or [{"learner.method": name, **cell} for cell in bare]
    known = {f"learner.{key}" for key in _known(LearnerSection, {"method": name}) - {"method"}}
    grid, baseline = (
        {key: value for key, value in (plan.get(part) or {}).items() if key.split(".")[0] != "learner" or key in known}
        for part in ("grid", "baseline")
    )
    cells = [cell for index, cell in enumerate(kept) if cell not in kept[:index]]
    return {**plan, "cells": cells, "grid": grid, "baseline": baseline or None}


def of_some_cells(base: Plain, cells: Sequence[Plain], sets: Sequence[tuple[str, Any]]) -> tuple[Plain, list[str]]:
    """Overrides that the base's learner does not have but the learners of some cells do.

    Returns:
        These overrides, which are applied to those cells only, and a sentence for each that names the learners.
    """
    learner = _spelled_out(base).get("learner") or {}
    if not isinstance(learner, dict):
        return {}, []  # not a valid learner; reported when the base is checked
    base_settings = _known(LearnerSection, learner)
    overrides = {
        key: value for key, value in sets if key.startswith("learner.") and key.split(".")[1] not in base_settings
    }
    methods = sorted({name for cell in cells if (name := named_learner(list(cell.items()))) is not None})
    takers = {
        key: [name for name in methods if key.split(".")[1] in _known(LearnerSection, {"method": name})]
        for key in overrides
    }
    sentences = [f"{key} is set for {', '.join(names)}" for key, names in takers.items() if names]
    return {key: overrides[key] for key, names in takers.items() if names}, sentences


def with_settings_of_its_own(cell: Plain, settings: Plain) -> Plain:
    """The cell with the settings that its learner has."""
    if not settings or (name := named_learner(list(cell.items()))) is None:
        return cell
    known = _known(LearnerSection, {"method": name})
    return {**cell, **{key: value for key, value in settings.items() if key.split(".")[1] in known}}


def placed(key: str, value: Any, beside: Path = Path()) -> Any:
    """The absolute path of a file or directory in the folder `beside`; other values, such as names, are unchanged."""
    if key not in _PLACES or not isinstance(value, str):
        return value
    file, colon, name = value.partition(":")
    if not file or not (beside / file).exists() or (not is_own(value) and _is_name(key, value)):
        return value
    return str((beside / file).absolute()) + colon + name


def _is_name(key: str, value: str) -> bool:
    """Whether the value is a known name, even if a directory of that name exists."""
    from tacit.models.backbones import NAMES

    return value in NAMES or (key.startswith("learner") and key != "learner.backbone" and "/" not in value)


def _spelled_out(values: Plain) -> Plain:
    """A copy in which a learner given by its name is a section."""
    copied = deepcopy(values)
    if isinstance(copied.get("learner"), str):
        copied["learner"] = {"method": copied["learner"]}
    return copied


def _known(model: type[OpenSection], now: Plain) -> set[str]:
    """The valid keys of a section with its current method, network or scenario."""
    fixed = {name: now[name] for name in model.model_fields if name in now}
    _, make, _ = model.model_construct(**fixed).target()
    return {*model.model_fields, *parameters(make)}
