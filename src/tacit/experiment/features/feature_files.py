"""Reads precomputed features of a public set: one row per record, train records first.

The rows of each part are in the order in which tacit reads the set, which `write_order` writes to a file (digits,
notmnist and imagenet-r are divided into train and test by a rule of tacit's own). `.npy` and `.npy.xz` hold an array
(rows, width); a Parquet file holds one column of lists, or one column per feature. A published file
`BACKBONE_u8.npy.xz` in the folder of a set holds bytes (width, rows) in steps of 0.04.
"""

import lzma
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.benchmarks.formats import once, read_table
from tacit.data.benchmarks.named import NAMED
from tacit.data.benchmarks.named import find as find_set
from tacit.data.samples import Array, DataSet
from tacit.errors import DataError

ENDS = (".npy", ".npy.xz", ".parquet")
STEP = 0.04
PUBLISHED = "_u8.npy.xz"


@dataclass(frozen=True, kw_only=True)
class FeatureFile:
    """A file of features; before they are needed, only its header is read."""

    path: Path
    in_steps: bool = False
    """Whether it is a published file: bytes, one line per feature."""

    @property
    def width(self) -> int:
        if self.in_steps:
            return self._head()[0]
        return int(self.rows.shape[1])

    @cached_property
    def rows(self) -> Array:
        """(rows, width) of floats."""
        if self.in_steps:
            return once(self.path, lambda: (self._array().T * np.float32(STEP)).astype(np.float16), mapped=True)
        found = _from_parquet(self.path) if self.path.suffix == ".parquet" else self._array()
        if found.ndim != 2 or found.dtype.kind not in "fiu":
            raise DataError(
                f"{self.path} holds an array of {found.dtype} with {found.ndim} dimensions; features are numbers, "
                "one row for each record"
            )
        return found if found.dtype.kind == "f" else found.astype(np.float32)

    def parts(self, data: DataSet) -> tuple[Array, Array]:
        """The rows of the train part and of the test part."""
        count, tests = len(data.train), 0 if data.test is None else len(data.test)
        if len(self.rows) != count + tests:
            raise DataError(
                f"{self.path} has {len(self.rows)} rows and {data.name} has {count} train and {tests} test records; "
                f"give one row for each, in the order of: tacit features order {data.name} FILE.npz"
            )
        return self.rows[:count], self.rows[count:]

    def _array(self) -> Array:
        try:
            if self.path.suffix != ".xz":
                return np.asarray(np.load(self.path, mmap_mode="r"))
            with lzma.open(self.path) as file:
                found: Array = np.load(file)
                return found
        except (OSError, ValueError, EOFError, lzma.LZMAError):
            raise DataError(f"{self.path} is not a file in NumPy format; write it with numpy.save") from None

    def _head(self) -> tuple[int, ...]:
        try:
            with lzma.open(self.path) as file:
                np.lib.format.read_magic(file)
                shape: tuple[int, ...] = np.lib.format.read_array_header_1_0(file)[0]
                return shape
        except (OSError, ValueError, EOFError, lzma.LZMAError):
            raise DataError(f"{self.path} cannot be read; delete it and get it again") from None


def is_feature_file(features: str) -> bool:
    return features.endswith(ENDS)


def check_file(features: str) -> None:
    """Refuses the name of a file that does not exist."""
    if is_feature_file(features) and not Path(features).is_file():
        raise DataError(f"data.features = {features!r}: there is no such file; give its path, or a backbone's name")


def write_order(data: DataSet, file: Path) -> int:
    """Writes the records of a set in the order of the rows of a file of features: arrays `x`, `y` and `test` (false for
    the train part, which comes first).

    Returns:
        The number of records.
    """
    parts = [data.train, *([] if data.test is None else [data.test])]
    test = np.repeat([False, True][: len(parts)], [len(part) for part in parts])
    y = np.concatenate([part.y for part in parts])
    try:
        with file.open("xb") as handle:
            np.savez(handle, x=np.concatenate([part.x[:] for part in parts]), y=y, test=test)
    except FileExistsError:
        raise DataError(f"{file} exists; choose another name") from None
    except OSError as error:
        raise DataError(f"cannot write {file}: {error.strerror}") from None
    return len(y)


def published(name: str, features: str) -> FeatureFile | None:
    """The file of a backbone's features in the folder of a named set; None if there is none."""
    folder = find_set(name) if name in NAMED else None
    path = None if folder is None or "/" in features else folder / (features.replace("-", "_") + PUBLISHED)
    return FeatureFile(path=path, in_steps=True) if path is not None and path.is_file() else None


def _is_list(type_: Any) -> bool:
    return any(test(type_) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _from_parquet(path: Path) -> Array:
    table = read_table(path)
    lists = [column for column in table.columns if _is_list(column.type)]
    if len(lists) == 1:
        column = lists[0].combine_chunks()
        lengths = pc.min_max(pc.list_value_length(column))
        if column.null_count or lengths["min"] != lengths["max"]:
            raise DataError(f"{path} has lists of different lengths; give every record as many features")
        return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(column), -1)
    if not all(pa.types.is_floating(kind) or pa.types.is_integer(kind) for kind in table.schema.types):
        raise DataError(
            f"{path} has columns that are not numeric; use one column of lists, or one numeric column per feature"
        )
    return np.stack([column.to_numpy() for column in table.columns], axis=1)
