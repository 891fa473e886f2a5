"""Ed25519 signatures of certificates.

Formal guarantees: `verify` needs only the certificate and the public key. It fails if the content was changed, and,
since it prices the events again, if the certified ε is smaller than what the listed events cost.
"""

import base64
import json
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.certificate.certificate import Certificate
from tacit.certificate.repricing import reprice
from tacit.certificate.sections import Signature
from tacit.errors import CertificateError

__all__ = ["new_key", "reprice", "sign", "verify", "verify_own"]


def new_key(path: str | Path) -> Path:
    """Generate a signing key.

    Args:
        path: The private key's file (owner-only); the public key is written to `<path>.pub`.

    Returns:
        The path of the public key.

    Raises:
        CertificateError: The file exists or cannot be written.
    """
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
    """Sign a certificate.

    Args:
        certificate: The certificate; its numbers must follow from its events.
        key: The file of a private key made by `new_key`.

    Returns:
        The certificate with its signature.

    Raises:
        CertificateError: The key cannot be read, or the certificate states less than its events cost.
    """
    try:
        private = serialization.load_pem_private_key(Path(key).read_bytes(), password=None)
    except OSError as error:
        raise CertificateError(f"cannot read the signing key {key}: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise CertificateError(f"{key} is not an Ed25519 private key; make one with `tacit keys signing`")
    reprice(certificate)  # never sign a number that its own events do not support
    public = private.public_key().public_bytes_raw()
    draft = Signature(public_key=base64.b64encode(public).decode(), value="", covers="certificate and public key")
    value = base64.b64encode(private.sign(_payload(certificate, draft))).decode()
    return certificate.model_copy(update={"signature": draft.model_copy(update={"value": value})})


def _payload(certificate: Certificate, signature: Signature) -> bytes:
    """The signed bytes: the certificate and the signature's other fields."""
    if signature.covers == "certificate":  # as the first versions signed
        return certificate.canonical()
    beside = signature.model_dump(mode="json", exclude={"value"})
    return json.dumps(beside, sort_keys=True, separators=(",", ":")).encode() + b"\n" + certificate.canonical()


def verify(certificate: Certificate, public_key: str | Path) -> None:
    """Check a signature and price the events again.

    Args:
        certificate: A signed certificate.
        public_key: The file of the issuer's public key.

    Raises:
        CertificateError: The certificate is not signed by this key, was changed, or states less than its events cost.
    """
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
    """Check a signature with the public key in the certificate, and return that key; whose it is, the caller must
    know."""
    if certificate.signature is None:
        raise CertificateError("this certificate is not signed; ask its issuer for a signed one")
    try:
        raw = base64.b64decode(certificate.signature.public_key, validate=True)
        public = Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        raise CertificateError("the certificate names no Ed25519 public key; ask its issuer for the original") from None
    _check(certificate, certificate.signature, public)
    return certificate.signature.public_key


def _check(certificate: Certificate, signature: Signature, public: Ed25519PublicKey) -> None:
    raw = public.public_bytes_raw()
    try:
        public.verify(base64.b64decode(signature.value), _payload(certificate, signature))
        same = base64.b64decode(signature.public_key) == raw
    except (InvalidSignature, ValueError):
        same = False
    if not same:
        raise CertificateError(
            "the signature is not valid: this certificate was changed after it was signed, or another key signed it"
        )
    reprice(certificate)
