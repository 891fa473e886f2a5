"""What the vault keeps on disk: memory blocks, the steps taken, what units have spent. Owner-only, never a pickle.

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
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, tensor

from tacit.errors import VaultError
from tacit.privacy.pin import checksum

_ENTRY = struct.Struct("<qq")


class Journal:
    """The steps of one grant, in memory or in a locked file."""

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
                sync(path.parent)  # the file may be new: its name lasts before anything is written under it
        except OSError:
            self._file.close()
            raise
        whole = len(raw) - len(raw) % _ENTRY.size  # a torn last entry belongs to a step that released nothing
        self._entries = [_ENTRY.unpack_from(raw, at) for at in range(0, whole, _ENTRY.size)]
        self._file.seek(whole)

    def __len__(self) -> int:
        return len(self._entries)

    def check_again(self, step: int, parameters: int) -> None:
        """Refuse to redo a step with other parameters than it was taken with, before a record is read: whether the
        result would be another one depends on the records."""
        if step < len(self._entries) and self._entries[step][1] != parameters:
            raise VaultError(
                f"step {step} of this grant was taken with other parameters; go on with those of its checkpoint, or "
                "ask for a new grant"
            )

    def leave(self, step: int, mark: tuple[int, int]) -> None:
        """Note the result of `step`, which is about to leave; refuse if another one left before."""
        if self._closed:
            raise VaultError("this grant was given up; ask for the same work again to go on with it")
        if step < len(self._entries):
            if self._entries[step] != mark:
                raise VaultError(
                    f"step {step} of this grant already released another gradient; go on with the same parameters, "
                    "model, loss and random state as before, or ask for a new grant"
                )
            return
        if self._file is not None:
            try:
                if self._file.write(_ENTRY.pack(*mark)) != _ENTRY.size:
                    raise OSError(0, "the disk is full")
            except OSError as error:
                self.close()  # for good: what is not in the file must not leave
                raise VaultError(
                    f"cannot write the journal of this grant: {error.strerror}; nothing was released"
                ) from None
        self._entries.append(mark)

    def begin(self) -> int:
        """The number of a new step, durable before it returns: no crash gives it, and so its noise, a second time."""
        step = len(self._entries)
        self.leave(step, (step, 0))
        if self._file is not None:
            os.fsync(self._file.fileno())
        return step

    def keep(self, result: Tensor) -> None:
        """Write down the one result of an exit that releases once, before it leaves."""
        self.leave(0, checksum(result))
        if self._result is not None:
            save_tensors({"result": result}, self._result)

    def kept(self) -> Tensor | None:
        """That result, if it left before: work that is taken up again gets it, and never the same noise on another."""
        if self._result is None or not self._result.exists():
            return None
        found: Tensor = load_file(self._result)["result"]
        return found

    @property
    def _result(self) -> Path | None:
        return None if self._path is None else self._path.with_suffix(".safetensors")

    def clear(self) -> None:
        """Begin anew: entries of an earlier grant for the same work mean nothing for this one."""
        self._entries.clear()
        if self._result is not None:
            self._result.unlink(missing_ok=True)
        if self._file is not None:
            self._file.truncate(0)
            self._file.seek(0)

    def close(self, *, forget: bool = False) -> None:
        self._closed = True
        if self._file is None:
            return
        if forget and not self._forgotten:  # once: the same work may have begun anew since
            self._forgotten = True
            for file in (self._path, self._result, self._path and self._path.with_suffix(".taken")):
                if file is not None:
                    file.unlink(missing_ok=True)
        self._file.close()


@dataclass(frozen=True, kw_only=True)
class Spent:
    """One state of a meter."""

    units: Tensor
    """What each unit has spent: private."""
    steps: int
    """How many steps the journal had."""
    token: int
    """The newest ticket of the grant under which this may have been spent: one that the ledger has passed is old."""


class Tally:
    """What each unit of a metered block has spent: private, in memory or in a file. `write` is durable when it returns,
    whole or not at all."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._held: Spent | None = None

    def read(self) -> Spent | None:
        """None: not there, or not to be read."""
        if self._path is None:
            return self._held
        try:
            found = load_file(self._path)
            steps, token = found["place"].tolist()
            return Spent(units=found["spent"], steps=steps, token=token)
        except (OSError, SafetensorError, KeyError, ValueError):
            return None

    def write(self, spent: Spent) -> None:
        if self._path is None:
            self._held = spent
            return
        try:
            place = tensor([spent.steps, spent.token])
            save_tensors({"spent": spent.units, "place": place}, self._path, durable=True)
        except (OSError, SafetensorError):
            raise VaultError("cannot write the meters of this block: is the disk full? Nothing was released") from None

    def delete(self) -> None:
        self._held = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class Store:
    """A private folder: `Store(path)`; only its owner can read it."""

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
        """Names this folder, not its contents: a copy has another inode and so another name."""
        found = self._identity.stat()
        if found.st_nlink > 1:
            raise VaultError(
                f"the store {self.path} is linked from another folder; a store has one place, make a new one"
            )
        place = found.st_ino.to_bytes(16, "big") + found.st_dev.to_bytes(16, "big")
        return hashlib.sha256(self._identity.read_bytes() + place).hexdigest()[:32]

    def journal(self, pin: str) -> Journal:
        opened = Journal(self.path / "grants" / f"{pin}.steps")
        self._journals.add(opened)
        return opened

    def close(self) -> None:
        """Let go of every journal that is held: work that stopped half-way can be taken up again."""
        for journal in list(self._journals):
            journal.close()

    def taker(self, pin: str) -> str | None:
        """The work that took over what is left of this work, if one did."""
        path = self._taken(pin)
        return path.read_text().split()[0] if path.exists() else None

    def take_over(self, pin: str, by: str, drawn: int) -> int:
        """Note, durably, that other work goes on with what is left of this work; the first step that it may draw."""
        path = self._taken(pin)
        if self.taker(pin) == by:
            return int(path.read_text().split()[1])
        draft = path.with_suffix(".new")
        draft.write_text(f"{by} {drawn}\n")
        sync(draft)
        draft.replace(path)
        sync(path.parent)
        return drawn

    def _taken(self, pin: str) -> Path:
        return self.path / "grants" / f"{pin}.taken"

    def save(self, block: str, tensors: dict[str, Tensor]) -> None:
        save_tensors(tensors, self._block(block))

    def load(self, block: str) -> dict[str, Tensor]:
        path = self._block(block)
        if not path.exists():
            raise VaultError(f"the store {self.path} does not hold block {block}; admit its records again")
        try:
            tensors: dict[str, Tensor] = load_file(path)
        except (OSError, SafetensorError):
            raise VaultError(f"block {block} in the store {self.path} is damaged; restore it from a backup") from None
        return tensors

    def tally(self, block: str, pin: str, grant: str) -> Tally:
        return Tally(self.path / "blocks" / f"{block}.{pin}.{grant}.safetensors")

    def tallies(self, block: str, pin: str) -> dict[str, Tally]:
        """The tallies of a meter, by grant: one of them goes on, at most."""
        found = (self.path / "blocks").glob(f"{block}.{pin}.*.safetensors")
        return {path.name.split(".")[2]: Tally(path) for path in sorted(found)}

    def metered(self, block: str) -> list[str]:
        """The pins of a block's meters that did not end."""
        return sorted({path.name.split(".")[1] for path in (self.path / "blocks").glob(f"{block}.*.*.safetensors")})

    def delete(self, block: str) -> None:
        """Forget a block's records and what they have spent."""
        for path in (self.path / "blocks").glob(f"{block}.*"):
            path.unlink(missing_ok=True)

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


def save_tensors(tensors: dict[str, Tensor], path: Path, *, durable: bool = False) -> None:
    """Whole or not at all, and for the owner only. `durable`: also after a power cut, once it returned."""
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
    """A file, or the names in a folder, are on disk when this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
