"""Reads packed picture sets: one .npz file with bytes and labels, made by `tacit data pack`."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.samples import Array, Samples
from tacit.errors import DataError

SUFFIX = ".npz"


def read_part(path: Path, part: str) -> Samples:
    """The `train` or `test` samples; their pictures are read when they are needed."""
    return Samples(read=lambda: read_array(path, f"x_{part}"), y=read_array(path, f"y_{part}").astype(np.int64))


def packed_caveat(path: Path) -> str | None:
    """What is said with numbers measured on the file: that of the set, and how much of the set there is."""
    kept = {part: len(read_array(path, f"y_{part}")) for part in ("train", "test")}
    whole = {part: int(read_array(path, f"whole_{part}")) for part in kept}
    words = [str(read_array(path, "caveat"))] if read_array(path, "caveat").item() else []
    if kept != whole:
        sizes = " and ".join(f"{kept[part]:,} of {whole[part]:,} {part}" for part in kept)
        words.append(f"{path.stem} is here as a subset of {sizes} pictures: not for comparison with published numbers")
    return "; ".join(words) or None


def read_array(path: Path, name: str) -> Array:
    """One array of the file; nothing that could run code is read.

    Raises:
        DataError: The file is not one that `tacit data pack` wrote.
    """
    try:
        with np.load(path) as file:
            found: Any = file[name]
            return np.asarray(found)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        raise DataError(f"{path} is not a file of `tacit data pack`, or is cut short; pack it again") from None
