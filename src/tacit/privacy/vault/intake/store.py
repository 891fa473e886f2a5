"""The vault's private folder on disk: kept blocks, journals of unfinished work, state of individual filters.

Files are readable by their owner only, and never a pickle.

Formal guarantees
  * A step of a grant never releases two different results, which would share one noise draw. The journal holds a
    checksum of every result, written before it is released; a step that is repeated after a crash must give the same
    result, whatever changed in between (parameters, model code, loss, random state).
  * One live process uses a journal (file lock). A copy of the folder is another holder and cannot resume.

Conditions: the checksum protects against accidents, not against forgery.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import struct
from pathlib import Path
from weakref import WeakSet

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tacit.errors import ConfigError, VaultError
from tacit.privacy.vault.intake.fingerprint import checksum

_ENTRY = struct.Struct("<qq")


class Journal:
    """The released steps of one grant, in memory or in a locked file."""

    def __init__(self, path: Path | None) -> None:
        self._entries: list[tuple[int, int]] = []
        self._file = None
        self._path, self._closed, self._forgotten = path, False, False
        if path is None:
            return
        self._file = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)  # noqa: SIM115, PTH123
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise VaultError(
                "another process, or another grant in this one, is using this work; wait for it or close it"
            ) from None
        try:
            raw = self._file.read()
            if not raw:
                sync(path.parent)  # a new file's name must be durable before its contents are
        except OSError:
            self._file.close()
            raise
        whole = len(raw) - len(raw) % _ENTRY.size  # a torn last entry belongs to a step that released nothing
        self._entries = [_ENTRY.unpack_from(raw, at) for at in range(0, whole, _ENTRY.size)]
        self._file.seek(whole)

    def __len__(self) -> int:
        return len(self._entries)

    def check_again(self, step: int, parameters: int) -> None:
        """Refuses to repeat a step with other parameters, before a record is read.

        Whether the result would differ depends on the records, so it must not be found out by computing it.
        """
        if step < len(self._entries) and not _same_state(self._entries[step][1], parameters):
            raise VaultError(
                f"step {step} of this grant was taken with other parameters; restore those of its checkpoint, or ask "
                "for a new grant"
            )

    def leave(self, step: int, mark: tuple[int, int]) -> None:
        """Records the result of `step` before its release; refuses it if the step released another result before."""
        if self._closed:
            raise VaultError("this grant was closed; ask for the same work again to resume it")
        if step < len(self._entries):
            result, parameters = self._entries[step]
            if result != mark[0] or not _same_state(parameters, mark[1]):
                raise VaultError(
                    f"step {step} of this grant already released another gradient; repeat it with the same "
                    "parameters, model, loss and random state, or ask for a new grant"
                )
            return
        if self._file is not None:
            try:
                if self._file.write(_ENTRY.pack(*mark)) != _ENTRY.size:
                    raise OSError(0, "the disk is full")
            except OSError as error:
                self.close()  # for good: what is not in the file must not be released
                raise VaultError(
                    f"cannot write the journal of this grant: {error.strerror}; nothing was released"
                ) from None
        self._entries.append(mark)

    def begin(self) -> int:
        """The number of a new step, durable when this returns, so that no crash leads to the same noise twice."""
        step = len(self._entries)
        self.leave(step, (step, 0))
        if self._file is not None:
            os.fsync(self._file.fileno())
        return step

    def keep(self, result: Tensor) -> None:
        """Stores the result of an exit that releases once, before the release."""
        self.leave(0, checksum(result))
        if self._result is not None:
            save_tensors({"result": result}, self._result)

    def kept(self) -> Tensor | None:
        """The stored result, if there is one: resumed work returns it instead of computing again."""
        if self._result is None or not self._result.exists():
            return None
        result: Tensor = load_file(self._result)["result"]
        return result

    @property
    def _result(self) -> Path | None:
        return None if self._path is None else self._path.with_suffix(".safetensors")

    def clear(self) -> None:
        """Removes the entries of an earlier grant for the same work."""
        self._entries.clear()
        if self._result is not None:
            self._result.unlink(missing_ok=True)
        if self._file is not None:
            self._file.truncate(0)
            self._file.seek(0)

    def close(self, *, forget: bool = False) -> None:
        """Unlocks the journal; with `forget`, deletes it."""
        self._closed = True
        if self._file is None:
            return
        if forget and not self._forgotten:  # once: the same work may have been started again since
            self._forgotten = True
            for file in (self._path, self._result, self._path and self._path.with_suffix(".taken")):
                if file is not None:
                    file.unlink(missing_ok=True)
        self._file.close()


def _same_state(stored: int, now: int) -> bool:
    """Whether two hashes of a step's state agree. Journals of earlier releases hash the trainable parameters only, in
    the lower 32 bits."""
    return stored == (now if stored >> 32 else now & 0xFFFFFFFF)


class Store:
    """A private folder that only its owner can read."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._journals: WeakSet[Journal] = WeakSet()
        try:
            for folder in (self.path, self.path / "grants", self.path / "blocks"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            self._identity = self._claim()
        except OSError as error:
            raise VaultError(f"cannot use {self.path} as the vault's store: {error.strerror}; choose another") from None

    @property
    def holder(self) -> str:
        """A name of this folder itself: a copy has another inode, and so another name."""
        status = self._identity.stat()
        if status.st_nlink > 1:
            raise VaultError(f"the store {self.path} is hard-linked from another folder; use a new folder")
        inode = status.st_ino.to_bytes(16, "big") + status.st_dev.to_bytes(16, "big")
        return hashlib.sha256(self._identity.read_bytes() + inode).hexdigest()[:32]

    def journal(self, fingerprint: str) -> Journal:
        """Opens and locks the journal of the work with a fingerprint."""
        opened = Journal(self.path / "grants" / f"{fingerprint}.steps")
        self._journals.add(opened)
        return opened

    def close(self) -> None:
        """Unlocks all journals, so that unfinished work can be resumed."""
        for journal in list(self._journals):
            journal.close()

    def continued_by(self, fingerprint: str) -> str | None:
        """The fingerprint of the work that continues this work's charge, if there is one."""
        path = self._continuation(fingerprint)
        return path.read_text().split()[0] if path.exists() else None

    def continue_by(self, fingerprint: str, by: str, drawn: int) -> int:
        """Records, durably, that the work `by` continues this charge; returns the first step that it may draw."""
        path = self._continuation(fingerprint)
        if self.continued_by(fingerprint) == by:
            return int(path.read_text().split()[1])
        draft = path.with_suffix(".new")
        draft.write_text(f"{by} {drawn}\n")
        sync(draft)
        draft.replace(path)
        sync(path.parent)
        return drawn

    def _continuation(self, fingerprint: str) -> Path:
        return self.path / "grants" / f"{fingerprint}.taken"

    def save(self, block: str, tensors: dict[str, Tensor]) -> None:
        """Writes the records of a block."""
        save_tensors(tensors, self._block(block))

    def holds(self, block: str) -> bool:
        """Whether the records of a block are kept."""
        return self._block(block).exists()

    def load(self, block: str) -> dict[str, Tensor]:
        """Reads the records of a block."""
        path = self._block(block)
        if not path.exists():
            raise VaultError(f"the store {self.path} does not hold block {block}; admit its records again")
        try:
            tensors: dict[str, Tensor] = load_file(path)
        except (OSError, SafetensorError):
            raise VaultError(f"block {block} in the store {self.path} is damaged; restore it from a backup") from None
        return tensors

    def filter_file(self, block: str, fingerprint: str, grant: str) -> Path:
        """The file of the losses that an individual filter has counted, for one block and grant."""
        return self.path / "blocks" / f"{block}.{fingerprint}.{grant}.safetensors"

    def filter_files(self, block: str, fingerprint: str) -> dict[str, Path]:
        """The files of one individual filter, by grant; at most one of them is current."""
        files = (self.path / "blocks").glob(f"{block}.{fingerprint}.*.safetensors")
        return {path.name.split(".")[2]: path for path in sorted(files)}

    def open_filters(self, block: str) -> list[str]:
        """The fingerprints of a block's individual filters that were not closed."""
        return sorted({path.name.split(".")[1] for path in (self.path / "blocks").glob(f"{block}.*.*.safetensors")})

    def delete(self, block: str) -> None:
        """Deletes a block's records and the state of its individual filters."""
        for path in (self.path / "blocks").glob(f"{block}.*"):
            path.unlink(missing_ok=True)

    def _block(self, block: str) -> Path:
        return self.path / "blocks" / f"{block}.safetensors"

    def _claim(self) -> Path:
        """The file that identifies this folder; created with the first vault that uses it."""
        path = self.path / "identity"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(16))
        except FileExistsError:
            pass
        return path


def save_tensors(tensors: dict[str, Tensor], path: Path, *, durable: bool = False) -> None:
    """Writes a file atomically, readable by its owner only. With `durable`, it survives a power cut."""
    draft = path.with_suffix(".new")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, draft)
    draft.chmod(0o600)
    if durable:
        sync(draft)
    draft.replace(path)
    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def delete_private(folder: Path) -> None:
    """Deletes a folder of private data.

    Raises:
        ConfigError: Some of it could not be deleted.
    """
    shutil.rmtree(folder, ignore_errors=True)
    # Some file systems keep a file that is open, such as the lock of a seed, under such a name.
    if any(file.name != "lock" and not file.name.startswith(".nfs") for file in folder.glob("*")):
        raise ConfigError(
            f"{folder} still holds private data, since it is a link or cannot be written to; delete what it holds "
            "yourself"
        )
