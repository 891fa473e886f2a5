"""The secrets of a ledger: one key that names things, and generations of keys that toss coins and draw noise.

Guarantee: every key comes from operating-system entropy (never from a run's `seed`); sampler and noise keys are
different keys; each (purpose, grant, block, …) gets its own subkey through HMAC-SHA256, so no two draws share a
stream. Whoever holds a generation's noise key can subtract its noise from what was released: the file is
owner-only, backed up encrypted, and `rotate` destroys generations that no open grant needs.

The identity key lives as long as the ledger: it is what finds a stream, a block or a person again.
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
    """One pair of secret keys."""

    number: int
    sampler: bytes = field(repr=False)
    noise: bytes = field(repr=False)


class KeyRing:
    """The keys of one ledger, in an owner-only file beside it, or in memory for throw-away ledgers."""

    def __init__(
        self, identity: bytes, generations: list[Generation], path: Path | None, *, test: bool = False
    ) -> None:
        self.test = test
        """Keys that anyone can recompute were in use once: nothing of this ledger is private, for ever."""
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
        """Keys anyone can recompute: reproducible, and certified as *not private*."""
        root = hashlib.sha256(f"tacit test keys {seed}".encode()).digest()
        generation = Generation(number=1, sampler=_sub(root, "s"), noise=_sub(root, "n"))
        return cls(_sub(root, "i"), [generation], None, test=True)

    @classmethod
    def absent(cls) -> "KeyRing":
        """No keys: for looking at a ledger. Whatever needs one is refused."""
        return cls(b"", [], None)

    @property
    def present(self) -> bool:
        """Whether there are keys."""
        return bool(self._identity)

    @classmethod
    def load(cls, path: Path) -> "KeyRing":
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
        """A keyed name: the same parts give the same hex string, and nobody without the key can test a guess."""
        if not self.present:
            raise LedgerError("the ledger was opened without its keys, and this needs them; restore the .keys file")
        return self.subkey(self._identity, *parts).hex()

    @property
    def identity_key(self) -> bytes:
        """For hashing many units; stays inside the vault."""
        return self._identity

    def derive(self, purpose: str, generation: int, *context: str) -> bytes:
        """A 256-bit AES key for one stream of coins or noise."""
        if generation not in self._generations:
            raise LedgerError(
                f"key generation {generation} was destroyed by a rotation; its grants cannot go on, ask for a new one"
            )
        root = getattr(self._generations[generation], purpose)
        return self.subkey(root, *context)

    def rotate(self, keep: set[int]) -> int:
        """Make a new generation and destroy every older one that is not in `keep`; returns the new number."""
        number = self.generation + 1
        kept = {n: g for n, g in self._generations.items() if n in keep}
        self._generations = {**kept, number: _fresh(number)}
        self._write(exclusive=False)
        return number

    def backup(self, passphrase: str) -> bytes:
        """The ring, encrypted (scrypt, AES-256-GCM). Without the passphrase it says nothing."""
        if len(passphrase) < 12:
            raise PlanError(f"a passphrase needs at least 12 characters, got {len(passphrase)}")
        salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
        sealed = AESGCM(_stretch(passphrase, salt)).encrypt(nonce, self._bytes(), b"tacit keys 1")
        return b"TACITKEYS1" + salt + nonce + sealed

    @classmethod
    def restore(cls, sealed: bytes, passphrase: str, path: Path) -> "KeyRing":
        """Write a backed-up ring to `path`; never over an existing file."""
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
        return json.dumps(
            {"format": 1, "test": self.test, "identity": _pack(self._identity), "generations": generations}
        ).encode()

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
