"""Where a run folder was made: a copy of it never charges the old ledger or reads the old files in silence.

A run folder names places outside itself: the ledger of private data, and the declaration of one's own data. It also
knows where it was made. Taken up at another place it is refused, until the call says that it was moved, or where its
ledger and its data lie now.
"""

import json
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.experiment.config import Config
from tacit.experiment.folder import RunFolder, write, write_json


def home(place: RunFolder) -> Path | None:
    """Where the folder was made; None of one that was made before folders knew it."""
    found = _environment(place).get("folder")
    return Path(found) if isinstance(found, str) else None


def settle(place: RunFolder) -> None:
    """Write down that the folder belongs where it is."""
    known = _environment(place)
    if known.get("folder") != str(place.path.resolve()):
        write_json(place.path / "environment.json", known | {"folder": str(place.path.resolve())})


def take_up(place: RunFolder, *, moved: bool, ledger: str | Path | None, data: str | Path | None) -> None:
    """Refuse a folder that lies elsewhere by now and of which that was not said; otherwise write down what was."""
    if not place.has_run:
        if moved or data is not None:
            raise ConfigError(f"--moved and --data are for going on with a run, and {place.path} holds none")
        return
    begun, charged = place.config(), place.ledger().get("path")
    declared = begun.data.scenario == "declared"
    if data is not None and not (declared and Path(data).is_file()):
        why = f"there is no file {data}" if declared else f"{place.path} reads {begun.data.source}"
        raise ConfigError(f"--data takes the declaration of your own data, and {why}; check the path, or leave it out")
    made, told = home(place), data is not None and (ledger is not None or charged is None)
    if made is not None and made != place.path.resolve() and (declared or charged is not None) and not told:
        _refuse(place, made, begun, charged, moved=moved)
    if data is not None:
        write(place.path / "config.yaml", with_data(begun, data).to_yaml())
    settle(place)


def with_data(config: Config, data: str | Path | None) -> Config:
    """The configuration with its declaration at another place."""
    if data is None:
        return config
    section = config.data.model_copy(update={"source": str(Path(data).absolute())})
    return config.model_copy(update={"data": section})


def _refuse(place: RunFolder, made: Path, begun: Config, charged: str | None, *, moved: bool) -> None:
    if moved and charged is not None and (made / "config.yaml").exists():
        raise ConfigError(
            f"{place.path} is a copy of the run at {made}, which is still there, so it was not moved; go on with that "
            "one, or delete it first, or say by --ledger and --data what this copy is charged to and reads"
        )
    if moved:
        return
    said = [f"charges {charged}"] * (charged is not None)
    said += [f"reads {begun.data.source}"] * (begun.data.scenario == "declared")
    raise ConfigError(
        f"{place.path} was made as {made}, and {' and '.join(said)}; if it was moved and these are still right, add "
        "--moved, otherwise say where they are now by --ledger FILE and --data FILE"
    )


def _environment(place: RunFolder) -> dict[str, Any]:
    try:
        found = json.loads((place.path / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
