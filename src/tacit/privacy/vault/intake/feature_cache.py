"""A cache of features on disk, keyed by the backbone and by a hash of each record.

Only the owner can read the folder. Files are written whole, so that a killed process loses at most the chunk that is
being computed (on a GPU also the previous one). Features that are cached are never computed again, whichever task, run
or process needs them.
"""

import fcntl
import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from tacit.errors import ConfigError
from tacit.privacy.vault.intake.extraction import Extractor, Halves
from tacit.privacy.vault.intake.store import save_tensors

CHUNK = 512
"""Records per file."""
HASH_BYTES = 16
HASHED_TOGETHER = 16
"""Records that a thread hashes per call: the call itself costs about as much as one of them."""

Progress = Callable[[int, int], None]
"""Called with the number of records done and their total, after each chunk and, on a CPU, after each batch. It may
raise, to stop: complete chunks stay cached."""


class FeatureCache:
    """The features of one backbone in one folder.

    Args:
        folder: The folder of the cache; None keeps features in memory.
        key: The name of the backbone's weights and preprocessing.
        width: The number of features.
        extractor: Computes the features that are not cached.
    """

    def __init__(self, folder: Path | None, key: str, width: int, extractor: Extractor) -> None:
        self.width = width
        self.folder = None if folder is None else folder / hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
        self._extract = extractor
        self._chunks: list[Path | Halves] = []
        self._known_files: set[Path] = set()
        self._positions: dict[bytes, tuple[int, int]] = {}

    def features(self, x: Any, progress: Progress | None = None) -> Halves:
        """The features of these records, in their order; missing ones are computed and cached.

        `x` is an array, or an object with `len` and slices that are arrays. Records are hashed chunk by chunk, so that
        on a GPU hashing overlaps with the backbone."""
        report = progress or _ignore
        hashes: list[bytes] = []
        computing: deque[tuple[list[bytes], int]] = deque()
        self._scan()
        with ExitStack() as lock:

            def missing() -> Iterator[NDArray[Any]]:
                locked, scheduled = False, set[bytes]()
                for start in range(0, len(x), CHUNK):
                    rows = x[start : start + CHUNK]  # read once: images may be decoded here
                    chunk = record_hashes(rows)
                    hashes.extend(chunk)
                    if not locked and self._missing(chunk, scheduled):
                        lock.enter_context(self._locked(lambda: report(0, 0)))
                        locked = True
                        self._scan()  # another process may have computed them in the meantime
                        report(0, len(x))
                    if new := self._missing(chunk, scheduled):
                        scheduled.update(new)
                        computing.append((list(new), len(hashes)))
                        # torch accepts only a writeable array without a copy.
                        whole = len(new) == len(rows) and rows.flags.writeable
                        yield rows if whole else rows[list(new.values())]

            def report_batch(done: int) -> None:
                new, seen = computing[-1]
                report(seen - len(new) + done, len(x))

            for features in self._extract(missing(), report_batch):
                new, seen = computing.popleft()
                self._add(new, features)
                report(seen, len(x))
        return self._gather(hashes)

    def __len__(self) -> int:
        """The number of records whose features are cached."""
        return len(self._positions)

    def _missing(self, hashes: Sequence[bytes], scheduled: Collection[bytes]) -> dict[bytes, int]:
        """The hashes that are neither cached nor scheduled, and the first row of each."""
        rows: dict[bytes, int] = {}
        for row, name in enumerate(hashes):
            if name not in self._positions and name not in scheduled:
                rows.setdefault(name, row)
        return rows

    def _add(self, hashes: Sequence[bytes], features: Halves) -> None:
        if self.folder is None:
            self._index(hashes, features)
            return
        joined = b"".join(hashes)
        file = self.folder / f"{hashlib.blake2b(joined, digest_size=HASH_BYTES).hexdigest()}.safetensors"
        rows = torch.frombuffer(bytearray(joined), dtype=torch.uint8).view(-1, HASH_BYTES)
        save_tensors({"names": rows, "features": torch.from_numpy(features)}, file)
        self._known_files.add(file)
        self._index(hashes, file)

    def _index(self, hashes: Sequence[bytes], chunk: Path | Halves) -> None:
        self._chunks.append(chunk)
        self._positions.update((name, (len(self._chunks) - 1, row)) for row, name in enumerate(hashes))

    def _scan(self) -> None:
        """Indexes the files that other processes have written."""
        files = () if self.folder is None else sorted(set(self.folder.glob("*.safetensors")) - self._known_files)
        for file in files:
            with safe_open(file, "pt") as tensors:
                hashes = tensors.get_tensor("names").numpy()
            self._known_files.add(file)
            self._index([row.tobytes() for row in hashes], file)

    def _gather(self, hashes: Sequence[bytes]) -> Halves:
        out: Halves = np.empty((len(hashes), self.width), dtype=np.float16)
        positions = np.asarray([self._positions[name] for name in hashes], dtype=np.int64).reshape(-1, 2)
        for number in np.unique(positions[:, 0]):
            here = positions[:, 0] == number
            out[here] = self._read(self._chunks[number])[positions[here, 1]]
        return out

    def _read(self, chunk: Path | Halves) -> Halves:
        if not isinstance(chunk, Path):
            return chunk
        try:
            with safe_open(chunk, "pt") as tensors:
                features: Halves = tensors.get_tensor("features").numpy()
        except FileNotFoundError:
            raise ConfigError(f"features in {chunk.parent} were cleared while they are in use; run it again") from None
        return features

    @contextmanager
    def _locked(self, check: Callable[[], None]) -> Iterator[None]:
        """While one process computes features for a folder, others wait, then read them. `check` may raise, to stop."""
        if self.folder is None:
            yield
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
                folder.chmod(0o700)
            handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot keep features in {self.folder}: {error.strerror}; make it writable") from None
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    check()
                    time.sleep(0.2)
            yield
        finally:
            os.close(handle)


def record_hashes(x: NDArray[Any]) -> list[bytes]:
    """A hash of each record's bytes, shape and type."""
    prefix = hashlib.blake2b(f"{x.dtype.str} {x.shape[1:]}".encode(), digest_size=HASH_BYTES)

    def hash_row(row: int) -> bytes:
        hashed = prefix.copy()
        hashed.update(np.ascontiguousarray(x[row]).data)
        return hashed.digest()

    def hash_some(first: int) -> list[bytes]:
        return [hash_row(row) for row in range(first, min(first + HASHED_TOGETHER, len(x)))]

    if x.nbytes < 2**24:
        return [hash_row(row) for row in range(len(x))]
    with ThreadPoolExecutor() as pool:  # hashing an image releases the interpreter lock
        return [name for names in pool.map(hash_some, range(0, len(x), HASHED_TOGETHER)) for name in names]


def _ignore(_done: int, _total: int) -> None:
    return
