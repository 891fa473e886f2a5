"""The folders in which features are kept: what is there, and how it goes."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from tacit.data.formats import decoded_folder
from tacit.data.named import NAMED
from tacit.errors import ConfigError
from tacit.experiment.features import public_folder
from tacit.experiment.folder import RunFolder, delete
from tacit.words import nearest


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The features of one public set by one backbone."""

    name: str
    backbone: str
    records: int
    width: int
    bytes: int
    folder: str


def kept() -> list[Kept]:
    """All that is in tacit's cache folder."""
    return [_kept(about.parent) for about in sorted(public_folder().glob("*/*/about.json"))]


def clear(what: str | None) -> str:
    """Delete the features of a set, of the private records of a run, or (None) of all sets; what to say about it."""
    if what is None or (what in NAMED and not Path(what).is_dir()):
        return _cleared(public_folder(what or ""), f"features of {what or 'any data set'}")
    run = RunFolder(path=Path(what))
    if not run.has_run:
        raise ConfigError(f"{what!r} is no data set and no run folder; {nearest(what, NAMED)}")
    for folder in run.path.glob("seeds/*/private/features"):
        delete(folder)
    return (
        f"cached features of private records in {what} are deleted; memory and test records that are kept for later "
        "tasks stay in it until the run ends"
    )


def decoded_bytes() -> int:
    """What the decoded files of public sets take."""
    return sum(file.stat().st_size for file in decoded_folder().glob("*.npy"))


def clear_decoded() -> str:
    """Delete what was made of the files of public sets once; what to say about it."""
    return _cleared(decoded_folder(), "decoded files of public sets")


def _cleared(folder: Path, what: str) -> str:
    if not any(file.is_file() for file in folder.rglob("*")):
        return f"no {what} were kept; there was nothing to delete"
    shutil.rmtree(folder, ignore_errors=True)
    return f"no {what} are kept any more"


def _kept(folder: Path) -> Kept:
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    files = list(folder.glob("*.safetensors"))
    records = 0
    for file in files:
        with safe_open(file, "pt") as chunk:
            records += chunk.get_slice("names").get_shape()[0]
    size = sum(file.stat().st_size for file in files)
    where, width = str(folder), about["width"]
    return Kept(name=about["set"], backbone=about["backbone"], records=records, width=width, bytes=size, folder=where)
