"""From a name or a file to a configuration: presets, YAML files, run folders, declarations of one's own data.

What a call changes in it (`--set key=value`) is in `changes`.
"""

import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.experiment.changes import Plain, override, parsed, placed, read
from tacit.experiment.config import Accumulation, Config, Sweep
from tacit.experiment.endless_config import Endless
from tacit.experiment.own import for_declaration
from tacit.experiment.validation import validated
from tacit.words import nearest

PRESETS = Path(__file__).parent / "presets"
REFERENCE = "reference"
"""The name of the file with a paper's own tables, among its presets."""
SWEEP = "sweep.yaml"
"""In the folder of a sweep: what it runs."""
DECLARES = {"files", "labels", "columns"}
"""Keys that a declaration of data has and a configuration has not."""
DATA = (".csv", ".tsv", ".parquet", ".pq", ".npz")
"""How the names of files of data end. Not .txt, which may be a configuration."""


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
        "endless": Endless,
        "accounting": Accumulation,
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
    own = config.per_seed[config.seeds.index(seed)]
    found = checked(override(config.plain() | {"per_seed": []}, list(own.items())))
    assert isinstance(found, Config)
    return found


def plain(what: str | Path) -> Plain:
    """What a preset, a file or a run folder says, unchecked."""
    path = Path(what)
    if path.is_dir() and (path / "config.yaml").exists():
        return read(path / "config.yaml")
    if is_sweep(path):
        return read(path / SWEEP)
    if path.is_file():
        _refuse_data(path)
        return _from_file(path)
    name = str(what).removesuffix(".yaml")
    if name in preset_names():
        return read(PRESETS / f"{name}.yaml")
    if path.is_dir():
        raise ConfigError(
            f"the folder {what} holds no run; if images are in it, declare them first by `tacit data declare "
            f"{shlex.quote(str(what))}`, then run the declaration"
        )
    raise ConfigError(
        f"there is no preset, configuration file or run folder {str(what)!r}; {nearest(name, preset_names())}"
    )


def _refuse_data(path: Path) -> None:
    """Data in place of a declaration are known by their name; nothing in them is read."""
    if path.suffix.lower() in DATA:
        declared = path.with_suffix(".yaml")
        raise ConfigError(
            f"{path} is data and no configuration; declare it first by `tacit data declare {shlex.quote(str(path))}`, "
            f"then run the declaration: tacit run {shlex.quote(str(declared))}"
        )


def base_of(what: str) -> Plain:
    """What a preset or a file says of one run; of a sweep, its base."""
    found = plain(what)
    while "base" in found:
        found = plain(found["base"]) if isinstance(found["base"], str) else found["base"]
    return found


def is_sweep(path: Path) -> bool:
    """Whether it is the folder of a sweep."""
    return (path / SWEEP).is_file()


def _from_file(path: Path) -> Plain:
    values = read(path)
    if DECLARES & set(values):
        return for_declaration(path)
    if isinstance(values.get("base"), dict):
        values["base"] = {"name": path.stem, **_beside(values["base"], path.parent)}
    return {"name": path.stem, **_beside(values, path.parent)}


def _beside(given: Plain, folder: Path) -> Plain:
    """Files that a configuration names lie beside it."""
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


def _preset(name: str) -> Preset:
    from tacit.data.named import find

    values = read(PRESETS / f"{name}.yaml")
    sources = base_of(name).get("data", {}).get("source", ())
    needs = (sources,) if isinstance(sources, str) else tuple(sources)
    return Preset(
        name=name,
        description=values.get("description", ""),
        needs=needs,
        missing=tuple(one for one in needs if find(one) is None),
    )
