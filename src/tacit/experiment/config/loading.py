"""Loads configurations from presets, YAML files, run folders and declarations of the user's own data.

Overrides (`--set key=value`) are in `changes`.
"""

import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import ConfigError
from tacit.experiment.config.changes import override, parsed, placed
from tacit.experiment.config.config import Accumulation, Config, Sweep
from tacit.experiment.config.endless_config import Endless
from tacit.experiment.config.validation import validated
from tacit.experiment.files import Plain, read, read_written
from tacit.presets import PRESETS, REFERENCE, REPRODUCTION
from tacit.privacy.vault.sources.declared import open_declared
from tacit.words import close, nearest

C = TypeVar("C", bound=Config)

SWEEP = "sweep.yaml"
"""The file of a sweep folder with the sweep's configuration."""
DECLARES = {"files", "labels", "columns"}
"""Keys of a data declaration that a configuration does not have."""
DATA = (".csv", ".tsv", ".parquet", ".pq", ".npz")
"""File name extensions of data. Not .txt, which may be a configuration."""
LEARNER = {"method": "RoutedExperts", "steps": 50, "lr": 0.5, "momentum": 0.5, "average": 0.5}
"""The default learner of a declaration, for any table."""
BATCH_SHARE = 0.3
"""The default batch of a declaration, as a share of the smallest task: large batches carry less noise per record."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One line of `tacit presets`."""

    name: str
    description: str
    needs: tuple[str, ...]
    """Data sets."""
    missing: tuple[str, ...]


def presets() -> list[Preset]:
    """The presets, and which of their data sets are missing on this machine.

    Returns:
        One entry for each, with its description.
    """
    from tacit.data.benchmarks.named import find

    listed = []
    for name in preset_names():
        description = read(PRESETS / f"{name}.yaml").get("description", "")
        sources = base_of(name).get("data", {}).get("source", ())
        needs = (sources,) if isinstance(sources, str) else tuple(sources)
        missing = tuple(source for source in needs if find(source) is None)
        listed.append(Preset(name=name, description=description, needs=needs, missing=missing))
    return listed


def preset_names() -> list[str]:
    files = (path for path in PRESETS.rglob("*.yaml") if path.stem not in (REFERENCE, REPRODUCTION))
    return sorted(path.relative_to(PRESETS).with_suffix("").as_posix() for path in files)


def load(what: str | Path | Mapping[str, Any], sets: Sequence[str] = ()) -> Config | Accumulation | Sweep:
    """The configuration of a preset, a file, a run folder, a declaration, or plain values; each key checked.

    Args:
        what: The name of a preset, a path, or plain values.
        sets: Changes such as `learner.lr=0.1`.

    Returns:
        The configuration.

    Raises:
        ConfigError: There is no such preset or file, or a key or value is wrong.
    """
    values = deepcopy(dict(what)) if isinstance(what, Mapping) else plain(what)
    return checked(override(values, parsed(sets)))


def load_as(kind: type[C], what: str | Path | Mapping[str, Any]) -> C:
    """The configuration that `load` finds, if it is of one kind.

    Raises:
        ConfigError: Also if it is of another kind.
    """
    config = load(what)
    if not isinstance(config, kind):
        why = "has an end" if kind is Endless else "is not a single run"
        raise ConfigError(f"{what} is of the kind {config.kind!r} and {why}; use the command that is for it")
    return config


def checked(values: Mapping[str, Any]) -> Config | Accumulation | Sweep:
    """Plain values as the configuration of their kind."""
    kinds: dict[str, type[Config | Accumulation | Sweep]] = {
        "run": Config,
        "accumulation": Accumulation,
        "endless": Endless,
        "accounting": Accumulation,
        "consumption": Accumulation,
        "sweep": Sweep,
    }
    kind = values.get("kind", "run")
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(f"kind = {kind!r} is not a kind of configuration; {nearest(str(kind), kinds)}")
    return validated(kinds[kind], values)


def for_seed(config: Config, seed: int) -> Config:
    """The configuration with the settings of one seed."""
    if not config.per_seed:
        return config
    return with_settings(config, {"per_seed": [], **config.per_seed[config.seeds.index(seed)]})


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """The configuration with some keys set, checked."""
    changed = checked(override(config.plain(), list(settings.items())))
    assert isinstance(changed, Config)
    return changed


def plain(what: str | Path) -> Plain:
    """The values of a preset, a file or a run folder, unchecked."""
    path = Path(what)
    if path.is_dir() and (path / "config.yaml").exists():
        return read_written(path / "config.yaml")
    if is_sweep(path):
        return read(path / SWEEP)
    if path.is_file():
        return _from_file(path)
    name = str(what).removesuffix(".yaml")
    if name in preset_names():
        return read(PRESETS / f"{name}.yaml")
    if path.is_dir():
        raise ConfigError(
            f"the folder {what} has no run; if it has images, declare them first with `tacit data declare "
            f"{shlex.quote(str(what))}`, then run the declaration"
        )
    named = name.partition("/")[0] in {preset.partition("/")[0] for preset in preset_names()}
    if (path.suffix or "/" in str(what)) and not named and not close(name, preset_names()):
        raise ConfigError(f"there is no file {what}; check the path, or take one of `tacit presets`")
    raise ConfigError(
        f"there is no preset, configuration file or run folder {str(what)!r}; {nearest(name, preset_names())}"
    )


def base_of(what: str) -> Plain:
    """The values of a single run: of a preset or file, or of the base of a sweep."""
    found = plain(what)
    while "base" in found:
        found = plain(found["base"]) if isinstance(found["base"], str) else found["base"]
    return found


def is_sweep(path: Path) -> bool:
    """Whether it is the folder of a sweep."""
    return (path / SWEEP).is_file()


def _from_file(path: Path) -> Plain:
    if path.suffix.lower() in DATA:  # nothing in it is read
        raise ConfigError(
            f"{path} is a data file, not a configuration; declare it first with `tacit data declare "
            f"{shlex.quote(str(path))}`, then run the declaration: "
            f"tacit run {shlex.quote(str(path.with_suffix('.yaml')))}"
        )
    values = read(path)
    if DECLARES & set(values):
        return _for_declaration(path)
    if isinstance(values.get("base"), dict):
        values["base"] = {"name": path.stem, **_beside(values["base"], path.parent)}
    return {"name": path.stem, **_beside(values, path.parent)}


def _for_declaration(path: Path) -> Plain:
    """A private learner with default settings on the user's own data, from public facts of the declaration alone."""
    info = open_declared(path).info
    batch = max(1, round(BATCH_SHARE * min(task.size for task in info.tasks)))
    return {
        "name": info.name,
        "description": f"a private learner on {path.name}",
        "data": {"source": str(path.absolute()), "scenario": "declared"},
        "learner": LEARNER | {"batch": batch},
        "model": {"network": {1: "tabular_mlp", 3: "cnn"}.get(len(info.shape), "mlp")},
    }


def _beside(given: Plain, folder: Path) -> Plain:
    """The values with the files that they name as paths relative to the configuration's folder, made absolute."""
    values, data = dict(given), given.get("data")
    if isinstance(data, dict) and isinstance(source := data.get("source"), str) and source.endswith((".yaml", ".yml")):
        beside = folder / source
        values["data"] = data | {"source": str((beside if beside.exists() else Path(source)).absolute())}
    for section, keys in values.items():
        if isinstance(keys, dict):
            values[section] = {key: placed(f"{section}.{key}", value, folder) for key, value in keys.items()}
        else:
            values[section] = placed(section, keys, folder)
    return values
