"""Lists and clears the caches of features."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from tacit.data.benchmarks.formats import decoded_folder
from tacit.experiment.features.features import public_folder
from tacit.privacy.vault.intake.store import delete_private


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
    """The features of public sets in tacit's cache folder."""
    return [_kept(about.parent) for about in sorted(public_folder().glob("*/*/about.json"))]


def clear(data: str | None) -> str:
    """Deletes the cached features of a data set, or of all sets (None).

    Returns:
        A sentence for the user.
    """
    return _cleared(public_folder(data or ""), f"features of {data or 'any data set'}")


def clear_private(run: Path) -> str:
    """Deletes the cached features of a run's private records.

    Returns:
        A sentence for the user.
    """
    for folder in run.glob("seeds/*/private/features"):
        delete_private(folder)
    return (
        f"cached features of private records in {run} are deleted; memory and test records that are kept for later "
        "tasks stay in it until the run ends"
    )


def decoded_bytes() -> int:
    """The size of the decoded files of public sets."""
    return sum(file.stat().st_size for file in decoded_folder().glob("*.npy"))


def clear_decoded() -> str:
    """Deletes the decoded files of public sets.

    Returns:
        A sentence for the user.
    """
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
