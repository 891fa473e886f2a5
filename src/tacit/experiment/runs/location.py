"""The location of a run folder: a copy of it never charges the old ledger or reads the old files unnoticed.

A run folder refers to files outside itself: the ledger of private data and the declaration of the user's own data. It
also records where it was made. Resuming it elsewhere is refused unless the call says that it was moved, or where its
ledger and its data are now.
"""

import json
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.files import write, write_json
from tacit.experiment.runs.folder import RunFolder


def record_location(folder: RunFolder) -> None:
    """Record that the folder belongs where it is now."""
    known = _environment(folder)
    if known.get("folder") != str(folder.path.resolve()):
        write_json(folder.path / "environment.json", known | {"folder": str(folder.path.resolve())})


def check_location(folder: RunFolder, *, moved: bool, ledger: str | Path | None, data: str | Path | None) -> None:
    """Refuse to resume a folder that was moved unless `moved` says so; otherwise record its new location."""
    if not folder.has_run:
        if moved or data is not None:
            raise ConfigError(f"--moved and --data are for resuming a run, and {folder.path} has none")
        return
    begun, charged = folder.config(), folder.ledger().get("path")
    declared = begun.data.scenario == "declared"
    if data is not None and not (declared and Path(data).is_file()):
        why = f"there is no file {data}" if declared else f"{folder.path} reads {begun.data.source}"
        raise ConfigError(f"--data takes the declaration of your own data, and {why}; check the path, or omit it")
    made = _environment(folder).get("folder")  # older folders do not record where they were made
    elsewhere = isinstance(made, str) and Path(made) != folder.path.resolve()
    given = data is not None and (ledger is not None or charged is None)
    if elsewhere and (declared or charged is not None) and not given:
        _refuse(folder, Path(str(made)), begun, charged, moved=moved)
    if data is not None:
        write(folder.path / "config.yaml", with_data(begun, data).to_yaml())
    record_location(folder)


def with_data(config: Config, data: str | Path | None) -> Config:
    """The configuration with its declaration at another path."""
    if data is None:
        return config
    section = config.data.model_copy(update={"source": str(Path(data).absolute())})
    return config.model_copy(update={"data": section})


def _refuse(folder: RunFolder, made: Path, begun: Config, charged: str | None, *, moved: bool) -> None:
    if moved and charged is not None and (made / "config.yaml").exists():
        raise ConfigError(
            f"{folder.path} is a copy of the run at {made}, which is still there, so it was not moved; continue that "
            "one, delete it first, or pass the ledger and data of this copy with --ledger and --data"
        )
    if moved:
        return
    said = [f"charges {charged}"] * (charged is not None)
    said += [f"reads {begun.data.source}"] * (begun.data.scenario == "declared")
    raise ConfigError(
        f"{folder.path} was made as {made}, and {' and '.join(said)}; if it was moved and these are still right, add "
        "--moved, otherwise pass their new paths with --ledger FILE and --data FILE"
    )


def _environment(folder: RunFolder) -> dict[str, Any]:
    try:
        found = json.loads((folder.path / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
