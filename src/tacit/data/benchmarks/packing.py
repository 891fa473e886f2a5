"""Packs a public picture set, or a subset of it, into one .npz file for a machine that has none: bytes and labels only.

The file is found in a data folder, like the files of the set itself (`packed`).
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.benchmarks.named import PACKABLE, caveat, load
from tacit.data.benchmarks.packed import SUFFIX
from tacit.data.samples import Rows
from tacit.errors import DataError


def pack(
    name: str, out: Path, *, train: int | None = None, test: int | None = None, root: Path | str | None = None
) -> tuple[int, int]:
    """Write a picture set to one compressed file. The file gets its final name only when it is complete.

    Args:
        name: One of `NAMED`.
        out: The file; its name must be that of the set to be found in a data folder, such as `shared/mnist.npz`.
        train: How many training pictures, the first of each class in turn. None: all.
        test: How many test pictures. None: all.
        root: The folder of data sets.

    Returns:
        How many training and test pictures it has.

    Raises:
        DataError: The set has no pictures in bytes, is missing, or the file cannot be written.
    """
    if name not in PACKABLE:
        raise DataError(f"{name} cannot be packed, only sets of small pictures; choose one of {', '.join(PACKABLE)}")
    if out.name != f"{name}{SUFFIX}":
        raise DataError(f"{out} would not be found by its name; write {out.with_name(name + SUFFIX)}")
    data = load(name, root)
    assert data.test is not None
    wanted = {"train": (data.train, train), "test": (data.test, test)}
    arrays: dict[str, Any] = {}
    for part, (samples, most) in wanted.items():
        if most is not None and not 0 < most <= len(samples):
            raise DataError(f"{name} has {len(samples):,} {part} pictures; choose 1 to {len(samples):,}, not {most:,}")
        rows = first_of_each(samples.y, len(samples) if most is None else most)
        arrays |= {f"x_{part}": samples.x[rows], f"y_{part}": samples.y[rows].astype(np.uint8)}
        arrays[f"whole_{part}"] = np.asarray(len(samples))
    arrays["caveat"] = np.asarray(caveat(name, root) or "")
    part_file = out.with_name(f"{out.name}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with part_file.open("wb") as file:
            np.savez_compressed(file, **arrays)
        part_file.replace(out)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}") from None
    return len(arrays["y_train"]), len(arrays["y_test"])


def first_of_each(y: Rows, count: int) -> NDArray[np.intp]:
    """`count` rows in their order: the first of each label, then the second, and so on."""
    order = np.argsort(y, kind="stable")
    starts = np.searchsorted(y[order], y[order])
    rank = np.empty(len(y), dtype=np.intp)
    rank[order] = np.arange(len(y)) - starts
    return np.sort(np.argsort(rank, kind="stable")[:count])
