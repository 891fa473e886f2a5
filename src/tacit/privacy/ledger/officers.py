"""Officers: people whose Ed25519 signatures decisions about a ledger need.

Formal guarantees, for a ledger that has officers:

* A policy, a raise, an accepted roll-back or move, and a change of the officers are written only with as many of their
  signatures as the current policy requires. `verify` checks every signature.
* A signature covers the ledger's id and the previous decision, so it cannot be used twice or for another ledger.

In a ledger without officers the name of who decided is not authenticated, and every view says so.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import Connection, select

from tacit.errors import LedgerError
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.log.chain import canonical, when
from tacit.privacy.ledger.opening import recorded_policy
from tacit.privacy.ledger.storage.tables import log

SIGNED = ("policy", "officer", "raise", "reanchor", "move")
"""The kinds of entries that officers sign."""
NOT_AUTHENTICATED = "not authenticated"
Key = str | Path
"""A key file."""


@dataclass(frozen=True, kw_only=True)
class Officer:
    """A person who may sign decisions."""

    name: str
    public_key: str
    """The 32 bytes of the Ed25519 public key, in base64."""


def registered(connection: Connection) -> dict[str, str]:
    """The public keys of the present officers, by name."""
    officers: dict[str, str] = {}
    query = select(log.c.body).where(log.c.kind == "officer").order_by(log.c.seq)
    for text in connection.execute(query).scalars():
        _apply(officers, json.loads(text))
    return officers


def _apply(officers: dict[str, str], body: Mapping[str, Any]) -> None:
    if body["action"] == "add":
        officers[body["name"]] = body["key"]
    else:
        officers.pop(body["name"], None)


def signed(
    connection: Connection, kind: str, body: Mapping[str, Any], keys: Sequence[Key], *, by: str, why: str
) -> dict[str, Any]:
    """The body of a decision with who, why, when and the required signatures; LedgerError if one is missing."""
    officers = registered(connection)
    first = kind == "officer" and not officers
    signers = _signers(officers | ({body["name"]: body["key"]} if first else {}), keys)
    if not officers and keys and not first:
        raise LedgerError("the ledger has no officers, so no key counts; register one with tacit ledger officers add")
    by = by.strip() or ", ".join(signers)
    require_reason(by, why)
    if signers and by not in (*signers, ", ".join(signers)):
        raise LedgerError(f"the keys given are of {', '.join(signers)}, and not of {by!r}; leave --by out")
    needed = recorded_policy(connection).signatures if officers else int(first)
    if len(signers) < needed:
        raise LedgerError(
            f"this ledger has officers, and this needs the signature of {needed} of them ({', '.join(officers)}); give "
            f"--key FILE for each, got {len(signers)}"
            if officers
            else f"the first officer signs for themselves: give their private key by --key FILE, made by tacit keys "
            f"signing, got {len(signers)} keys"
        )
    whole = {**body, "by": by, "why": why, "at": when(kind)}
    if not signers:
        return whole
    whole |= {"after": _last(connection)}
    text = _message(_ledger(connection), kind, whole)
    marks = {name: base64.b64encode(key.sign(text)).decode() for name, key in signers.items()}
    return {**whole, "signatures": marks}


def require_reason(by: str, why: str) -> None:
    """Refuse an entry without a responsible person or without a reason."""
    if not by.strip() or not why.strip():
        raise LedgerError(f"state by whom and why, the ledger records it; got by={by!r}, why={why!r}")


def check(connection: Connection) -> None:
    """Raise LedgerError at the first decision without the signatures that it needed."""
    officers: dict[str, str] = {}
    needed, ledger, last = 1, _ledger(connection), ""
    query = select(log.c.seq, log.c.kind, log.c.body, log.c.hash).where(log.c.kind.in_(SIGNED)).order_by(log.c.seq)
    for seq, kind, text, sealed in connection.execute(query):
        body = json.loads(text)
        allowed = officers or ({body["name"]: body["key"]} if kind == "officer" else {})
        if allowed:
            valid = _valid(ledger, kind, body, allowed) if body.get("after") == last else 0
            if valid < (needed if officers else 1):
                raise LedgerError(
                    f"entry {seq} of the log ({kind}) lacks the signature of an officer; somebody without a key wrote "
                    "it, restore the ledger from a backup"
                )
        if kind == "officer":
            _apply(officers, body)
        if kind == "policy":
            needed = Policy.parse(body["policy"], where="the ledger's policy").signatures
        last = sealed


def _valid(ledger: str, kind: str, body: Mapping[str, Any], officers: Mapping[str, str]) -> int:
    """The number of officers whose signatures of this body are valid."""
    plain = {key: value for key, value in body.items() if key != "signatures"}
    text, signers = _message(ledger, kind, plain), set()
    for name, mark in body.get("signatures", {}).items():
        try:
            Ed25519PublicKey.from_public_bytes(base64.b64decode(officers[name])).verify(base64.b64decode(mark), text)
        except (KeyError, ValueError, InvalidSignature):
            continue
        signers.add(officers[name])
    return len(signers)


def public_of(file: Key) -> str:
    """The public key in a file that holds a public or a private key."""
    try:
        raw = Path(file).read_bytes()
    except OSError as error:
        raise LedgerError(f"cannot read the key {file}: {error.strerror}") from None
    try:
        if b"PRIVATE" in raw:
            return _text(_private(file).public_key())
        key = serialization.load_pem_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise LedgerError(f"{file} is not an Ed25519 public key; give the .pub file that tacit keys signing wrote")
    return _text(key)


def _signers(officers: Mapping[str, str], keys: Sequence[Key]) -> dict[str, Ed25519PrivateKey]:
    """The private keys by the names of their officers; a key that is no officer's is refused."""
    names = {key: name for name, key in officers.items()}
    signers: dict[str, Ed25519PrivateKey] = {}
    for file in keys:
        private = _private(file)
        public = _text(private.public_key())
        if officers and public not in names:
            raise LedgerError(
                f"the key {file} does not belong to an officer of this ledger; its officers are {', '.join(officers)}"
            )
        signers[names.get(public, "")] = private
    return signers


def _private(file: Key) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(Path(file).read_bytes(), password=None)
    except OSError as error:
        raise LedgerError(f"cannot read the key {file}: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise LedgerError(f"{file} is not an Ed25519 private key; make one with tacit keys signing")
    return key


def _text(key: Ed25519PublicKey) -> str:
    return base64.b64encode(key.public_bytes_raw()).decode()


def _message(ledger: str, kind: str, body: Mapping[str, Any]) -> bytes:
    return b"tacit ledger decision 1\n" + canonical({"ledger": ledger, "kind": kind, "body": body}).encode()


def _ledger(connection: Connection) -> str:
    return str(json.loads(connection.execute(select(log.c.body).where(log.c.seq == 1)).scalar_one())["id"])


def _last(connection: Connection) -> str:
    """The hash of the previous decision."""
    query = select(log.c.hash).where(log.c.kind.in_(SIGNED)).order_by(log.c.seq.desc()).limit(1)
    return str(connection.execute(query).scalar_one())
