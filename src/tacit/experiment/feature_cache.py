"""Features on disk, found by what a record is: backbone, preprocessing and the record's own bytes.

Guarantee: only the owner can read the folder, files are written whole, and a kill loses at most the chunk that is being
made (on a GPU also the one that is being handed out). What is kept is never put through the backbone again, whichever
task, run or process asks for it.
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
from tacit.experiment.extraction import Extractor, Halves
from tacit.models.backbones import Backbone
from tacit.privacy.store import save_tensors

CHUNK = 512
"""Records in one file."""
NAME_BYTES = 16
TOGETHER = 16
"""So many records are hashed by one call of a thread: the call itself costs about as much as one of them."""

Progress = Callable[[int, int], None]
"""Told how many records of how many are done: after each chunk, on a CPU after each batch. It may raise, to stop; what
whole chunks came to is kept then."""


class FeatureCache:
    """The features of one backbone in one folder; without a folder, in memory."""

    def __init__(self, folder: Path | None, net: Backbone, extractor: Extractor) -> None:
        self.width = net.width
        self.folder = None if folder is None else folder / hashlib.blake2b(net.key.encode(), digest_size=8).hexdigest()
        self._extract = extractor
        self._chunks: list[Path | Halves] = []
        self._known: set[Path] = set()
        self._places: dict[bytes, tuple[int, int]] = {}

    def take(self, x: NDArray[Any], progress: Progress | None = None) -> Halves:
        """Features of these records, in their order; what is missing is made and kept.

        Records are hashed chunk by chunk, so that on a GPU this goes on while the backbone is at work."""
        say = progress or _nothing
        names: list[bytes] = []
        made: deque[tuple[list[bytes], int]] = deque()
        self._scan()
        with ExitStack() as alone:

            def missing() -> Iterator[NDArray[Any]]:
                locked, coming = False, set[bytes]()
                for at in range(0, len(x), CHUNK):
                    rows = x[at : at + CHUNK]  # read once: pictures may be decoded here
                    block = hashes(rows)
                    names.extend(block)
                    if not locked and self._new(block, coming):
                        alone.enter_context(self._alone(lambda: say(0, 0)))
                        locked = True
                        self._scan()  # while this one waited, another process may have made them
                        say(0, len(x))
                    if new := self._new(block, coming):
                        coming.update(new)
                        made.append((list(new), len(names)))
                        whole = len(new) == len(rows) and rows.flags.writeable  # torch takes no other array as it is
                        yield rows if whole else rows[list(new.values())]

            def each(done: int) -> None:
                new_names, looked_at = made[-1]
                say(looked_at - len(new_names) + done, len(x))

            for features in self._extract(missing(), each):
                new_names, looked_at = made.popleft()
                self._keep(new_names, features)
                say(looked_at, len(x))
        return self._gather(names)

    def __len__(self) -> int:
        """How many records' features are kept."""
        return len(self._places)

    def _new(self, names: Sequence[bytes], coming: Collection[bytes]) -> dict[bytes, int]:
        """Those that are neither kept nor being made, each once, and the first row of each."""
        found: dict[bytes, int] = {}
        for row, name in enumerate(names):
            if name not in self._places and name not in coming:
                found.setdefault(name, row)
        return found

    def _keep(self, names: Sequence[bytes], features: Halves) -> None:
        if self.folder is None:
            self._add(names, features)
            return
        joined = b"".join(names)
        file = self.folder / f"{hashlib.blake2b(joined, digest_size=NAME_BYTES).hexdigest()}.safetensors"
        rows = torch.frombuffer(bytearray(joined), dtype=torch.uint8).view(-1, NAME_BYTES)
        save_tensors({"names": rows, "features": torch.from_numpy(features)}, file)
        self._known.add(file)
        self._add(names, file)

    def _add(self, names: Sequence[bytes], chunk: Path | Halves) -> None:
        self._chunks.append(chunk)
        self._places.update((name, (len(self._chunks) - 1, row)) for row, name in enumerate(names))

    def _scan(self) -> None:
        """Take up what other processes, or earlier ones, have made."""
        for file in () if self.folder is None else sorted(set(self.folder.glob("*.safetensors")) - self._known):
            with safe_open(file, "pt") as kept:
                names = kept.get_tensor("names").numpy()
            self._known.add(file)
            self._add([row.tobytes() for row in names], file)

    def _gather(self, names: Sequence[bytes]) -> Halves:
        out: Halves = np.empty((len(names), self.width), dtype=np.float16)
        places = np.asarray([self._places[name] for name in names], dtype=np.int64).reshape(-1, 2)
        for number in np.unique(places[:, 0]):
            here = places[:, 0] == number
            out[here] = self._read(self._chunks[number])[places[here, 1]]
        return out

    def _read(self, chunk: Path | Halves) -> Halves:
        if not isinstance(chunk, Path):
            return chunk
        try:
            with safe_open(chunk, "pt") as kept:
                found: Halves = kept.get_tensor("features").numpy()
        except FileNotFoundError:
            raise ConfigError(f"features in {chunk.parent} were cleared while they are in use; run it again") from None
        return found

    @contextmanager
    def _alone(self, check: Callable[[], None]) -> Iterator[None]:
        """While one process makes features for a folder, others wait and then find them."""
        if self.folder is None:
            yield
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for place in (self.folder.parent.parent, self.folder.parent, self.folder):
                place.chmod(0o700)
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


def hashes(x: NDArray[Any]) -> list[bytes]:
    """The name of each record: a hash of its bytes, shape and kind."""
    begun = hashlib.blake2b(f"{x.dtype.str} {x.shape[1:]}".encode(), digest_size=NAME_BYTES)

    def one(row: int) -> bytes:
        hashed = begun.copy()
        hashed.update(np.ascontiguousarray(x[row]).data)
        return hashed.digest()

    def some(first: int) -> list[bytes]:
        return [one(row) for row in range(first, min(first + TOGETHER, len(x)))]

    if x.nbytes < 2**24:
        return [one(row) for row in range(len(x))]
    with ThreadPoolExecutor() as pool:  # hashing a picture lets other threads run
        return [name for names in pool.map(some, range(0, len(x), TOGETHER)) for name in names]


def _nothing(_done: int, _of: int) -> None:
    return
