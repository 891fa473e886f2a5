"""Is the data there, and is it what it should be? For a declaration nothing is said of values or counts."""

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.data.declaration import Declaration
from tacit.data.formats import idx_content, idx_file
from tacit.data.named import NAMED, data_folder, entry, find, load, way_out
from tacit.data.own import keep_apart, open_path
from tacit.data.samples import DataSet, Samples
from tacit.data.tables import Table
from tacit.errors import DataError
from tacit.words import counted, listed

MD5 = {
    "mnist": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }
}
"""Of the uncompressed files, where the authors' are known."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    what: str
    ok: bool
    says: str


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A named data set, and where it was found."""

    name: str
    about: str
    found: str | None
    way_out: str | None
    """How to get it, where it is missing."""


def listing(root: Path | str | None = None) -> tuple[Listed, ...]:
    """Every named data set. Digits are part of scikit-learn."""
    return tuple(_listed(name, root) for name in NAMED)


def check(source: str | Path, root: Path | str | None = None) -> tuple[Finding, ...]:
    """Check a named data set (files, checksums, shapes, labels) or a declaration: files and columns, and the kinds of
    cells where they are public."""
    if str(source) in NAMED:
        return tuple(_named(str(source), root))
    if Path(source).suffix.lower() in (".yaml", ".yml"):
        return tuple(_declared(Path(source)))
    if Path(source).exists():
        raise DataError(
            f"{source} is no declaration (.yaml); `tacit data declare {source}` writes one for a file or folder of data"
        )
    entry(str(source))  # not a name: say which are near
    return ()


def _listed(name: str, root: Path | str | None) -> Listed:
    known, folder = NAMED[name], find(name, root)
    place = None if folder is None else str(folder) if known.files else "scikit-learn"
    return Listed(name=name, about=known.about, found=place, way_out=way_out(name) if place is None else None)


def _named(name: str, root: Path | str | None) -> Iterator[Finding]:
    folder = find(name, root)
    if folder is None:
        place = data_folder(root) / entry(name).folder
        yield Finding(what="files", ok=False, says=f"{name} is not in {place}; {way_out(name)}")
        return
    yield Finding(what="files", ok=True, says=str(folder) if entry(name).files else "inside scikit-learn")
    for file, expected in MD5.get(name, {}).items():
        path = idx_file(folder, file)
        assert path is not None
        # A checksum against accidents; MD5 is what the authors' files are known by.
        same = hashlib.md5(idx_content(path), usedforsecurity=False).hexdigest() == expected
        says = "checksum is right" if same else f"{path} is not the authors' file; delete it and fetch it again"
        yield Finding(what=file, ok=same, says=says)
    data = load(name, root)
    for part in ("train", "test"):
        yield _samples(data, part)


def _samples(data: DataSet, part: str) -> Finding:
    try:
        samples: Samples | None = getattr(data, part)
        if samples is None:
            return Finding(what=part, ok=True, says="there is none")
        x, shape = samples.x, data.shape
    except DataError as error:
        return Finding(what=part, ok=False, says=str(error))
    if x.shape != (len(samples), *shape):
        return Finding(
            what=part, ok=False, says=f"features are {x.shape}, not {(len(samples), *shape)}; fetch it again"
        )
    if not np.isin(samples.y, np.asarray(data.labels)).all():
        return Finding(what=part, ok=False, says=f"there are labels outside 0..{len(data.labels) - 1}; fetch it again")
    return Finding(what=part, ok=True, says=f"{len(samples):,} × {shape}, {len(data.labels)} labels")


def _declared(path: Path) -> Iterator[Finding]:
    try:
        declared = Declaration.load(path)
        if declared.files is None:
            raise DataError(f"{path}: the key 'files' is missing; say where the data lies")
    except DataError as error:
        yield Finding(what="declaration", ok=False, says=str(error))
        return
    yield Finding(what="declaration", ok=True, says=f"{declared.name}: {counted(len(declared.tasks), 'task')} declared")
    for part, file in (("train", declared.files.train), ("test", declared.files.test)):
        if file is None:
            yield Finding(what=part, ok=True, says="no public test file: accuracy is a charged query")
            continue
        try:
            if part == "test":
                # First: what is said of a public file may depend on its cells.
                keep_apart(declared, path.parent)
            reader = open_path(declared, path.parent / file, test=part == "test")
            if isinstance(reader, Table):
                reader.check_kinds()
        except DataError as error:
            yield Finding(what=part, ok=False, says=str(error))
        else:
            kinds = ""
            if isinstance(reader, Table) and reader.lists and part == "train" and not declared.public:
                kinds += f"; how long the lists of {reader.lists[0]!r} are is private, and --look shows it to the owner"
            says = f"{file} can be read as declared, records of shape {reader.shape}{kinds}"
            yield Finding(what=part, ok=True, says=says)
            if isinstance(reader, Table) and part == "train" and not declared.public and (names := reader.as_numbers):
                yield Finding(what="features", ok=True, says=_as_numbers(path, names))


def _as_numbers(path: Path, names: Sequence[str]) -> str:
    """What a private table's owner has to know of columns of texts, from public names alone."""
    columns = counted(len(names), "column")
    return (
        f"{columns} read as numbers: {listed(names)}; a text in one becomes `fill` and teaches nothing, so list a text "
        "column's values under `categories`, or name only the others in `features` (which cells are texts is private: "
        f"the owner sees it by tacit data check {shlex.quote(str(path))} --look)"
    )
