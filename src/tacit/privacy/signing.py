"""Ed25519 signatures on certificates, with a key the user holds.

Guarantee: `verify` needs the file and the public key alone; it fails if any character that matters was changed, and it
prices the events in the certificate again, so a signed number that its own events do not support fails too.
"""

import base64
import json
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.errors import CertificateError
from tacit.privacy.certificate import Certificate, Signature
from tacit.privacy.repricing import reprice

__all__ = ["new_key", "reprice", "sign", "verify", "verify_own"]


def new_key(path: str | Path) -> Path:
    """Make a private signing key (owner-only) and write its public half beside it; returns the public key's path."""
    private, public = Path(path), Path(f"{path}.pub")
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
    except FileExistsError:
        raise CertificateError(f"{private} exists; choose another name, keys are never overwritten") from None
    except OSError as error:
        raise CertificateError(f"cannot write the signing key {private}: {error.strerror}") from None
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return public


def sign(certificate: Certificate, key: str | Path) -> Certificate:
    """The certificate with a signature; `key` is the path of a private key made by `new_key`."""
    try:
        private = serialization.load_pem_private_key(Path(key).read_bytes(), password=None)
    except OSError as error:
        raise CertificateError(f"cannot read the signing key {key}: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise CertificateError(f"{key} is not an Ed25519 private key; make one with `tacit keys signing`")
    reprice(certificate)  # nobody should sign a number that its own events do not support
    public = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    draft = Signature(public_key=base64.b64encode(public).decode(), value="", covers="certificate and public key")
    value = base64.b64encode(private.sign(_payload(certificate, draft))).decode()
    return certificate.model_copy(update={"signature": draft.model_copy(update={"value": value})})


def _payload(certificate: Certificate, signature: Signature) -> bytes:
    """What is signed: the certificate, and what stands beside the signature itself."""
    if signature.covers == "certificate":  # the first signatures
        return certificate.canonical()
    beside = signature.model_dump(mode="json", exclude={"value"})
    return json.dumps(beside, sort_keys=True, separators=(",", ":")).encode() + b"\n" + certificate.canonical()


def verify(certificate: Certificate, public_key: str | Path) -> None:
    """Raise CertificateError unless this key signed exactly this certificate and its numbers follow from its events."""
    if certificate.signature is None:
        raise CertificateError("this certificate is not signed; ask its issuer for a signed one")
    try:
        public = serialization.load_pem_public_key(Path(public_key).read_bytes())
    except OSError as error:
        raise CertificateError(f"cannot read the public key {public_key}: {error.strerror}") from None
    except (ValueError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, Ed25519PublicKey):
        raise CertificateError(f"{public_key} is not an Ed25519 public key; ask the issuer for theirs")
    _check(certificate, certificate.signature, public)


def verify_own(certificate: Certificate) -> str:
    """The same with the public key that the certificate names, which is returned: whose it is, the caller must know."""
    if certificate.signature is None:
        raise CertificateError("this certificate is not signed; ask its issuer for a signed one")
    try:
        named = base64.b64decode(certificate.signature.public_key, validate=True)
        public = Ed25519PublicKey.from_public_bytes(named)
    except ValueError:
        raise CertificateError("the certificate names no Ed25519 public key; ask its issuer for the original") from None
    _check(certificate, certificate.signature, public)
    return certificate.signature.public_key


def _check(certificate: Certificate, signature: Signature, public: Ed25519PublicKey) -> None:
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    try:
        public.verify(base64.b64decode(signature.value), _payload(certificate, signature))
        same = base64.b64decode(signature.public_key) == raw
    except (InvalidSignature, ValueError):
        same = False
    if not same:
        raise CertificateError(
            "the signature does not fit: this certificate was changed after it was signed, or another key signed it"
        )
    reprice(certificate)
