"""Public image sets in the form in which they are published: SVHN's MATLAB files, and one folder per class.

Which images are test images depends on the sorted file names alone.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.benchmarks.formats import Bytes, decode, held_out
from tacit.data.samples import Array, Rows, Samples
from tacit.errors import DataError

PICTURES = {".jpg", ".jpeg", ".png", ".webp"}
WNID = re.compile(r"n\d{8}")
"""A WordNet id of a class: the name of a folder of ImageNet."""
TEST_SHARE = 5
"""One image in five is a test image."""


def read_mat(file: Path) -> Samples:
    """One part of SVHN: `X` is (32, 32, 3, n), and a digit 0 has the label 10."""
    y = _variable(file, "y").ravel().astype(np.int64) % 10
    return Samples(read=lambda: np.ascontiguousarray(_variable(file, "X").transpose(3, 2, 0, 1)), y=y)


def _variable(file: Path, name: str) -> Array:
    from scipy.io import loadmat

    try:
        found: Array = loadmat(file, variable_names=[name])[name]
    except Exception:  # scipy raises many kinds; each means that this is not the file
        raise DataError(f"{file} is not SVHN's MATLAB file; delete it and get it again") from None
    return found


def class_folders(folder: Path) -> tuple[str, ...]:
    """The subfolders whose name is a WordNet id, sorted."""
    if not folder.is_dir():
        return ()
    return tuple(sorted(path.name for path in folder.iterdir() if WNID.fullmatch(path.name) and path.is_dir()))


def read_folders(name: str, folder: Path, shape: tuple[int, ...], *, test: bool) -> Samples:
    """The train or the test images (80:20) in the class folders; an image is decoded when it is read."""
    files = [
        (path, label)
        for label, each in enumerate(class_folders(folder))
        for path in sorted((folder / each).iterdir())
        if path.suffix.lower() in PICTURES
    ]
    chosen = np.flatnonzero(held_out(name, len(files), len(files) // TEST_SHARE) == test)
    store = PictureFiles(paths=tuple(files[row][0] for row in chosen), picture=shape)
    # It is used like an array; only `np.asarray` would read all of it at once.
    as_array: Any = store
    return Samples(read=lambda: as_array, y=np.asarray([files[row][1] for row in chosen], dtype=np.int64))


@dataclass(frozen=True, kw_only=True, eq=False)
class PictureFiles:
    """Image files as an array of bytes (n, channels, height, width) that decodes rows when they are read."""

    paths: tuple[Path, ...] = field(repr=False)
    picture: tuple[int, ...]
    """The shape that each image is resized to."""
    dtype = np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.picture)

    def __getitem__(self, rows: slice | Rows) -> Bytes:
        chosen = np.arange(len(self))[rows]
        out = np.empty((*chosen.shape, *self.picture), dtype=np.uint8)
        for place in np.ndindex(chosen.shape):
            out[place] = self._decoded(self.paths[chosen[place]])
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self[:] if dtype is None else self[:].astype(dtype)

    def _decoded(self, path: Path) -> Bytes:
        try:
            return decode(path.read_bytes(), self.picture)
        except (OSError, ValueError):
            raise DataError(f"{path} is not a readable image; get it again") from None
