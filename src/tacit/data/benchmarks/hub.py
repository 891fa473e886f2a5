"""Fetch public data sets from the Hugging Face hub into the data folder, in tacit's own formats. Extra: `hub`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from tacit.data.benchmarks.formats import decode, write_idx
from tacit.data.benchmarks.named import GREY, IDX, Hub, data_folder, entry, way_out
from tacit.errors import DataError
from tacit.words import install

PARTS = {"train": ("train", "train.parquet"), "test": ("t10k", "test.parquet")}
"""Part of the hub's set → the prefix of idx files, the Parquet file."""


def fetch(name: str, root: Path | str | None = None, source: str | None = None) -> Path:
    """Fetches a named set and returns its folder. A file gets its final name only when it is complete.

    Args:
        name: One of `NAMED`.
        root: The folder of data sets.
        source: Another hub id, or a local folder with the same columns.

    Raises:
        DataError: The set is on no hub, or could not be fetched or written.
    """
    known = entry(name)
    folder = data_folder(root) / known.folder
    if not known.files and not known.folders:
        raise DataError(f"{name} is always there: it ships inside scikit-learn")
    if known.hub is None:
        raise DataError(f"no hub is known to have {name}; {way_out(name, root)}")
    parts = _load(source or known.hub.id, known.hub, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part, (prefix, file) in PARTS.items():
            if known.files[0].endswith(".parquet"):
                _write_parquet(folder / file, parts[part], known.hub)
            else:
                _write_idx(folder, prefix, parts[part], known.hub)
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror}; set TACIT_DATA to a folder of yours") from None
    return folder


def _load(source: str, hub: Hub, name: str) -> Any:
    """The train and the test part, with encoded images."""
    try:
        import datasets
    except ImportError:
        raise DataError(f"fetching needs the package datasets; install it with {install('hub')}") from None
    try:
        with _quiet("huggingface_hub", "datasets"):
            found = datasets.load_dataset(source)
    except Exception as error:  # the hub's client raises many kinds; each means that nothing was fetched
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{name} could not be fetched from {source}: {why}") from None
    for part in PARTS:
        if part not in found or not {hub.image, hub.label} <= set(found[part].column_names):
            raise DataError(
                f"{source} has no part {part!r} with columns {hub.image!r} and {hub.label!r}; it is not {name}"
            )
    return {part: found[part].cast_column(hub.image, datasets.Image(decode=False)) for part in PARTS}


@contextmanager
def _quiet(*packages: str) -> Iterator[None]:
    """Suppresses the log messages of these packages: the error at the end says what went wrong."""
    loggers = [logging.getLogger(package) for package in packages]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _encoded(rows: Any, hub: Hub) -> Iterator[bytes]:
    """The encoded images, which are given as bytes or as the path of a file."""
    for row in rows:
        image = row[hub.image]
        yield image["bytes"] if image["bytes"] is not None else Path(image["path"]).read_bytes()


def _write_idx(folder: Path, prefix: str, rows: Any, hub: Hub) -> None:
    images = np.stack([decode(image, GREY)[0] for image in _encoded(rows, hub)])
    labels = np.asarray(rows[hub.label], dtype=np.uint8)
    for end, values in zip(IDX, (images, labels), strict=True):
        part = folder / f"{prefix}-{end}.part.gz"
        write_idx(part, values)
        part.replace(folder / f"{prefix}-{end}.gz")


def _write_parquet(path: Path, rows: Any, hub: Hub) -> None:
    images = pa.array(list(_encoded(rows, hub)), pa.binary())
    labels = pa.array(np.asarray(rows[hub.label], dtype=np.uint8))
    part = path.with_suffix(".part")
    parquet.write_table(pa.table({"image": images, "label": labels}), part)
    part.replace(path)
