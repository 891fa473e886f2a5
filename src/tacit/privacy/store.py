"""What the vault keeps on disk: memory blocks and the journal of steps taken. Owner-only, deletable, never a pickle.

Guarantee: a step of a grant never lets out two different results (the same noise on two gradients would cancel). The
journal holds a checksum of every result, written before it leaves; a step that is redone after a crash must give the
same one, whatever changed in between (parameters, model code, loss, dropout's coins). One live process holds a journal
(file lock); a copy of the folder is another holder and cannot resume. The checksum is against accidents, not forgers.
"""

import fcntl
import hashlib
import os
import secrets
import struct
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from tacit.errors import VaultError

_ENTRY = struct.Struct("<qq")


class Journal:
    """The steps of one grant, in memory or in a locked file."""

    def __init__(self, path: Path | None) -> None:
        self._entries: list[tuple[int, int]] = []
        self._file = None
        self._path = path
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
        raw = self._file.read()
        whole = len(raw) - len(raw) % _ENTRY.size  # a torn last entry belongs to a step that released nothing
        self._entries = [_ENTRY.unpack_from(raw, at) for at in range(0, whole, _ENTRY.size)]
        self._file.seek(whole)

    def __len__(self) -> int:
        return len(self._entries)

    def leave(self, step: int, checksum: tuple[int, int]) -> None:
        """Note the result of `step`, which is about to leave; refuse if another one left before."""
        if step < len(self._entries):
            if self._entries[step] != checksum:
                raise VaultError(
                    f"step {step} of this grant already released another gradient; go on with the same parameters, "
                    "model, loss and random state as before, or ask for a new grant"
                )
            return
        self._entries.append(checksum)
        if self._file is not None:
            try:
                self._file.write(_ENTRY.pack(*checksum))
            except OSError as error:
                raise VaultError(
                    f"cannot write the journal of this grant: {error.strerror}; nothing was released"
                ) from None

    def clear(self) -> None:
        """Begin anew: entries of an earlier grant for the same work mean nothing for this one."""
        self._entries.clear()
        if self._file is not None:
            self._file.truncate(0)
            self._file.seek(0)

    def close(self, *, forget: bool = False) -> None:
        if self._file is not None and not self._file.closed:
            if forget and self._path is not None:
                self._path.unlink(missing_ok=True)
            self._file.close()


class Store:
    """A private folder: `Store(path)`; only its owner can read it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            for folder in (self.path, self.path / "grants", self.path / "blocks"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            self._identity = self._claim()
        except OSError as error:
            raise VaultError(f"cannot use {self.path} as the vault's store: {error.strerror}; choose another") from None

    @property
    def holder(self) -> str:
        """Names this folder, not its contents: a copy has another inode and so another name."""
        inode = self._identity.stat().st_ino
        return hashlib.sha256(self._identity.read_bytes() + inode.to_bytes(16, "big")).hexdigest()[:32]

    def journal(self, pin: str) -> Journal:
        return Journal(self.path / "grants" / f"{pin}.steps")

    def save(self, block: str, tensors: dict[str, Tensor]) -> None:
        path = self._block(block)
        draft = path.with_suffix(".new")
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, draft)
        draft.chmod(0o600)
        draft.replace(path)

    def load(self, block: str) -> dict[str, Tensor]:
        path = self._block(block)
        if not path.exists():
            raise VaultError(f"the store {self.path} does not hold block {block}; admit its records again")
        tensors: dict[str, Tensor] = load_file(path)
        return tensors

    def delete(self, block: str) -> None:
        self._block(block).unlink(missing_ok=True)

    def _block(self, block: str) -> Path:
        return self.path / "blocks" / f"{block}.safetensors"

    def _claim(self) -> Path:
        path = self.path / "identity"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(16))
        except FileExistsError:
            pass
        return path
