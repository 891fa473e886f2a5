"""The output of `tacit reproduce` for a finished table or figure, kept in the folder of its runs.

It is printed again without importing torch, unless a preset, tacit's code, the results or the terminal changed.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from tacit.presets import PRESETS, REPRODUCTION


def print_again(name: str, parent: Path, console: Console) -> bool:
    """Print what was printed last time, if nothing has changed since.

    Args:
        name: A table or figure.
        parent: The folder of all reproductions.
        console: Where it is printed.

    Returns:
        Whether it was printed.
    """
    folder = _folder(name, parent)
    file = None if folder is None else _file(name, folder)
    if folder is None or file is None or not file.is_file():
        return False
    try:
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        same = kept["stamp"] == _stamp(console) and kept["results"] == _results(name, parent) and kept["results"]
    except (OSError, ValueError, KeyError):
        return False
    if same:
        console.file.write(kept["text"])
    return bool(same)


def keep_printed(name: str, parent: Path, console: Console, text: str) -> None:
    """Keep what was printed of a finished table or figure. A folder that cannot be written is no reason to stop."""
    folder = _folder(name, parent)
    if folder is None:
        return
    kept = {"stamp": _stamp(console), "results": _results(name, parent), "text": text}
    try:
        _file(name, folder).write_text(json.dumps(kept), encoding="utf-8")
    except OSError:
        return


def preset_of(name: str) -> str | None:
    """The preset that makes a table or figure."""
    return next(iter(presets_of(name)), None)


def presets_of(name: str) -> list[str]:
    """The preset that makes a table or figure, and those whose rows are shown beside its own."""
    paper, _, wanted = name.partition("/")
    items = yaml.safe_load((PRESETS / f"{REPRODUCTION}.yaml").read_text(encoding="utf-8")).get(paper, {})
    for own, item in items.items():
        if "preset" in item and wanted in (own, *item.get("also", ())):
            return [item["preset"], *item.get("beside", ())]
    return []


def _folder(name: str, parent: Path) -> Path | None:
    preset = preset_of(name)
    return None if preset is None else parent / preset.replace("/", "-")


def _file(name: str, folder: Path) -> Path:
    return folder / f"{name.partition('/')[2]}.printed.json"


def _stamp(console: Console) -> str:
    """A hash of everything but the results that decides what is printed."""
    package = PRESETS.parent
    code = [path.stat().st_mtime_ns for pattern in ("*.py", "*.yaml") for path in sorted(package.rglob(pattern))]
    words = f"{package} {code} {console.width} {console.is_terminal} {console.color_system}"
    return hashlib.sha256(words.encode()).hexdigest()


def _results(name: str, parent: Path) -> dict[str, int]:
    """The files of results and figures, and when each was written."""
    folders = [parent / preset.replace("/", "-") for preset in presets_of(name)]
    paths = (
        path
        for folder in folders
        for pattern in ("*.png", "curves.json", "*/metrics.json")
        for path in sorted(folder.glob(pattern))
    )
    return {path.relative_to(parent).as_posix(): path.stat().st_mtime_ns for path in paths}
