"""The secret keys of a ledger: one identity key, and generations of sampler and noise keys.

Formal guarantees
  * Every key comes from operating-system entropy, never from a run's `seed`. Sampler and noise keys are independent.
  * Each (purpose, grant, block, …) has its own subkey by HMAC-SHA256, so no two draws share a key stream.

Conditions: the key file is secret. Whoever holds a generation's noise key can subtract its noise from what was
released. The file is readable by its owner only, backups are encrypted, and `rotate` destroys generations that no
unfinished grant needs. The identity key lives as long as the ledger: it recognises streams, blocks and persons.
"""

import base64
import hashlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from tacit.errors import LedgerError, PlanError

SAMPLER = "sampler"
NOISE = "noise"


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A generation of secret keys: one for sampling, one for noise."""

    number: int
    sampler: bytes = field(repr=False)
    noise: bytes = field(repr=False)


class KeyRing:
    """The keys of one ledger, in an owner-only file beside it, or in memory for a throw-away ledger."""

    def __init__(
        self, identity: bytes, generations: list[Generation], path: Path | None, *, test: bool | None = False
    ) -> None:
        self.test = test
        """Whether these are test keys, which anyone can recompute: nothing here is private. None: not known."""
        self._identity = identity
        self._generations = {generation.number: generation for generation in generations}
        self._path = path

    @classmethod
    def create(cls, path: Path | None) -> "KeyRing":
        """New keys from operating-system entropy; refuses to overwrite a key file."""
        ring = cls(secrets.token_bytes(32), [_fresh(1)], path)
        ring._write(exclusive=True)
        return ring

    @classmethod
    def for_tests(cls, seed: int) -> "KeyRing":
        """Reproducible keys for tests. Certificates of their ledger say *not private*."""
        root = hashlib.sha256(f"tacit test keys {seed}".encode()).digest()
        generation = Generation(number=1, sampler=_sub(root, "s"), noise=_sub(root, "n"))
        return cls(_sub(root, "i"), [generation], None, test=True)

    @classmethod
    def absent(cls, *, test: bool | None) -> "KeyRing":
        """A ring without keys, for read-only access to a ledger; `test` is what the ledger says of them."""
        return cls(b"", [], None, test=test)

    @property
    def present(self) -> bool:
        """Whether there are keys."""
        return bool(self._identity)

    @classmethod
    def load(cls, path: Path) -> "KeyRing":
        """Reads a key file.

        Raises:
            LedgerError: If the file is missing, damaged or cannot be read.
        """
        try:
            return cls._parse(path.read_bytes(), path)
        except FileNotFoundError:
            raise LedgerError(
                f"the key file {path} is missing and the ledger is useless without it; use `tacit keys restore`"
            ) from None
        except OSError as error:
            raise LedgerError(f"cannot read the key file {path}: {error.strerror}; check its owner") from None

    @property
    def generation(self) -> int:
        """The generation that new grants use."""
        return max(self._generations)

    def identity(self, *parts: str | bytes) -> str:
        """A keyed name: a function of the parts that nobody without the key can compute, as a hex string."""
        if not self.present:
            raise LedgerError("the ledger was opened without its keys, and this needs them; restore the .keys file")
        return self.subkey(self._identity, *parts).hex()

    @property
    def identity_key(self) -> bytes:
        """The key for hashing records and ids; it stays inside the vault."""
        return self._identity

    def derive(self, purpose: str, generation: int, *context: str) -> bytes:
        """A 256-bit key for one stream of coins or noise.

        Args:
            purpose: `SAMPLER` or `NOISE`.
            generation: The generation that the grant was made under.
            context: What the stream is for: grant, block, rank, …

        Raises:
            LedgerError: If the generation was destroyed.
        """
        if generation not in self._generations:
            raise LedgerError(
                f"key generation {generation} was destroyed by a rotation; its grants cannot be resumed; use new ones"
            )
        root = getattr(self._generations[generation], purpose)
        return self.subkey(root, *context)

    def rotate(self, keep: set[int]) -> int:
        """Creates a new generation, destroys all others that are not in `keep`, and returns the new number."""
        number = self.generation + 1
        kept = {n: g for n, g in self._generations.items() if n in keep}
        self._generations = {**kept, number: _fresh(number)}
        self._write(exclusive=False)
        return number

    def backup(self, passphrase: str) -> bytes:
        """The keys, encrypted under a passphrase (scrypt, AES-256-GCM)."""
        if len(passphrase) < 12:
            raise PlanError(f"a passphrase needs at least 12 characters, got {len(passphrase)}")
        salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
        sealed = AESGCM(_stretch(passphrase, salt)).encrypt(nonce, self._bytes(), b"tacit keys 1")
        return b"TACITKEYS1" + salt + nonce + sealed

    @classmethod
    def restore(cls, sealed: bytes, passphrase: str, path: Path) -> "KeyRing":
        """Writes backed-up keys to `path`, which must not exist."""
        if not sealed.startswith(b"TACITKEYS1"):
            raise LedgerError("this file is not a backup of tacit keys; pass the file that `tacit keys backup` wrote")
        salt, nonce, box = sealed[10:26], sealed[26:38], sealed[38:]
        try:
            plain = AESGCM(_stretch(passphrase, salt)).decrypt(nonce, box, b"tacit keys 1")
        except InvalidTag:
            raise LedgerError("the passphrase is wrong or the backup is damaged; nothing was restored") from None
        ring = cls._parse(plain, path)
        ring._write(exclusive=True)
        return ring

    @staticmethod
    def subkey(key: bytes, *parts: str | bytes) -> bytes:
        """HMAC-SHA256 of the parts under a key."""
        mac = hmac.new(key, digestmod=hashlib.sha256)
        for part in parts:  # length-prefixed, so that ("ab", "c") and ("a", "bc") differ
            raw = part.encode() if isinstance(part, str) else part
            mac.update(len(raw).to_bytes(8, "big") + raw)
        return mac.digest()

    @classmethod
    def _parse(cls, raw: bytes, path: Path) -> "KeyRing":
        try:
            data = json.loads(raw)
            generations = [
                Generation(number=g["number"], sampler=_unpack(g["sampler"]), noise=_unpack(g["noise"]))
                for g in data["generations"]
            ]
            return cls(_unpack(data["identity"]), generations, path, test=bool(data["test"]))
        except (ValueError, KeyError, TypeError):
            raise LedgerError(f"the key file {path} is damaged; restore it with `tacit keys restore`") from None

    def _bytes(self) -> bytes:
        generations = [
            {"number": g.number, "sampler": _pack(g.sampler), "noise": _pack(g.noise)}
            for g in self._generations.values()
        ]
        data = {"format": 1, "test": self.test, "identity": _pack(self._identity), "generations": generations}
        return json.dumps(data).encode()

    def _write(self, *, exclusive: bool) -> None:
        if self._path is None:
            return
        if exclusive and self._path.exists():
            raise LedgerError(f"{self._path} exists; move it away first, keys are never overwritten")
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(self._bytes())
                file.flush()
                os.fsync(file.fileno())
            if exclusive:
                os.link(draft, self._path)  # fails if another process was first
                draft.unlink()
            else:
                draft.replace(self._path)
        except FileExistsError:
            draft.unlink(missing_ok=True)
            raise LedgerError(f"{self._path} exists; move it away first, keys are never overwritten") from None
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise LedgerError(f"cannot write the key file {self._path}: {error.strerror}") from None


def _fresh(number: int) -> Generation:
    return Generation(number=number, sampler=secrets.token_bytes(32), noise=secrets.token_bytes(32))


def _sub(root: bytes, name: str) -> bytes:
    return KeyRing.subkey(root, name)


def _stretch(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(passphrase.encode())


def _pack(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _unpack(text: str) -> bytes:
    raw = base64.b64decode(text, validate=True)
    if len(raw) != 32:
        raise ValueError("a key has 32 bytes")
    return raw
