"""Lists the named public data sets and checks their files: checksums, shapes and labels."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.data.benchmarks.formats import idx_content, idx_file
from tacit.data.benchmarks.named import NAMED, data_folder, entry, find, load, way_out
from tacit.data.samples import DataSet, Samples
from tacit.errors import DataError

MD5 = {
    "mnist": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }
}
"""Checksums of the uncompressed files as published, where they are known."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    what: str
    """What was checked."""
    ok: bool
    says: str
    """One sentence for the user."""
    warns: bool = False
    """Whether it may be a mistake, though the data can be used."""


@dataclass(frozen=True, kw_only=True)
class ListedSet:
    """A named data set, and the folder in which it was found."""

    name: str
    about: str
    found: str | None
    """The folder; None where it is missing."""
    way_out: str | None
    """How to get it, where it is missing."""


def listing(root: Path | str | None = None) -> tuple[ListedSet, ...]:
    """Every named data set. Digits are part of scikit-learn."""
    listed = []
    for name, known in NAMED.items():
        folder = find(name, root)
        found = None if folder is None else str(folder) if known.files else "scikit-learn"
        remedy = way_out(name, root) if found is None else None
        listed.append(ListedSet(name=name, about=known.about, found=found, way_out=remedy))
    return tuple(listed)


def check_named(name: str, root: Path | str | None = None) -> Iterator[CheckResult]:
    """Checks the files of a named data set."""
    folder = find(name, root)
    if folder is None:
        expected = data_folder(root) / entry(name).folder
        yield CheckResult(what="files", ok=False, says=f"{name} is not in {expected}; {way_out(name, root)}")
        return
    yield CheckResult(what="files", ok=True, says=str(folder) if entry(name).files else "inside scikit-learn")
    published = {} if folder.is_file() else MD5.get(name, {})
    for file, expected_md5 in published.items():
        path = idx_file(folder, file)
        assert path is not None
        # Against accidents only; the published checksums are MD5.
        same = hashlib.md5(idx_content(path), usedforsecurity=False).hexdigest() == expected_md5
        says = "checksum is right" if same else f"{path} is not the published file; delete it and fetch it again"
        yield CheckResult(what=file, ok=same, says=says)
    data = load(name, root)
    for part in ("train", "test"):
        yield _check_samples(data, part)


def _check_samples(data: DataSet, part: str) -> CheckResult:
    try:
        samples: Samples | None = getattr(data, part)
        if samples is None:
            return CheckResult(what=part, ok=True, says="there is none")
        x, shape = samples.x, data.shape
    except DataError as error:
        return CheckResult(what=part, ok=False, says=str(error))
    if x.shape != (len(samples), *shape):
        expected = (len(samples), *shape)
        return CheckResult(what=part, ok=False, says=f"features are {x.shape}, not {expected}; fetch it again")
    if not np.isin(samples.y, np.asarray(data.labels)).all():
        last = len(data.labels) - 1
        return CheckResult(what=part, ok=False, says=f"there are labels outside 0..{last}; fetch it again")
    return CheckResult(what=part, ok=True, says=f"{len(samples):,} × {shape}, {len(data.labels)} labels")
