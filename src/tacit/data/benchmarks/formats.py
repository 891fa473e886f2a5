"""Files of public image sets: idx (plain or gzip) and Parquet with one encoded image per row."""

import gzip
import hashlib
import io
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from tacit.data.samples import Array, Rows
from tacit.errors import DataError
from tacit.words import install

Bytes = NDArray[np.uint8]
JPEG = b"\xff\xd8"
"""The first bytes of a JPEG file."""


def idx_file(folder: Path, name: str) -> Path | None:
    """The file `name` or `name.gz` in a folder."""
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def idx_content(path: Path) -> bytes:
    """The uncompressed content."""
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError):
        raise DataError(f"{path} cannot be read or is cut short; delete it and fetch it again") from None


def read_idx(path: Path) -> Bytes:
    """An idx file of bytes, in the shape that it states."""
    content = idx_content(path)
    zeros, kind, dimensions = struct.unpack_from(">HBB", content) if len(content) >= 4 else (1, 0, 0)
    head = 4 + 4 * dimensions
    if zeros != 0 or kind != 8 or len(content) < head:
        raise DataError(f"{path} is not an idx file of bytes; delete it and fetch it again")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) != head + int(np.prod(shape)):
        raise DataError(f"{path} does not have the size that its header states; delete it and fetch it again")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)


def write_idx(path: Path, values: Bytes) -> None:
    """Write an idx file, gzip-compressed where the name says so."""
    content = struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def read_column(path: Path, name: str) -> Any:
    """One column of a Parquet file, as an Arrow array."""
    return read_table(path, [name]).column(name)


def read_table(path: Path, columns: list[str] | None = None) -> Any:
    try:
        return parquet.read_table(path, columns=columns)
    except (OSError, ValueError, KeyError):
        raise DataError(f"{path} is not the Parquet file that it should be; delete it and fetch it again") from None


def read_labels(path: Path) -> Rows:
    return np.asarray(read_column(path, "label").to_numpy(), dtype=np.int64)


def is_lossy(path: Path) -> bool:
    """Whether the images of a Parquet file are JPEGs, as its first one shows."""
    for batch in parquet.ParquetFile(path).iter_batches(batch_size=1, columns=["image"]):
        return bytes(batch.column(0)[0].as_py()[:2]) == JPEG
    return False


def read_images(path: Path, shape: tuple[int, ...]) -> Bytes:
    """The images of a Parquet file as (rows, *shape)."""
    return once(path, lambda: np.stack([decode(image.as_buffer(), shape) for image in read_column(path, "image")]))


def once(path: Path, decoded: Callable[[], Array], *, mapped: bool = False) -> Array:
    """The result of `decoded` on a public file, computed once and then read from the cache folder.

    `mapped`: the cached array is mapped into memory rather than read as a whole."""
    kept = decoded_folder() / f"{path.parent.name}-{path.stem}-{_identity(path)}.npy"
    if not kept.is_file():
        made = decoded()
        _keep(kept, made)
        return made
    found: Array = np.load(kept, mmap_mode="r" if mapped else None)
    return np.asarray(found)


def decode(content: Any, shape: tuple[int, ...]) -> Bytes:
    """An encoded image as bytes, resized to `shape` (channels, height, width); one channel is grey, three are RGB."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError(f"reading images needs pillow; install it with {install('images')}") from None

    channels, height, width = shape
    with Image.open(io.BytesIO(content)) as image:
        plain = image.convert("L" if channels == 1 else "RGB")
        fitted = plain if plain.size == (width, height) else plain.resize((width, height))
        pixels: Bytes = np.asarray(fitted, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def cache_folder() -> Path:
    """The folder of public data that can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tacit"


def decoded_folder() -> Path:
    """The folder of decoded files."""
    return cache_folder() / "decoded"


def held_out(name: str, count: int, test: int) -> NDArray[np.bool_]:
    """Which of `count` rows are test rows: the `test` rows with the smallest hashes.

    It depends on no random generator, version or machine."""
    hashes = [hashlib.blake2b(f"{name} {row}".encode(), digest_size=8).digest() for row in range(count)]
    chosen = np.zeros(count, dtype=np.bool_)
    chosen[sorted(range(count), key=hashes.__getitem__)[:test]] = True
    return chosen


def _identity(path: Path) -> str:
    """A hash that changes when the file is replaced or changed."""
    found = path.stat()
    words = f"{path.resolve()} {found.st_size} {found.st_mtime_ns}"
    return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()


def _keep(path: Path, images: Array) -> None:
    """Writes the file atomically; a cache that cannot be written is ignored."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
            np.save(part, images)
        Path(part.name).replace(path)
    except OSError:
        return
